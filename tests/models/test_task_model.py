"""`TaskModel` for users of Keras and KerasHub: features and messages."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROWS, refused, thorough

from bert_keras.checkpoints import write_huggingface
from bert_keras.inference.predictor import Predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.lora import add_lora
from bert_keras.model.optimizers import BertAdamW
from bert_keras.models.loading import load_model
from bert_keras.models.objective import TaskObjective
from bert_keras.models.task_model import TaskModel
from bert_keras.pretraining.pretrainer import BertPretrainer, write_pretrainer
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.generation import Translation
from bert_keras.tasks.masked_lm import MaskedLM
from bert_keras.tasks.tagging.task import FeatureTagging
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

TEXTS, LABELS = (list(column) for column in zip(*ROWS, strict=True))
CLASSES = ("ham", "promo", "spam")


def on_the_same(model: TaskModel, task: Any) -> TaskModel:
    """Return the model of another task on the encoder of a first one."""
    return TaskModel(model.backbone, task, model.preprocessor, seed=2)


# What learns.


@pytest.mark.parametrize(
    "task",
    [FeatureTagging(("O", "B-x"), layers="last"), Embedding(layers=(1,))],
    ids=lambda task: task.name,
)
def test_a_task_leaves_the_callers_encoder_as_it_was(
    encoder_folder: Path, task: Any
) -> None:
    encoder = BertEncoder.from_pretrained(
        str(encoder_folder), outputs=("hidden_states",), pooler=False
    )
    tokenizer = WordPieceTokenizer.from_folder(encoder_folder)
    before = [weight.path for weight in encoder.trainable_weights]
    model = TaskModel(
        encoder, task, Preprocessor(tokenizer, max_length=24, layout="packed")
    )
    assert [weight.path for weight in encoder.trainable_weights] == before
    learned = {weight.path for weight in model.trainable_weights}
    assert not [path for path in learned if "layer_1/" in path]
    both = [*model.trainable_variables, *model.non_trainable_variables]
    assert {id(v) for v in both} == {id(v) for v in model.variables}
    assert len(both) == len(model.variables)
    second = on_the_same(model, Embedding())
    assert {weight.path for weight in second.trainable_weights} >= set(before)


def test_fit_updates_only_trainable_weights(encoder_folder: Path) -> None:
    encoder = BertEncoder.from_pretrained(
        str(encoder_folder), outputs=("hidden_states",), pooler=False
    )
    tokenizer = WordPieceTokenizer.from_folder(encoder_folder)
    task = FeatureTagging(("O", "B-x"), layers="last", units=3)
    model = TaskModel(
        encoder, task, Preprocessor(tokenizer, max_length=24, layout="packed"), seed=1
    )
    batch = model.preprocessor.replace(layout="padded")(TEXTS)
    inputs = {name: np.array(value) for name, value in batch.items()}
    before = {weight.path: weight.numpy() for weight in model.weights}
    loss = "sparse_categorical_crossentropy"
    model.compile(BertAdamW(1e-2), loss=loss, run_eagerly=True)
    model.fit(inputs, inputs["padding_mask"], verbose=0)
    moved = {w.path for w in model.weights if (w.numpy() != before[w.path]).any()}
    assert moved == {weight.path for weight in model.trainable_weights}
    assert not [path for path in moved if path.startswith("bert/")]
    slots = [v.path for v in model.optimizer.variables if "momentum" in v.path]
    assert len(slots) == len(moved)


def test_lora_is_rejected_if_no_block_is_trained(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(FeatureTagging(("O", "B-x"), layers="last", units=3))
    encoder = model.backbone
    refused(
        lambda: add_lora(encoder, 4, seed=1, frozen=model.task.frozen(encoder)),
        "`lora_rank`",
        "frozen",
        "4",
    )


def test_ranks_of_lora_that_do_not_fit(make_model: Callable[..., Any]) -> None:
    encoder = make_model(Classification(CLASSES)).backbone
    for rank in (0, "4", 16):
        refused(lambda rank=rank: encoder.enable_lora(rank), "`rank`", str(rank))
    assert len(encoder.trainable_weights) == len(encoder.weights)
    encoder.enable_lora(2)
    refused(lambda: encoder.enable_lora(2), "`enable_lora`", "once")


def test_the_loss_of_an_encoder_in_float16_is_scaled(
    make_model: Callable[..., Any],
) -> None:
    scaled = keras.optimizers.LossScaleOptimizer
    model = make_model(Classification(CLASSES), dtype="mixed_float16")
    for optimizer in ("auto", "adam", BertAdamW(1e-3), scaled(BertAdamW(1e-3))):
        model.compile(optimizer)
        assert type(model.optimizer) is scaled
        assert type(model.optimizer.inner_optimizer) is not scaled
    model.compile(BertAdamW(1e-3), auto_scale_loss=False)
    assert type(model.optimizer) is BertAdamW
    for dtype in ("float32", "mixed_bfloat16"):
        model = make_model(Classification(CLASSES), dtype=dtype)
        model.compile(BertAdamW(1e-3))
        assert type(model.optimizer) is BertAdamW


def test_arguments_of_another_type(make_model: Callable[..., Any]) -> None:
    model = make_model(Classification(CLASSES))
    parts = {
        "encoder": model.backbone,
        "task": model.task,
        "preprocessor": model.preprocessor,
    }
    for name in parts:
        given: Any = {**parts, name: "other"}
        refused(lambda given=given: TaskModel(**given), f"`{name}`", "'other'")


@pytest.mark.thorough
def test_from_pretrained_names_arguments_of_another_type(
    encoder_folder: Path, spam_folder: Path
) -> None:
    for task in (3, object):
        for load in (
            lambda task=task: TaskModel.from_pretrained(encoder_folder, task),
            lambda task=task: load_model(spam_folder, task=task),
        ):
            refused(load, "`task`", str(task))
    for path in (3, None, BertEncoder):
        given: Any = path
        refused(
            lambda given=given: TaskModel.from_pretrained(given, "classification"),
            "`path` must be a path",
            str(path),
        )


def test_an_encoder_without_an_output_that_the_task_reads(
    encoder_folder: Path,
) -> None:
    encoder = BertEncoder.from_pretrained(str(encoder_folder))
    preprocessor = Preprocessor(
        WordPieceTokenizer.from_folder(encoder_folder), layout="packed"
    )
    task = FeatureTagging(("O", "B-x"), units=3)
    refused(
        lambda: TaskModel(encoder, task, preprocessor),
        "`encoder`",
        "feature-tagging",
        "hidden_states",
    )


# From a folder, in one line.


def new_heads(capsys: Any) -> list[str]:
    """Return the lines that were said of heads at random."""
    said = capsys.readouterr().err.splitlines()
    return [line for line in said if "random" in line]


def test_a_head_that_is_new_has_a_name(encoder_folder: Path, capsys: Any) -> None:
    TaskModel.from_pretrained(encoder_folder, "question-answering", max_length=24)
    assert new_heads(capsys) == [
        f"{encoder_folder}: the checkpoint has no question-answering head "
        "(qa_outputs): it is initialized randomly"
    ]


def test_a_task_by_name_on_an_encoder(encoder_folder: Path, capsys: Any) -> None:
    model = TaskModel.from_pretrained(
        encoder_folder, "classification", classes=CLASSES, max_length=24, seed=1
    )
    assert new_heads(capsys) == [
        f"{encoder_folder}: the checkpoint has no classifier: "
        "it is initialized randomly"
    ]
    assert model.task == Classification(CLASSES)
    assert model.preprocessor.max_length == 24
    wanted = BertEncoder.from_pretrained(str(encoder_folder))
    for ours, theirs in zip(model.backbone.weights, wanted.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    default = TaskModel.from_pretrained(encoder_folder, Classification(CLASSES))
    assert default.preprocessor.max_length == 40  # most that the encoder takes
    for call, words in (
        (
            dict(task="classification"),
            ("`classes` must be given for the task classification",),
        ),
        (
            dict(task="classification", classes=CLASSES, abstain_bellow=1),
            ("setting of classification", "abstain_bellow", "mean abstain_below?"),
        ),
        (
            dict(task="classification", classes=CLASSES, max_length="9"),
            ("`max_length`", "9"),
        ),
        (dict(task=Classification(CLASSES), classes=CLASSES), ("classes",)),
        (
            dict(task="classification", classes=CLASSES, precision="float12"),
            ("`precision`", "float12"),
        ),
        (
            dict(task="classification", classes=CLASSES, max_length=41),
            ("`max_length`", "40", "41"),
        ),
        (dict(), ("no task head",)),
    ):
        refused(
            lambda call=call: TaskModel.from_pretrained(encoder_folder, **call), *words
        )
    refused(
        lambda: TaskModel.from_preset(encoder_folder, load_weights=False),
        "`load_weights`",
    )


@pytest.fixture(scope="module")
def saved(make_model: Callable[..., Any], tmp_path_factory: Any) -> tuple[Any, Path]:
    """Return a model with a head and its folder."""
    model = make_model(Classification(CLASSES, abstain_below=0.25))
    folder = tmp_path_factory.mktemp("saved") / "model"
    model.save_to_preset(folder)
    return model, folder


@pytest.mark.parametrize(
    "call",
    [
        {},
        {"task": "classification"},
        {"task": Classification(CLASSES)},
        {"task": "classification", "abstain_below": 0.5},
        {"task": "classification", "classes": CLASSES},
    ],
)
def test_a_folder_provides_its_head(saved: Any, call: Any, capsys: Any) -> None:
    model, folder = saved
    again = TaskModel.from_preset(folder, **call)
    assert new_heads(capsys) == []
    for ours, theirs in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert again.preprocessor.settings() == model.preprocessor.settings()
    on_the_same(again, Classification(("a", "b")))
    (line,) = new_heads(capsys)
    assert str(folder) in line and "classifier" in line


def test_a_head_of_other_labels_or_of_another_task_is_new(
    saved: Any, capsys: Any
) -> None:
    _, folder = saved
    turned = TaskModel.from_pretrained(folder, "classification", classes=CLASSES[::-1])
    assert "classifier has other labels" in capsys.readouterr().err
    assert turned.task.classes == CLASSES[::-1]
    TaskModel.from_pretrained(folder, "regression")
    assert "no classifier: it is initialized randomly" in capsys.readouterr().err


def test_a_subclass_is_restored_as_itself(encoder_folder: Path) -> None:
    class Mine(TaskModel):
        pass

    model = Mine.from_pretrained(encoder_folder, "embedding")
    assert type(model) is Mine


def test_randomly_initialized_heads_are_reported(
    encoder_folder: Path, capsys: Any
) -> None:
    encoder = BertEncoder.from_pretrained(str(encoder_folder))
    assert capsys.readouterr().err == ""
    tokenizer = WordPieceTokenizer.from_folder(encoder_folder)
    model = TaskModel(
        encoder, Classification(CLASSES), Preprocessor(tokenizer, layout="packed")
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert "classifier" in line and str(encoder_folder) in line and "random" in line
    BertPretrainer(encoder)
    said = capsys.readouterr().err.splitlines()
    assert ["cls/predictions" in said[0], "cls/seq_relationship" in said[1]] == [
        True
    ] * 2
    TaskModel(
        BertEncoder(encoder.config),
        model.task,
        Preprocessor(tokenizer, layout="packed"),
    )
    keras.models.model_from_json(model.to_json())
    assert capsys.readouterr().err == ""  # nothing here is of a checkpoint
    bare = BertEncoder.from_pretrained(str(encoder_folder), pooler=False)
    folder = encoder_folder.parent / "bare"
    write_bare(bare, folder)
    capsys.readouterr()
    BertEncoder.from_pretrained(str(folder), pooler=True)
    assert "no pooler: it is initialized randomly" in capsys.readouterr().err


def write_bare(encoder: BertEncoder, folder: Path) -> None:
    arrays = {weight.path: weight.numpy() for weight in encoder.weights}
    settings = {**encoder.config.to_dict(), "architectures": ["BertModel"]}
    write_huggingface(folder, arrays, settings)


def test_a_pretrainer_has_the_heads_of_its_folder(
    encoder_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    model = BertPretrainer.from_pretrained(encoder_folder, seed=3)
    said = new_heads(capsys)
    assert [line.split("the checkpoint has no ")[1] for line in said] == [
        "masked-LM head (cls/predictions): it is initialized randomly",
        "next-sentence head (cls/seq_relationship): it is initialized randomly",
    ]
    (tmp_path / "model").mkdir()
    write_pretrainer(
        tmp_path / "model", model, WordPieceTokenizer.from_folder(encoder_folder)
    )
    again = BertPretrainer.from_pretrained(str(tmp_path / "model"))
    assert new_heads(capsys) == []
    for ours, theirs in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    single = BertPretrainer.from_pretrained(tmp_path / "model", next_sentence=False)
    assert not single.has_next_sentence


# What Keras and KerasHub offer.


def test_summary_shows_preprocessor_and_layers(make_model: Callable[..., Any]) -> None:
    lines: list[str] = []
    make_model(Classification(CLASSES)).summary(print_fn=lines.append)
    text = "\n".join(lines)
    for word in ("WordPiece", "tokens; max_length=24", "layer_1", "classifier"):
        assert word in text


def test_fit_without_compile_uses_the_task_s_defaults(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(Classification(CLASSES))
    history = model.fit(TEXTS, LABELS, verbose=0).history
    assert set(history) == {"loss", "accuracy"}
    assert isinstance(model.optimizer, BertAdamW)
    np.testing.assert_allclose(model.optimizer.learning_rate, 3e-4)  # a narrow encoder
    model.compile("sgd")
    assert isinstance(model.optimizer, keras.optimizers.SGD)
    assert type(model.loss) is type(model.task.loss())


@pytest.mark.slow
def test_a_compiled_model_is_restored_compiled(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model(Classification(CLASSES))
    model.compile(BertAdamW(1e-2), run_eagerly=True)
    model.fit(TEXTS, LABELS, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    wanted, found = (
        m.fit(TEXTS, LABELS, shuffle=False, verbose=0) for m in (model, again)
    )
    np.testing.assert_allclose(found.history["loss"], wanted.history["loss"], rtol=1e-5)
    assert int(again.optimizer.iterations) == 2


@pytest.mark.slow
def test_lora_is_restored(make_model: Callable[..., Any], tmp_path: Path) -> None:
    """`.keras` files had no LoRA, so that they did not open, or all was trained."""
    model = make_model(Classification(CLASSES))
    model.backbone.enable_lora(2, seed=1)
    model.compile(BertAdamW(1e-2), run_eagerly=True)
    model.fit(TEXTS, LABELS, verbose=0)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    again = keras.saving.load_model(tmp_path / "model.keras")
    same_trained(again, model)
    assert int(again.optimizer.iterations) == 1
    for ours, theirs in zip(again.weights, model.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert np.any(again.backbone.blocks[0].query.lora_kernel_b)
    plain = make_model(Classification(CLASSES))  # its kernels hold the sum
    plain.load_weights(tmp_path / "model.weights.h5")
    batch = model.preprocessor(TEXTS)
    np.testing.assert_allclose(plain(batch), model(batch), atol=1e-6)
    refused(lambda: model.save(tmp_path / "model.h5"), "`filepath`", ".keras")


def test_lora_of_an_own_model_is_restored(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    encoder = make_model(Classification(CLASSES)).backbone
    encoder.enable_lora(2)
    for inputs, states in (
        (encoder.input, encoder.output),
        (encoder.input, encoder(encoder.input)),
    ):
        x = states["sequence_output"][:, 0]
        model = keras.Model(inputs, keras.layers.Dense(2)(x))
        same_trained(type(model).from_config(model.get_config()), model)


def same_trained(found: Any, wanted: Any) -> None:
    """Compare the names of the trainable weights of two models."""
    paths = [[w.path for w in m.trainable_weights] for m in (found, wanted)]
    inside = [[path.split("layer_")[-1] for path in each] for each in paths]
    assert inside[0] == inside[1]
    assert sum("lora_kernel" in path for path in paths[0]) == 8


def test_copies_of_a_model_without_a_preprocessor(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(Classification(CLASSES))
    bare = TaskModel(model.backbone, model.task, None)  # type: ignore[arg-type]
    assert TaskModel.from_config(bare.get_config()).preprocessor is None
    tokenizer = model.preprocessor.tokenizer
    again = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301
    assert again.get_config() == tokenizer.get_config()
    refused(lambda: pickle.dumps(Predictor(model)), "Predictor", "`load_predictor`")


@pytest.mark.parametrize("part", ["whole encoder", "embeddings and a block"])
@pytest.mark.slow
def test_frozen_layers_of_the_encoder_are_restored_frozen(
    make_model: Callable[..., Any], tmp_path: Path, part: str
) -> None:
    model = make_model(Classification(CLASSES))
    encoder = model.backbone
    layers = [encoder.embeddings, encoder.blocks[0]]
    for layer in [encoder] if part == "whole encoder" else layers:
        layer.trainable = False
    model.compile(run_eagerly=True)
    model.fit(TEXTS, LABELS, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")  # with its optimizer
    paths = [[w.path for w in m.trainable_weights] for m in (model, again)]
    assert paths[0] == paths[1]
    assert again.backbone.trainable == encoder.trainable


@pytest.mark.parametrize(
    ("task", "layer", "texts", "labels"),
    [
        (Classification(CLASSES), "classifier", TEXTS, LABELS),
        thorough(MaskedLM(), "cls/predictions", TEXTS, None),
        thorough(Translation(), "decoder", TEXTS, TEXTS),
    ],
    ids=["head", "masked-lm", "decoder"],
)
@pytest.mark.slow
def test_frozen_layers_of_the_head_are_restored_frozen(
    make_model: Callable[..., Any],
    tmp_path: Path,
    task: Any,
    layer: str,
    texts: Any,
    labels: Any,
) -> None:
    model = make_model(task)
    for each in model.layers:
        if any(weight.path.startswith(layer) for weight in each.weights):
            each.trainable = False
    model.compile(run_eagerly=True)
    model.fit(texts, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")  # with its optimizer
    paths = [[w.path for w in m.trainable_weights] for m in (model, again)]
    assert paths[0] == paths[1]
    assert len(paths[0]) < len(model.weights)
    assert int(again.optimizer.iterations) == 1


@pytest.mark.slow
def test_the_loss_that_is_trained_is_that_of_compile(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(Classification(CLASSES))

    def seven(y_true: Any, y_pred: Any) -> Any:
        return keras.ops.mean(0.0 * y_pred, axis=-1) + 7.0

    model.compile(BertAdamW(1e-2), loss=seven, run_eagerly=True)
    assert model.fit(TEXTS, LABELS, verbose=0).history["loss"] == [7.0]
    assert model.evaluate(TEXTS, LABELS, verbose=0)[0] == 7.0
    objective = TaskObjective(model)
    targets = model.task.encode_targets(tf.constant(LABELS))
    outputs = model(model.preprocessor(TEXTS))
    total, _ = objective.sums(outputs, {"targets": targets})["loss"]
    assert float(total) == 7.0 * len(TEXTS)


@pytest.mark.slow
def test_weights_of_classes_by_name(make_model: Callable[..., Any]) -> None:
    losses = []
    model = make_model(Classification(CLASSES))
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)  # learns nothing
    plain = model.evaluate(TEXTS, LABELS, verbose=0)[0]
    for given in ({CLASSES[1]: 4.0}, {0: 1.0, 1: 4.0, 2: 1.0}):
        fitted = model.fit(TEXTS, LABELS, class_weight=given, verbose=0)
        losses += fitted.history["loss"]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    assert losses[0] > 1.5 * plain


@pytest.mark.slow
def test_datasets_of_dicts(make_model: Callable[..., Any]) -> None:
    model = make_model(Classification(CLASSES))
    model.compile(run_eagerly=True)
    rows = tf.data.Dataset.from_tensor_slices(({"text": TEXTS}, LABELS)).batch(6)
    named = model.evaluate(rows, verbose=0)
    np.testing.assert_allclose(
        named, model.evaluate(TEXTS, LABELS, verbose=0), rtol=1e-5
    )
    assert model.predict({"text": np.array(TEXTS)}, verbose=0).shape == (12, 3)
    made = rows.map(lambda x, y: (model.preprocessor(x["text"]), y))
    np.testing.assert_allclose(model.evaluate(made, verbose=0), named, rtol=1e-5)
    model.fit(made, validation_data=made, verbose=0)


@pytest.mark.thorough
def test_a_dataset_of_columns_may_hold_the_label(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(Classification(CLASSES))
    columns = {"text": TEXTS, "label": LABELS, "other": LABELS}
    rows = tf.data.Dataset.from_tensor_slices(columns).batch(4)
    wanted = model.evaluate(TEXTS, LABELS, verbose=0)
    np.testing.assert_allclose(model.evaluate(rows, verbose=0), wanted, rtol=1e-5)
    found = model.fit(rows, validation_data=rows, verbose=0).history
    assert set(found) >= {"loss", "val_loss"}


@pytest.mark.slow
def test_calls_of_fit_share_the_graph_of_the_text_handling(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(Classification(CLASSES))
    model.compile(run_eagerly=True)  # of the model; texts have a graph of their own
    counts = []
    for max_length in (None, None, 4, 4):
        if max_length:
            model.preprocessor.max_length = max_length
        model.fit(TEXTS, LABELS, verbose=0)
        counts.append(model._traced.experimental_get_tracing_count())
    assert counts == [1, 1, 2, 2]


def test_a_text_for_each_role(make_model: Callable[..., Any]) -> None:
    pairs = make_model(Classification(CLASSES, pairs=True))
    pairs.compile(run_eagerly=True)
    two = ("must be text, text_pair;", "received one text")
    refused(lambda: pairs.fit(TEXTS, LABELS, verbose=0), *two)
    refused(lambda: pairs.predict(TEXTS, verbose=0), *two)
    assert pairs.predict((TEXTS, TEXTS), verbose=0).shape == (12, 3)


@pytest.mark.slow
def test_batches_of_strings(make_model: Callable[..., Any]) -> None:
    model = make_model(Classification(CLASSES))
    model.compile(run_eagerly=True)
    wanted = model.evaluate(TEXTS, LABELS, verbose=0)
    np.testing.assert_allclose(model.test_on_batch(TEXTS, LABELS), wanted, rtol=1e-5)
    found = model.train_on_batch(np.array(TEXTS), np.array(LABELS))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.thorough
def test_callbacks_of_keras(make_model: Callable[..., Any], tmp_path: Path) -> None:
    model = make_model(Classification(CLASSES))
    model.compile(BertAdamW(1e-2), run_eagerly=True)
    kinds = keras.callbacks
    history = model.fit(
        TEXTS,
        LABELS,
        sample_weight=np.ones(len(TEXTS), "float32"),
        validation_data=(TEXTS, LABELS),
        epochs=3,
        verbose=0,
        callbacks=[
            # The validation loss that counts as best is the first one.
            kinds.EarlyStopping(
                "val_loss", patience=1, mode="max", restore_best_weights=True
            ),
            kinds.ModelCheckpoint(tmp_path / "{epoch}.keras"),
            kinds.LearningRateScheduler(lambda epoch, rate: rate / 2),
            kinds.CSVLogger(tmp_path / "log.csv"),
        ],
    ).history
    assert len(history["loss"]) == 2
    best = keras.saving.load_model(tmp_path / "1.keras")
    for ours, theirs in zip(model.weights, best.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    header = (tmp_path / "log.csv").read_text().splitlines()[0].split(",")
    assert {"accuracy", "learning_rate", "val_loss"} <= set(header)


@pytest.mark.slow
def test_tensorboard(make_model: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    model = make_model(Classification(CLASSES))
    model.compile(run_eagerly=True)
    model.fit(
        TEXTS, LABELS, verbose=0, callbacks=[keras.callbacks.TensorBoard(tmp_path)]
    )
    assert list(tmp_path.rglob("events*"))


def test_export_writes_strings_in_and_answers_out(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model(Classification(CLASSES))
    model.export(tmp_path / "served")
    model.export(tmp_path / "served")  # in place of the first
    serve = tf.saved_model.load(tmp_path / "served").signatures["serving_default"]
    found = serve(text=tf.constant(TEXTS))
    wanted = model.answer(tf.constant(TEXTS))
    assert found["label"].numpy().tolist() == wanted["label"].numpy().tolist()
    refused(lambda: model.export(tmp_path / "x", format="onnx"), "`format`", "onnx")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "diary.txt").write_text("mine")
    refused(lambda: model.export(tmp_path / "other"), "other", "diary.txt")


@pytest.mark.thorough
def test_a_quantized_model_answers_and_is_not_saved(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model(Classification(CLASSES))
    batch = model.preprocessor(TEXTS)
    wanted = model(batch).numpy()
    model.quantize("int8")
    found = model(batch).numpy()
    assert 0 < np.abs(found - wanted).max() < 0.2
    assert "int8" in {str(weight.dtype) for weight in model.weights}
    refused(lambda: model.save_to_preset(tmp_path / "folder"), "quantized")
    refused(lambda: model.save(tmp_path / "model.keras"), "quantized", ".keras")
    model.export(tmp_path / "served")


def test_the_interface_of_a_kerashub_backbone(make_model: Callable[..., Any]) -> None:
    model = make_model(Classification(CLASSES))
    encoder = model.backbone
    ids = np.array([[5, 6], [7, 5]])
    table = encoder.embeddings.word_embeddings.numpy()
    layer = encoder.token_embedding
    np.testing.assert_array_equal(layer(ids), table[ids])
    np.testing.assert_allclose(
        layer(table[ids], reverse=True), table[ids] @ table.T, rtol=1e-5
    )
    assert layer.output_dim == encoder.config.hidden_size
    assert model.get_layer("classifier").units == 3
    encoder.enable_lora(2)
    model.compile(run_eagerly=True)
    before = {w.path: w.numpy() for w in model.weights}
    model.fit(TEXTS, LABELS, verbose=0)
    moved = {w.path for w in model.weights if (w.numpy() != before[w.path]).any()}
    assert {path.split("/")[-1] for path in moved if "layer_" in path} <= {
        "lora_kernel_a",
        "lora_kernel_b",
    }
    assert [path for path in moved if path.endswith("lora_kernel_b")]


def test_task_weights_alone(make_model: Callable[..., Any], tmp_path: Path) -> None:
    model, other = (make_model(Classification(CLASSES)) for _ in range(2))
    model.get_layer("classifier").bias.assign([1.0, 2.0, 3.0])
    model.save_task_weights(str(tmp_path / "head.weights.h5"))
    other.load_task_weights(str(tmp_path / "head.weights.h5"))
    np.testing.assert_array_equal(other.get_layer("classifier").bias, [1, 2, 3])
    model.save_weights(tmp_path / "all.weights.h5")
    other.load_weights(tmp_path / "all.weights.h5")
    for ours, theirs in zip(other.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_batches_tell_of_truncated_texts_once(
    make_model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_model(Classification(("ham", "spam")))
    model.preprocessor = model.preprocessor.replace(max_length=4)
    model.compile(optimizer="sgd", jit_compile=False)
    long, y = ["see you see you see you"] * 2, [0, 1]
    model.predict_on_batch(tf.constant(["see"]))
    model.test_on_batch(tf.constant(["see", "you"]), tf.constant(y))
    assert "truncated" not in capsys.readouterr().err
    model.train_on_batch(tf.constant(long), tf.constant(y))
    assert "batch texts" in capsys.readouterr().err
    model.train_on_batch(tf.constant(long), tf.constant(y))
    assert not capsys.readouterr().err
