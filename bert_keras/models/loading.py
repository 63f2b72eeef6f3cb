"""The models of folders: `load_model`, and `new_model` for training.

`TaskModel.from_pretrained` is in `pretrained_model`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from bert_keras.checkpoints import (
    Checkpoint,
    assign,
    check_encoder,
    check_head,
    has_pooler,
)
from bert_keras.checkpoints.checkpoint import as_checkpoint_error
from bert_keras.checkpoints.sentence_files import pair_scores
from bert_keras.config import DENSE_SCOPE, BertConfig
from bert_keras.data.class_names import comparable
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import CheckpointError, ConfigError, first_of
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.heads import head_names
from bert_keras.model.layers import undrawn
from bert_keras.models.folder import Folder, check_lengths, check_max_length
from bert_keras.models.kept_layers import with_layers
from bert_keras.models.new_tokens import with_tokens
from bert_keras.models.pretrained_model import (
    check_tied,
    has_scope,
    max_length_of,
    on_encoder,
)
from bert_keras.models.task_model import TaskModel
from bert_keras.runs.notes import say
from bert_keras.settings import LAYOUT, options_of
from bert_keras.tasks import named_or_given
from bert_keras.tasks.base import Task
from bert_keras.tasks.protocols import Writing
from bert_keras.text.new_tokens import with_marks
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

_OF_CLASSES = re.compile("classifier/(output/)?(kernel|bias)")
_PRETRAINING_HEADS = ("cls/predictions/", "cls/seq_relationship/")
_SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
)


def load_model(
    folder: str | os.PathLike[str] | Checkpoint | Folder,
    *,
    task: str | type[Task] | Task | None = None,
    dtype: Any = None,
    classes: str | Sequence[str] | None = None,
) -> TaskModel:
    """Load a model from a folder, ours or one of Hugging Face with a task's head.

    Args:
        folder: a model folder, `hf://owner/name` or an opened checkpoint.
        task: name or class of the task; needed for a custom task, since no code is
            imported because a folder names it. A task instance is put on the folder's
            encoder, whatever settings the folder holds.
        dtype: dtype policy, as in `BertEncoder`.
        classes: names of the outputs, used where the folder's cannot be: too few, or
            duplicates.

    Raises:
        CheckpointError: the folder contains no such model, or is broken.
    """
    opened = folder
    if not isinstance(opened, Folder):
        opened = Folder.open(opened, classes=classes)
    found = opened.task(task)
    checkpoint = opened.weights_for(found)
    place = f"{checkpoint.path}: config.json"
    with as_checkpoint_error(place, TypeError, ConfigError):
        settings = {"layout": LAYOUT.default, **opened.preprocessing}
        preprocessor = Preprocessor(opened.tokenizer, **settings)
        check_max_length(preprocessor.max_length, checkpoint.config)
        check_lengths(found, checkpoint.config)
    check_encoder(checkpoint)
    _check_widths(found, checkpoint)
    with undrawn():
        encoder = BertEncoder(
            checkpoint.config,
            pooler=found.needs.pooler,
            outputs=found.needs.outputs,
            dtype=dtype,
        )
        model = TaskModel(encoder, found, preprocessor)
    names = [weight.path for weight in model.weights]
    check_head(names, checkpoint, found.name)
    check_tied(names, checkpoint)
    passed: tuple[str, ...] = () if found.needs.pooler else ("bert/pooler/",)
    if taken := found.needs.scopes:  # others of the pretraining heads are not used
        passed += tuple(x for x in _PRETRAINING_HEADS if x not in taken)
    scopes = {name.split("/")[0] for name in names}
    if all(scope.startswith(("bert", DENSE_SCOPE)) for scope in scopes):
        # A task without a head ignores the heads.
        heads = {name.split("/")[0] for name in checkpoint.shapes} - scopes
        passed += tuple(f"{scope}/" for scope in sorted(heads))
    else:
        opened.check_head()
    assign(model, checkpoint, optional=passed)
    encoder.source = str(checkpoint.path)
    opened.tell()
    return model


def _check_widths(task: Task, checkpoint: Checkpoint) -> None:
    """Raise if a task requires a wider head than the checkpoint has.

    Checked before the head is built, so that a wrong config allocates no memory.
    """
    head = [v for k, v in checkpoint.shapes.items() if not k.startswith("bert/")]
    widest = max((size for shape in head for size in shape), default=0)
    classes = getattr(task, "entailment", ()) or getattr(task, "classes", ())
    for name, count in (
        ("classes", len(classes) if isinstance(classes, tuple) else 0),
        ("units", getattr(task, "units", None)),
    ):
        # A custom task may have one output more or less than it has classes.
        if widest and isinstance(count, int) and count > widest + 1:
            raise CheckpointError(
                f"{checkpoint.path}: `{name}` must fit the weights of the head, whose "
                f"widest has {widest:,} values; received {count:,}"
            )


def new_model(
    task: Task,
    encoder: str | os.PathLike[str],
    config: Any,
    *,
    devices: Devices | None = None,
    tokenizer: WordPieceTokenizer | None = None,
) -> TaskModel:
    """Return a task's model on a pretrained encoder.

    `config` is a `TrainConfig`. Heads in `task.needs.scopes` are loaded from the
    checkpoint. To be fine-tuned, the model takes the head of the encoder's folder if it
    is of the same task and fits; otherwise the head is initialized randomly. Only the
    weights are created in the scope of the devices' strategy. A `tokenizer` of the
    encoder that was used before need not be traced again.

    Raises:
        CheckpointError: the encoder is missing, broken or does not fit.
        ConfigError: `max_length` is above the encoder's limit.
    """
    keras.utils.set_random_seed(config.seed)
    given = Folder.open(encoder)
    with_layers(given, config.keep_layers).tell(facts=True)
    folder, _ = encoder_to_train(given, config)
    checkpoint = folder.weights_for(task)
    check_lengths(task, checkpoint.config)
    applied = pair_scores(folder.config)
    if applied not in (None, "softmax", getattr(task, "activation", applied)):
        say(
            f"the encoder is a cross-encoder with the activation {applied}, which the "
            f"head does not have (--set activation={applied})"
        )
    own_tokenizer = tokenizer or folder.tokenizer
    if getattr(task, "kind", "") == "tokens":  # prompts may be marks
        own_tokenizer = with_marks(
            own_tokenizer, [*getattr(task, "prompts", {}).values()]
        )
    preprocessor = Preprocessor(
        own_tokenizer,
        max_length=max_length_of(task, checkpoint, config.max_length),
        truncation=config.truncation,
        layout=config.layout,
    )
    own: dict[str, Any] = {
        "rematerialize": config.rematerialize,
        "seed": config.seed,
        "dtype": config.precision,
    }
    with devices.strategy.scope() if devices else contextlib.nullcontext():
        if config.student is not None:
            say(f"the student {config.student} has random weights")
            return _random_student(config.student, checkpoint, task, preprocessor, own)
        model = on_encoder(TaskModel, checkpoint, task, preprocessor, **own)
        notes = task.start(model, checkpoint)
        for line in notes or ():
            say(line)
        if notes == [] and isinstance(task, Writing):
            say("the decoder has trained weights, and is trained further")
        is_kept = notes is None and _is_kept(config, encoder)
        if is_kept and _keep_head(model, folder, checkpoint):
            notes = []
    loaded = {scope for scope in task.needs.scopes if has_scope(checkpoint, scope)}
    heads = {f"{name}/" for name in head_names(model, model.backbone)}
    lacks_pooler = task.needs.pooler and not has_pooler(checkpoint)
    is_loaded = heads <= loaded if notes is None else not notes
    model.has_pretrained_head = is_loaded and not lacks_pooler
    return model


def _is_kept(config: Any, encoder: str | os.PathLike[str]) -> bool:
    """Return whether training starts from a head that the encoder's folder may have.

    Fewer layers give other vectors, so that only a student keeps the head above them.
    """
    is_student = config.teacher == os.fspath(encoder)
    return (
        config.method not in ("linear", "contrastive")
        and not config.linear_probe
        and (config.keep_layers is None or is_student)
    )


def _keep_head(model: TaskModel, folder: Folder, checkpoint: Checkpoint) -> bool:
    """Set a model's head from its encoder's folder if it fits; say if there is one."""
    heads = [each for each in model.weights if not each.path.startswith("bert/")]
    line = f"the encoder's folder has a head for {model.task.name}, which is"
    try:
        held = folder.held(type(model.task))
        if held is None or not heads:
            return False
        folder.check_head()
    except CheckpointError as error:
        say(f"{line} not used: {error}")
        return False
    reason = _misfit(model.task, held)
    shapes = checkpoint.shapes
    if not reason and any(shapes.get(w.path) != tuple(w.shape) for w in heads):
        reason = "its weights have other shapes"
    if reason:
        say(f"{line} not used: {reason}")
        return False
    _take_head(model, held, checkpoint)
    say(f"{line} trained further")
    lost = _lost_settings(model.task, held)
    if lost:
        say(f"settings of that folder that are not kept: {lost} (--set sets them)")
    return True


def _misfit(task: Task, held: Task) -> str:
    """Return why a task cannot take the head of another one of its kind, or ""."""
    theirs, ours = (getattr(each, "classes", ()) for each in (held, task))
    if sorted(map(comparable, theirs)) != sorted(map(comparable, ours)):
        return f"it has the classes {first_of(theirs)}"
    if getattr(held, "entailment", ()) != getattr(task, "entailment", ()):
        return "it is the head of an entailment model"
    for name in ("pooling", "normalize", "layers"):
        value = getattr(held, name, None)
        if value != getattr(task, name, None):
            shown = str(value).lower()
            return f"it reads vectors with {name} {shown} (--set {name}={shown})"
    return ""


def _lost_settings(task: Task, held: Any) -> str:
    """Return the settings of a folder's task that a task does not have, but for those
    that follow from the rows.
    """
    options, lost = options_of(type(held)), []
    for each in dataclasses.fields(held):
        value = getattr(held, each.name)
        is_kept = value in (getattr(task, each.name, value), each.default)
        declared = options.get(each.name)
        if not is_kept and not (declared and declared.is_of_rows):
            lost.append(f"{each.name}={value}")
    return ", ".join(lost)


def encoder_to_train(folder: Folder, config: Any) -> tuple[Folder, BertConfig]:
    """Return the encoder of a run with the layers and tokens of its config.

    Also returns the sizes of the encoder that is trained, which for a new student are
    others than the folder's.

    Raises:
        ConfigError: it cannot have these layers, tokens or sizes.
    """
    folder = with_layers(folder, config.keep_layers)
    folder = with_tokens(folder, config.add_tokens)
    if config.student is None:
        return folder, folder.checkpoint.config
    return folder, _student_config(config.student, folder.checkpoint)


def _student_config(sizes: str, checkpoint: Checkpoint) -> BertConfig:
    try:
        preset = BertConfig.from_preset(sizes)
    except ConfigError as error:
        raise ConfigError(f"`student` {sizes}: {error}") from None
    return checkpoint.config.replace(**{key: getattr(preset, key) for key in _SIZES})


def _random_student(
    sizes: str,
    checkpoint: Checkpoint,
    task: Task,
    preprocessor: Preprocessor,
    settings: Mapping[str, Any],
) -> TaskModel:
    """Return a model of other sizes than a checkpoint's, with random weights."""
    config = _student_config(sizes, checkpoint)
    encoder = BertEncoder(
        config, pooler=task.needs.pooler, outputs=task.needs.outputs, **settings
    )
    return TaskModel(encoder, task, preprocessor, seed=settings["seed"])


def _take_head(model: TaskModel, held: Task, checkpoint: Checkpoint) -> None:
    """Set a model's heads from a task's, whose classes may have another order."""
    theirs, ours = (getattr(each, "classes", ()) for each in (held, model.task))
    numbers = {comparable(name): number for number, name in enumerate(theirs)}
    order = [numbers[comparable(name)] for name in ours]
    for weight in model.weights:
        if weight.path.startswith("bert/"):
            continue
        value = checkpoint.arrays[weight.path]
        is_of_classes = order and _OF_CLASSES.fullmatch(weight.path)
        weight.assign(value[..., order] if is_of_classes else value)
    model.task.unfold(model)


def inherited_settings(
    task: str | type[Task] | Task, encoder: Folder, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings that a task by name takes from the folder of its encoder.

    `given` are the user's.
    """
    kind = named_or_given(task)
    if not isinstance(kind, type):
        return {}
    held = kind.inherited(encoder.held(kind), given)
    return {name: value for name, value in held.items() if name not in given}
