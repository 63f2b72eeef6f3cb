"""Read labelled rows from files, tables and columns.

Read `table` first, then `rows` and `memory`, which it builds on; `tagged` reads words
with tags, `squad` questions and answers. `items` accepts the texts to predict on.
"""
