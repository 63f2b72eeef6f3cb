"""The files of sentence-transformers: reading, writing and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import refused

from bert_keras.checkpoints.sentence_files import (
    MODEL_SETTINGS,
    encoder_folder,
    pair_activation,
    read_sentence_files,
    write_sentence_files,
)


def modules(*kinds: str, prefix: str = "sentence_transformers.models.") -> list[Any]:
    places = ["", "1_Pooling", "2_Normalize", "3_More"]
    return [
        {"idx": i, "name": str(i), "path": place, "type": prefix + kind}
        for i, (kind, place) in enumerate(zip(kinds, places, strict=False))
    ]


WHOLE = {
    "modules.json": modules("Transformer", "Pooling", "Normalize"),
    "1_Pooling/config.json": {
        "word_embedding_dimension": 16,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
    },
    "sentence_bert_config.json": {"max_seq_length": 24, "do_lower_case": False},
}


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, values in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(values))
    return folder


def test_the_files_of_version_2(tmp_path: Path) -> None:
    assert read_sentence_files(write(tmp_path, WHOLE)) == {
        "pooling": "mean",
        "normalize": True,
        "max_length": 24,
    }


def test_the_files_of_version_6(tmp_path: Path) -> None:
    kinds = ("base.modules.transformer.Transformer", "modules.pooling.Pooling")
    files = {
        "modules.json": modules(*kinds, prefix="sentence_transformers."),
        "1_Pooling/config.json": {"embedding_dimension": 16, "pooling_mode": "cls"},
        "sentence_bert_config.json": {"transformer_task": "feature-extraction"},
        "tokenizer_config.json": {"model_max_length": 256},
        "config_sentence_transformers.json": {"default_prompt_name": None},
    }
    assert read_sentence_files(write(tmp_path, files)) == {
        "pooling": "cls",
        "normalize": False,
        "max_length": 256,
    }


def test_a_folder_without_modules_says_nothing(tmp_path: Path) -> None:
    assert read_sentence_files(tmp_path) == {}


def test_no_length_limit_is_none(tmp_path: Path) -> None:
    files = {**WHOLE, "sentence_bert_config.json": {"max_seq_length": None}}
    files["tokenizer_config.json"] = {"model_max_length": int(1e30)}
    assert "max_length" not in read_sentence_files(write(tmp_path, files))


@pytest.mark.parametrize("pooling", ["mean", "lasttoken", "cls+mean", "mean+cls"])
@pytest.mark.parametrize("normalize", [True, False])
def test_written_files_read_back(tmp_path: Path, pooling: str, normalize: bool) -> None:
    settings = {"pooling": pooling, "normalize": normalize, "max_length": 99}
    settings["prompts"] = {"query": "query: ", "document": "passage: "}
    settings |= {"include_prompt": False, "truncate_dim": 3}
    settings |= {"query_length": 8, "document_length": 16}
    plain = {"units": 4, "activation": "tanh", "use_bias": True}
    residual = {**plain, "use_residual": True}
    settings["dense"] = ({**residual, "on_tokens": True}, plain, residual)
    write_sentence_files(tmp_path, hidden_size=16, **settings)
    assert read_sentence_files(tmp_path) == settings


@pytest.mark.parametrize(
    ("changed", "form"),
    [
        ({}, "ColBERT"),
        ({"prompts": {"query": "[Q] "}}, "ColBERT"),
        ({"query_expansion": 5}, "MultiVectorEncoder"),
        ({"skip_words": (".", "?")}, "MultiVectorEncoder"),
        ({"prompts": {"query": "see "}}, "MultiVectorEncoder"),
        ({"prompts": {"topic": "[Q]"}}, "MultiVectorEncoder"),
        ({"normalize": False}, "MultiVectorEncoder"),
    ],
)
def test_vectors_of_tokens_are_written_for_pylate_if_it_reads_them_alike(
    tmp_path: Path, changed: dict[str, Any], form: str
) -> None:
    layer = {"units": 4, "activation": "linear", "use_bias": False, "on_tokens": True}
    settings: dict[str, Any] = {
        **{"kind": "tokens", "pooling": "mean", "normalize": True, "max_length": 99},
        **{"dense": (layer,), "prompts": {"query": "[Q]", "document": ""}},
        **{"query_length": 8, "document_length": 16, "query_expansion": 8},
        "skip_words": (".",),
        **changed,
    }
    known: dict[str, Any] = {"vocabulary": [".", "see", "[Q]"], "marks": ["[Q]"]}
    write_sentence_files(tmp_path, hidden_size=16, **settings, **known)
    held = json.loads((tmp_path / MODEL_SETTINGS).read_text())
    assert held["model_type"] == form
    found = read_sentence_files(tmp_path)
    assert found.pop("marks", ["[Q]"]) == ["[Q]"] and found == settings
    whole = {k: v for k, v in settings.items() if not k.endswith("_length")}
    whole |= {"max_length": 8, "query_length": 8}
    write_sentence_files(tmp_path, hidden_size=16, **whole, **known)
    found = read_sentence_files(tmp_path)  # without a length of documents
    assert found.pop("marks", ["[Q]"]) == ["[Q]"] and found == whole


def test_empty_prompts_and_other_names_of_documents(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE) / "config_sentence_transformers.json"
    prompts: dict[str, Any] = {"query": "", "document": None, "passage": "passage: "}
    path.write_text(json.dumps({"prompts": prompts, "default_prompt_name": "query"}))
    found = read_sentence_files(tmp_path)
    assert found["prompts"] == {**prompts, "document": ""}
    assert "default_prompt" not in found
    path.write_text(json.dumps({"prompts": {"query": "", "document": ""}}))
    assert "prompts" not in read_sentence_files(tmp_path)
    given: dict[str, Any] = {"pooling": "mean", "normalize": True, "max_length": 9}
    for name, text in (("corpus", "corpus: "), ("document", "")):
        prompts = {name: text, "passage": "passage: "}
        wanted = {**prompts, "document": text and "passage: "}
        write_sentence_files(tmp_path, hidden_size=4, prompts=prompts, **given)
        assert json.loads(path.read_text())["prompts"] == wanted


@pytest.mark.parametrize("kind", ["Transformer", "BERT"])
def test_an_encoder_in_a_subfolder(tmp_path: Path, kind: str) -> None:
    steps = modules(kind, "Pooling", "Normalize")
    steps[0]["path"] = f"0_{kind}"
    files = {
        "modules.json": steps,
        "1_Pooling/config.json": WHOLE["1_Pooling/config.json"],
        f"0_{kind}/config.json": {},
        f"0_{kind}/sentence_bert_config.json": {"max_seq_length": 24},
    }
    write(tmp_path, files)
    assert encoder_folder(tmp_path) == tmp_path / f"0_{kind}"
    found = read_sentence_files(tmp_path)
    assert found == {"pooling": "mean", "normalize": True, "max_length": 24}


TORCH = "torch.nn.modules."
OUTPUTS = {"a": 0, "b": 1, "c": 2}


def cross_encoder(folder: Path, **settings: Any) -> Path:
    files = {"model_type": "CrossEncoder", **settings}
    return write(folder, {"config_sentence_transformers.json": files})


@pytest.mark.parametrize(
    ("name", "outputs", "activation"),
    [
        (None, 1, "sigmoid"),
        (None, 3, "linear"),
        ("linear.Identity", 1, "linear"),
        ("activation.Sigmoid", 3, "sigmoid"),
        ("activation.Softmax", 3, "softmax"),
    ],
)
def test_the_activation_of_a_cross_encoder(
    tmp_path: Path, name: str | None, outputs: int, activation: str
) -> None:
    folder = cross_encoder(tmp_path, activation_fn=name and TORCH + name)
    config = {"id2label": dict(list(OUTPUTS.items())[:outputs])}
    assert pair_activation(folder, config) == activation


def test_a_default_prompt_of_a_cross_encoder_is_refused(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "rank: ", "none": ""}}
    folder = cross_encoder(tmp_path, **prompts, default_prompt_name="query")
    refused(
        lambda: pair_activation(folder, {}), str(folder), "default_prompt_name", "query"
    )
    for name in ("none", None):
        cross_encoder(tmp_path, **prompts, default_prompt_name=name)
        assert pair_activation(folder, {}) == "linear"


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"modules.json": {}}, ["modules.json", "list"]),
        ({"modules.json": [{"idx": 0}]}, ["modules.json", "type"]),
        ({"modules.json": modules("Transformer")}, ["modules.json", "Pooling"]),
        (
            {"modules.json": modules("Transformer", "Pooling", "LSTM")},
            ["modules.json", "LSTM"],
        ),
        (
            {
                "modules.json": [
                    {**row, "path": row["path"] and "../x"}
                    for row in WHOLE["modules.json"]
                ]
            },
            ["modules.json", "../x"],
        ),
        (
            {"1_Pooling/config.json": {"pooling_mode": ["cls", "median"]}},
            ["1_Pooling", "cls", "median"],
        ),
        (
            {"1_Pooling/config.json": {"pooling_mode_median": True}},
            ["1_Pooling", "median"],
        ),
        (
            {"1_Pooling/config.json": {"pooling_mode": "cls", "temperature": 2}},
            ["1_Pooling", "`temperature`", "Pooling", "2"],
        ),
        (
            {"sentence_bert_config.json": {"query_expansion": {"length": 8}}},
            ["sentence_bert_config.json", "`query_expansion` of Transformer", "8"],
        ),
        (
            {"config_sentence_transformers.json": {"default_prompt_name": "query"}},
            ["default_prompt_name", "query"],
        ),
        (
            {"config_sentence_transformers.json": {"truncate_dim": 0}},
            ["truncate_dim", "0"],
        ),
        (
            {
                "sentence_bert_config.json": {"do_lower_case": True},
                "tokenizer_config.json": {"do_lower_case": False},
            },
            ["sentence_bert_config.json", "do_lower_case"],
        ),
    ],
)
def test_unsupported_modules_are_rejected(
    tmp_path: Path, changes: dict[str, Any], parts: list[str]
) -> None:
    folder = write(tmp_path, {**WHOLE, **changes})
    refused(lambda: read_sentence_files(folder), str(folder), *parts)
