"""Decoding: what a decoder writes, token by token, in the TensorFlow graph.

Read `settings`, then `search`. Ids become text in `text.detokenizer`.
"""
