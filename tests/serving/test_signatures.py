"""Signatures: texts of several requests together are answered as each alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from task_cases import first_case

from bert_keras.serving.signatures import (
    IdsSignature,
    Signature,
    TensorInfo,
    TextSignature,
    TokenSignature,
    signatures_of,
)
from bert_keras.tasks import TASKS
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.protocols import texts_of

QUICK = ("classification", "token-classification")
KINDS = {
    "classification": TokenSignature,
    "embedding": TokenSignature,
    "multi-label": TokenSignature,
    "next-sentence": TokenSignature,
    "regression": TokenSignature,
    "reranking": TokenSignature,
}


def as_bytes(value: Any) -> Any:
    return [as_bytes(v) for v in value] if isinstance(value, list) else value.encode()


def answered(signature: Signature, parts: list[list[Any]]) -> dict[str, np.ndarray]:
    """Return the answers of a request, computed together with others."""
    count = len(parts[0])
    answers, _ = signature.compute(signature.rows_of(parts))
    mine = [part[: count // 2] for part in parts]
    half = {name: values[: count // 2] for name, values in answers.items()}
    return signature.trimmed(half, mine)


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.thorough) for n in TASKS],
)
def test_a_text_is_answered_as_alone(make_model: Callable[..., Any], name: str) -> None:
    case = first_case(name)
    model = make_model(case.task)
    signatures = signatures_of(model)
    texts = texts_of(case.task, case.columns)
    ranks = [1 + isinstance(part[0], list) for part in texts]
    signature = next(
        each
        for each in signatures.values()
        if [len(info.shape) for info in each.inputs] == ranks
    )
    assert type(signature) is KINDS.get(name, TextSignature)
    assert type(signatures["ids"]) is IdsSignature
    parts = [
        as_bytes(list(a[:3]) + list(b)) for a, b in zip(texts, case.others, strict=True)
    ]
    found = answered(signature, parts)
    assert set(found) == {each.name for each in signature.outputs}
    count = len(parts[0]) // 2
    for row in range(count):
        alone = signature.compute(signature.rows_of([[p[row]] for p in parts]))[0]
        for key, values in alone.items():
            mine = found[key][row : row + 1]
            if values.ndim > 1:
                width = min(values.shape[1], mine.shape[1])
                values, mine = values[:, :width], mine[:, :width]
            if values.dtype == object:
                assert (values == mine).all()
            else:
                assert np.allclose(values, mine, atol=1e-4), key


@pytest.mark.slow
def test_documents_of_a_query_are_ranked_as_wide_as_the_request(
    make_model: Callable[..., Any],
) -> None:
    signature = signatures_of(make_model(first_case("reranking").task))["rank"]
    assert {each.name: each.sizes for each in signature.outputs} == {
        "scores": [-1, -1],
        "places": [-1, -1],
    }
    parts = [[b"win", b"lunch"], [[b"cash", b"home"], [b"a", b"see you", b"six"]]]
    found = answered(signature, parts)
    assert found["places"].shape == found["scores"].shape == (1, 2)
    assert sorted(found["places"][0]) == [0, 1]


def test_rows_of_windows_are_not_served_as_ids(make_model: Callable[..., Any]) -> None:
    model = make_model(Classification(("ham", "spam"), long="windows"))
    assert list(signatures_of(model)) == ["serving_default"]


def test_packed_rows_hold_each_text_once(make_model: Callable[..., Any]) -> None:
    signature = signatures_of(make_model(first_case("classification").task))[
        "serving_default"
    ]
    texts = [b"win", b"see you at six " * 4, b"", b"free cash", b"lunch at home now"]
    rows = signature.rows_of([texts])
    together, size = signature.compute(rows)
    assert size < len(rows) * max(row.length for row in rows)
    for place, row in enumerate(rows):
        alone, length = signature.compute([row])
        assert length == -(-row.length // 4) * 4
        for name, values in alone.items():
            if values.dtype != object:
                assert np.allclose(values[0], together[name][place], atol=1e-5)


@pytest.mark.parametrize("name", ["classification", "embedding"])
def test_batches_of_several_sizes_have_one_shape(
    make_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    signature: Any = signatures_of(make_model(first_case(name).task))["serving_default"]
    shapes, packed = [], signature._packed

    def seen(batch: dict[str, Any]) -> Any:
        shapes.append(tuple(batch["cls_positions"].shape))
        return packed(batch)

    monkeypatch.setattr(signature, "_packed", seen)
    texts = [b"win cash", b"see you at six", b"", b"lunch at home now", b"sale"]
    rows = signature.rows_of([texts])
    alone = [signature.compute([row])[0] for row in rows]
    key = "probabilities" if name == "classification" else [*alone[0]][0]
    for count in (2, 3, 5):
        found = signature.compute(rows[:count])[0][key]
        wanted = [each[key][0] for each in alone[:count]]
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert shapes == [(8,)] * 3


@pytest.mark.parametrize("multiple", [3, 8])
def test_rows_have_the_multiple_of_the_preprocessor(
    make_model: Callable[..., Any], multiple: int
) -> None:
    model = make_model(first_case("classification").task)
    model.preprocessor = model.preprocessor.replace(length_multiple=multiple)
    signature = signatures_of(model)["serving_default"]
    (row,) = signature.rows_of([[b"see you"]])
    assert signature.compute([row])[1] == -(-row.length // multiple) * multiple


def test_answers_are_as_wide_as_a_request_needs() -> None:
    class Found(TextSignature):
        def __init__(self) -> None:
            outputs = [_info("entities", "string"), _info("starts", "int32")]
            super().__init__(
                "x",
                [_info("text", "string", rank=1)],
                outputs,
                dict,
                lengths=len,
                packs=False,
            )

    answers = {
        "entities": np.array([[b"a", b"b", b"", b""], [b"c", b"", b"", b""]], object),
        "starts": np.array([[0, 2, -1, -1], [1, -1, -1, -1]], np.int32),
    }
    found = Found().trimmed(answers, [[b"", b""]])
    assert found["entities"].shape == found["starts"].shape == (2, 2)
    none = {name: values[:, 2:] for name, values in answers.items()}
    assert Found().trimmed(none, [[b"", b""]])["starts"].shape == (2, 0)
    no_mask = {"entities": np.empty((2, 0, 3), object), "starts": none["starts"]}
    assert Found().trimmed(no_mask, [[b"", b""]])["entities"].shape == (2, 0, 3)


def _info(name: str, dtype: str, *, rank: int = 2) -> Any:
    from bert_keras.serving.signatures import TensorInfo

    return TensorInfo.of(name, tf.TensorSpec([None] * rank, dtype))


def test_a_signature_with_as_many_inputs_is_named() -> None:
    texts = TensorInfo("text", "string", (None,))
    signature = Signature("serving_default", [texts], [], dict)
    signature.others = {"pairs": {"text_a", "text_b"}, "ids": {"a", "b", "c"}}
    wanted = ": the signature `pairs` has the inputs text_a, text_b"
    assert signature.elsewhere(["text", "text_pair"]) == wanted
    assert signature.elsewhere(["text_b", "text_a"]) == wanted
    assert not signature.elsewhere(["words"])
