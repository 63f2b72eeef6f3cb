"""What people look at: HTML reports, charts, tables for the terminal.

Read `report` first: it says what is shown. `templates` says how it looks, `charts`
draws.
"""
