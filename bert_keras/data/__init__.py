"""Labelled rows: the files and columns of users.

Read `rows` first, then `table`; `tagged` reads words with tags, `squad`
questions and answers.
"""
