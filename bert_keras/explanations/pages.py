"""Pages and notebook views of explanations; the templates are in `report`."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import markupsafe

from bert_keras.files.json_file import json_text
from bert_keras.report.page import render, script_values

_HEIGHT = 640  # pixels of a page in a notebook


def scripted_page(
    name: str, *, title: str, data: Mapping[str, Any], **values: str
) -> str:
    """Return a page from the template `NAME.html` with the script `NAME.js`.

    Its content security policy allows no other script, and no request.

    Args:
        name: the name of both files.
        title: heading of the page.
        data: the data that the script draws.
        **values: further values of the template.
    """
    # `<` could end the element that holds the data.
    text = json_text(data, ensure_ascii=True).replace("<", "\\u003c")
    return render(
        f"{name}.html",
        **values,
        **script_values(f"{name}.js"),
        title=title,
        data=markupsafe.Markup(text),
    )


def framed(page: str) -> str:
    """Return a page in a frame, isolated from the styles of a notebook."""
    # The policy has the hash of the script's characters: the encoding does not matter.
    source = html.escape(page).encode("ascii", "xmlcharrefreplace").decode("ascii")
    return (
        f'<iframe srcdoc="{source}" sandbox="allow-scripts" '
        f'style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'
    )
