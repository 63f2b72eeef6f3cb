"""Question answering: the span of a text that answers a question, or that none does.

Read `task` first, then `spans` and `answers`.
"""
