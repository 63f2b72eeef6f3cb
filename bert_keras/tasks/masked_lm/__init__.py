"""Masked LM: the words that fit at each [MASK].

Read `task` first; `texts` hides tokens of texts and fills them in.
"""
