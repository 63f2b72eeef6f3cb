"""How a text becomes what a head reads, in one place for all tasks.

Read `text_vector` first: prompts, truncation or windows, pooling. `windows` reads texts
longer than a row, `term_vector` gives a weight for each token of the vocabulary,
`late_interaction` a vector for each token of the text, `layers` names the hidden states
that are read, and `dense` holds the layers on them. `token_windows` reads long texts
whose tokens are answered one by one, and `choices` a text with each of several others.
`token_rows` makes the rows of all of these without TensorFlow.
No task is known here.
"""
