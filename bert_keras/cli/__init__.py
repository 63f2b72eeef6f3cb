"""The command line: one verb, one library call.

Read `main` first; `arguments` holds what each verb takes.
"""
