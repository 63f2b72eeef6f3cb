"""How a text becomes what a head reads, in one place for all tasks.

Read `text_vector` first: prompts, truncation or windows, pooling. `windows` reads texts
longer than a row, `term_vector` gives a weight for each token of the vocabulary,
`layers` names the hidden states that are read, and `dense` holds the layers on them.
No task is known here.
"""
