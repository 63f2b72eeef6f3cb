"""Selects the tokens whose outputs are needed from the last block.

Heads read few tokens: a pooler the first of each text, a masked-LM head the masked
ones. In the last block the other tokens serve as keys and values only.
"""

from __future__ import annotations

from typing import Any

from keras import ops


class EveryToken:
    """All tokens of all rows.

    Args:
        x: [B, T, H], what goes into a block.
        bias: float32 [B, 1, 1 or T, T], added to the attention scores.

    Attributes:
        x: [Q, H], that of the wanted tokens alone.
        count: how many of them share their keys, q.
        bias: float32 [Q / q, 1, 1 or q, T], that of these tokens.
    """

    def __init__(self, x: Any, bias: Any) -> None:
        self._shape = shape_of(x)
        self.x = ops.reshape(x, (-1, x.shape[-1]))
        self.count = self._shape[1]
        self.bias = bias

    def of_row(self, values: Any) -> Any:
        """Repeat values [B, …] for each group of tokens that share them."""
        return values

    def laid(self, x: Any) -> Any:
        """Reshape [Q, H] to the block's output shape."""
        return ops.reshape(x, self._shape)


class FirstTokens(EveryToken):
    """The first token of each text, `x` [S, H].

    Args:
        x, bias: as of `EveryToken`.
        cls_positions: int32 [S], their places in the B*T tokens, for packed rows.
    """

    def __init__(self, x: Any, bias: Any, cls_positions: Any) -> None:
        self.x, self.count = first_tokens(x, cls_positions), 1
        self._rows = None  # one text a row
        if cls_positions is None:
            self.bias = bias[:, :, :1]
            return
        length = ops.shape(x)[1]
        self._rows = cls_positions // length
        if bias.shape[2] == 1:
            self.bias = self.of_row(bias)
        else:
            by_token = ops.reshape(bias, (-1, 1, 1, length))
            self.bias = ops.take(by_token, cls_positions, axis=0)

    def of_row(self, values: Any) -> Any:
        return values if self._rows is None else ops.take(values, self._rows, axis=0)

    def laid(self, x: Any) -> Any:
        return x


class TokensAt(EveryToken):
    """Some tokens of each row, as many of each.

    Args:
        x, bias: as of `EveryToken`.
        columns: int32 [B, P]; below 0 is read as 0.
    """

    def __init__(self, x: Any, bias: Any, columns: Any) -> None:
        rows, count = shape_of(columns)
        self._shape = (rows, count, x.shape[-1])
        self.x, self.count, self.bias = tokens_at(x, columns), count, bias
        if bias.shape[2] != 1:
            shape = (rows, 1, count, shape_of(x)[1])
            self.bias = ops.reshape(tokens_at(bias[:, 0], columns), shape)


def first_tokens(x: Any, cls_positions: Any = None) -> Any:
    """Return the first token of each text, [B, H] or [S, H], of `x` [B, T, H].

    `cls_positions` int32 [S] are their places in the B*T tokens, for packed rows.
    """
    if cls_positions is None:
        return x[:, 0]
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), cls_positions, axis=0)


def tokens_at(x: Any, columns: Any) -> Any:
    """Gather `x` [B, T, D] at `columns` int32 [B, P]; returns [B * P, D].

    Columns below 0 are read as 0.
    """
    rows, length, width = shape_of(x)
    columns = ops.maximum(ops.cast(columns, "int32"), 0)
    places = ops.arange(rows, dtype="int32")[:, None] * length + columns
    return ops.take(ops.reshape(x, (-1, width)), ops.reshape(places, (-1,)), axis=0)


def shape_of(x: Any) -> tuple[Any, ...]:
    """Return the shape of `x`, with static sizes as numbers."""
    return tuple(
        ops.shape(x)[axis] if size is None else size
        for axis, size in enumerate(x.shape)
    )
