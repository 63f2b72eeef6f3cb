"""A task's model with weights of a checkpoint: `TaskModel.from_pretrained`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import keras

from bert_keras.checkpoints import Checkpoint, assign, has_pooler
from bert_keras.checkpoints.names import tied_names
from bert_keras.config import DENSE_SCOPE
from bert_keras.data.class_names import with_clean_names
from bert_keras.errors import CheckpointError, ConfigError
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.heads import head_names
from bert_keras.models.folder import Folder, check_max_length
from bert_keras.models.new_tokens import with_tokens
from bert_keras.runs.notes import prefixed, say
from bert_keras.settings import LAYOUT, PRECISIONS, check_choice
from bert_keras.tasks import check_settings, class_of, named_or_given
from bert_keras.tasks.base import Task, overrides, replaced
from bert_keras.tasks.hugging_face import MASKED_LM
from bert_keras.tasks.needs import named_scope
from bert_keras.tasks.plain_settings import check_effects
from bert_keras.text.preprocessor import Preprocessor

_Model = TypeVar("_Model", bound=keras.Model)


def pretrained_model(
    kind: type[_Model],
    path: str | os.PathLike[str],
    task: str | type[Task] | Task | None,
    *,
    settings: Mapping[str, Any],
    preprocessing: Mapping[str, Any],
    add_tokens: Sequence[str] | None = None,
    **encoder: Any,
) -> _Model:
    """Implement `TaskModel.from_pretrained`.

    Args:
        kind: `TaskModel` or a subclass.
        path, task: as there.
        settings: the task's settings.
        preprocessing: the user's settings of the preprocessor.
        add_tokens: as in `with_tokens`.
        **encoder: arguments of `BertEncoder`; the seed is also the head's.
    """

    check_choice("precision", encoder["dtype"], (None, *PRECISIONS))
    given = task if isinstance(task, Task) else None
    folder = Folder.open(
        path, classes=settings.get("classes", getattr(given, "classes", None))
    )
    held = (
        folder.task() if task is None else folder.held(class_of(named_or_given(task)))
    )
    found = _settled(task, held, settings)
    is_held = held is not None and _same_head(held, found)
    folder.tell(facts=True)
    of_path = f"{path}: "
    with prefixed(of_path):
        folder = with_tokens(folder, add_tokens)
    checkpoint = folder.weights_for(found)
    stored = folder.preprocessing if is_held else {}
    stored = {"layout": LAYOUT.default, **stored, **preprocessing}
    stored["max_length"] = max_length_of(found, checkpoint, stored.get("max_length"))
    preprocessor = Preprocessor(folder.tokenizer, **stored)
    with prefixed(of_path):
        model = on_encoder(kind, checkpoint, found, preprocessor, **encoder)
    # Also if the folder's task has vectors of another kind.
    is_whole = is_held and all(has_scope(checkpoint, x) for x in found.needs.scopes)
    notes = None if is_whole else found.start(model, checkpoint)
    for line in notes or ():
        say(f"{of_path}{line}")
    for name in head_names(model, model.backbone):
        if notes is not None or f"{name}/" in found.needs.scopes:
            continue  # set by `start` or `on_encoder`
        if is_held and assign_scope(model, checkpoint, f"{name}/"):
            if not name.startswith(DENSE_SCOPE):
                folder.check_head()
            continue
        reason = f"the checkpoint has no {named_scope(name)}"
        if held is not None and not is_held:
            reason = f"the checkpoint's {name} has other labels"
        say(f"{of_path}{reason}: it is initialized randomly")
    model.backbone.source = str(path)
    return model


def _same_head(held: Task, found: Task) -> bool:
    """Return whether a task has the outputs of a folder's; generic names may change."""
    names = getattr(held, "classes", ())
    generic = tuple(f"LABEL_{number}" for number in range(len(names)))
    if names and names == generic and len(getattr(found, "classes", ())) == len(names):
        held = replaced(held, classes=found.classes)  # type: ignore[attr-defined]
    return held.head_codec.entries(held) == found.head_codec.entries(found)


def _settled(
    task: str | type[Task] | Task | None, held: Task | None, settings: Mapping[str, Any]
) -> Task:
    """Return the task with the given settings, and the folder's for the others."""
    if isinstance(task, Task):
        if settings:
            raise ConfigError(
                f"{', '.join(settings)}: a task instance has its own settings; give "
                "them to it, or give the task by name"
            )
        return task
    settings = with_clean_names(settings)
    if held is not None:
        check_settings(held, settings)
        changed = replaced(held, **settings)
        check_effects(changed, settings)
        return changed
    kind: Any = named_or_given(task)
    check_settings(kind, settings)
    for field in dataclasses.fields(kind):
        defaults = (field.default, field.default_factory)
        if field.name not in settings and defaults == (dataclasses.MISSING,) * 2:
            raise ConfigError(f"`{field.name}` must be given for the task {kind.name}")
    return kind(**settings)


def max_length_of(task: Task, checkpoint: Checkpoint, given: int | None) -> int:
    """Return the maximum length in tokens: the given one, or the task's if it fits."""
    if given is None:
        return min(task.needs.max_length, checkpoint.config.max_position_embeddings)
    check_max_length(given, checkpoint.config)
    return given


def on_encoder(
    kind: type[_Model],
    checkpoint: Checkpoint,
    task: Task,
    preprocessor: Preprocessor,
    *,
    seed: int | None,
    **settings: Any,
) -> _Model:
    """Return a task's model on the encoder of a checkpoint.

    Heads in `task.needs.scopes` are loaded from the checkpoint. Everything that is
    initialized randomly is reported, except the task's own head.
    """
    encoder = BertEncoder.from_checkpoint(
        checkpoint,
        pooler=task.needs.pooler,
        outputs=task.needs.outputs,
        seed=seed,
        **settings,
    )
    if task.needs.pooler and not has_pooler(checkpoint):
        say("the checkpoint has no pooler: it is initialized randomly, like the head")
    named = checkpoint.raw_config.get("architectures") or [""]
    is_generator = checkpoint.config.model_type == "electra" and MASKED_LM in named
    if is_generator and not any(s.startswith("cls/") for s in task.needs.scopes):
        say(
            "is the generator of an ELECTRA, which fills masks; the encoder meant for "
            f"tasks such as {task.name} is the discriminator"
        )
    model = kind(encoder, task, preprocessor, seed=seed)
    for scope in task.needs.scopes:
        is_told = overrides(task, "start")  # by `start`
        if not assign_scope(model, checkpoint, scope) and not is_told:
            lacks = f"the checkpoint has no {named_scope(scope)}"
            say(f"{lacks}: it is initialized randomly")
    return model


def has_scope(checkpoint: Checkpoint, scope: str) -> bool:
    """Return whether a checkpoint has weights in a scope."""
    return any(name.startswith(scope) for name in checkpoint.shapes)


def assign_scope(model: keras.Model, checkpoint: Checkpoint, scope: str) -> bool:
    """Assign a model's weights in a scope from a checkpoint; return if it has any.

    Raises:
        MismatchError: the checkpoint has only some of the weights, or others.
    """
    if not has_scope(checkpoint, scope):
        return False
    check_tied((weight.path for weight in model.weights), checkpoint)
    assign(model, checkpoint, scope=scope)
    return True


def check_tied(names: Iterable[str], checkpoint: Checkpoint) -> None:
    """Raise if weights of these names use a tied one that the checkpoint does not tie.

    `names` are canonical names, of a model or of the checkpoint.
    """
    untied = set(tied_names(checkpoint.config.model_type)) & set(
        checkpoint.unrecognized
    )
    if untied and any(name.startswith("cls/predictions/") for name in names):
        raise CheckpointError(
            f"{checkpoint.path}: {', '.join(sorted(untied))} must equal the weight it "
            "is tied to; the two differ"
        )
