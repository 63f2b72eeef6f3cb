"""Ids and answers without TensorFlow, compared with TensorFlow's: `check_equal`."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.answering.answering import Parts
from bert_keras.errors import one_line, shown
from bert_keras.exports.answers_graph import NeedsTensorFlow
from bert_keras.text.preprocessor import as_tensors, one_or_all

_CLOSE = 1e-5
_RANDOM, _LONGEST = 200, 60  # texts, and their characters and tokens
# Letters of all kinds: accents, controls, spaces, marks, CJK, emoji, private use.
_CHARACTERS = (
    "aZéÀßſﬁİΣçåñ 0.,!?'\"#[]{}-_\t\n\r\u00a0\u00ad\u200b\u2028\u3000\ufffd\x00\x7f"
    "\u0301\u0327\u0e33кйЖ世界日本語한국어हिन्दीعربى½²™…“”€\U0001f600\ue000\U00020000"
)


def check_equal(found: Any, model: Any, function: Any, texts: Parts | None) -> None:
    """Raise NeedsTensorFlow unless ids and answers equal TensorFlow's.

    Args:
        found: the `EngineModel` without TensorFlow.
        model: the task model.
        function: the answers in TensorFlow, see `answers_function`.
        texts: N texts of each role.
    """
    task, rows = model.task, found.preprocessor
    draw = random.Random(0)
    tokens = [
        *model.preprocessor.tokenizer.vocabulary,
        *(each.content for each in model.preprocessor.tokenizer.added_tokens),
    ]
    roles = len(task.roles)
    given: list[Parts] = [tuple(_texts(draw, tokens) for _ in range(roles))]
    given += [] if texts is None else [texts]
    graph = found.graph_preprocessor
    for parts in given:
        tokenized = rows.tokenize(task.reader, parts)
        ours = rows.batch(task.reader, tokenized)
        theirs = task.features(graph, one_or_all(_tensors(parts)))
        for name, values in ours.items():
            wanted = theirs[name].numpy()
            if not np.array_equal(values, wanted):
                raise NeedsTensorFlow(_difference(rows, graph, parts, name))
    _check_answers(found.answers, function)


def _tensors(parts: Parts) -> tuple[Any, ...]:
    tensors = as_tensors(parts)
    return tensors if isinstance(tensors, tuple) else (tensors,)


def _texts(draw: random.Random, tokens: list[str]) -> list[str]:
    """Return random texts of characters, and of tokens of the vocabulary."""
    found = ["", " "]
    for _ in range(_RANDOM):
        size = draw.randrange(_LONGEST)
        found.append("".join(draw.choices(_CHARACTERS, k=size)))
        found.append(
            "".join(
                f"{x}{draw.choice(_CHARACTERS)}"
                for x in draw.choices(tokens, k=draw.randrange(_LONGEST // 4))
            )
        )
    return found


def _difference(rows: Any, graph: Any, parts: Parts, name: str) -> str:
    """Return which text `tokenizers` splits otherwise, if it is so."""
    for text in (text for part in parts for text in part):
        ours = rows.tokenizer([text])[0].ids
        theirs = graph.tokenizer([text]).to_list()[0]
        if ours != theirs:
            return (
                f"`tokenizers` splits {shown(text)} into the ids {shown(ours)}, the "
                f"graph into {shown(theirs)}"
            )
    return f"`{name}` of its texts differs from the graph's"


def _check_answers(answers: Any, function: Any) -> None:
    """Raise NeedsTensorFlow unless answers to random outputs are TensorFlow's."""
    draw = np.random.default_rng(0)
    for scale in (1.0, 10.0):
        given: dict[str, np.ndarray] = {}
        for tensor in function.inputs:
            name = tensor.name.partition(":")[0]
            shape = [size or 5 for size in tensor.shape.as_list()]
            if tensor.dtype.is_integer:
                # Each window starts a text, so that these are as many.
                given[name] = np.ones(shape, tensor.dtype.as_numpy_dtype)
            else:
                given[name] = (scale * draw.normal(size=shape)).astype("float32")
        tensors = {name: tf.constant(values) for name, values in given.items()}
        wanted = {k: v.numpy() for k, v in function(**tensors).items()}
        try:
            found = answers(given)
        except Exception as error:  # of any kind in engines
            raise NeedsTensorFlow(
                f"the engine does not compute its answers: {one_line(error)}"
            ) from None
        for name, values in wanted.items():
            is_number = values.dtype.kind == "f"
            near = (
                np.allclose(found[name], values, atol=_CLOSE)
                if is_number
                else (np.array_equal(found[name], values))
            )
            if not near:
                raise NeedsTensorFlow(
                    f"the answer `{name}` differs from TensorFlow's in the engine"
                )
