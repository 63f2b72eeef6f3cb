"""The words that led to an answer: `explain`.

A task's method `explained` selects the numbers to explain, see `targets`;
`attribution` has the methods.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.errors import ConfigError, counted, received
from bert_keras.explained.item import Item
from bert_keras.explained.targets import Target
from bert_keras.explanations import attribution
from bert_keras.explanations.attribution import METHODS, Result
from bert_keras.explanations.explanation import Explanation, Explanations
from bert_keras.explanations.graphs import graphs_of, number_functions
from bert_keras.explanations.items import item_of, targets_of
from bert_keras.explanations.mistakes import Mistake, find_mistakes
from bert_keras.inference.predictor import Predictor, load_predictor, parts_of
from bert_keras.models.task_model import TaskModel
from bert_keras.runs.notes import say_once
from bert_keras.runs.progress import Progress
from bert_keras.settings import (
    ATTRIBUTIONS,
    BASELINES,
    check_choice,
    check_whole_number,
)
from bert_keras.tasks.base import overrides

_MOST_OF_A_TEXT = 32_768  # tokens of the windows of a text, with their activations
_MOST_TOKENS = 4096  # computed at once: gradients keep every layer's activations


def explain(
    model: str | os.PathLike[str] | Predictor | TaskModel,
    texts: Any,
    *,
    method: str = "integrated-gradients",
    target: str | None = None,
    against: str | None = None,
    baseline: str = "pad",
    steps: int | None = None,
    seed: int = 0,
    batch_size: int = 32,
    labels: Sequence[str | None] | None = None,
    mistakes: int | None = None,
) -> Explanations:
    """Return how much each word of texts contributes to the model's answers.

    What is explained depends on the task, see `targets`: the predicted class, each
    predicted label, the number, each entity, start and end of an answer, the best
    choice, the best word for each `[MASK]`, each sentence of a summary. For embeddings
    it is the similarity of two texts: give pairs.

    Args:
        model: a model folder, `hf://owner/name`, a predictor or a task model, in
            float32. A SavedModel has no gradients. A predictor or task model keeps its
            traced functions for the next call.
        texts: as in `Predictor.predict`; with `mistakes`, labelled rows as `evaluate`
            takes them.
        method: `integrated-gradients`, `gradient-input`, `occlusion` or `shapley`.
        target: another answer to explain: a class, a label, the number of a choice, a
            type of entity, a part of the context ("" for no answer), a word for the
            mask.
        against: the answer to compare with, such as the expected class; by default all
            others together.
        baseline: the token that replaces words: `pad` or `mask`.
        steps: points of integrated gradients, or orders of words for `shapley`. `None`:
            16 points, doubled up to 1,024 while the gap exceeds 1%; or 24 orders.
        seed: seed of the orders for `shapley`.
        batch_size: maximum rows computed at once.
        labels: the true label of each text, which the page shows beside the answer;
            `None` for one that is not known.
        mistakes: explain only so many of the rows that the model answers wrongly, in
            the order of the report: the most confident, or the worst, first. Each has
            its `label` and `line`. A wrong class is compared with the true one, unless
            `target` or `against` is given.

    Raises:
        ConfigError: an argument is not allowed for the task, or there is another number
            of labels than of texts.
        DataError: a text is missing or not a string, or of `mistakes` a label.

    Example:
        >>> explain("models/emails", ["You have won a prize!"])[0].top(1)
        [('prize', 2.9)]
    """
    check_choice("method", method, ATTRIBUTIONS)
    check_choice("baseline", baseline, BASELINES)
    check_whole_number("batch_size", batch_size, least=1)
    if mistakes is not None:
        check_whole_number("mistakes", mistakes, least=1)
        if labels is not None:
            raise ConfigError(
                "`labels` must be left out with `mistakes`, whose rows have labels; "
                f"received {counted(len(labels), 'labels')}"
            )
    chosen: dict[str, Any] = {}
    if steps is not None:
        check_whole_number("steps", steps, least=1, most=10_000)
        if method not in ("integrated-gradients", "shapley"):
            raise ConfigError(
                f"`steps` must be left out for {method}; {received(steps)}"
            )
        chosen["steps"] = steps
    if method == "shapley":
        chosen["seed"] = seed
    name = os.fspath(model) if isinstance(model, str | os.PathLike) else ""
    predictor, model = predictor_of(model)
    explainer = Explainer(
        model, functools.partial(METHODS[method], **chosen), baseline, batch_size
    )
    wrong: list[Mistake] = []
    if mistakes is None:
        items = items_of(predictor, texts)
    else:
        wrong = find_mistakes(
            predictor, model, texts, most=mistakes, batch_size=batch_size
        )
        items = [tuple(map(_printable, each.parts)) for each in wrong]
    if labels is not None and len(labels) != len(items):
        raise ConfigError(
            "`labels` must have one label for each text; received "
            f"{len(labels)} for {counted(len(items), 'texts')}"
        )
    answers = answers_of(predictor, items, batch_size)
    rivals = [against] * len(items)
    if target is None and against is None:
        rivals = [each.rival for each in wrong] or rivals
    known: list[dict[str, Any]] = [{"label": x.label, "line": x.line} for x in wrong]
    known = known or [{"label": label} for label in labels or [None] * len(items)]
    found: list[Explanation] = []
    with Progress("explanations", unit="texts", total=len(items)) as shown:
        for parts, answer, rival, facts in zip(
            items, answers, rivals, known, strict=True
        ):
            item = item_of(model, parts, answer, target=target, against=rival)
            found.append(dataclasses.replace(explainer(item), **facts))
            shown.add()
    return Explanations(found, method=method, baseline=baseline, model=name)


def predictor_of(
    model: str | os.PathLike[str] | Predictor | TaskModel,
) -> tuple[Predictor, TaskModel]:
    """Return the predictor of a model that has gradients, and the model.

    Raises:
        ConfigError: it is an export, or not in float32.
    """
    if isinstance(model, TaskModel):
        predictor = graphs_of(model).predictor
    else:
        predictor = model if isinstance(model, Predictor) else load_predictor(model)
    if not isinstance(predictor.model, TaskModel):
        raise ConfigError(
            "`model` must be a model folder, whose layers can be explained; received "
            "an export"
        )
    dtype = predictor.model.backbone.embeddings.compute_dtype
    if dtype != "float32":
        raise ConfigError(f"`model` must be in float32; received {dtype}")
    return predictor, predictor.model


def items_of(predictor: Predictor, texts: Any) -> list[tuple[Any, ...]]:
    """Return the text of each role of each item; lone surrogates become `?`.

    Raises:
        DataError: an item has another form.
    """
    columns = parts_of(predictor.model.task.paired(), texts)
    return [tuple(map(_printable, item)) for item in zip(*columns, strict=True)]


def answers_of(
    predictor: Predictor, items: Sequence[tuple[Any, ...]], batch_size: int
) -> list[dict[str, Any]]:
    """Return the answer to each item, or to each pair of texts."""
    if not items:
        return []
    task = predictor.model.task
    if not overrides(task, "paired"):
        given = [item[0] if len(item) == 1 else item for item in items]
        return predictor.predict(given, batch_size=batch_size)
    flat = [text for item in items for text in item]
    pairs: Any = task.paired()
    return pairs.pair_answers(predictor.predict(flat, batch_size=batch_size))


def _printable(part: Any) -> Any:
    if isinstance(part, str):
        return part.encode("utf-8", "replace").decode("utf-8")
    return [_printable(each) for each in part]


class Explainer:
    """Explains items of one model.

    Args:
        model: the model, in float32.
        method: one of `attribution.METHODS`, with its settings bound.
        baseline: `pad` or `mask`.
        batch_size: maximum rows computed at once.
        traces: whether to compute with the graphs of `graphs_of`; otherwise op by op,
            which is faster for a few texts.
    """

    def __init__(
        self,
        model: TaskModel,
        method: Callable[[attribution.Path], Result],
        baseline: str = "pad",
        batch_size: int = 32,
        *,
        traces: bool = True,
    ) -> None:
        self._model = model
        self._method = method
        function = getattr(method, "func", method)  # of a partial object
        self._reads_gradients = function in attribution.GRADIENT_METHODS
        self._batch_size = batch_size
        tokenizer = model.preprocessor.tokenizer
        token = tokenizer.pad_id if baseline == "pad" else tokenizer.mask_id
        if token is None:
            raise ConfigError(
                "`baseline` must be pad for a vocabulary without [MASK]; received mask"
            )
        self._baseline = token
        self._graphs = graphs_of(model) if traces else None

    def __call__(
        self, item: Item, targets: Sequence[Target] | None = None
    ) -> Explanation:
        """Return the explanation of an item, of its `targets_of` if they are known.

        Raises:
            ConfigError: the task has no such answer.
        """
        targets = targets_of(item) if targets is None else targets
        count = len(item.words.words)
        results = [self._method(self.path(target, count)) for target in targets]
        gaps = [np.nan if each.gap is None else each.gap for each in results]
        attributions = np.zeros((len(results), count), "float32")
        for row, result in enumerate(results):
            attributions[row] = result.attributions
        return Explanation(
            texts=item.words.texts,
            words=tuple(item.words.words),
            targets=tuple(target.name for target in targets),
            against=tuple(target.against for target in targets),
            attributions=attributions,
            values=np.array([each.value for each in results], "float32"),
            baseline_values=np.array(
                [each.baseline_value for each in results], "float32"
            ),
            gaps=np.array(gaps, "float32"),
            steps=np.array([each.steps for each in results], "int32"),
            unit=targets[0].unit if targets else "",
            answer=item.answer,
            read_to=self._read_to(item, targets),
        )

    def _read_to(self, item: Item, targets: Sequence[Target]) -> dict[str, int]:
        """Return where reading ended, by role; other tasks with windows read all."""
        task = self._model.task
        varies = task.needs.rows_per_text is None
        if not targets or (varies and not task.reads_windows):
            return {}
        read = {word for target in targets for word in target.rows.words.flat}
        ends: dict[str, int] = {}
        for number, word in enumerate(item.words.words):
            if number not in read:
                ends.setdefault(word.role, word.start)
        if ends and getattr(task, "long", "") == "head-tail":
            say_once("`long` is head-tail: the middle of long texts is not read")
            return {}
        return ends

    def path(self, target: Target, count: int) -> attribution.Path:
        """Return the path from the baseline to a text of `count` words."""
        words, batch = target.rows.words, dict(target.rows.batch)
        table = self._model.backbone.embeddings.word_embeddings
        ids = np.asarray(batch["token_ids"]).reshape(words.shape)
        replaced = np.where(words >= 0, self._baseline, ids)
        text, baseline = (
            tf.gather(tf.convert_to_tensor(table), x).numpy() for x in (ids, replaced)
        )
        given = dict(target.given)
        if self._graphs is None:
            value, both = number_functions(self._model, target.number)
        else:
            value, both = self._graphs.of_number(target.number, batch, given)
        if self._graphs is not None and self._reads_gradients:
            # One graph is traced in less time than two.

            def value(*arguments: Any) -> Any:
                return both(*arguments)[0]

        rows, length = words.shape
        if rows * length > _MOST_OF_A_TEXT:
            raise ConfigError(
                f"a text must have at most {_MOST_OF_A_TEXT:,} tokens to be explained; "
                f"received one of {rows * length:,}: set `max_windows`"
            )
        most = min(self._batch_size // rows, _MOST_TOKENS // (rows * length))
        return attribution.Path(
            text=text,
            baseline=baseline,
            words=words,
            num_words=count,
            value=lambda points: value(tf.constant(points), batch, given).numpy(),
            gradient=lambda x: both(tf.constant(x), batch, given)[1].numpy(),
            at_once=max(1, most),
        )
