"""Question answering: the span of a text that answers a question, or that none does.

Read `task` first, then `windows`, `spans` and `answers`; `rows` knows where the answers
of a data set stand.
"""
