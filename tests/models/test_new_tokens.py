"""Encoders with further tokens: their rows, training, resuming, export, extension."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS, VOCABULARY, assert_near, refused, thorough, write_encoder
from safetensors.numpy import load_file, save_file

from bert_keras.checkpoints import read_checkpoint
from bert_keras.cli.main import main
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import load_predictor
from bert_keras.models.convert import extend
from bert_keras.models.folder import Folder
from bert_keras.models.loading import load_model, new_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.new_tokens import with_tokens
from bert_keras.models.task_model import TaskModel
from bert_keras.runs.notes import collected
from bert_keras.tasks.generation import Translation
from bert_keras.tasks.masked_lm import MaskedLM
from bert_keras.text.new_tokens import with_new_tokens
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.training import finetune
from bert_keras.training.config import TrainConfig

FIRST = len(VOCABULARY)
TABLE, BIAS = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"
TOKENS = ("covid", "winz")  # c ##o ##v ##i ##d, and win ##z
TEXTS = ["see COVID now", "winz at covid19", "lunch, covid winz", "see you"]


def ids_of(*pieces: str) -> list[int]:
    return [VOCABULARY.index(piece) for piece in pieces]


STARTS = [ids_of("c", "##o", "##v", "##i", "##d"), ids_of("win", "##z")]


@pytest.fixture
def language_model(make_model: Any, tmp_path: Path) -> Path:
    """Return a masked LM whose bias tells the tokens apart."""
    folder = save_model(make_model(MaskedLM()), tmp_path / "masked")
    path = folder / "model.safetensors"
    arrays = load_file(path)
    arrays["cls.predictions.bias"] = np.arange(FIRST, dtype="float32")
    save_file(arrays, path)
    return folder


def padded(folder: Path, rows: int) -> Path:
    """Give tables of tokens further rows, of ones, as tools do for speed."""
    path = folder / "model.safetensors"
    arrays = load_file(path)
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        more = np.ones((rows, *arrays[name].shape[1:]), "float32")
        arrays[name] = np.concatenate([arrays[name], more])
    save_file(arrays, path)
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] += rows
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("rows", [thorough(0), 1, thorough(5)])
def test_new_rows_are_the_means_of_their_pieces(
    language_model: Path, rows: int
) -> None:
    old = Folder.open(padded(language_model, rows))
    with collected() as told:
        new = with_tokens(old, [*TOKENS, "Win", "[MASK]", "COVID"])
    assert told == [
        "added tokens, 2 of 5: covid, winz",
        "not added, since each is one token already: Win, [MASK]",
        "not added, since each is read as an earlier one: COVID",
    ]
    size = FIRST + max(rows, 2)
    assert new.config["vocab_size"] == new.checkpoint.config.vocab_size == size
    for name in (TABLE, BIAS):
        before, after = old.checkpoint.arrays[name], new.checkpoint.arrays[name]
        assert new.checkpoint.shapes[name] == after.shape and len(after) == size
        np.testing.assert_array_equal(after[:FIRST], before[:FIRST])
        means = [before[ids].mean(axis=0) for ids in STARTS]
        np.testing.assert_allclose(after[FIRST : FIRST + 2], means, rtol=1e-6)
        assert (after[FIRST + 2 :] == 1).all()
    found = new.tokenizer(TEXTS).to_list()
    assert found[0] == [*ids_of("see"), FIRST, *ids_of("now")]
    # A word alone: `covid19` stays what it was.
    assert found[1] == [FIRST + 1, *old.tokenizer("at covid19").numpy()]
    model = TaskModel.from_pretrained(language_model, add_tokens=TOKENS)
    plain = load_model(language_model)
    first, second = (each.predict(["see [MASK] at six"]) for each in (plain, model))
    np.testing.assert_allclose(second[..., :FIRST], first[..., :FIRST], atol=1e-6)


def test_ids_of_added_tokens_stay(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "encoder", vocab_size=FIRST + 2)
    tokenizer = WordPieceTokenizer(VOCABULARY)
    tokenizer.add_tokens(["[E1]", "x1"], special=True).save(folder)
    new = with_tokens(Folder.open(folder), TOKENS).tokenizer
    wanted = [FIRST, FIRST + 2, FIRST + 1]
    assert new(["[E1] covid x1"]).to_list() == [wanted]
    extend(folder, TOKENS, tmp_path / "extended")
    again = Folder.open(tmp_path / "extended")
    assert again.tokenizer(["[E1] covid x1"]).to_list() == [wanted]
    assert again.tokenizer.decode(wanted) == "covid"  # the others are special
    means = read_checkpoint(folder).arrays[TABLE][STARTS[0]].mean(axis=0)
    np.testing.assert_allclose(again.checkpoint.arrays[TABLE][FIRST + 2], means, 1e-6)


@pytest.mark.slow
def test_a_model_with_added_tokens_is_saved_and_exported(
    train_spam: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(text.replace("win", "winz"), label) for text, label in ROWS]
    texts, labels = zip(*rows, strict=True)
    given = {"train": {"text": texts, "label": labels}, "add_tokens": TOKENS}
    result = train_spam(tmp_path / "spam", freeze_layers=1, **given)
    err = capsys.readouterr().err
    assert "added tokens, 2 of 2: covid, winz" in err
    assert "the embeddings of the added tokens stay the mean of their pieces" in err
    page = (result.folder / "report.html").read_text()
    assert "2 (covid, winz), SHA-256" in page
    config = json.loads((result.folder / "config.json").read_text())
    assert config["vocab_size"] == FIRST + 2
    predictor = load_predictor(result.folder)
    tokenizer = predictor.model.preprocessor.tokenizer
    assert tokenizer(["winz"]).to_list() == [[FIRST + 1]]
    wanted = result.model.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(predictor.model.predict(TEXTS), wanted, atol=1e-6)
    served = load_predictor(
        export_model(load_model(result.folder), tmp_path / "served")
    )
    assert_near(list(predictor.predict(TEXTS)), list(served.predict(TEXTS)))
    # Saved again, over a tokenizer of another tool.
    (result.folder / "tokenizer.json").write_text("{}")
    save_model(result.model, result.folder)
    assert not (result.folder / "tokenizer.json").exists()
    # Trained on: the tokens are there, and no further row is made.
    capsys.readouterr()
    config = TrainConfig(add_tokens=TOKENS, max_length=24)
    model = new_model(result.model.task, result.folder, config)
    assert model.backbone.config.vocab_size == FIRST + 2
    assert "each is one token already: covid, winz" in capsys.readouterr().err


@pytest.mark.thorough
def test_resuming_with_added_tokens(
    train_spam: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = functools.partial(train_spam, tmp_path / "spam", epochs=1)
    with monkeypatch.context() as stopped:
        stopped.setattr(finetune, "finish_run", lambda *args, **given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            go(add_tokens=TOKENS)
    refused(go, "another `add_tokens`")
    refused(lambda: go(add_tokens=(*TOKENS[:1], "wins")), "`add_tokens[1]`: 'winz'")
    assert go(add_tokens=TOKENS).model.backbone.config.vocab_size == FIRST + 2


@pytest.mark.parametrize("decoder", ["encoder", "shared"])
@pytest.mark.slow
def test_a_decoder_from_the_encoder_has_the_tokens(
    encoder_folder: Path, decoder: str
) -> None:
    config = TrainConfig(add_tokens=TOKENS, max_length=24)
    task = Translation(decoder=decoder)
    with collected() as told:
        model = new_model(task, encoder_folder, config)
    assert not [line for line in told if "embeddings: initialized" in line]
    arrays = {weight.path: weight.numpy() for weight in model.weights}
    own = [name for name in arrays if name.endswith("/word_embeddings")]
    assert len(own) == (1 if decoder == "shared" else 2)
    means = read_checkpoint(encoder_folder).arrays[TABLE][STARTS[0]].mean(axis=0)
    for name in own:
        np.testing.assert_allclose(arrays[name][FIRST], means, 1e-6)


def test_what_cannot_be_added(encoder_folder: Path, tmp_path: Path) -> None:
    folder = Folder.open(encoder_folder)
    for tokens, part in (
        ([], "must be a list of texts"),
        ("covid", "must be a list of texts"),
        (["covid", "\u200b"], r"received '\u200b'"),
        ([" covid"], "without white space around them; received ' covid'"),
        ([3], "received 3"),
    ):
        refused(lambda tokens=tokens: with_tokens(folder, tokens), part)
    refused(lambda: extend(encoder_folder, ["win"], tmp_path / "new"), "received 'win'")
    with collected() as told:
        with_tokens(folder, ["ß日", "🧬", "日本語x"])
    assert told[1] == (
        "added from [UNK], since the vocabulary has no pieces for them: ß日, 🧬, "
        "日本語x"
    )
    model = new_model(Translation(), encoder_folder, TrainConfig(max_length=24))
    written = save_model(model, tmp_path / "writer")
    writer = Folder.open(written)
    refused(lambda: with_tokens(writer, TOKENS), "which has a decoder")


@pytest.mark.slow
def test_vocab_extends_an_encoder(
    language_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("Covid, winz covid.\n\nSee you, covid quiz 日語\n\n" * 5)
    target = tmp_path / "extended"
    command = ["vocab", str(corpus), "--extend", str(language_model)]
    command += ["--output", str(target)]
    for words, part in (
        (["--cased"], "`--cased` is for a new vocabulary"),
        (["--size", str(FIRST)], f"must be a whole number of at least {FIRST + 1}"),
        (["--min-count", "99"], "occur 99 times"),
    ):
        assert main([*command, *words]) == 2
        assert part in capsys.readouterr().err.splitlines()[-1]
    assert main([*command, "--size", str(FIRST + 3)]) == 0
    told = capsys.readouterr()
    assert told.out.strip() == str(target)
    # 15 covid save 4 pieces each, 5 quiz 3; 5 of the unknown 語 count as winz does.
    assert "3 new tokens: covid, quiz, winz" in told.err
    assert "pieces per word: 2.333 (" in told.err and ", 1.000 (" in told.err
    assert (target / "new_tokens.txt").read_text().split() == ["covid", "quiz", "winz"]
    assert "with 3 further tokens, whose" in (target / "README.md").read_text()
    tokens = (target / "vocab.txt").read_text().splitlines()
    assert tokens == [*VOCABULARY, "covid", "quiz", "winz"]
    arrays, old = (read_checkpoint(each).arrays for each in (target, language_model))
    means = [old[BIAS][ids].mean() for ids in (STARTS[0], STARTS[1])]
    np.testing.assert_allclose(arrays[BIAS][[FIRST, FIRST + 2]], means, rtol=1e-6)
    found = TaskModel.from_pretrained(target).preprocessor.tokenizer(["Covids"])
    assert found.to_list() == [[FIRST, *ids_of("##s")]]
    assert main([*command, "--size", str(FIRST + 1)]) == 0  # replaces it


@pytest.mark.thorough
def test_pretraining_goes_on_with_added_tokens(
    encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, words = tmp_path / "corpus.txt", tmp_path / "words.txt"
    corpus.write_text("Covid at six.\nWinz at home.\nSee you.\n\n" * 8)
    words.write_text("\ufeffcovid\r\n\n winz \n")
    data, run = tmp_path / "data", tmp_path / "run"
    common = ["--add-tokens", str(words)]
    write = ["pretraining-data", str(corpus), "--vocab", str(encoder_folder)]
    write += ["--max-length", "16", "--dupe-factor", "1", "--output", str(data)]
    assert main([*write, *common]) == 0
    go = ["pretrain", "--data", str(data), "--output", str(run), "--steps", "1"]
    go += ["--batch-size", "2", "--encoder", str(encoder_folder)]
    assert main(go) == 2
    told = capsys.readouterr().err
    assert "vocabulary other than the tokenizer's" in told
    assert "it has 2 further added tokens: give its `--add-tokens`" in told
    assert main([*go, *common]) == 0
    assert "added tokens, 2 of 2: covid, winz" in capsys.readouterr().err
    tokenizer = Folder.open(run / "model").tokenizer
    assert tokenizer(["covid winz"]).to_list() == [[FIRST, FIRST + 1]]
    new = [*go[:-2], "--size", "1/16/2", "--vocab", str(encoder_folder), *common]
    assert main([*new[:4], str(tmp_path / "other"), *new[5:]]) == 2
    assert "`add_tokens` is for a checkpoint" in capsys.readouterr().err
    words.write_text("\n")
    assert main([*go, *common]) == 2
    assert f"{words}: is empty" in capsys.readouterr().err


def test_words_of_other_scripts_are_found_anywhere() -> None:
    tokenizer = WordPieceTokenizer(VOCABULARY)
    tokens = ["covid", "π2", "코로나", "日語", "c++"]
    found, _ = with_new_tokens(tokenizer, tokens)
    alone = [token.single_word for token in found.added_tokens]
    assert alone == [True, True, False, False, False]
