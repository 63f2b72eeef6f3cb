"""Tags of words: named entities and the like.

Read `task` first, then `words` and `word_tags`; `feature_tagging` keeps the
encoder frozen.
"""
