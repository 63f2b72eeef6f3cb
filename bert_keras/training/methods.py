"""How `train` adapts an encoder to a task: the option `method`.

`finetune` trains all weights. `linear` fits a linear head on vectors that the encoder
computes once, and leaves the encoder as it is. `contrastive` first trains the encoder
on pairs of rows within and across classes. `auto` chooses, see `with_method`.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, cast

from bert_keras.data.columns import Columns
from bert_keras.errors import ConfigError, counted, shown
from bert_keras.models.folder import Folder
from bert_keras.settings import POOLINGS, options_of
from bert_keras.tasks import check_settings
from bert_keras.tasks.base import Task, replaced
from bert_keras.tasks.classifier import PooledTask
from bert_keras.tasks.classifier_settings import POOLER, POOLING
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.hugging_face import from_model_config
from bert_keras.tasks.protocols import Linear, strata_of
from bert_keras.tasks.reranking import Reranking
from bert_keras.training.balanced_batches import ROWS
from bert_keras.training.config import DISTILLATION, TrainConfig
from bert_keras.training.linear_head import MOST_FOR_LAYERS

# Options without an effect.
_OF_EPOCHS = (
    "linear_probe",
    "epochs",
    "patience",
    "batch_size",
    "accumulation",
    "new_learning_rate",
    "restarts",
    *DISTILLATION,
)
UNUSED = {
    "finetune": (),
    "contrastive": _OF_EPOCHS,
    "linear": (
        *_OF_EPOCHS,
        "optimizer",
        "learning_rate",
        "warmup_ratio",
        "weight_decay",
        "global_clipnorm",
        "rematerialize",
        "freeze_layers",
        "lora_rank",
    ),
}
_OF_WINDOWS = ("stride", "max_windows", "train_windows")
_WHY = {
    "linear": "which makes no updates",
    "contrastive": "which trains on batches of pairs and then fits the head",
}
AUTO = "auto"
# Where `auto` chooses contrastive, by `benchmarks/gpu_quality.py`: a class has at most
# so many rows on average, and of two classes each has at least so many.
ROWS_OF_A_CLASS, LEAST_OF_TWO = 256, 4
# From so many classes on, it chooses linear instead, which was as accurate or more
# (`benchmarks/few_labels.py --classes`). Batches of contrastive have two rows of a
# class, so that one batch cannot hold more classes.
MANY_CLASSES = ROWS // 2
# From this mean length of texts on, `finetune` reads them in windows.
LONG_TEXTS = 2048  # characters


def with_method(
    task: type[Task] | Task,
    rows: Columns,
    config: TrainConfig,
    *,
    encoder: str | os.PathLike[str],
    settings: Mapping[str, Any],
    one_replica: bool = True,
    unlabeled: bool = False,
    help_of: Callable[..., bool] = lambda *_, **__: False,
    tell: Callable[[str], object],
) -> TrainConfig:
    """Return the config with the method that `auto` chooses for training rows.

    It is contrastive for few rows of a class, or linear if there are many classes or
    lower layers help, if the encoder's vectors of texts are comparable and all given
    options have an effect, and finetune otherwise. With rows without labels, which
    finetune learns from a teacher alone, it is contrastive or linear for many rows,
    too, and otherwise linear.

    Args:
        task, config, encoder: as in `train`; `settings` are the task's.
        rows: the training rows.
        one_replica: whether the strategy has a single one, and not on a TPU.
        unlabeled: whether there are rows without labels.
        help_of: returns for task, rows, config and encoder whether lower layers help,
            as `lower_layers_help` does.
        tell: gets a line with the method and the reason.
    """
    check_settings(task, settings)
    combine = settings.get("combine", getattr(task, "combine", ""))
    given = [name for name in UNUSED["contrastive"] if _is_given(config, name)]
    per_class, classes, least = 0.0, 0, LEAST_OF_TWO
    if _has_classes(task):
        own = settings if isinstance(task, type) else task.get_config()
        strata = strata_of(task, rows, **own)
        sizes = Counter(n for names in strata for n in set(names) if isinstance(n, str))
        classes = len(sizes)
        per_class = len(rows) / max(classes, 1)
        if classes == 2:
            least = min(sizes.values())
    reasons = {
        f"{task.name} has no classes": not _has_classes(task),
        f"`{(*given, '')[0]}` is given": bool(given),
        f"`combine` is {combine}": combine == "attention",
        "the strategy is not of one replica": not one_replica,
        f"of two classes, one has {counted(least, 'rows')}": least < LEAST_OF_TWO,
        "the encoder was not trained for vectors of texts": not isinstance(
            Folder.open(encoder).held(Embedding), Embedding
        ),
    }
    learns_alone = unlabeled and config.teacher is None and _has_classes(task)
    if not learns_alone:
        reasons |= {
            f"{counted(per_class, 'rows')} of a class, above {ROWS_OF_A_CLASS}": (
                per_class > ROWS_OF_A_CLASS
            ),
            "the texts are long, and finetune reads them in windows": (
                config.max_length is None
                and "long" not in settings
                and _mean_characters(rows) > LONG_TEXTS
            ),
        }
    reason = next((each for each, holds in reasons.items() if holds), "")
    if reason:
        method = "linear" if learns_alone else "finetune"
    else:
        method = "contrastive"
        reason = f"{counted(per_class, 'rows')} of a class, on an encoder of vectors"
        has_effect = not any(_is_given(config, name) for name in UNUSED["linear"])
        if has_effect and classes >= MANY_CLASSES:
            method, reason = "linear", f"{classes:,} classes, {reason}"
        elif has_effect:
            config = dataclasses.replace(config, method="linear")
            found = _task_of(task, rows, settings, encoder)
            reads_all = tries_layers(found, config, len(rows), settings)
            if reads_all and help_of(found, rows, config, encoder=encoder):
                method = "linear"
                reason += ", whose lower layers tell much more than the last"
    if learns_alone:
        reason += "; finetune does not learn from rows without labels"
    tell(f"method {method}: {reason} (--method sets another)")
    return dataclasses.replace(config, method=method)


def _task_of(
    task: type[Task] | Task,
    rows: Columns,
    settings: Mapping[str, Any],
    encoder: str | os.PathLike[str],
) -> Task:
    """Return the task of a run whose head is fitted on an encoder's vectors."""
    if isinstance(task, type):
        own = head_settings(encoder, settings, tell=str)
        return task.from_columns(rows, **{**settings, **own})
    if getattr(task, "pooling", POOLER) != POOLER:
        return task
    return replaced(task, **head_settings(encoder, {}, tell=str))


def _has_classes(task: type[Task] | Task) -> bool:
    """Return whether rows of a task belong to classes, by a linear head."""
    kind = task.head_codec.problem_type
    return isinstance(task, Linear) and kind.endswith("label_classification")


def _mean_characters(rows: Columns) -> float:
    """Return the mean length of single texts; 0 for pairs."""
    if "text" not in rows or "text_pair" in rows:
        return 0.0
    return sum(map(len, rows["text"])) / len(rows)


def _is_given(config: TrainConfig, name: str) -> bool:
    return bool(getattr(config, name) != options_of(TrainConfig)[name].default)


def check_method(
    task: type[Task] | Task, config: TrainConfig, settings: Mapping[str, Any]
) -> None:
    """Raise ConfigError if a task or an option does not go with the method.

    `settings` are of a task that is given by its class.
    """
    method = config.method
    if method == AUTO:
        raise ConfigError(
            "`method` must be finetune, linear or contrastive for several runs; "
            "received auto"
        )
    if method != "finetune" and not isinstance(task, Linear):
        raise ConfigError(
            f"`method` must be finetune for {task.name}, whose head is not linear on "
            f"one vector of a text; received {method}"
        )
    if config.linear_probe and not isinstance(task, Linear):
        raise ConfigError(
            f"`linear_probe` needs a task with a linear head on one vector of a text; "
            f"received it for {task.name}"
        )
    if method == "contrastive" and not _has_classes(task):
        raise ConfigError(
            f"`method` must be finetune or linear for {task.name}, which has no "
            "classes to pair rows by; received contrastive"
        )
    combine = settings.get("combine", getattr(task, "combine", ""))
    if method != "finetune" and combine == "attention":
        raise ConfigError(
            f"`combine` must be mean, max or first with `method` {method}, which "
            "trains no weights between encoder and head; received attention"
        )
    if method == "linear" and "train_windows" in settings:
        raise ConfigError(
            "`train_windows` has no effect with `method` linear, which reads all "
            f"windows once; received {settings['train_windows']}"
        )
    of_several = [each for each in _OF_WINDOWS if each in settings]
    if combine == "first" and of_several:
        raise ConfigError(
            f"`{of_several[0]}` has no effect with `combine` first, which reads one "
            f"window of a text; received {settings[of_several[0]]}"
        )
    for name in UNUSED[method]:
        if _is_given(config, name):
            value = getattr(config, name)
            raise ConfigError(
                f"`{name}` has no effect with `method` {method}, {_WHY[method]}; "
                f"received {shown(value)}"
            )


def check_unlabeled(task: type[Task] | Task, config: TrainConfig) -> None:
    """Raise ConfigError if a run learns nothing from rows without labels."""
    if config.method == "finetune" and config.teacher is not None:
        return  # `Distillation.of` checks the task
    if config.method == "finetune":
        raise ConfigError(
            "`unlabeled` has an effect only with `method` linear or contrastive, or "
            f"with a teacher; received it with `method` {config.method}"
        )
    if not _has_classes(task):
        raise ConfigError(
            f"`unlabeled` needs a task with classes; received it for {task.name}"
        )


OWN_POOLING = (
    "the head reads the {} of the tokens' vectors, as the encoder's folder says; "
    "transformers and `CrossEncoder` read it with a random pooler: their scores are "
    "wrong (--opens-in transformers)"
)


def head_settings(
    encoder: str | os.PathLike[str],
    given: Mapping[str, Any],
    *,
    tell: Callable[[str], object],
) -> dict[str, Any]:
    """Return `pooling` and `normalize` of a head on vectors of an encoder as it is.

    They are as the folder of the encoder says, by default the mean of the tokens,
    unless `given` names a pooling.
    """
    if "pooling" in given:
        return {}
    plain = from_model_config(Embedding, {})
    held = cast(Embedding, Folder.open(encoder).held(Embedding) or plain)
    pooling, normalize = held.pooling, held.normalize
    left_out = [
        name
        for name in ("dense", "default_prompt", "layers")
        if getattr(held, name) != getattr(plain, name)
    ]
    if pooling not in POOLING.words:
        left_out, pooling = [*left_out, f"pooling {pooling}"], "mean"
    if left_out:
        tell(
            f"{os.fspath(encoder)}: not used for the vectors of the head: "
            f"{', '.join(left_out)}"
        )
    length = ", of length 1" if normalize else ""
    tell(f"the head reads the {pooling} of the tokens' vectors{length}")
    return {"pooling": pooling, "normalize": normalize, **given}


def tries_layers(
    task: Task, config: TrainConfig, rows: int, given: Mapping[str, Any]
) -> bool:
    """Return whether cross-validation compares heads on all layers and on the last.

    So it is for method `linear` and up to `MOST_FOR_LAYERS` rows, those without labels
    included. `given` are the user's settings of the task.
    """
    return (
        config.method == "linear"
        and isinstance(task, PooledTask)
        and "layers" in options_of(type(task))
        and task.pooling != POOLER
        and "layers" not in given
        and rows <= MOST_FOR_LAYERS
    )


def vectors_of(
    encoder: str | os.PathLike[str],
    task: type[Task] | Task,
    rows: Columns,
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """Return `pooling` and `normalize` of single texts as the encoder was made for.

    They are as the folder of an encoder of vectors of texts says, whose pooler was not
    trained. Otherwise, and if `given` names a pooling, nothing is returned.
    """
    is_single = isinstance(task, Linear) and "text_pair" not in rows
    if not is_single or not {"pooling", "entailment"}.isdisjoint(given):
        return {}
    held = Folder.open(encoder).held(Embedding)
    if not isinstance(held, Embedding) or held.pooling not in POOLING.words:
        return {}
    normalize = given.get("normalize", held.normalize)
    return {"pooling": held.pooling, "normalize": normalize}


def pooling_of(
    encoder: str | os.PathLike[str],
    task: type[Task] | Task,
    rows: Columns,
    given: Mapping[str, Any],
) -> dict[str, str]:
    """Return the `pooling` by which `finetune` reads single texts, see `vectors_of`.

    Also by which a reranker reads pairs. It is more accurate
    (`benchmarks/gpu_quality.py` and `retrieval_quality.py`), but other tools read
    the head with a random pooler.
    """
    kind = task if isinstance(task, type) else type(task)
    if issubclass(kind, Reranking):
        return {} if "pooling" in given else _pooling_of_pairs(encoder)
    found = vectors_of(encoder, task, rows, given)
    return {name: value for name, value in found.items() if name == "pooling"}


def _pooling_of_pairs(encoder: str | os.PathLike[str]) -> dict[str, str]:
    """Return the `pooling` of an encoder of vectors, unless they are sparse."""
    held = Folder.open(encoder).held(Embedding)
    pooling = getattr(held, "pooling", POOLER)
    is_sparse = isinstance(held, Embedding) and held.is_sparse
    return {} if is_sparse or pooling not in POOLINGS else {"pooling": pooling}


def with_pooling_of(
    encoder: str | os.PathLike[str],
    task: Task,
    rows: Columns,
    given: Mapping[str, Any],
    *,
    tell: Callable[[str], object],
) -> Task:
    """Return a reranking task with `pooling_of` its encoder, and other tasks as given.

    Unlike the others, it reads pairs, which no method but `finetune` learns.
    """
    if not isinstance(task, Reranking) or task.pooling != POOLER:
        return task
    own = pooling_of(encoder, task, rows, given)
    if not own:
        return task
    tell(OWN_POOLING.format(own["pooling"]))
    return replaced(task, **own)


def pooling_note(
    encoder: str | os.PathLike[str],
    task: Task,
    rows: Columns,
    given: Mapping[str, Any],
) -> str:
    """Return a line about the pooler that `finetune` reads and another way would not.

    It is empty if the encoder's folder says nothing else, or the user's settings do.
    """
    if getattr(task, "pooling", "") != POOLER:
        return ""
    own = pooling_of(encoder, task, rows, given)
    if not own:
        return ""
    return (
        "the head reads BERT's pooler, as other tools do, though the encoder was made "
        f"for the {own['pooling']} of the tokens: --set pooling={own['pooling']}, or "
        "--method auto, is often more accurate"
    )
