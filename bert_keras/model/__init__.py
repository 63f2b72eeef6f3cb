"""Keras layers and functional models: the encoder and its heads.

Read `layers`, `block`, `encoder`, `heads`, in that order. The room imports Keras and
NumPy alone, so the models also train where TensorFlow is not installed.
"""
