"""Tags of words: named entities and the like.

Read `task` first, then `words`.
"""
