"""The longest input of a run follows its texts; what is truncated is told."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS

import bert_keras
from bert_keras.cli.main import main
from bert_keras.config import BertConfig
from bert_keras.data.table import as_columns
from bert_keras.inference.predictor import load_predictor
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.reranking import Reranking
from bert_keras.training import finetune
from bert_keras.training.config import TrainConfig
from bert_keras.training.findings import LENGTH
from bert_keras.training.lengths import (
    TextLengths,
    chosen_length,
    in_parts,
    measure_lengths,
)
from bert_keras.training.several_runs import train_seeds

CONFIG = BertConfig(
    vocab_size=100,
    hidden_size=384,
    num_hidden_layers=1,
    num_attention_heads=12,
    intermediate_size=1536,
    max_position_embeddings=512,
)


@pytest.mark.parametrize(
    ("sizes", "length", "words"),
    [
        ([20, 30, 128], 128, ["holds 100% of 3 texts"]),
        # 200 is rounded up; 3 x (130 x 2304 + 130^2) against 128 each.
        ([130, 130, 200], 208, ["100% of 3 texts (128: 0%)", "1.2 times"]),
        # 512 x (2304 + 512) against 128 x (2304 + 128).
        ([900] * 10, 512, ["holds 0% of 10 texts", "for 4.6 times the computation"]),
    ],
)
def test_the_length_follows_the_texts(
    sizes: list[int], length: int, words: list[str]
) -> None:
    found = chosen_length(np.array(sizes), 128, CONFIG)
    assert (found.value, found.option) == (length, "--max-length")
    for each in words:
        assert each in found.reason


def test_the_length_has_a_bound_by_its_cost() -> None:
    long = BertConfig(**{**CONFIG.to_dict(), "max_position_embeddings": 4096})
    sizes = np.array([4000] * 10)
    found = chosen_length(sizes, 128, long)
    # 800 x (2304 + 800) is under 8 times 128 x (2304 + 128), 816 x (2304 + 816) above.
    assert found.value == 800 and "8.0 times" in found.reason
    assert "4,000 would need more than 8 times" in found.reason
    # Where each row is padded to it, the longest texts do not count.
    sizes = np.array([100] * 995 + [512] * 5)
    assert chosen_length(sizes, 128, CONFIG).value == 512
    assert chosen_length(sizes, 128, CONFIG, is_fixed=True).value == 128


def test_unlabeled_rows_of_a_reranker_have_no_grades(make_model: Any) -> None:
    pairs: dict[str, Any] = {"text": ["win", "see you"], "text_pair": ["cash", "six"]}
    data = {
        "train": as_columns(**pairs, label=[1, 0]),
        "unlabeled": as_columns(**pairs),
    }
    model = make_model(Reranking())
    found = measure_lengths(model.task, model.preprocessor, data, limit=40)
    assert (found["unlabeled"].whole == found["train"].whole).all()


@pytest.mark.slow
def test_updates_of_many_long_texts_are_made_in_parts() -> None:
    """32 pairs with five negatives of 200 tokens each took more than 15 GB."""
    sizes = CONFIG.replace(num_hidden_layers=6)
    lengths = TextLengths(np.full(7 * 200, 200), np.zeros(7 * 200, np.int32))

    def parts(task: Any = None, length: int = 512, **given: Any) -> int:
        config = TrainConfig(max_length=length, **given)
        task = task or Embedding()
        return in_parts(task, config, sizes, lengths, 200).accumulation

    assert parts() == 4
    assert parts(length=200) == 2  # attention takes less
    assert parts(Classification(classes=("a", "b"))) == 1  # whose texts are fewer
    assert parts(batch_size=16) == 1 and parts(accumulation=2) == 2  # as given
    lengths = TextLengths(np.full(2 * 200, 30), np.zeros(2 * 200, np.int32))
    assert parts(length=64) == 1


def test_truncated_texts_are_told_by_each_verb(
    train_spam: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A text of 24 tokens and one of 100 have looked the same."""
    long = [(f"{text} " * 40, label) for text, label in ROWS]
    texts, labels = (list(column) for column in zip(*long, strict=True))
    table = {"text": texts, "label": labels}
    short = {"text": [text for text, _ in ROWS], "label": labels}
    run = train_spam(tmp_path / "model", train=table, dev=short, test=table, epochs=1)
    err = capsys.readouterr().err
    line = "12 of 12 train texts (100%) are truncated to 24 tokens: "
    assert line in err and line.replace("train", "test") in err
    assert err.count("truncated to") == 2  # once each, not for explained mistakes too
    assert "dev texts" not in err
    assert re.search("max length +24 .* as given", err)
    facts = run.report["data"]
    more = re.search("; --set long=windows reads them in full, for (.*)% more", err)
    mean = facts["train"]["mean_tokens"]
    assert more and float(more[1]) == pytest.approx(100 * (mean / 24 - 1), rel=2e-3)
    by_length = run.report["slices"]["test"][LENGTH]
    assert [row["truncated"] for row in by_length] == [1.0] * len(by_length)
    assert facts["train"]["truncated"] == 12 and facts["train"]["mean_tokens"] > 100
    assert facts["train"]["share_of_tokens_not_read"] > 0.8
    assert "share_of_tokens_not_read" not in facts["dev"]
    with monkeypatch.context() as patch:  # no update is made

        def loop(model: Any, _: Any, context: Any) -> None:
            parts = context.config.accumulation
            raise KeyError(model.preprocessor.max_length, model.task.long, parts)

        patch.setitem(finetune.TRAINERS, "finetune", loop)
        free = {"train": table, "dev": short, "max_length": None}
        with pytest.raises(KeyError, match="40, 'truncate', 1"):  # all positions
            train_spam(tmp_path / "free", task_settings={"long": "truncate"}, **free)
        err = capsys.readouterr().err
        assert re.search("max length +40 .* holds 50% of 24 texts", err)
        assert "12 of 12 train texts (100%) are truncated to 40 tokens" in err
        with pytest.raises(KeyError, match="40, 'windows', 4"):
            train_spam(tmp_path / "free", **free)
        err = capsys.readouterr().err
        assert re.search("long texts +windows .* 100% of the texts have more th", err)
        free["train"] = short
        with pytest.raises(KeyError, match="40, 'truncate', 1"):
            train_spam(tmp_path / "free", **free)
        assert "long texts" not in capsys.readouterr().err

    file, model = tmp_path / "long.tsv", str(run.folder)
    rows = "".join(f"{text}\t{label}\n" for text, label in long)
    file.write_text(f"text\tlabel\n{rows}", "utf-8")
    for words in (["evaluate", model, file], ["predict", model, "--input", file]):
        assert main([os.fspath(word) for word in [*words, "--batch-size", "4"]]) == 0
        out, err = capsys.readouterr()
        assert err.count("12 of 12 texts (100%) are truncated to 24 tokens: ") == 1
        assert ("by length in tokens" in out.lower()) == (words[0] == "evaluate")
        assert "; training with --set long=windows reads them in full" in err
    predictor = load_predictor(model)
    for texts_given, told in ((["ham"], 0), (texts[:2], 1), (texts, 0)):
        predictor.predict(texts_given)
        assert capsys.readouterr().err.count("are truncated to 24 tokens") == told


@pytest.mark.slow
def test_long_texts_on_an_encoder_of_vectors_begin_with_a_fitted_head(
    train_spam: Any,
    make_model: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [f"{text} " * 40 for text, _ in ROWS]
    table = {"text": texts, "label": [label for _, label in ROWS]}
    bert_keras.save_model(make_model(Embedding()), tmp_path / "vectors")
    free = {"batch_size": None, "epochs": None, "learning_rate": None}

    def loop(model: Any, _: Any, context: Any) -> None:
        names = ("linear_probe", "accumulation", *free)
        raise KeyError(model.task.pooling, *(getattr(context.config, n) for n in names))

    monkeypatch.setitem(finetune.TRAINERS, "finetune", loop)
    given = {"encoder": tmp_path / "vectors", "train": table, "max_length": None}
    given["method"] = "finetune"
    with pytest.raises(KeyError, match="'mean', True, 1, 4, 5, 0.00015"):
        train_spam(tmp_path / "out", **given, **free)
    with pytest.raises(KeyError, match="'mean', True, 8, 8, 5, 0.00015"):
        train_spam(tmp_path / "out", **given, **free, accumulation=8)
    err = capsys.readouterr().err
    assert re.search("linear probe +yes .* is fitted on the encoder's vectors", err)
    assert re.search("epochs +5 .* few and slow", err)
    with pytest.raises(KeyError, match="'mean', True, 4, 8, 2, 0.01"):
        train_spam(tmp_path / "out", **given)
    with pytest.raises(KeyError, match="'pooler', False, 4, 8, 2, 0.01"):
        train_spam(tmp_path / "out", **given, task_settings={"pooling": "pooler"})
    with monkeypatch.context() as patch:  # of which linear computes all once

        def fit(model: Any, *_: Any) -> None:
            raise KeyError(model.task.long, model.preprocessor.max_length)

        patch.setitem(finetune.TRAINERS, "linear", fit)
        capsys.readouterr()
        linear = {**given, **free, "dev": None, "method": "linear"}
        with pytest.raises(KeyError, match="'windows', 40"):
            train_spam(tmp_path / "out", **linear)
        told = capsys.readouterr().err
        assert "times the tokens\n" in told
        assert "draws" not in told and "the head is fitted" not in told
        with pytest.raises(KeyError, match="'truncate', 40"):
            settings = {"long": "truncate"}
            train_spam(tmp_path / "out", **linear, task_settings=settings)
    del given["max_length"], given["method"]
    several = {**given, "output": tmp_path / "several", "dev": table}
    several["config"] = bert_keras.TrainConfig(method="finetune")
    with pytest.raises(KeyError, match="'mean', True, 1, 4, 5, 0.00015"):
        train_seeds("classification", seeds=2, **several)


@pytest.mark.thorough
def test_windows_are_not_truncation(
    make_model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from bert_keras.inference.predictor import Predictor
    from bert_keras.tasks.tagging.task import TokenClassification

    model = make_model(TokenClassification(("O", "B-x", "I-x")))
    capsys.readouterr()
    Predictor(model).predict(["word " * 60])
    assert capsys.readouterr().err == ""
