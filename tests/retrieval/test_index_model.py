"""Whose vectors an index has, and which other model may ask for its texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS, refused, write_collection

from bert_keras.cli.main import main
from bert_keras.data.table import as_columns
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import load_predictor
from bert_keras.models.convert import convert
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.retrieval.embedder import embed, load_embedder
from bert_keras.retrieval.evaluation import evaluate_collection
from bert_keras.retrieval.index import SearchIndex
from bert_keras.retrieval.index_model import model_hash
from bert_keras.retrieval.vector_file import read_vectors
from bert_keras.tasks.embedding import Embedding
from bert_keras.training.config import TrainConfig
from bert_keras.training.finetune import train

TEXTS = [text for text, _ in ROWS]
PROMPTS = {"query": "win ", "document": "see "}


def aligned(teacher: Path, output: Path, **given: Any) -> Path:
    config = {"epochs": 12, "learning_rate": 3e-3, "validation_split": 0.2, **given}
    result = train(
        "embedding",
        train=as_columns(text=TEXTS),
        unlabeled=as_columns(text=[f"{text} now" for text in TEXTS]),
        output=output,
        config=TrainConfig(teacher=str(teacher), **config),
    )
    students = result.report["students"]
    assert students[0]["cosine"] == pytest.approx(1, abs=1e-5)
    assert students[1]["cosine"] == result.report["scores"]["dev"]["cosine"] < 1
    return result.folder


@pytest.fixture(scope="module")
def teacher(
    make_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    place = tmp_path_factory.mktemp("teacher") / "model"
    return save_model(make_model(Embedding(prompts=PROMPTS)), place)


@pytest.fixture(scope="module")
def student(teacher: Path) -> Path:
    return aligned(teacher, teacher.parent / "student", keep_layers="0")


@pytest.fixture(scope="module")
def index(teacher: Path) -> Path:
    place = teacher.parent / "index.npz"
    SearchIndex.of(teacher, TEXTS, index=place)
    return place


@pytest.mark.slow
def test_a_student_learns_its_teachers_vectors_of_queries(
    teacher: Path, student: Path, tmp_path: Path
) -> None:
    untrained, fewer = tmp_path / "untrained", tmp_path / "fewer"
    convert(teacher, untrained, keep_layers="0")
    queries = ["free lunch", "a prize at six"]
    wanted = embed(teacher, queries, prompt="query")
    near, far = (
        np.sum(wanted * embed(place, queries, prompt="query"), axis=1)
        for place in (student, untrained)
    )
    assert (near > far).all() and near.min() > 0.8
    own = load_embedder(student).model.task
    space = model_hash(load_embedder(teacher, prompt="document"))
    assert own.aligned_to == space.partition(" ")[0]
    assert space.partition(" ")[0] in (student / "README.md").read_text()
    # Fewer layers, or further training, lead to other vectors.
    convert(student, fewer, keep_layers="0")
    assert not load_embedder(fewer).model.task.aligned_to
    assert "aligned_to" not in Embedding.inherited(own, {})


@pytest.mark.slow
def test_a_student_of_another_width_has_a_projection(
    teacher: Path, index: Path, tmp_path: Path, capsys: Any
) -> None:
    found = aligned(teacher, tmp_path / "narrow", student="1/8/2", epochs=1)
    assert (
        "a new linear layer makes the student's vectors 16" in capsys.readouterr().err
    )
    search = SearchIndex.load(found, index)
    assert search(["free cash"], top=1)[0][0]["text"] in TEXTS


@pytest.mark.slow
def test_a_student_asks_for_the_texts_of_its_teachers_index(
    teacher: Path, student: Path, index: Path, tmp_path: Path, capsys: Any
) -> None:
    before = index.read_bytes()
    wanted = SearchIndex.of(teacher, TEXTS, query_encoder=student)(["free cash"])
    np.testing.assert_allclose(
        SearchIndex.of(teacher, TEXTS).vectors,
        read_vectors(index).packed.numbers(slice(None)),
        atol=1e-5,
    )
    for search in (
        SearchIndex.load(student, index),
        SearchIndex.of(student, TEXTS, index=index),
        SearchIndex.of(teacher, TEXTS, index=index, query_encoder=student),
    ):
        found = search(["free cash"])
        assert [row["text"] for row in found[0]] == [r["text"] for r in wanted[0]]
    collection = write_collection(tmp_path / "judged")
    asked = evaluate_collection(
        load_embedder(teacher), collection, query_encoder=student
    )
    own = evaluate_collection(load_embedder(teacher), collection)
    assert asked["num_queries"] == own["num_queries"]
    # Other ids are stored, with the hash of the model that made the vectors.
    held = read_vectors(index).model
    SearchIndex.of(student, TEXTS, index=index, ids=[f"n{n}" for n in range(12)])
    assert read_vectors(index).model == held != ""
    index.write_bytes(before)
    pages = tmp_path / "pages.tsv"
    pages.write_text("\n".join(["text", *TEXTS]))
    command = ["search", str(teacher), str(pages), "free cash", "--index", str(index)]
    assert main([*command, "--query-encoder", str(student)]) == 0
    assert read_vectors(index).model == held
    index.write_bytes(before)
    # No student's vectors take the place of a larger model's.
    refused(
        lambda: SearchIndex.of(student, TEXTS, index=index, dtype="int8"),
        "contains vectors of dtype float32: name another index",
    )
    refused(
        lambda: SearchIndex.of(student, TEXTS[1:], index=index),
        "contains vectors of other texts: name another index",
    )
    assert index.read_bytes() == before


@pytest.mark.slow
def test_an_export_of_a_student_asks_for_the_texts_of_the_index(
    student: Path,
    index: Path,
    make_model: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its weights cannot be read, and its settings name the model of the index."""
    before, collection = index.read_bytes(), write_collection(tmp_path / "judged")
    export_model(load_model(student), tmp_path / "served")
    asker = load_predictor(tmp_path / "served")
    capsys.readouterr()
    wanted = SearchIndex.load(student, index)(["free cash"])[0]
    for search in (
        SearchIndex.load(asker, index),
        SearchIndex.of(asker, TEXTS, index=index),
    ):
        found = search(["free cash"])[0]
        assert [row["text"] for row in found] == [row["text"] for row in wanted]
    assert evaluate_collection(asker, collection)["num_queries"]
    assert capsys.readouterr().err.count("cannot be read") == 0
    assert index.read_bytes() == before
    foreign = tmp_path / "foreign.npz"  # of another model
    other = save_model(make_model(Embedding("cls")), tmp_path / "other")
    SearchIndex.of(other, TEXTS, index=foreign)
    refused(lambda: SearchIndex.load(asker, foreign), "vectors of another model")
    refused(lambda: SearchIndex.of(asker, TEXTS, index=foreign), "another index")


def test_query_encoders_of_other_spaces_are_refused(
    teacher: Path,
    student: Path,
    index: Path,
    make_model: Callable[..., Any],
    tmp_path: Path,
) -> None:
    other = save_model(make_model(Embedding()), tmp_path / "other")

    def refuse(model: Path, encoder: Path, *parts: str) -> None:
        refused(lambda: SearchIndex.of(model, TEXTS, query_encoder=encoder), *parts)

    rule = "`query_encoder` must be a student of the documents' model"
    refuse(teacher, other, rule, "received one without `aligned_to`")
    refuse(other, student, rule, "received one aligned to")
    for kind in ("sparse", "tokens"):
        place = save_model(make_model(Embedding(kind=kind)), tmp_path / kind)
        refuse(teacher, place, "`query_encoder` needs vectors of `kind` dense", kind)
        refuse(place, student, "`query_encoder` needs vectors of `kind` dense", kind)
        refused(lambda place=place: SearchIndex.load(place, index), "`kind` dense")
    short = load_embedder(student, dimensions=4)
    refused(
        lambda: SearchIndex.of(teacher, TEXTS, query_encoder=short),
        "`query_encoder` must give vectors of 16 numbers",
        "received one of 4",
    )
    foreign = tmp_path / "foreign.npz"
    SearchIndex.of(other, TEXTS, index=foreign)
    refused(lambda: SearchIndex.load(student, foreign), "vectors of another model")
    refused(lambda: SearchIndex.of(student, TEXTS, index=foreign), "another index")
    with np.load(index) as stored:
        held = {name: stored[name] for name in stored if name != "model"}
    np.savez(foreign, **held)
    refused(
        lambda: SearchIndex.load(student, foreign), "a model whose hash it does not"
    )


@pytest.mark.parametrize(
    ("given", "settings", "parts"),
    [
        ({"teacher": None}, {}, ("the column of `text_pair` is missing",)),
        ({"distill_weight": 0.9}, {}, ("`distill_weight` has no effect", "0.9")),
        ({"temperature": 3.0}, {}, ("`temperature` has no effect", "3")),
        ({}, {"scale": 3.0}, ("`scale`", "`objective` ranking or similarity")),
        ({}, {"kind": "tokens"}, ("vectors of `kind` tokens learn pairs",)),
        ({}, {"objective": "ranking"}, ("the column of `text_pair` is missing",)),
        ({}, {"truncate_dim": 4}, ("`truncate_dim` must be 0", "received 4")),
    ],
)
def test_what_does_not_go_with_a_students_vectors_is_refused(
    given: Any, settings: Any, parts: tuple[str, ...], teacher: Path, tmp_path: Path
) -> None:
    config = TrainConfig(**{"teacher": str(teacher), "validation_split": 0.0, **given})
    refused(
        lambda: train(
            "embedding",
            encoder=teacher,
            train=as_columns(text=TEXTS),
            output=tmp_path / "model",
            config=config,
            task_settings=settings,
        ),
        *parts,
    )
