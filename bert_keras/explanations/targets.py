"""Which number is explained: one function for each task, in `targets_of`.

A number is differentiable and does not saturate: for a class, a choice, an entity, a
start, an end or a masked word it is the log-odds of the answer against all others, or
against another one; for multi-label, the logit of the label; for regression the number
itself; for two embeddings their cosine. Temperatures of calibration are applied.

For a custom task with one vector of outputs per text and the default `features`, the
largest output is explained. For other tasks, register a function:

    @targets_of.register
    def _(task: MyTask, item: Item) -> list[Target]: ...
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.errors import ConfigError, received
from bert_keras.explanations.items import LOG_ODDS, Item, Rows, Target, joined_words
from bert_keras.explanations.words import NO_WORD, words_in_row
from bert_keras.models.task_model import is_one_vector
from bert_keras.scoring.entities import parse_tag
from bert_keras.tasks.base import Task
from bert_keras.tasks.classifier import SingleLabel
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.masked_lm import MASK, MaskedLM
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.multiple_choice import MultipleChoice
from bert_keras.tasks.question_answering.task import QuestionAnswering
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.summarization import Summarization
from bert_keras.tasks.tagging.task import TaggingTask

_FAR = -1e9  # below any logit, finite


# Numbers of outputs, in graph.


def _odds(outputs: Any, places: Any, wanted: Any, others: Any, scale: Any) -> Any:
    """Return the mean log-odds at M places, float [k].

    Args:
        outputs: logits [k, …, C].
        places: int32 [M, n], indices of the axes between the first and the last.
        wanted, others: bool [C], the classes on both sides of the odds.
        scale: float, 1 / temperature.
    """
    logits = scale * _at(tf.cast(outputs, tf.float32), places)
    odds = [
        tf.reduce_logsumexp(tf.where(chosen, logits, _FAR), axis=-1)
        for chosen in (wanted, others)
    ]
    return tf.reduce_mean(odds[0] - odds[1], axis=1)


def _odds_of_token(outputs: Any, **given: Any) -> Any:
    """Return the log-odds of tokens of a row, outputs [k, R, T, 2]."""
    return _odds(tf.transpose(outputs, [0, 1, 3, 2]), **given)


def _sum(outputs: Any, places: Any, weights: Any, bias: Any) -> Any:
    """Return the weighted sum of the outputs [k, …, C] at one place, float [k]."""
    return tf.linalg.matvec(_at(outputs, places)[:, 0], weights) + bias


def _cosine(outputs: Any) -> Any:
    """Return the cosine of two vectors, outputs [k, 2, D]."""
    unit = tf.math.l2_normalize(outputs, axis=-1, epsilon=1e-24)
    return tf.reduce_sum(unit[:, 0] * unit[:, 1], axis=-1)


def _at(outputs: Any, places: Any) -> Any:
    copies = tf.shape(outputs)[0]
    places = tf.tile(places[tf.newaxis], [copies, 1, 1])
    return tf.gather_nd(outputs, places, batch_dims=1)


def _odds_given(
    size: int,
    wanted: Sequence[int],
    others: Sequence[int] | None,
    *,
    places: Sequence[Sequence[int]] = ((0,),),
    temperature: float = 1.0,
) -> dict[str, Any]:
    """Return the arguments of `_odds`; `None` stands for all classes not `wanted`."""
    chosen = np.zeros(size, bool)
    chosen[list(wanted)] = True
    rest = ~chosen
    if others is not None:
        rest[:] = False
        rest[list(others)] = True
    return {
        "places": tf.constant(places, tf.int32),
        "wanted": tf.constant(chosen),
        "others": tf.constant(rest),
        "scale": tf.constant(1 / temperature, tf.float32),
    }


def _odds_target(
    item: Item,
    rows: Rows,
    names: Sequence[str],
    best: int,
    *,
    kind: str = "",
    size: int | None = None,
    **given: Any,
) -> Target:
    """Return the log-odds of one of several answers.

    Args:
        item: the item that is explained.
        rows: its input of the model.
        names: names of the answers.
        best: the answer that is explained if the user names none.
        kind: prefix of the names.
        size: number of logits, if larger than that of the names.
        **given: further arguments of `_odds_given`.
    """
    index, against = item.choose(names, best)
    others = None if against is None else [against]
    return Target(
        f"{kind}{names[index]}",
        rows,
        _odds,
        _odds_given(size or len(names), [index], others, **given),
        against="" if against is None else f"{kind}{names[against]}",
    )


def _sum_given(weights: Any, bias: float = 0.0, place: Sequence[int] = (0,)) -> Any:
    return {
        "places": tf.constant([place], tf.int32),
        "weights": tf.constant(weights, tf.float32),
        "bias": tf.constant(bias, tf.float32),
    }


def _output_target(
    rows: Rows,
    names: Sequence[str],
    index: int,
    against: int | None,
    *,
    temperature: float = 1.0,
    unit: str = LOG_ODDS,
) -> Target:
    """Return one of a text's outputs, or its difference from another one."""
    weights = np.zeros(len(names), "float32")
    weights[index] = 1
    if against is not None:
        weights[against] = -1
    return Target(
        names[index],
        rows,
        _sum,
        _sum_given(weights / temperature),
        against="" if against is None else names[against],
        unit=unit,
    )


# The tasks.


@functools.singledispatch
def targets_of(task: Task, item: Item) -> list[Target]:
    """Return the numbers to explain for an item.

    Raises:
        ConfigError: the task has no answer `target` or `against`.
    """
    if not (task.answers_ids and is_one_vector(item.model.output)):
        raise ConfigError(
            f"the task {task.name} has no target to explain: register one with "
            "`bert_keras.explanations.targets.targets_of`"
        )
    rows = item.joined()
    outputs = item.outputs(rows)[0]
    numbers = [str(number) for number in range(len(outputs))]
    index, against = item.choose(numbers, int(outputs.argmax()))
    names = [f"output {number}" for number in numbers]
    return [_output_target(rows, names, index, against, unit="value")]


@targets_of.register
def _(task: SingleLabel, item: Item) -> list[Target]:
    rows, names = item.joined(), task.names
    best = int(item.outputs(rows)[0].argmax())
    return [_odds_target(item, rows, names, best, temperature=task.temperature)]


@targets_of.register
def _(task: MultiLabel, item: Item) -> list[Target]:
    rows, names = item.joined(), task.classes
    logits = item.outputs(rows)[0] / task.temperature
    index, against = item.choose(names, int(logits.argmax()))
    applying = np.flatnonzero(1 / (1 + np.exp(-logits)) >= np.array(task.limits))
    wanted = [index]
    if item.target is None and len(applying):
        wanted = [number for number in applying.tolist() if number != against]
    return [
        _output_target(rows, names, number, against, temperature=task.temperature)
        for number in wanted
    ]


@targets_of.register
def _(task: Regression, item: Item) -> list[Target]:
    item.refuse("target", "against")
    rows = item.joined()
    given = _sum_given([task.std], task.mean)
    return [Target("score", rows, _sum, given, unit="score")]


@targets_of.register
def _(task: MultipleChoice, item: Item) -> list[Target]:
    context, choices = item.parts
    features = item.features()
    first = item.words.add("context", context)
    seconds = [
        item.words.add(f"choice {number}", choice)
        for number, choice in enumerate(choices)
    ]
    pieces = [[first, second] for second in seconds]
    rows = item.rows(features, joined_words(features, pieces))
    best = int(item.outputs(rows)[0].argmax())
    numbers = [str(number) for number in range(len(choices))]
    return [
        _odds_target(
            item, rows, numbers, best, kind="choice ", temperature=task.temperature
        )
    ]


@targets_of.register
def _(task: Embedding, item: Item) -> list[Target]:
    item.refuse("target", "against")
    features = item.features([list(item.parts)])
    pieces = [
        [item.words.add(role, text)]
        for role, text in zip(("text", "text_pair"), item.parts, strict=True)
    ]
    rows = item.rows(features, joined_words(features, pieces))
    return [Target("similarity", rows, _cosine, {}, unit="cosine")]


@targets_of.register
def _(task: MaskedLM, item: Item) -> list[Target]:
    text, features = item.parts[0], item.features()
    spans, start = [], 0
    for part in text.split(MASK):
        spans.append((start, start + len(part)))
        start += len(part) + len(MASK)
    pieces = item.words.add_spans("text", text, spans)
    gap = np.array([NO_WORD], np.int32)
    flat = np.concatenate([x for part in pieces for x in (part, gap)])[:-1]
    length = features["token_ids"].shape[1]
    room = int(np.asarray(features["padding_mask"]).sum()) - 2
    words = words_in_row(length, (1, flat[:room]))[np.newaxis]
    rows = item.rows(features, words)
    masks = int((np.asarray(features["masked_positions"]) >= 0).sum())
    if not masks:
        raise ConfigError(f"a text must have a {MASK} to explain; {received(text)}")
    vocabulary = item.preprocessor.tokenizer.vocabulary
    logits = item.outputs(rows)[0]
    found = []
    for slot in range(masks):
        best = int(logits[slot, : len(vocabulary)].argmax())
        target = _odds_target(
            item, rows, vocabulary, best, size=logits.shape[-1], places=[(0, slot)]
        )
        if masks > 1:
            target = dataclasses.replace(target, name=f"{target.name} ({slot + 1})")
        found.append(target)
    return found


@targets_of.register
def _(task: TaggingTask, item: Item) -> list[Target]:
    text, features = item.parts[0], item.features()
    if isinstance(text, str):
        pieces = item.words.add("text", text)
        entities = _entities_of_text(item)
    else:
        pieces = item.words.add_words("text", text)
        entities = [
            (e.type, e.start, e.end) for e in task.entities_in(item.answer["tags"])
        ]
    rows = item.rows(features, _window_words(features, pieces))
    tags = [parse_tag(tag)[1] for tag in task.classes]
    kinds = [kind for kind in dict.fromkeys(tags) if kind]
    read = np.asarray(features["words"])
    if item.target is not None:
        kind = kinds[item.choose(kinds, 0)[0]]
        entities = [each for each in entities if each[0] == kind]
        if not entities and item.words.words:
            entities = [(kind, *_likeliest(item, rows, read, np.array(tags) == kind))]
    found = []
    for kind, start, end in entities:
        against = None
        if item.against is not None:
            other = kinds[item.choose(kinds, kinds.index(kind))[1] or 0]
            against = [number for number, tag in enumerate(tags) if tag == other]
        at = np.argwhere((read >= start) & (read < end))
        chosen = sorted(set(at[:, 0].tolist()))
        places = [(chosen.index(row), column) for row, column in at.tolist()]
        wanted = [number for number, tag in enumerate(tags) if tag == kind]
        given = _odds_given(
            len(tags), wanted, against, places=places, temperature=task.temperature
        )
        name = " ".join(word.text for word in item.words.words[start:end])
        found.append(
            Target(
                f"{kind}: {name}",
                rows.take(chosen),
                _odds,
                given,
                against=item.against or "",
            )
        )
    return found


def _entities_of_text(item: Item) -> list[tuple[str, int, int]]:
    """Return type, first word and the word after the last of each entity."""
    starts = [word.start for word in item.words.words]
    return [
        (
            entity["type"],
            int(np.searchsorted(starts, entity["start"])),
            int(np.searchsorted(starts, entity["end"])),
        )
        for entity in item.answer["entities"]
    ]


def _likeliest(
    item: Item, rows: Rows, read: np.ndarray, wanted: np.ndarray
) -> tuple[int, int]:
    """Return the word with the highest odds of some tags, as first and end."""
    logits = item.outputs(rows)
    odds = np.logaddexp.reduce(np.where(wanted, logits, _FAR), axis=-1)
    odds -= np.logaddexp.reduce(np.where(wanted, _FAR, logits), axis=-1)
    best = int(read.reshape(-1)[np.where(read >= 0, odds, _FAR).argmax()])
    return best, best + 1


def _window_words(features: Mapping[str, Any], pieces: np.ndarray) -> np.ndarray:
    """Return the word of each token in windows, see `tagging.words.lay_windows`."""
    counts = np.asarray(features["padding_mask"]).sum(axis=1) - 2
    step = counts[0] - counts[0] // 2
    length = features["token_ids"].shape[1]
    found = []
    for number, count in enumerate(counts):
        start = min(number * step, len(pieces) - count)
        found.append(words_in_row(length, (1, pieces[start : start + count])))
    return np.stack(found)


@targets_of.register
def _(task: QuestionAnswering, item: Item) -> list[Target]:
    item.refuse("against")
    features = item.features()
    length = features["token_ids"].shape[1]
    rows = item.rows(features, _words_of_windows(item, features["asked"], length))
    span = _asked_span(item)
    logits = item.outputs(rows)
    if span is None:
        window, columns, name = int(logits[:, 0].sum(-1).argmin()), (0, 0), "no answer"
    else:
        window, columns = _place_of_span(item, features["asked"], span, logits)
        name = repr(item.parts[1][span[0] : span[1]])
    chosen = rows.take([window])
    real = np.flatnonzero(np.asarray(chosen.batch["padding_mask"])[0])
    targets = []
    for number, side in enumerate(("start", "end")):
        given = _odds_given(
            length,
            [columns[number]],
            [int(place) for place in real if place != columns[number]],
            places=[(0, number)],
            temperature=task.temperature,
        )
        shown = f"{side} of {name}" if span else f"{name}, {side}"
        targets.append(Target(shown, chosen, _odds_of_token, given))
    return targets


def _words_of_windows(item: Item, asked: Any, length: int) -> np.ndarray:
    """Return the word of each token in windows of a question and its context."""
    question = item.words.add("question", item.parts[0])
    context = item.words.add("context", item.parts[1])
    firsts, counts, places = _windows(asked)
    rows = [
        words_in_row(
            length,
            (1, question[: place - 2]),
            (place, context[first : first + count]),
        )
        for first, count, place in zip(firsts, counts, places, strict=True)
    ]
    return np.stack(rows)


def _windows(asked: Any) -> tuple[np.ndarray, ...]:
    """Return first token, number of tokens and first column of each window."""
    found = asked.windows
    return tuple(np.asarray(part) for part in (found.first, found.count, found.place))


def _place_of_span(
    item: Item, asked: Any, span: tuple[int, int], logits: np.ndarray
) -> tuple[int, tuple[int, int]]:
    """Return the best window that holds a span, and its first and last column there."""
    firsts, counts, places = _windows(asked)
    first = int((np.asarray(asked.ends.values) <= span[0]).sum())
    last = int((np.asarray(asked.starts.values) < span[1]).sum()) - 1
    holding = np.flatnonzero((first >= firsts) & (last < firsts + counts))
    if not len(holding):
        raise ConfigError(
            "`target` must be a span of at most half a window; "
            f"{received(item.parts[1][span[0] : span[1]])}"
        )
    shift = places - firsts
    scores = [
        logits[w, first + shift[w], 0] + logits[w, last + shift[w], 1] for w in holding
    ]
    window = int(holding[int(np.argmax(scores))])
    return window, (int(first + shift[window]), int(last + shift[window]))


def _asked_span(item: Item) -> tuple[int, int] | None:
    """Return start and end of the answer in characters; `None` for no answer."""
    if item.target is None:
        start, end = item.answer["start"], item.answer["end"]
        return None if start < 0 else (start, end)
    if item.target == "":
        return None
    start = item.parts[1].find(item.target)
    if start < 0:
        raise ConfigError(
            f"`target` must be a part of the context; {received(item.target)}"
        )
    return start, start + len(item.target)


@targets_of.register
def _(task: Summarization, item: Item) -> list[Target]:
    item.refuse("target", "against")
    text, features = item.parts[0], item.features()
    starts, ends = (np.asarray(features[k].values) for k in ("starts", "ends"))
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
    pieces = item.words.add_spans("document", text, spans)
    numbers = np.asarray(features["numbers"])
    positions = np.asarray(features["sentence_positions"])
    sizes = np.asarray(features["padding_mask"]).sum(axis=1)
    length = features["token_ids"].shape[1]
    words = []
    for row in range(len(numbers)):
        parts = []
        columns = [*positions[row][positions[row] >= 0].tolist(), int(sizes[row])]
        for place in range(len(columns) - 1):
            count = columns[place + 1] - columns[place] - 2
            parts.append((columns[place] + 1, pieces[numbers[row, place]][:count]))
        words.append(words_in_row(length, *parts))
    rows = item.rows(features, np.stack(words))
    chosen = {(each["start"], each["end"]) for each in item.answer["sentences"]}
    targets = []
    for number, span in enumerate(spans):
        if span not in chosen:
            continue
        row, column = np.argwhere(numbers == number)[0].tolist()
        given = _sum_given([1.0], place=(0, column))
        name = text[span[0] : span[1]]
        targets.append(Target(name, rows.take([row]), _sum, given))
    return targets
