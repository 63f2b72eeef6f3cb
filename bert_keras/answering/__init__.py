"""What computes the answers of texts, in Keras, an export or an engine.

Read `backend` first: a task with what computes its model. `answering` is what a
`Predictor` asks, without TensorFlow; `answer_graphs` answers by graphs of TensorFlow,
with `frozen_weights` where this makes them faster.
"""
