"""Labelled rows: the files and columns of users.

Read `table` first, then `rows` and `memory`, from which it reads; `tagged` reads words
with tags, `squad` questions and answers. `items` takes the texts of a prediction.
"""
