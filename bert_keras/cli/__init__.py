"""The command line: one verb, one library call.

Read `main` and `parser` first. The module of a verb holds its own arguments, and
`arguments` and `options` those that several verbs share.
"""
