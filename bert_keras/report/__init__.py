"""HTML reports, charts, and tables for the terminal.

Read `report` first: it chooses the contents. `templates` holds the page's layout,
`page` fills it, `tables` and `curves` prepare its parts, and `charts` draws.
"""
