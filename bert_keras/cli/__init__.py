"""The command line: one verb, one library call.

Read `main` and `parser` first. The module of a verb holds its own arguments;
`arguments` and `options` hold the arguments that several verbs share.
"""
