"""Bytes on disk and in buckets, without any knowledge of what a file means.

Reading: `streams` (text of any size, compressed or not) on `filesystems` (local, or any
of fsspec), `parquet`. Writing: `atomic` (complete or not at all).
Both: `json_file`, `records` (TFRecord). `lfs` recognizes pointers in place of files.
"""
