"""Bytes on disk and in buckets, without any knowledge of what a file means.

Reading: `streams` (text of any size, compressed or not) on `filesystems` (local, or any
of fsspec), and `json_file`. Writing: `atomic` (whole or not at all) with `unfinished`
and `places`, `json_text`, and `records` (TFRecord).
"""
