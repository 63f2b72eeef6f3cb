"""Bytes on disk: files and folders written whole or not at all, streams, TFRecord.

Read `atomic` first, then `streams`, then `records`. Nothing here knows what a file
means.
"""
