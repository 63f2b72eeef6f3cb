"""How `train` adapts an encoder to a task: the method, and the vector of a text.

The method `finetune` trains all weights. `linear` fits a linear head on vectors that
the encoder computes once, and leaves the encoder as it is. `contrastive` first trains
the encoder on pairs of rows within and across classes. `auto` chooses, see
`choose_method`. How the tokens' vectors become the vector that the head reads follows
from the method and from the folder of the encoder, see `choose_pooling`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from bert_keras.data.holdout import class_sizes
from bert_keras.errors import ConfigError, counted, shown
from bert_keras.models.folder import Folder
from bert_keras.models.loading import inherited_settings
from bert_keras.report.values import words
from bert_keras.settings import ALL_LAYERS, BI, CROSS, POOLER, POOLINGS, options_of
from bert_keras.tasks import class_of
from bert_keras.tasks.base import Task, overrides, replaced
from bert_keras.training.balanced_batches import ROWS
from bert_keras.training.choices import AUTO, GIVEN, Choice, Facts
from bert_keras.training.config import TrainConfig, given_options, unused_by
from bert_keras.training.linear_head import MOST_FOR_LAYERS

_READABLE = (POOLER, *POOLINGS)  # by a head
_ONE_ROW = ("layers", "long", "entailment")  # settings of a task with one row a pair
# Up to so many pairs with classes, a sentence encoder compares them more accurately in
# two rows, see `benchmarks/default_settings.py`.
FEW_PAIRS = 1024
# What a head on the vectors of any encoder must reach, with so many pairs at least.
_HIGH, _LEAST_PAIRS = 0.7, 32
_NO_VECTORS = "the encoder's folder names no vectors of texts"
_OF_WINDOWS = ("stride", "max_windows", "train_windows")
# Where `auto` chooses contrastive, by `benchmarks/gpu_quality.py`: a class has at most
# so many rows on average, and of two classes each has at least so many.
ROWS_OF_A_CLASS, LEAST_OF_TWO = 256, 4
# From so many classes on, it chooses linear instead, which was as accurate or more
# (`benchmarks/few_labels.py --classes`). Batches of contrastive have two rows of a
# class, so that one batch cannot hold more classes.
MANY_CLASSES = ROWS // 2
# From this mean length of texts on, `finetune` reads them in windows.
LONG_TEXTS = 2048  # characters
_ONE_REPLICA = "contrastive needs a strategy of one replica"
_BY_FOLDER = "as the encoder's folder says"
_OFTEN_BETTER = "often more accurate than the pooler"
_READ_ELSEWHERE = "transformers does not read this head"


def choose_pair_encoder(
    facts: Facts, *, score_vectors: Callable[[Task, Facts], float]
) -> tuple[Facts, Choice | None]:
    """Choose whether both texts of a pair are read in one row, or each by itself.

    An encoder trained for vectors of texts compares texts without further training, and
    few pairs teach it less in one row. Method linear, which trains no encoder, always
    reads each text by itself. There is no choice without pairs, nor for a task
    instance, which keeps its own.

    Args:
        facts: of the run.
        score_vectors: returns the cross-validated score of a linear head on the
            encoder's vectors; called for few pairs with numbers, if the folder does not
            say whether the encoder was trained for vectors.

    Returns:
        The facts with the setting, and the choice.
    """
    task, given = facts.task, facts.given
    is_named = isinstance(task, type) and "pair_encoder" in options_of(task)
    if not is_named or "text_pair" not in facts.rows:
        return facts, None

    def chosen(value: str, reason: str) -> Choice:
        return Choice("pair encoder", value, reason, "--set pair_encoder")

    if "pair_encoder" in given:
        return facts, chosen(given["pair_encoder"], _as_given(facts.config))
    apart = {**given, "pair_encoder": BI}
    against, reason = _against_bi(facts), "a sentence encoder compares texts by itself"
    if facts.folder.embedding() is None:
        reason = "linear trains no encoder to compare texts in one row"
    is_few = _LEAST_PAIRS <= len(facts.rows) <= FEW_PAIRS
    if against == _NO_VECTORS and not _has_classes(task) and is_few:
        own = head_settings(facts.folder, apart) or apart
        score = score_vectors(task.from_columns(facts.rows, **own), facts)
        name = words(task.best_score)
        reason = f"{name} {score:.2f} by cross-validation, without training the encoder"
        against = "" if score >= _HIGH else f"{against}; with bi, {reason}"
    if against:
        return facts, chosen(CROSS, against)
    return dataclasses.replace(facts, settings=apart), chosen(BI, reason)


def _against_bi(facts: Facts) -> str:
    """Return why pairs are read in one row by default; "" if each text has its own."""
    config, given, pairs = facts.config, facts.given, len(facts.rows)
    own = [each for each in _ONE_ROW if each in given]
    own += ["pooling"] * (given.get("pooling") == POOLER)
    if own:
        return f"`{own[0]}` is given"
    learns_alone = facts.has_unlabeled and config.teacher is None
    if config.method == "linear" or (config.method == AUTO and learns_alone):
        return ""
    if config.method != AUTO:
        return f"{config.method} trains the encoder to compare texts in one row"
    held, has_classes = facts.folder.embedding(), _has_classes(facts.task)
    reasons = {
        _against_linear(facts): True,
        f"{pairs:,} pairs, above {FEW_PAIRS:,}": has_classes and pairs > FEW_PAIRS,
        "the encoder's vectors are not dense": held is not None and not held.is_dense,
        _NO_VECTORS: held is None,
    }
    return next((each for each, holds in reasons.items() if each and holds), "")


def choose_method(facts: Facts, *, lower_layers_help: Callable[[Task], bool]) -> Choice:
    """Choose the method.

    It is contrastive for few rows of a class, or linear if there are many classes or
    lower layers help, if all given options have an effect, and finetune otherwise. On
    several replicas it is linear in place of contrastive, which needs one, and where
    the seeds of several runs are compared contrastive in place of linear, which has
    none. With rows without labels, which finetune learns from a teacher alone, it is
    contrastive or linear for many rows, too, and otherwise linear.

    Args:
        facts: of the run.
        lower_layers_help: measures for a task that reads all layers whether the lower
            ones tell much more than the last; called where the choice depends on it.
    """

    def chosen(method: str, reason: str) -> Choice:
        return Choice("method", method, reason, "--method")

    task, config = facts.task, facts.config
    if config.method != AUTO:
        return chosen(config.method, _as_given(config))
    has_classes = _has_classes(task)
    own = facts.given if isinstance(task, type) else task.get_config()
    sizes = class_sizes(task.strata(facts.rows, **own) if has_classes else ())
    per_class = len(facts.rows) / max(len(sizes), 1)
    learns_alone = facts.has_unlabeled and config.teacher is None and has_classes
    compares_vectors = facts.given.get("pair_encoder") == BI
    if compares_vectors and not learns_alone and not _against_linear(facts):
        return chosen("linear", "the head compares the vectors of both texts of a pair")
    reason = _against_contrastive(facts, sizes)
    if not reason and not learns_alone:
        reason = _for_finetune(facts, per_class)
    if reason and not learns_alone:
        return chosen("finetune", reason)
    also = "; finetune does not learn from rows without labels" * learns_alone
    if reason:
        return chosen("linear", f"{reason}{also}")
    reason = f"{counted(per_class, 'rows')} per class on average"
    if facts.folder.embedding() is not None:
        reason += ", and a sentence encoder"
    against = _against_linear(facts)
    if not facts.one_replica:
        if against:
            return chosen("finetune", f"{against}, and {_ONE_REPLICA}")
        return chosen("linear", f"{reason}; {_ONE_REPLICA}{also}")
    if against:
        return chosen("contrastive", f"{reason}; not linear, as {against}{also}")
    if len(sizes) >= MANY_CLASSES:
        return chosen("linear", f"{len(sizes):,} classes, {reason}{also}")
    head = _task_of(facts)
    tries = tries_layers(head, "linear", len(facts.rows), facts.given)
    if tries and lower_layers_help(head):
        reason += "; the encoder's lower layers are much better than its last"
        return chosen("linear", f"{reason}{also}")
    return chosen("contrastive", f"{reason}; linear instead if it scores higher{also}")


def _against_contrastive(facts: Facts, sizes: Mapping[str, int]) -> str:
    """Return why neither contrastive nor linear is chosen by default; "" if one is.

    `sizes` are the numbers of rows of the classes.
    """
    given = [*given_options(facts.config, unused_by("contrastive")), ""]
    combine = facts.given.get("combine", getattr(facts.task, "combine", ""))
    least = min(sizes.values()) if len(sizes) == 2 else LEAST_OF_TWO
    reasons = {
        "the other methods are for classes of texts": not _has_classes(facts.task),
        f"`{given[0]}` is given": bool(given[0]),
        f"`combine` is {combine}": combine == "attention",
        f"one of the two classes has {counted(least, 'rows')}": least < LEAST_OF_TWO,
        "rows are pairs, and the encoder's vectors are of single texts": (
            "text_pair" in facts.rows
        ),
    }
    return next((each for each, holds in reasons.items() if holds), "")


def _against_linear(facts: Facts) -> str:
    """Return why linear is not chosen by default where contrastive may be."""
    given = given_options(facts.config, unused_by("linear"))
    if given:
        return f"`{given[0]}` is given"
    return "several runs are compared" if facts.is_compared else ""


def _for_finetune(facts: Facts, per_class: float) -> str:
    """Return why training all weights is better on these rows; "" if it is not."""
    if per_class > ROWS_OF_A_CLASS:
        return f"{counted(per_class, 'rows')} per class, above {ROWS_OF_A_CLASS}"
    is_open = facts.config.max_length is None and "long" not in facts.given
    is_single = "text" in facts.rows and "text_pair" not in facts.rows
    least = LONG_TEXTS * len(facts.rows)
    if is_open and is_single and sum(map(len, facts.rows["text"])) > least:
        return "the texts are long, and finetune reads them in windows"
    return ""


def _has_classes(task: type[Task] | Task) -> bool:
    """Return whether rows of a task belong to classes, by a linear head."""
    kind = task.head_codec.problem_type
    return overrides(task, "linear_targets") and kind.endswith("label_classification")


def _task_of(facts: Facts) -> Task:
    """Return the task of a run whose head is fitted on the encoder's vectors."""
    task, own = facts.task, head_settings(facts.folder, facts.given)
    if isinstance(task, type):
        return task.from_columns(facts.rows, **{**facts.given, **own})
    if getattr(task, "pooling", POOLER) != POOLER:
        return task
    return replaced(task, **own)


def check_method(
    task: type[Task] | Task, config: TrainConfig, settings: Mapping[str, Any]
) -> None:
    """Raise ConfigError if a task or an option does not go with the method.

    `settings` are of a task that is given by its class.
    """
    method = config.method
    if method != "finetune" and not overrides(task, "linear_targets"):
        raise ConfigError(
            f"`method` must be finetune for {task.name}, whose head is not linear on "
            f"one vector of a text; received {method}"
        )
    if config.linear_probe and not overrides(task, "linear_targets"):
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
    unused = unused_by(method)
    for name in given_options(config, unused):
        raise ConfigError(
            f"`{name}` has no effect with `method` {method}, {unused[name]}; received "
            f"{shown(getattr(config, name))}"
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


def choose_pooling(
    facts: Facts, method: Choice
) -> tuple[dict[str, Any], Choice | None]:
    """Choose how the head reads the tokens' vectors.

    Returns settings for the task, which do not replace the user's, and the choice;
    none if nothing is to be chosen.

    Args:
        facts: of the run.
        method: the choice of the method.
    """
    task, given = facts.task, facts.given
    if method.value != "finetune":
        if isinstance(task, Task) and getattr(task, "pooling", POOLER) != POOLER:
            return {}, None
        found = head_settings(facts.folder, given)
        return found, _pooling_choice({**given, **found}, facts, _left_out(facts))
    if isinstance(task, Task):
        return {}, None
    # A reranker reads pairs, which no other method learns.
    is_chosen = _reads_pairs_alone(task) or facts.is_open
    own: dict[str, Any] = pooling_of(facts) if is_chosen else {}
    if given.get("pair_encoder") == BI:
        own = head_settings(facts.folder, given)
    inherited = inherited_settings(task, facts.folder, {**given, **own})
    found = {**inherited, **own}
    if "pooling" in inherited:
        reason = "as in the encoder's folder"
        return found, _pooling_choice(found, facts, reason)
    if own:
        held = facts.folder.embedding()
        reason = _OFTEN_BETTER if held is None else _BY_FOLDER
        return found, _pooling_choice(own, facts, f"{reason}; {_READ_ELSEWHERE}")
    wanted = pooling_of(facts).get("pooling", POOLER)
    if wanted != POOLER:
        reason = (
            "BERT's pooler, as in other tools; the encoder was trained with the "
            f"{wanted} of the tokens, which is often more accurate"
        )
        return found, _pooling_choice({"pooling": POOLER}, facts, reason)
    if not overrides(task, "linear_targets"):
        return found, None
    reason = "BERT's pooler: the encoder's folder names no other"
    if "text_pair" in facts.rows:
        reason = "BERT's pooler, as cross-encoders read a pair"
    return found, _pooling_choice({"pooling": POOLER, **given}, facts, reason)


def _as_given(config: TrainConfig) -> str:
    """Return the reason of a choice that the user made, maybe by `opens_in`."""
    return f"as `opens_in` {config.opens_in} needs" if config.opens_in else GIVEN


def _pooling_choice(settings: Mapping[str, Any], facts: Facts, reason: str) -> Choice:
    value = settings["pooling"]
    if settings.get("normalize"):
        value += ", normalized"
    if "pooling" in facts.given:
        reason = _as_given(facts.config)
    return Choice("pooling", value, reason, "--set pooling")


def head_settings(folder: Folder, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `pooling` and `normalize` of a head on vectors of an encoder as it is.

    They are as the folder of the encoder says, by default the mean of the tokens,
    unless `given` names a pooling.
    """
    if "pooling" in given:
        return {}
    held = folder.embedding(plain=True)
    pooling = held.pooling if held.pooling in _READABLE else "mean"
    return {"pooling": pooling, "normalize": held.normalize, **given}


def _left_out(facts: Facts) -> str:
    """Return why a head on vectors reads them so, and what it does not read."""
    held = facts.folder.embedding()
    if held is None:
        return "the folder of the encoder names none"
    unread = [
        name
        for name in ("dense", "default_prompt", "layers")
        if getattr(held, name) != options_of(type(held))[name].default
    ]
    if held.pooling not in _READABLE:
        return f"not {held.pooling}, as the folder says, which a head cannot read"
    return f"{_BY_FOLDER}{', without ' * bool(unread)}{' and '.join(unread)}"


def head_task(
    task: Any, folder: Folder, rows: int, given: Mapping[str, Any] | None
) -> tuple[Task, bool]:
    """Return the task of a linear head, for any way to train the task.

    Also returns whether cross-validation chooses the layers, which it then reads all.
    `given` are the user's settings; `None`: the task is kept as it is.
    """
    if task.pooling == POOLER:
        try:
            task = replaced(task, **head_settings(folder, {"pair_encoder": BI}))
        except ConfigError:  # which does not go with its other settings
            task = replaced(task, **head_settings(folder, {}))
    tries = given is not None and tries_layers(task, "linear", rows, given)
    return (replaced(task, layers=ALL_LAYERS) if tries else task), tries


def tries_layers(task: Task, method: str, rows: int, given: Mapping[str, Any]) -> bool:
    """Return whether cross-validation compares heads on all layers and on the last.

    So it is for method `linear` and up to `MOST_FOR_LAYERS` rows, those without labels
    included. `given` are the user's settings of the task.
    """
    return (
        method == "linear"
        and overrides(task, "linear_targets")
        and "layers" in options_of(type(task))
        and getattr(task, "pooling", POOLER) != POOLER
        and getattr(task, "pair_encoder", CROSS) == CROSS
        and "layers" not in given
        and rows <= MOST_FOR_LAYERS
    )


def vectors_of(facts: Facts, task: type[Task] | Task) -> dict[str, Any]:
    """Return `pooling` and `normalize` of single texts as the encoder was made for.

    They are as the folder of a sentence encoder says, whose pooler was not
    trained. Where `train` chooses the method, other encoders are read by the mean of
    their tokens, unless the folder has a head of the task. Otherwise, and if the user
    names a pooling, nothing is returned.
    """
    is_single = overrides(task, "linear_targets") and "text_pair" not in facts.rows
    if not is_single or not {"pooling", "entailment"}.isdisjoint(facts.given):
        return {}
    held = facts.folder.embedding()
    if held is None and facts.is_open:
        if facts.folder.held(class_of(task)) is None:
            held = facts.folder.embedding(plain=True)
    if held is None or held.pooling not in _READABLE:
        return {}
    normalize = facts.given.get("normalize", held.normalize)
    return {"pooling": held.pooling, "normalize": normalize}


def _reads_pairs_alone(task: type[Task]) -> bool:
    """Return whether a task reads pairs whatever its settings."""
    return getattr(task, "pairs", None) is True


def pooling_of(facts: Facts) -> dict[str, str]:
    """Return the `pooling` by which `finetune` reads single texts, see `vectors_of`.

    Also by which a reranker reads pairs. It is more accurate
    (`benchmarks/gpu_quality.py` and `retrieval_quality.py`), but other tools read
    the head with a random pooler.
    """
    if _reads_pairs_alone(class_of(facts.task)):
        held = facts.folder.embedding()
        if held is None or "pooling" in facts.given:
            return {}
        is_read = held.is_dense and held.pooling in POOLINGS
        return {"pooling": held.pooling} if is_read else {}
    found = vectors_of(facts, facts.task)
    return {name: value for name, value in found.items() if name == "pooling"}
