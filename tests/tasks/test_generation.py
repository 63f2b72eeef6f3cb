"""The tasks that write, by the verbs of the command line; how a decoder starts."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, refused
from task_cases.translation import CASES

from bert_keras.checkpoints import read_checkpoint
from bert_keras.cli.info import describe
from bert_keras.cli.main import main
from bert_keras.data.table import as_columns
from bert_keras.inference.predictor import load_predictor
from bert_keras.models.convert import convert
from bert_keras.models.folder import Folder
from bert_keras.models.loading import inherited_settings, load_model, new_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.base import changed
from bert_keras.tasks.generation import AbstractiveSummarization, Translation
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.training.config import TrainConfig

PAIRS = next(iter(CASES.values())).columns
WORDS = sorted({word for text in PAIRS["target"] for word in text.split()})


@pytest.fixture(scope="module")
def run(
    encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """Return the folder of a run on parallel files, and what the run said."""
    folder = tmp_path_factory.mktemp("written")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    WordPieceTokenizer([*special, *WORDS]).save(folder / "words")
    sources = ["", *PAIRS["source"]]
    targets = ["nothing", *PAIRS["target"]]
    (folder / "a.de").write_text("\n".join(sources) + "\n", encoding="utf-8")
    (folder / "a.en").write_text("\n".join(targets) + "\n", encoding="utf-8")
    said = io.StringIO()
    words = (
        "train translation --decoder 1/8/2 --epochs 1 --batch-size 4 --max-length 24"
    )
    words += " --new-learning-rate 1e-2 --set beams=2 --set max_target_length=4"
    places = {
        "encoder": encoder_folder,
        "train": folder / "a.de",
        "target-file": folder / "a.en",
        "dev": folder / "a.de",
        "dev-target-file": folder / "a.en",
        "test": f"again={folder / 'a.de'}",
        "test-target-file": folder / "a.en",
        "target-vocab": folder / "words",
        "output": folder / "model",
    }
    given = [word for k, v in places.items() for word in (f"--{k}", str(v))]
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        assert main([*words.split(), *given]) == 0
    return folder, said.getvalue()


@pytest.mark.slow
def test_train_tells_of_pairs_left_out_and_shows_outputs(run: Any) -> None:
    _, said = run
    assert "left out 1 of 9 pairs with an empty source or target: line 1" in said
    assert f"  {PAIRS['source'][0]} -> " in said
    assert "the decoder is initialized randomly" in said
    for name in ("train", "dev", "again"):
        line = f"1 of 8 {name} targets (12%) is truncated to 4 tokens: it has 5 tokens"
        assert said.count(line) == 1


@pytest.mark.slow
def test_parallel_test_files_are_scored(run: Any) -> None:
    scores = json.loads((run[0] / "model" / "scores.json").read_text("utf-8"))
    assert scores["again"]["num_examples"] == 8
    assert scores["again"]["bleu"] == scores["dev"]["bleu"]


def test_each_test_set_needs_its_targets(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run[0]
    places = f"--encoder {folder} --train {folder / 'a.de'} --output {folder / 'none'}"
    words = f"train translation {places} --test {folder / 'a.de'}"
    for count in 2, 3:
        more = f" --test-target-file {folder / 'a.en'}" * count
        assert main(f"{words}{more}".split()) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert "`--test-target-file`" in line and f"received {count} for 1" in line


def test_a_model_folder_is_one_of_transformers(run: Any) -> None:
    folder = run[0] / "model"
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["model_type"] == "encoder-decoder"
    assert config["decoder"]["vocab_size"] == len(WORDS) + 4
    assert config["decoder_start_token_id"] == 2 and config["eos_token_id"] == 3
    lines = (folder / "target_vocab.txt").read_text("utf-8").splitlines()
    assert lines[4:] == WORDS
    assert "enc_to_dec_proj/kernel" in read_checkpoint(folder).shapes
    assert len(str(describe(folder)["target_vocab"])) < 100
    line = refused(lambda: convert(folder, run[0] / "google", to="google"), "decoder")
    assert "google" in line


def test_evaluate_scores_texts_and_tokens(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sacrebleu")
    folder, _ = run
    words = ["evaluate", folder / "model", folder / "a.de", "--json"]
    words += ["--target-file", folder / "a.en"]
    assert main([str(word) for word in words]) == 0
    told = capsys.readouterr()
    assert told.err.count("1 of 8 targets (12%) is truncated to 4 tokens") == 1
    scores = json.loads(told.out)
    assert scores["num_examples"] == 8
    assert 0 <= scores["bleu"] <= 100 and 0 <= scores["token_accuracy"] <= 1
    assert 1 < scores["perplexity"] < 4 * len(WORDS)
    assert "tok:13a" in scores["signatures"]["bleu"]


def test_predict_names_source_and_hypotheses(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run[0] / "sources.jsonl"
    file.write_text('{"source": "see you at six"}\n{"source": ""}\n')
    words = ["predict", str(run[0] / "model"), "--input", str(file)]
    assert main([*words, "--set", "beams=3"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [set(row) for row in rows] == [{"source", "text", "texts", "scores"}] * 2
    assert rows[0]["source"] == "see you at six"
    assert len(rows[0]["texts"]) == 3 and rows[0]["texts"][0] == rows[0]["text"]
    assert rows[1]["text"] == ""


@pytest.mark.thorough
def test_16_bits_write_what_32_bits_write(run: Any) -> None:
    source = "lunch at home"
    (exact,) = load_predictor(run[0] / "model").predict([source])
    (found,) = load_predictor(run[0] / "model", precision="mixed_bfloat16").predict(
        [source]
    )
    np.testing.assert_allclose(found["scores"], exact["scores"], atol=0.1)


def test_a_source_of_a_megabyte_is_cut(run: Any) -> None:
    model = load_model(run[0] / "model")
    batch = model.task.features(model.preprocessor, ["win cash " * 120_000])
    assert batch["token_ids"].shape == (1, 24)


def test_files_of_unequal_lengths_are_one_line_and_exit_2(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.en").write_text("one\n", encoding="utf-8")
    words = ["evaluate", run[0] / "model", run[0] / "a.de"]
    words += ["--target-file", tmp_path / "b.en"]
    assert main([str(word) for word in words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "must have as many lines as" in line


@pytest.mark.parametrize("option", ["--decoder", "--target-vocab", "--target-file"])
def test_options_for_tasks_that_write(
    option: str, encoder_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(ROOT / "examples/data/emails/test.csv")
    words = ["train", "classification", "--encoder", str(encoder_folder)]
    words += ["--train", file, "--output", "x", option, "shared"]
    assert main(words) == 2
    assert f"`{option}` is for tasks that generate text" in capsys.readouterr().err


def weights_of(encoder: Path, **settings: Any) -> dict[str, np.ndarray]:
    task = Translation(**settings)
    model = new_model(task, encoder, TrainConfig(max_length=24))
    return {weight.path: weight.numpy() for weight in model.weights}


@pytest.mark.slow
def test_a_decoder_starts_from_the_encoder_or_another_bert(
    encoder_folder: Path,
) -> None:
    name = "bert/encoder/layer_1/attention/self/key/kernel"
    copied = weights_of(encoder_folder)
    np.testing.assert_array_equal(copied[f"decoder/{name}"], copied[name])
    other = weights_of(encoder_folder, decoder=str(encoder_folder))
    np.testing.assert_array_equal(other[f"decoder/{name}"], other[name])
    assert f"decoder/{name}" not in weights_of(encoder_folder, decoder="shared")
    new = weights_of(encoder_folder, decoder="2/16/2")
    assert np.abs(new[f"decoder/{name}"] - new[name]).max() > 0.1


@pytest.mark.slow
def test_rows_of_another_vocabulary_are_not_copied(
    encoder_folder: Path, tmp_path: Path
) -> None:
    """Those of one of the same size, and of a larger one."""
    tokens = WordPieceTokenizer.from_folder(encoder_folder).vocabulary
    name = "bert/embeddings/word_embeddings"
    for more in [], ["one", "more"]:
        folder = tmp_path / str(len(more))
        WordPieceTokenizer([*tokens[:4], *reversed(tokens[4:]), *more]).save(folder)
        for decoder in "encoder", str(encoder_folder):
            given = {"decoder": decoder, "target_vocab": str(folder)}
            found = weights_of(encoder_folder, **given)
            table = found[f"decoder/{name}"]
            assert len(table) == len(tokens) + len(more)
            same = table[: len(tokens)] == found[name]
            assert not same.any()


def test_a_folder_opens_without_the_bert_its_decoder_came_from(
    encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(encoder_folder, tmp_path / "other")
    task = Translation(decoder=str(tmp_path / "other"))
    model = new_model(task, encoder_folder, TrainConfig(max_length=24))
    save_model(model, tmp_path / "model")
    shutil.rmtree(tmp_path / "other")
    capsys.readouterr()
    found = TaskModel.from_pretrained(tmp_path / "model")
    assert "initialized randomly" not in capsys.readouterr().err
    for weight, wanted in zip(found.weights, model.weights, strict=True):
        np.testing.assert_array_equal(weight, wanted)


@pytest.mark.thorough
def test_a_folder_with_another_decoder_or_vocabulary(
    encoder_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def opened(path: Path, **settings: Any) -> tuple[TaskModel, str]:
        capsys.readouterr()
        return TaskModel.from_pretrained(path, **settings), capsys.readouterr().err

    shared, said = opened(encoder_folder, task="translation", decoder="shared")
    assert "the decoder's cross-attention: initialized randomly" in said
    assert "the checkpoint has no" not in said.replace("has no pooler", "")
    save_model(shared, tmp_path / "shared")
    copied, said = opened(tmp_path / "shared", task="translation", decoder="encoder")
    assert "random" not in said
    found, wanted = (m.answer(["see you"])["scores"] for m in (copied, shared))
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    save_model(copied, tmp_path / "copied")
    for count in 40, 4:  # more tokens than before, and fewer
        words = [f"word{number}" for number in range(count)]
        folder = tmp_path / str(count)
        WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]).save(folder)
        given = {"task": "translation", "target_vocab": folder}
        model, said = opened(tmp_path / "copied", **given)
        assert model.task.sizes == {"vocab_size": count + 4}
        assert "the decoder's embeddings: initialized randomly" in said
        assert "cross-attention" not in said
        # A path object serves as well; the vocabulary stays.
        given = {"task": "translation", "decoder": encoder_folder}
        save_model(model, tmp_path / "model")
        model, said = opened(tmp_path / "model", **given)
        assert model.task.sizes["vocab_size"] == count + 4


@pytest.mark.slow
def test_training_goes_on_from_a_decoder(run: Any) -> None:
    folder = run[0] / "model"
    trained = read_checkpoint(folder).arrays
    words = str(run[0] / "words")
    kept = inherited_settings("translation", Folder.open(folder), {})
    assert kept["beams"] == 2 and "temperature" not in kept
    assert "sizes" not in inherited_settings(
        "translation", Folder.open(folder), {"decoder": "a/b"}
    )
    for given in kept, {"decoder": "1/8/2", "target_vocab": words}:
        found = weights_of(folder, **given)
        for name in found:
            np.testing.assert_array_equal(found[name], trained[name])


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"decoder": ""}, "`decoder` must be encoder, shared"),
        ({"label_smoothing": 2}, "`label_smoothing`"),
        ({"beams": 0}, "`beams`"),
        ({"tied": 1}, "`tied` must be true or false"),
        ({"decoder": "shared", "sizes": {"vocab_size": 9}}, "must not be shared"),
        (
            {"target_vocab": {"vocabulary": ["a", "b"]}, "sizes": {"vocab_size": 1}},
            "`target_vocab` must have at most `vocab_size` tokens, 1; received 2",
        ),
    ],
    ids=["decoder", "smoothing", "beams", "tied", "shared", "vocabulary"],
)
def test_a_setting_out_of_its_range_is_refused(
    settings: dict[str, Any], part: str
) -> None:
    refused(lambda: Translation(**settings), part)


@pytest.mark.slow
def test_targets_are_cut_to_the_positions_of_the_decoder(encoder_folder: Path) -> None:
    config = TrainConfig(max_length=24)
    model = new_model(Translation(), encoder_folder, config)
    assert model.task.max_target_length == 40
    model.task = changed(model.task, max_target_length=100)
    pair = as_columns(source=["see you"], target=["win " * 90])
    assert model.task.max_target_length == 40
    assert model.task.further_scores(model, pair, 8)["perplexity"] > 1


def test_stored_settings_name_no_path() -> None:
    for changes in ({"sizes": None}, {"target_vocab": "folder"}):
        config = {**Translation().get_config(), **changes}
        refused(lambda config=config: Translation.from_config(config), "no path")


def test_summaries_are_read_and_scored() -> None:
    pytest.importorskip("rouge_score")
    rows = [
        {"document": "a long text", "summary": "text"},
        {"document": "", "summary": "b"},
    ]
    columns = AbstractiveSummarization.read(as_memory(rows))
    assert columns["source"] == ["a long text"]
    answers = {"text": np.array([b"text"], object), "scores": np.zeros((1, 1))}
    task = AbstractiveSummarization()
    assert task.score(columns, answers)["rougeL"] == 1.0
    assert task.mistakes(columns, answers) == []
    wrong = {**answers, "text": np.array([b"no"], object)}
    assert task.mistakes(columns, wrong)[0]["prediction"] == "no"
    blank = as_columns(source=["a"], target=[" "])
    refused(lambda: task.targets(blank), "`target` must hold a text")


def test_blank_cells_of_jsonl_are_left_out_and_lists_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"source": "a", "target": "b"},
        {"source": " ", "target": "b"},
        {"source": ["a", "b"], "target": "c"},
    ]
    lines = [json.dumps(row) + "\n" for row in rows]
    (tmp_path / "two.jsonl").write_text("".join(lines[:2]), encoding="utf-8")
    assert Translation.read(tmp_path / "two.jsonl")["source"] == ["a"]
    assert "left out 1 of 2 pairs" in capsys.readouterr().err
    (tmp_path / "all.jsonl").write_text("".join(lines), encoding="utf-8")
    line = refused(lambda: Translation.read(tmp_path / "all.jsonl"), "received a list")
    assert "all.jsonl:3: `source`" in line


@pytest.mark.parametrize("name", ["a.txt", "a.en"])
def test_a_file_without_a_table_holds_a_source_a_line(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text("a, b\n\nc\td\n", encoding="utf-8")
    read = {"roles": Translation.roles}
    assert Translation.read(tmp_path / name, **read)["source"] == ["a, b", "", "c\td"]
    for text in "source\na\n", "target\tsource\nb\ta\n":
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert Translation.read(tmp_path / name, **read)["source"] == ["a"]
    (tmp_path / name).write_text("en\tde\na\tb\n", encoding="utf-8")
    refused(lambda: Translation.read(tmp_path / name, **read), "no column `source`")


def as_memory(rows: list[dict[str, str]]) -> Any:
    from bert_keras.data.memory import rows_in_memory

    return rows_in_memory(rows)


def test_the_card_describes_both_halves(run: Any) -> None:
    card = (run[0] / "model" / "README.md").read_text("utf-8")
    assert "| encoder | 2 layers, hidden size 16, 2 attention heads" in card
    assert f"1 layer, hidden size 8, 2 attention heads, {len(WORDS) + 4} tokens" in card
    assert "pipeline_tag: translation" in card and "EncoderDecoderModel" in card
