"""Each module of sentence-transformers, and each setting of it, is honoured or refused.

The modules and their settings are those of the installed library, so that one which a
later version adds fails here.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import VOCABULARY, refused

from bert_keras.checkpoints.sentence_files import pair_activation, read_sentence_files
from bert_keras.checkpoints.sentence_modules import ENCODER_KEYS, MODEL_KEYS, MODULES
from bert_keras.models.convert import convert
from bert_keras.models.loading import load_model
from bert_keras.retrieval.embedder import embed
from bert_keras.tasks.embedding import Embedding

sentences = pytest.importorskip("sentence_transformers", minversion="6")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from sentence_transformers.base.modules import Module, Router, Transformer  # noqa: E402
from sentence_transformers.sentence_transformer import modules as st  # noqa: E402
from sentence_transformers.sparse_encoder.modules import (  # noqa: E402
    SparseStaticEmbedding,
    SpladePooling,
)

ROOMS = ("base", "sentence_transformer", "sparse_encoder", "cross_encoder")
ROOMS = (*ROOMS, "multi_vector_encoder")
TEXTS = ["", "win cash", "see you at six, lunch at home now!", "free prize sale " * 12]
SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "initializer_range": 0.5,
}
TOKENS, PLAIN = "token_embeddings", torch.nn.Identity


def library_modules() -> dict[str, Any]:
    """Return the modules of the installed library by name."""
    found = {}
    for room in ROOMS:
        package = importlib.import_module(f"sentence_transformers.{room}.modules")
        for name, each in vars(package).items():
            if inspect.isclass(each) and issubclass(each, Module):
                found[name] = each
    return {k: v for k, v in found.items() if k not in ("Module", "InputModule")}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return a function that returns the folder of a small encoder with a head."""
    torch.manual_seed(0)
    places: dict[str, str] = {}

    def folder(name: str) -> str:
        if name not in places:
            place = tmp_path_factory.mktemp("base") / name
            config = transformers.BertConfig(**SIZES, num_labels=1)
            getattr(transformers, name)(config).save_pretrained(place)
            (place / "vocab.txt").write_text("\n".join(VOCABULARY))
            path = str(place / "vocab.txt")
            own = transformers.BertTokenizerFast(path, model_max_length=24)
            own.save_pretrained(place)
            places[name] = str(place)
        return places[name]

    return folder


@pytest.fixture
def save(base: Any, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that saves the model of modules behind a small encoder."""

    def saved(*later: Any, kind: str = "SentenceTransformer", **settings: Any) -> Path:
        own = {k: settings.pop(k) for k in ("prompts", "truncate_dim") if k in settings}
        first = Transformer(base("BertModel"), **settings)
        model = getattr(sentences, kind)(modules=[first, *later], device="cpu", **own)
        model.save_pretrained(str(tmp_path / "theirs"))
        return tmp_path / "theirs"

    return saved


def answered(model: Any, prompt: str | None) -> Any:
    """Return the answers to the texts with a prompt, without a graph."""
    task = model.task if prompt is None else model.task.with_prompt(prompt)
    return task.respond(np.array(TEXTS), model.preprocessor, model.infer)


def test_each_module_and_each_setting_is_known() -> None:
    found = library_modules()
    assert set(found) <= set(MODULES)
    for name, module in found.items():
        known = MODULES[name]
        keys = set(module.config_keys) | set(getattr(module, "config_key_renames", ()))
        assert known.without or keys <= set(known.keys), name
    for keys in ENCODER_KEYS.values():
        assert set(Transformer.config_keys) <= set(keys)
    covered = {key for key, *_ in (*HONOURED, *REFUSED)} | {HONOURED_OF_SPARSE}
    computed = [name for name, module in MODULES.items() if not module.without]
    wanted = {
        f"{name}.{key}"
        for name in computed
        # The first has `Transformer`'s keys; the second: `test_multi_vector_peers`.
        if name in found and name not in ("MLMTransformer", "MultiVectorMask")
        for key in found[name].config_keys
    }
    assert wanted <= covered, wanted - covered


# Setting, modules behind the encoder, and settings of the encoder.
HONOURED: list[tuple[str, Callable[[], list[Any]], dict[str, Any]]] = [
    ("Transformer.unpad_inputs", lambda: [st.Pooling(16)], {"unpad_inputs": False}),
    (
        "Pooling.pooling_mode",
        lambda: [st.Pooling(16, ("lasttoken", "weightedmean")), st.Normalize()],
        {},
    ),
    ("Pooling.embedding_dimension", lambda: [st.Pooling(7)], {}),
    (
        "Normalize.module_input_name",
        lambda: [st.Pooling(16), st.Normalize(TOKENS)],
        {},
    ),
    (
        "Normalize.module_output_name",
        lambda: [st.Pooling(16), st.Normalize(module_output_name="other")],
        {},
    ),
    ("Dropout.dropout", lambda: [st.Pooling(16), st.Dropout(0.9)], {}),
    (
        "Dense.use_residual",
        lambda: [
            *(st.Pooling(16), st.Dense(16, 16, use_residual=True)),
            *(st.Dense(16, 6, use_residual=True), st.Normalize()),
        ],
        {},
    ),
    (
        "Dense.module_output_name",
        lambda: [
            *(st.Pooling(16), st.Dense(16, 5, module_output_name="other")),
            *(st.Dense(16, 3, bias=False, module_output_name="third"), st.Normalize()),
            st.Dense(5, 4, module_input_name="other", module_output_name="fourth"),
            st.Dense(
                *(4, 6),
                activation_function=torch.nn.GELU(),
                module_input_name="fourth",
                module_output_name="sentence_embedding",
            ),
        ],
        {},
    ),
    (
        "Dense.module_input_name",
        lambda: [
            st.Dense(16, 12, use_residual=True, module_input_name=TOKENS),
            *(st.Pooling(12, ("cls", "mean")), st.Dense(24, 5), st.Normalize()),
        ],
        {},
    ),
    (
        "Dense.bias",
        lambda: [st.Pooling(16), st.Dense(16, 4, bias=False)],
        {"processing_kwargs": {"image": {"size": 4}}},
    ),
    ("Dense.in_features", lambda: [st.Pooling(16), st.Dense(16, 4)], {}),
    ("Dense.out_features", lambda: [st.Pooling(16), st.Dense(16, 4)], {}),
    (
        "Dense.activation_function",
        lambda: [st.Pooling(16), st.Dense(16, 4, activation_function=PLAIN())],
        {},
    ),
]


@pytest.mark.parametrize("case", HONOURED, ids=lambda case: case[0])
def test_an_honoured_setting_gives_the_same_vectors(
    save: Any, tmp_path: Path, case: Any
) -> None:
    _, modules, settings = case
    torch.manual_seed(3)
    folder = save(*modules(), **settings)
    wanted = sentences.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    model = load_model(folder)
    found = model.answer(np.array(TEXTS))["embedding"]
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=0)
    if model.task.dense:  # and they open what is written
        convert(folder, tmp_path / "ours")
        again = sentences.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
        np.testing.assert_allclose(again.encode(TEXTS), wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "lengths",
    [
        {"query_length": 8, "document_length": 16},
        {"query_length": 30},  # more than `model_max_length`
        {"document_length": 5},
    ],
    ids=lambda lengths: ",".join(lengths),
)
def test_queries_and_documents_have_their_lengths(
    save: Any, tmp_path: Path, lengths: dict[str, int]
) -> None:
    prompts = {"query": "see you ", "document": "", "passage": "at home "}
    pooling = st.Pooling(16, include_prompt="document_length" in lengths)
    folder = save(pooling, prompts=prompts, **lengths)
    convert(folder, tmp_path / "ours")
    for place in (folder, tmp_path / "ours"):
        theirs = sentences.SentenceTransformer(str(place), device="cpu")
        ours = load_model(place)
        for name, encode in (
            (None, theirs.encode),
            ("query", theirs.encode_query),
            ("document", theirs.encode_document),
        ):
            found = answered(ours, name)["embedding"]
            np.testing.assert_allclose(found, encode(TEXTS), atol=1e-5, rtol=0)


# Setting, what is written into its file, and parts of the error.
_POOLED = ["Transformer", "Pooling"]
REFUSED: list[tuple[str, list[str], str, Any]] = [
    ("Transformer.transformer_task", _POOLED, "transformer_task", "fill-mask"),
    (
        "Transformer.modality_config",
        _POOLED,
        "modality_config",
        {"text": {"method": "forward", "method_output_name": "pooler_output"}},
    ),
    ("Transformer.module_output_name", _POOLED, "module_output_name", "other"),
    (
        "Transformer.processing_kwargs",
        _POOLED,
        "processing_kwargs",
        {"text": {"max_length": 5}},
    ),
    ("Transformer.query_length", _POOLED, "query_length", 2),
    ("Transformer.document_length", _POOLED, "document_length", "8"),
    (
        "Transformer.query_expansion",
        _POOLED,
        "query_expansion",
        {"strategy": "fixed", "length": 8},
    ),
    ("Transformer.tokenizer_args", _POOLED, "tokenizer_args", {"model_max_length": 4}),
    ("Transformer.new", _POOLED, "new", 1),
    ("Pooling.include_prompt", _POOLED, "include_prompt", "no"),
    ("Pooling.new", _POOLED, "new", True),
    ("Normalize.new", [*_POOLED, "Normalize"], "new", 1),
    (
        "Normalize.before_pooling",
        ["Transformer", "Normalize", "Pooling"],
        "module_input_name",
        TOKENS,
    ),
    ("Dense.new", [*_POOLED, "Dense"], "new", 1),
    ("Dense.source", [*_POOLED, "Dense"], "module_input_name", "nowhere"),
    ("Dense.target", [*_POOLED, "Dense"], "module_output_name", "attention_mask"),
    ("SpladePooling.pooling_strategy", ["Splade"], "pooling_strategy", "sum"),
    (
        "SpladePooling.activation_function",
        ["Splade"],
        "activation_function",
        "log1p_relu",
    ),
    ("SpladePooling.new", ["Splade"], "new", 1),
]
HONOURED_OF_SPARSE = "SpladePooling.embedding_dimension"


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0])
def test_a_setting_that_is_not_honoured_is_refused(save: Any, case: Any) -> None:
    name, kinds, key, value = case
    made = {
        "Transformer": lambda: None,
        "Pooling": lambda: st.Pooling(16),
        "Normalize": lambda: st.Normalize(),
        "Dense": lambda: st.Dense(16, 4),
    }
    if kinds == ["Splade"]:
        task = {"kind": "SparseEncoder", "transformer_task": "fill-mask"}
        folder, place = save(SpladePooling(), **task), "1_SpladePooling/config.json"
    else:
        folder = save(*(made[kind]() for kind in kinds[1:]))
        kind = name.split(".")[0]
        place = f"{kinds.index(kind)}_{kind}/config.json"
        place = "sentence_bert_config.json" if kind == "Transformer" else place
    path = folder / place
    held = json.loads(path.read_text())
    if value == TOKENS:  # and is written there
        held["module_output_name"] = TOKENS
    path.write_text(json.dumps({**held, key: value}))
    shown = value if isinstance(value, str) else json.dumps(value)
    parts = (str(path), name.split(".")[0], f"`{key}`", shown)
    refused(lambda: read_sentence_files(folder), *parts)


def test_sparse_encoders(save: Any) -> None:
    task = {"kind": "SparseEncoder", "transformer_task": "fill-mask"}
    lengths = {"query_length": 6, "document_length": 12}
    folder = save(SpladePooling(embedding_dimension=3), **task, **lengths)
    assert _model_keys(folder) <= set(MODEL_KEYS)
    theirs = sentences.SparseEncoder(str(folder), device="cpu")
    ours = load_model(folder)
    for name in ("query", "document"):
        wanted = getattr(theirs, f"encode_{name}")(TEXTS).to_dense().numpy()
        found = answered(ours, name)["term_weights"]
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    path = folder / "config_sentence_transformers.json"
    theirs.max_active_dims = 4
    theirs.save_pretrained(str(folder))
    refused(lambda: read_sentence_files(folder), str(path), "`max_active_dims`", "4")
    # Vectors of the width of the encoder, which the masked-LM head does not make.
    folder = save(SpladePooling(), kind="SparseEncoder")
    refused(lambda: read_sentence_files(folder), "transformer_task", "fill-mask")


def test_cross_encoders(base: Any, tmp_path: Path) -> None:
    place, ours = tmp_path / "theirs", base("BertForSequenceClassification")
    theirs = sentences.CrossEncoder(ours, device="cpu")
    theirs.save_pretrained(str(place))
    assert _model_keys(place) <= set(MODEL_KEYS)
    config = json.loads((place / "config.json").read_text())
    assert pair_activation(place, config) == "sigmoid"
    path = place / "sentence_bert_config.json"
    held = json.loads(path.read_text())
    path.write_text(json.dumps({**held, "processing_kwargs": {"text": {"a": 1}}}))
    refused(lambda: pair_activation(place, config), str(path), "processing_kwargs")
    path.write_text(json.dumps(held))
    steps = json.loads((place / "modules.json").read_text())
    steps.append({"idx": 1, "name": "1", "path": "1_Dense", "type": "models.Dense"})
    (place / "modules.json").write_text(json.dumps(steps))
    refused(lambda: pair_activation(place, config), "Transformer alone", "Dense")


def test_the_folders_of_a_router_are_named(base: Any, tmp_path: Path) -> None:
    def encoder() -> list[Any]:
        return [Transformer(base("BertModel")), st.Pooling(16)]

    made = Router({"query": encoder(), "document": encoder()}, default_route="query")
    theirs = tmp_path / "theirs"
    sentences.SentenceTransformer(modules=[made], device="cpu").save(str(theirs))
    inside = [theirs / f"{name}_0_Transformer" for name in ("query", "document")]
    refused(lambda: embed(theirs, TEXTS), "Router", *map(str, inside))
    assert load_model(inside[0], task=Embedding()).backbone.config.hidden_size == 16
    tokenizer = transformers.AutoTokenizer.from_pretrained(base("BertModel"))
    static = SparseStaticEmbedding(tokenizer, frozen=True)
    made = Router({"query": [static], "document": encoder()})
    other = tmp_path / "other"
    sentences.SparseEncoder(modules=[made], device="cpu").save(str(other))
    inside = other / "document_0_Transformer"
    refused(lambda: embed(other, TEXTS), "query: SparseStaticEmbedding", str(inside))


def _model_keys(folder: Path) -> set[str]:
    """Return the settings that a model writes of itself."""
    path = folder / "config_sentence_transformers.json"
    return set(json.loads(path.read_text()))
