"""What an explanation is of: the words of texts, the rows of a model, and a number.

Read `words`, `targets`, `item`, in that order. Tasks make targets of an item in
`explained`; `explanations` attributes them to words.
"""
