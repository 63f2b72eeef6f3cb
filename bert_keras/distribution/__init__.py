"""Devices, replicas, and sums over replicas.

Read `strategy` first, then `replicas`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bert_keras import lazy_names

if TYPE_CHECKING:
    from bert_keras.distribution.strategy import find_strategy as find_strategy

_PLACES = {"find_strategy": "strategy"}
__all__ = [*sorted(_PLACES)]
if not TYPE_CHECKING:  # otherwise type checkers accept any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
