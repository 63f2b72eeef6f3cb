"""A new BERT: documents to shards, shards to batches, batches to weights.

Read `data`, `shards` and `manifest` for the data; `pretrain`, `plan`, `input` and
`loop` for the training; `beam` for corpora that one machine cannot hold.
"""
