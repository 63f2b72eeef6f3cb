"""What a folder is: `Folder`, its notes and its errors, in every verb."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import refused, thorough, write_tsv
from safetensors.numpy import load_file, save_file

from bert_keras.checkpoints.sentence_files import encoder_folder
from bert_keras.cli.main import main
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.models.folder import Folder
from bert_keras.models.loading import load_model, new_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.retrieval.embedder import embed
from bert_keras.runs import notes
from bert_keras.runs.notes import collected
from bert_keras.tasks.base import changed
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.generation import Translation
from bert_keras.tasks.hugging_face import unread_elsewhere
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.reranking import Reranking
from bert_keras.tasks.tagging.task import TokenClassification
from bert_keras.training.config import TrainConfig
from bert_keras.training.finetune import train

TEXTS = ["see you at six", "win cash now"]
PAIRS = [("see you at six", "lunch at home"), ("see you at six", "win cash")]
SIGMOID = "torch.nn.modules.activation.Sigmoid"
SOFTMAX = "torch.nn.modules.activation.Softmax"
IDENTITY = "torch.nn.modules.linear.Identity"


def foreign(folder: Path, *, without: tuple[str, ...] = (), **entries: Any) -> Path:
    """Make a folder of ours one of transformers, with further entries of its config."""
    path = encoder_folder(folder) / "config.json"
    config = json.loads(path.read_text())
    for key in ("bert_keras", "sentence_transformers", *without):
        config.pop(key, None)
    path.write_text(json.dumps(config | entries))
    return folder


def add_weights(folder: Path, **arrays: np.ndarray) -> Path:
    path = folder / "model.safetensors"
    save_file(load_file(path) | arrays, path)
    return folder


@pytest.fixture(scope="module")
def scorer(make_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a head of one output."""
    folder = tmp_path_factory.mktemp("scorer") / "model"
    return save_model(make_model(Regression()), folder)


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    def copy(folder: Path) -> Path:
        for file in folder.rglob("*"):
            target = tmp_path / "copy" / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.is_file():
                target.write_bytes(file.read_bytes())
        return tmp_path / "copy"

    return copy


@pytest.mark.parametrize(
    ("entries", "activation"),
    [
        ({"sentence_transformers": {"activation_fn": SIGMOID}}, "sigmoid"),
        ({"sentence_transformers": {"activation_fn": IDENTITY}}, "linear"),
        ({"sentence_transformers": {"version": "4.1.0"}}, "sigmoid"),
        ({"sbert_ce_default_activation_function": IDENTITY}, "linear"),
        (
            {"problem_type": "single_label_classification"}
            | {"sentence_transformers": {"activation_fn": SIGMOID}},
            "sigmoid",
        ),
    ],
)
@pytest.mark.slow
def test_a_cross_encoder_scores_pairs(
    scorer: Path, copy: Any, entries: dict[str, Any], activation: str
) -> None:
    folder = foreign(copy(scorer), without=("problem_type",), **entries)
    model = load_model(folder)
    assert model.task == Reranking(activation=activation)
    assert load_model(folder, task="regression").task == Regression(
        pairs=True, activation=activation
    )
    save_model(model, folder)  # `CrossEncoder` opens what is written
    config = json.loads((folder / "config.json").read_text())
    wanted = SIGMOID if activation == "sigmoid" else IDENTITY
    assert config["sentence_transformers"] == {"activation_fn": wanted}
    assert load_model(folder).task == model.task


def test_another_activation_is_refused(scorer: Path, copy: Any) -> None:
    folder = foreign(copy(scorer), sentence_transformers={"activation_fn": SOFTMAX})
    refused(lambda: load_predictor(folder), str(folder), "Softmax")


@pytest.mark.parametrize(
    ("activation", "problem", "task"),
    [
        (SOFTMAX, "multi_label_classification", Classification),
        (SIGMOID, "single_label_classification", MultiLabel),
        (IDENTITY, "single_label_classification", Classification),
        (IDENTITY, "multi_label_classification", MultiLabel),
    ],
)
def test_a_cross_encoder_of_classes_answers_as_its_activation_says(
    spam_folder: Path, copy: Any, activation: str, problem: str, task: Any
) -> None:
    entries = {"sentence_transformers": {"activation_fn": activation}}
    folder = foreign(copy(spam_folder), problem_type=problem, **entries)
    found = Folder.open(folder).task()
    assert isinstance(found, task) and found.pairs


@pytest.mark.parametrize(
    ("entries", "length"),
    [
        ({"sentence_transformers": {"activation_fn": IDENTITY}}, 20),
        ({"sbert_ce_default_activation_function": IDENTITY}, 20),
        ({}, 40),
    ],
)
def test_an_older_cross_encoder_has_the_length_of_its_tokenizer(
    scorer: Path, copy: Any, entries: dict[str, Any], length: int
) -> None:
    folder = foreign(copy(scorer), **entries)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"model_max_length": 20}
    path.write_text(json.dumps(config))
    assert Folder.open(folder).preprocessing == {"max_length": length}


def test_prompts_of_a_cross_encoder_are_refused_or_told(
    scorer: Path, copy: Any
) -> None:
    folder = foreign(copy(scorer))
    path = folder / "config_sentence_transformers.json"
    settings = {"model_type": "CrossEncoder", "prompts": {"query": "rank: "}}
    path.write_text(json.dumps(settings))
    told = "; ".join(Folder.open(folder).notes())
    assert "the folder's prompts are not used (query)" in told
    path.write_text(json.dumps(settings | {"default_prompt_name": "query"}))
    refused(lambda: load_predictor(folder), "`default_prompt_name`", "query")
    assert "`default_prompt_name`" in Folder.open(folder).facts()["answers"]


@pytest.mark.thorough
def test_a_folder_that_does_not_say_reads_texts_and_pairs(
    spam_folder: Path, copy: Any, tmp_path: Path, capsys: Any
) -> None:
    folder = foreign(copy(spam_folder))
    predictor = load_predictor(folder)
    single, pairs = predictor.predict(TEXTS), predictor.predict(PAIRS)
    assert single[0] != pairs[0] != pairs[1]
    assert predictor.predict({"text": ["a"], "text_pair": ["b"]}) == predictor.predict(
        [("a", "b")]
    )
    refused(lambda: predictor.predict([TEXTS[0], PAIRS[0]]), "pair of strings")
    rows = [("text", "other", "label"), (*PAIRS[0], "ham"), (*PAIRS[1], "spam")]
    file = str(write_tsv(tmp_path / "pairs.tsv", rows))
    given = ["predict", str(folder), "--input", file, "--text-pair", "other"]
    assert main(given) == 0
    tabs = ["\t".join(pair) for pair in PAIRS]
    assert main(["predict", str(folder), *tabs]) == 0
    assert main(["predict", str(folder), *tabs, "--set", "pairs=true"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for start in (0, 2, 4):
        for row, pair, wanted in zip(lines[start:], PAIRS, pairs, strict=False):
            assert (row["text_a"], row["text_b"]) == pair
            assert row["score"] == pytest.approx(wanted["score"], abs=1e-5)
    assert len(lines) == 6
    assert Folder.open(folder).facts()["pairs"] == "single texts or pairs"


def test_a_second_text_is_never_dropped(
    spam_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    rows = [("text", "text_pair", "label"), (*PAIRS[0], "ham"), (*PAIRS[1], "spam")]
    file = str(write_tsv(tmp_path / "pairs.tsv", rows))
    for verb in (
        ["predict", str(spam_folder), "--input"],
        ["evaluate", str(spam_folder)],
    ):
        assert main([*verb, file]) == 2
        assert "second text, `text_pair`" in capsys.readouterr().err
    assert main(["predict", str(spam_folder), "\t".join(PAIRS[0])]) == 0
    assert "a tab within a text is read as a space" in capsys.readouterr().err


def test_a_new_head_tells_that_it_lacks_the_activation(scorer: Path, copy: Any) -> None:
    folder = foreign(copy(scorer), sentence_transformers={"activation_fn": SIGMOID})
    with collected() as told:
        new_model(Regression(pairs=True), folder, TrainConfig())
    assert "--set activation=sigmoid" in "".join(told)
    sigmoid = Regression(pairs=True, activation="sigmoid")
    with collected() as told:
        new_model(sigmoid, folder, TrainConfig())
    assert "activation" not in "".join(told)


@pytest.mark.slow
def test_outputs_can_be_named(spam_folder: Path, copy: Any) -> None:
    names = {str(number): f"LABEL_{number}" for number in range(3)}
    folder = foreign(copy(spam_folder), id2label=names)
    wanted = load_predictor(folder).predict(TEXTS)
    model = TaskModel.from_pretrained(folder, classes=("a", "b", "c"))
    found = Predictor(model).predict(TEXTS)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one["score"], other["score"], atol=1e-5)
        assert set(one["probabilities"]) == {"a", "b", "c"}
    task = changed(load_predictor(folder).model.task, classes="a,b,c")
    assert task.classes == ("a", "b", "c")
    refused(
        lambda: changed(load_predictor(folder).model.task, classes="a,b"), "3 outputs"
    )


@pytest.mark.slow
def test_a_head_without_names_gets_some(
    spam_folder: Path, copy: Any, tmp_path: Path, capsys: Any
) -> None:
    wanted = list(
        load_predictor(spam_folder).predict(TEXTS[:1])[0]["probabilities"].values()
    )
    folder = copy(spam_folder)
    few, double = {"0": "a", "1": "b"}, {"0": "a", "1": "a", "2": "b"}
    for names in (few, double, {"0": "a", "5": ""}):
        foreign(folder, id2label=names, num_labels=3)
        refused(
            lambda: load_predictor(folder),
            "id2label",
            "--set classes=",
            "name the 3 outputs",
        )
    refused(lambda: load_predictor(folder, classes="x,y"), "`classes` must name", "x,y")
    model = TaskModel.from_pretrained(folder, classes=("x", "y", "z"))
    probabilities = Predictor(model).predict(TEXTS[:1])[0]["probabilities"]
    np.testing.assert_allclose(list(probabilities.values()), wanted, atol=1e-5)
    given = ["--set", "classes=x,y,z"]
    assert main(["predict", str(folder), TEXTS[0], *given]) == 0
    found = json.loads(capsys.readouterr().out)["probabilities"]
    assert list(found) == ["x", "y", "z"]
    assert main(["export", str(folder), str(tmp_path / "out"), *given]) == 0
    assert load_predictor(tmp_path / "out").model.task.classes == ("x", "y", "z")


def test_a_head_without_names_leaves_the_encoder(spam_folder: Path, copy: Any) -> None:
    names = {"0": "LABEL_0", "1": "LABEL_1"}
    folder = foreign(copy(spam_folder), id2label=names)
    refused(lambda: load_predictor(folder), "id2label", "3", "2 names")
    model = TaskModel.from_pretrained(folder, "embedding")
    assert model.task == Embedding()
    assert embed(folder, TEXTS).shape == (2, 16)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("pre_classifier.weight", (16, 16)),
        ("lstm.weight_ih_l0", (32, 16)),
        ("bert.encoder.layer.0.attention.self.query.lora_A.default.weight", (2, 16)),
    ],
)
def test_a_layer_that_changes_answers_is_an_error(
    spam_folder: Path, copy: Any, name: str, shape: tuple[int, ...]
) -> None:
    folder = add_weights(copy(spam_folder), **{name: np.ones(shape, "float32")})
    refused(lambda: load_predictor(folder), str(folder), name)
    refused(lambda: TaskModel.from_pretrained(folder), str(folder), name)


@pytest.fixture
def noted(make_model: Any, tmp_path: Path) -> Path:
    """Return the folder of a tagger with a CRF, which is not used."""
    task = TokenClassification(("O", "B-name", "I-name"))
    folder = save_model(make_model(task), tmp_path / "noted")
    return add_weights(folder, **{"crf.transitions": np.ones((3, 3), "float32")})


@pytest.mark.parametrize(
    "verb",
    [
        "predict",
        "info",
        thorough("train"),
        thorough("evaluate"),
        thorough("export"),
        thorough("features"),
        thorough("search"),
        thorough("explain"),
    ],
)
def test_each_verb_tells_the_notes(
    noted: Path, tmp_path: Path, capsys: Any, monkeypatch: Any, verb: str
) -> None:
    monkeypatch.setattr(notes, "_printed", set())
    words = tmp_path / "words.conll"
    words.write_text("see O\nBob B-name\n\nlunch O\nwith O\nBob B-name\n\n" * 4)
    texts = write_tsv(tmp_path / "texts.tsv", [("text",), *((t,) for t in TEXTS)])
    out, model = str(tmp_path / "out"), str(noted)
    given = {
        "predict": [model, "see Bob"],
        "evaluate": [model, str(words)],
        "export": [model, out],
        "features": [model, str(texts), "--output", f"{out}.npz"],
        "search": [model, str(texts), "cash"],
        "info": [model],
        "explain": [model, "see Bob", "--output", f"{out}.html", "--method"]
        + ["gradient-input"],
        "train": ["token-classification", "--encoder", model, "--train", str(words)]
        + ["--output", out, "--epochs", "1"],
    }
    assert main([verb, *given[verb]]) == 0
    told = capsys.readouterr()
    note = "the CRF is not used (crf.transitions)"
    assert (told.out if verb == "info" else told.err).count(note) == 1
    if verb == "predict":
        assert main([verb, *given[verb]]) == 0  # once in a process
        assert note not in capsys.readouterr().err


def embedding_folder(make_model: Any, folder: Path, **settings: Any) -> Path:
    return save_model(make_model(Embedding(**settings)), folder)


def into_subfolder(folder: Path) -> Path:
    """Move the encoder of a folder of sentence-transformers, as older ones have it."""
    (folder / "0_Transformer").mkdir()
    (folder / "config.json").rename(folder / "0_Transformer" / "config.json")
    for name in ("model.safetensors", "vocab.txt", "tokenizer_config.json"):
        (folder / name).rename(folder / "0_Transformer" / name)
    place = folder / "sentence_bert_config.json"
    place.rename(folder / "0_Transformer" / place.name)
    steps = json.loads((folder / "modules.json").read_text())
    steps[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(steps))
    return folder


PLAIN = {"units": 6, "activation": "tanh", "use_bias": True}
RESIDUAL = {**PLAIN, "use_residual": True}
DENSE = ({**RESIDUAL, "units": 12, "on_tokens": True}, RESIDUAL, PLAIN)


@pytest.mark.parametrize(
    "settings",
    [
        {"pooling": "cls+weightedmean", "dense": DENSE},
        thorough(
            {"pooling": "lasttoken", "normalize": False, "include_prompt": False}
            | {"prompts": {"query": "see ", "document": "a "}}
            | {"query_length": 5, "document_length": 6}
        ),
    ],
)
@pytest.mark.slow
def test_an_embedding_is_trained_as_its_encoder_says(
    make_model: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    folder = embedding_folder(make_model, tmp_path / "encoder", **settings)
    if "dense" in settings:
        into_subfolder(folder)
    foreign(folder)
    opened = load_model(folder)
    assert opened.task == Embedding(**settings)
    before = embed(folder, TEXTS)
    assert before.shape == (2, 6 if "dense" in settings else 16)
    result = train(
        "embedding",
        encoder=folder,
        train={"text": TEXTS * 4, "text_pair": TEXTS[::-1] * 4},
        dev={"text": TEXTS, "text_pair": TEXTS[::-1]},
        output=tmp_path / "trained",
        config=TrainConfig(epochs=1, batch_size=4, learning_rate=1e-9),
    )
    assert load_model(result.folder).task == opened.task
    np.testing.assert_allclose(embed(result.folder, TEXTS), before, atol=1e-4)
    assert load_model(foreign(result.folder)).task == opened.task


@pytest.fixture
def head_folder(make_model: Any, tmp_path: Path) -> Path:
    """Return the folder of a classifier that reads the mean of the tokens."""
    task = Classification(("a", "b", "c"), pooling="mean", normalize=True)
    return save_model(make_model(task), tmp_path / "head")


def test_a_head_of_modules_is_no_part_of_the_vectors(head_folder: Path) -> None:
    steps = json.loads((head_folder / "modules.json").read_text())
    kinds = [step["type"].rpartition(".")[2] for step in steps]
    assert kinds == ["Transformer", "Pooling", "Normalize", "Dense"]
    opened = Folder.open(head_folder)
    task = opened.task()
    assert task == Classification(("a", "b", "c"), pooling="mean", normalize=True)
    assert opened.notes() == []
    vectors = opened.held(Embedding)
    assert vectors == Embedding("mean", True)
    assert opened.held(Regression) is None
    assert embed(head_folder, TEXTS).shape == (2, 16)
    refused(lambda: load_model(head_folder, task=Embedding), "embedding")
    # And trained further: with its head, or as vectors without it.
    head = load_file(head_folder / "3_Dense" / "model.safetensors")
    config = TrainConfig()
    again = new_model(task, head_folder, config).get_layer("classifier")
    np.testing.assert_array_equal(again.kernel, head["linear.weight"].T)
    np.testing.assert_array_equal(again.bias, head["linear.bias"])
    names = {
        w.path.split("/")[0] for w in new_model(vectors, head_folder, config).weights
    }
    assert names == {"bert"}


@pytest.mark.slow
def test_a_head_of_modules_that_another_tool_changed(head_folder: Path) -> None:
    path = head_folder / "3_Dense" / "model.safetensors"
    wanted = load_predictor(head_folder).predict(TEXTS)
    head = load_file(path)
    add_weights(path.parent, **{"linear.bias": head["linear.bias"] + 1})
    (note,) = Folder.open(head_folder).notes()
    assert "the head in 3_Dense" in note and "differs" in note
    assert load_predictor(head_folder).predict(TEXTS) == wanted
    # sentence-transformers writes the head there alone.
    weights = load_file(head_folder / "model.safetensors")
    own = {name: weights.pop(name) for name in list(weights) if "classifier" in name}
    assert len(own) == 2
    save_file(weights, head_folder / "model.safetensors")
    save_file(head, path)
    assert Folder.open(head_folder).notes() == []
    assert load_predictor(head_folder).predict(TEXTS) == wanted
    config = json.loads((path.parent / "config.json").read_text())
    config["activation_function"] = SIGMOID
    (path.parent / "config.json").write_text(json.dumps(config))
    (note,) = Folder.open(head_folder).notes()
    assert "another tool has changed the model" in note and "linear head" in note


@pytest.mark.parametrize("other", [{"layers": "all"}, {"long": "windows"}])
def test_a_head_that_no_module_computes(
    make_model: Any, tmp_path: Path, other: dict[str, Any]
) -> None:
    task = Classification(("a", "b"), pooling="mean", **other)
    folder = save_model(make_model(task), tmp_path / "model")
    assert not (folder / "modules.json").exists()
    assert "no other tool" in unread_elsewhere(task)
    for readable in (Classification(("a", "b")), Regression(pooling="mean")):
        assert unread_elsewhere(readable) == ""


def test_a_new_head_needs_the_encoder_alone(make_model: Any, tmp_path: Path) -> None:
    folder = embedding_folder(make_model, tmp_path / "encoder")
    steps = json.loads((folder / "modules.json").read_text())
    steps.append({"idx": 3, "name": "3", "path": "3_LSTM", "type": "models.LSTM"})
    (folder / "modules.json").write_text(json.dumps(steps))
    foreign(folder)
    refused(lambda: embed(folder, TEXTS), "modules.json", "LSTM")
    model = TaskModel.from_pretrained(folder, "classification", classes=("a", "b"))
    assert model.task == Classification(("a", "b"))
    assert "error" in Folder.open(folder).sentence


@pytest.mark.thorough
def test_an_encoder_in_a_subfolder_is_read_by_each_verb(
    make_model: Any, tmp_path: Path, capsys: Any
) -> None:
    folder = embedding_folder(make_model, tmp_path / "model", dense=DENSE)
    wanted = embed(folder, TEXTS)
    into_subfolder(folder)
    export, converted = str(tmp_path / "export"), str(tmp_path / "converted")
    foreign(folder)
    assert main(["export", str(folder), export]) == 0
    assert main(["convert", str(folder), converted]) == 0
    capsys.readouterr()
    assert main(["info", str(folder)]) == 0
    told = capsys.readouterr().out
    assert "embedding" in told and f"{folder}\n" in told
    exported = [row["embedding"] for row in load_predictor(export).predict(TEXTS)]
    for found in (embed(folder, TEXTS), embed(converted, TEXTS), exported):
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    model = TaskModel.from_pretrained(folder, "classification", classes=("a", "b"))
    assert len(model.preprocessor.tokenizer) == model.backbone.config.vocab_size


def test_numbers_of_classes_that_differ_are_told(noted: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(noted, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    assert "label2id" not in "".join(Folder.open(folder).notes())
    config["label2id"] |= {"B-name": 2, "I-name": 1}
    (folder / "config.json").write_text(json.dumps(config))
    (note,) = (n for n in Folder.open(folder).notes() if "label2id" in n)
    assert note.endswith(
        "`id2label` has other numbers: B-name is 1, not 2; I-name is 2, not 1"
    )
    del config["label2id"]["B-name"]
    (folder / "config.json").write_text(json.dumps(config))
    assert "B-name is 1, not in `label2id`; " in "".join(Folder.open(folder).notes())


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"problem_type": "ranking"}, "with `problem_type` 'ranking'"),
        ({"num_hidden_layers": 3}, "`num_hidden_layers` must be the number of layers"),
        ({"intermediate_size": 9}, "the weights do not fit the model"),
    ],
)
def test_facts_tell_why_a_model_would_not_open(
    spam_folder: Path, copy: Any, entry: dict[str, Any], message: str
) -> None:
    folder = foreign(copy(spam_folder), **entry)
    assert message in Folder.open(folder).facts()["answers"]
    refused(lambda: load_model(folder), message)


def test_what_is_beside_the_weights_is_told(make_model: Any, tmp_path: Path) -> None:
    folder = embedding_folder(make_model, tmp_path / "model", normalize=False)
    assert "cosine" not in "".join(Folder.open(folder).notes())
    (folder / "model_head.pkl").write_bytes(b"\x80")
    foreign(folder, auto_map={"AutoModel": "modeling_my.MyBert"})
    place = folder / "config_sentence_transformers.json"
    values = json.loads(place.read_text())
    place.write_text(json.dumps({**values, "similarity_fn_name": "dot"}))
    told = "; ".join(Folder.open(folder).notes())
    for part in ("model_head.pkl: the classifier of SetFit", "modeling_my.MyBert"):
        assert part in told
    assert "the folder's similarity dot is not used" in told


@pytest.mark.thorough
def test_tokens_of_prompts_may_not_be_pooled(make_model: Any, tmp_path: Path) -> None:
    settings = {"prompts": {"query": "see cash "}, "include_prompt": False}
    folder = embedding_folder(make_model, tmp_path / "model", **settings)
    foreign(folder)
    model = load_model(folder)
    batch = model.preprocessor(["see cash win"])
    states = np.asarray(model.backbone(batch)["sequence_output"])[0, 3:]
    wanted = states.mean(0) / np.linalg.norm(states.mean(0))
    np.testing.assert_allclose(
        embed(folder, ["win"], prompt="query")[0], wanted, atol=1e-5
    )
    model.task = changed(model.task, default_prompt="query")
    export = export_model(model, tmp_path / "export")
    for row in load_predictor(export).predict(["win", "win"]):
        np.testing.assert_allclose(row["embedding"], wanted, atol=1e-5)


@pytest.mark.slow
def test_prompts_are_put_before_texts(make_model: Any, tmp_path: Path) -> None:
    prompts = {"query": "see ", "passage": "win "}
    folder = embedding_folder(make_model, tmp_path / "model", prompts=prompts)
    wanted = embed(folder, ["see cash", "win cash", "cash"])
    for row, prompt in enumerate(("query", "document", None)):
        found = embed(folder, ["cash"], prompt=prompt)
        np.testing.assert_allclose(found[0], wanted[row], atol=1e-5)
    refused(lambda: embed(folder, ["cash"], prompt="clustering"), "clustering")
    task = Embedding(prompts=prompts, default_prompt="query")
    default = save_model(make_model(task), tmp_path / "default")
    np.testing.assert_allclose(embed(default, ["cash"])[0], wanted[0], atol=1e-5)


def test_settings_of_generation_are_used_or_told(
    make_model: Any, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(notes, "_printed", set())
    folder = save_model(make_model(Translation()), tmp_path / "model")
    given = {"num_beams": 1, "max_length": 9, "no_repeat_ngram_size": 2}
    given |= {"early_stopping": True, "min_length": 0, "repetition_penalty": 1.5}
    foreign(folder, num_beams=7, early_stopping=True)
    assert load_model(folder, task="translation").task.beams == 7
    (folder / "generation_config.json").write_text(json.dumps(given))
    task = load_model(folder, task="translation").task
    assert (task.beams, task.max_target_length, task.no_repeat_ngram) == (1, 8, 2)
    told = capsys.readouterr().err
    assert told.count("early_stopping is not used; received True") == 1
    assert told.count("repetition_penalty is not used; received 1.5") == 1
    assert "min_length" not in told
    edited = {**given, "num_beams": 100}
    (folder / "generation_config.json").write_text(json.dumps(edited))
    refused(lambda: load_model(folder, task="translation"), "beams", "100")


def test_what_another_tool_has_changed_counts(
    spam_folder: Path, make_model: Any, tmp_path: Path
) -> None:
    """Other tools keep our entry of config.json when they write a changed model."""

    def rewritten(name: str, source: Path, file: str, **entries: Any) -> Folder:
        folder = shutil.copytree(source, tmp_path / name)
        given = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(given | entries))
        return Folder.open(folder)

    def told(folder: Folder) -> str:
        return " ".join(each for each in folder.notes() if "another tool" in each)

    names = {"0": "no", "1": "yes", "2": "perhaps"}
    labels = rewritten("labels", spam_folder, "config.json", id2label=names)
    assert labels.task().get_config()["classes"] == ("no", "yes", "perhaps")
    assert "classes ('no', 'yes', 'perhaps'), not (" in told(labels)
    several = {"problem_type": "multi_label_classification"}
    many = rewritten("many", spam_folder, "config.json", **several)
    assert many.task().name == "multi-label"
    same = rewritten("same", spam_folder, "config.json", transformers_version="5")
    assert not told(same) and "settings" in same.checkpoint.own_entry
    vectors = save_model(make_model(Embedding()), tmp_path / "vectors")
    place, prompts = "config_sentence_transformers.json", {"query": "", "document": ""}
    assert not told(rewritten("saved", vectors, place, prompts=prompts))
    prompted = rewritten("prompted", vectors, place, prompts={"query": "find "})
    assert prompted.task().get_config()["prompts"] == {"query": "find "}
    short = rewritten("short", vectors, "sentence_bert_config.json", max_seq_length=5)
    assert short.preprocessing == {"max_length": 5}
    assert "max_length 5, not" in told(short)
    head = {"architectures": ["BertForSequenceClassification"], "id2label": names}
    assert "architecture" in told(rewritten("head", vectors, "config.json", **head))
