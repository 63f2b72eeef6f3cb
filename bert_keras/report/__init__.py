"""What people look at: HTML reports, charts, tables for the terminal.

Read `report` first; `page` and `charts` are what it is made of.
"""
