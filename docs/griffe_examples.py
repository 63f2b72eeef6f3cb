"""Lets griffe read our `Example:` sections, whose name in its parser is `Examples:`."""

from __future__ import annotations

import re
from typing import Any

import griffe


class ReadExamples(griffe.Extension):
    """Rename the sections before docstrings are parsed."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.M)
            obj.docstring.value = text
