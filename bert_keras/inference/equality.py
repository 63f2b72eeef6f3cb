"""Ids and answers without TensorFlow, compared with TensorFlow's: `check_equal`."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.answering.answer_graphs import ranks_of
from bert_keras.answering.answering import Parts
from bert_keras.errors import one_line, shown
from bert_keras.exports.answers_graph import NeedsTensorFlow, OtherIds
from bert_keras.tasks.protocols import Spelling, input_specs
from bert_keras.text.preprocessor import as_tensor, one_or_all

_CLOSE = 1e-5
_RANDOM, _LONGEST = 200, 60  # texts, and their characters and tokens
# Letters of all kinds: accents, controls, spaces, marks, CJK, emoji, private use.
_CHARACTERS = (
    "aZéÀßſﬁİΣçåñ 0.,!?'\"#[]{}-_\t\n\r\u00a0\u00ad\u200b\u2028\u3000\ufffd\x00\x7f"
    "\u0301\u0327\u0e33кйЖ世界日本語한국어हिन्दीعربى½²™…“”€\U0001f600\ue000\U00020000"
)


def check_equal(
    found: Any, model: Any, function: Any, texts: Parts | None
) -> dict[str, Any]:
    """Raise NeedsTensorFlow unless ids and answers equal TensorFlow's.

    It is `OtherIds` if the ids differ.

    Args:
        found: the `EngineModel` without TensorFlow.
        model: the task model.
        function: the answers in TensorFlow, see `answers_function`.
        texts: N texts of each role.

    Returns:
        Of a task that is `Spelling`: `spelled`, the name, dtype and shape of its
        answers by signature.
    """
    task = model.task
    facts: dict[str, Any] = {}
    is_spelled = isinstance(task, Spelling)
    draw = random.Random(0)
    tokens = [
        *model.preprocessor.tokenizer.vocabulary,
        *(each.content for each in model.preprocessor.tokenizer.added_tokens),
    ]
    seen = set()
    for name, specs in input_specs(task).items():
        ranks = ranks_of(specs)
        is_other = 2 in ranks and not task.row_reader.takes_lists
        if is_other or ranks in seen or task.of_signature(name) is not task:
            continue  # such as texts with another prompt, or documents of a query
        seen.add(ranks)
        given: list[Parts] = [tuple(_items(draw, tokens, rank) for rank in ranks)]
        if set(ranks) == {1}:  # a long text, and texts of users
            given.append(tuple([" ".join(part)] for part in given[0]))
        if texts is not None and ranks == ranks_of([*map(as_tensor, texts)]):
            given.append(texts)
        graph = _graph_of(task, found.graph_preprocessor, specs, function)
        for parts in given:
            _check_rows(found, graph, function, parts)
        if is_spelled:
            facts.setdefault("spelled", {})[name] = _described(graph)
    if not is_spelled:
        _check_answers(found.answers, function)
    return facts


def _graph_of(task: Any, preprocessor: Any, specs: Any, function: Any) -> Any:
    """Return the graph of a batch and, of a task that is `Spelling`, of its answers.

    It takes texts, and the outputs of the model by name.
    """
    is_spelled = isinstance(task, Spelling)

    def compute(*texts: Any, **outputs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        batch = task.features(preprocessor, one_or_all(texts))
        answers = {}
        if is_spelled:
            answers = task.answer(task.from_named(outputs, batch), batch)
        return {k: v for k, v in batch.items() if isinstance(v, tf.Tensor)}, answers

    outputs = {
        name: tf.TensorSpec(tensor.shape, tensor.dtype)
        for name, tensor in _outputs_to_spell(task, function).items()
    }
    graph = tf.function(compute, autograph=False)
    return graph.get_concrete_function(*specs, **outputs)


def _outputs_to_spell(task: Any, function: Any) -> dict[str, Any]:
    """Return the outputs of the model by name, of a task that is `Spelling`."""
    return {
        tensor.name.partition(":")[0]: tensor
        for tensor in function.inputs
        if isinstance(task, Spelling) and tensor.dtype.is_floating
    }


def _check_rows(found: Any, graph: Any, function: Any, parts: Parts) -> None:
    """Raise OtherIds unless rows are the graph's, and NeedsTensorFlow unless spelled
    answers to random outputs are.
    """
    task, rows = found.task, found.preprocessor
    tokenized = rows.tokenize(task.row_reader, parts)
    ours = rows.batch(task.row_reader, tokenized)
    draw, outputs = np.random.default_rng(0), {}
    is_spelled = isinstance(task, Spelling)
    for name, tensor in _outputs_to_spell(task, function).items():
        shape = (*ours["token_ids"].shape, *tensor.shape[2:])
        outputs[name] = (3 * draw.normal(size=shape)).astype("float32")
    given = {name: tf.constant(values) for name, values in outputs.items()}
    theirs, wanted = graph(*map(as_tensor, parts), **given)
    for name, values in ours.items():
        if is_spelled and name in task.row_reader.answer_specs():
            continue  # the graph has other entries for its answers
        if not np.array_equal(values, theirs[name].numpy()):
            raise OtherIds(_difference(rows, found.graph_preprocessor, parts, name))
    if is_spelled:
        answers = found.answers.of_texts({**ours, **outputs}, tokenized)
        _compare(answers, {name: each.numpy() for name, each in wanted.items()})


def _described(graph: Any) -> list[dict[str, Any]]:
    """Return name, dtype and shape of the answers of `_graph_of`."""
    return [
        {
            "name": name,
            "dtype": np.dtype(each.dtype.as_numpy_dtype).name,
            "shape": each.shape.as_list(),
        }
        for name, each in graph.structured_outputs[1].items()
    ]


def _items(draw: random.Random, tokens: list[str], rank: int) -> list[Any]:
    """Return random texts, or with rank 2 as many lists of different texts."""
    texts = _texts(draw, tokens)
    if rank == 1:
        return texts
    some = [text for text in dict.fromkeys(texts) if text]
    return [draw.sample(some, draw.randrange(2, 5)) for _ in texts]


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
    """Return which text `tokenizers` splits in another way, if there is one."""
    items = [item for part in parts for item in part]
    texts = (
        each for item in items for each in ([item] if isinstance(item, str) else item)
    )
    for text in texts:
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
            if tensor.dtype == tf.string:  # such as classes; "" is none
                given[name] = draw.choice(np.array([b"", b"a", b"b"], object), shape)
            elif tensor.dtype.is_integer:
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
        _compare(found, wanted)


def _compare(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """Raise NeedsTensorFlow unless answers are TensorFlow's, numbers to 1e-5."""
    for name, values in wanted.items():
        same = found[name].shape == values.shape
        if same and values.dtype.kind == "f":
            same = np.allclose(found[name], values, atol=_CLOSE)
        elif same:
            same = np.array_equal(found[name], values)
        if not same:
            raise NeedsTensorFlow(
                f"the answer `{name}` differs from TensorFlow's in the engine"
            )
