"""What a report shows of the answers to a data set besides its scores, as JSON values.

The curves of each yes-or-no decision, the scores of slices, the rows whose label is
worth a look, and the words behind the most confident mistakes.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.data.columns import Columns
from bert_keras.data.table import sliced
from bert_keras.errors import BertKerasError, ConfigError, counted, one_line
from bert_keras.lazy_names import deferred
from bert_keras.runs.notes import say
from bert_keras.scoring.curves import decision_curves
from bert_keras.scoring.slices import length_slices, slice_scores, value_slices
from bert_keras.tasks.answer_rows import rows_of
from bert_keras.tasks.base import Task, overrides
from bert_keras.tasks.protocols import Answers, Deciding, Decisions, Writing, texts_of
from bert_keras.training import config as training_config
from bert_keras.training.config import TrainConfig
from bert_keras.training.lengths import TextLengths

if TYPE_CHECKING:
    from bert_keras.explained.targets import Target
    from bert_keras.text import preprocessor
else:
    (preprocessor,) = deferred("bert_keras.text.preprocessor")

LENGTH = "length in tokens"
ALL = "all rows"
_INTERVAL_SECONDS = 30.0
_TRACING_SHARE = 0.4  # of an explanation, in the seconds of the first update
_ANSWERS = 4  # op by op, the first included, that take as long as an explanation
_LEAST_POINTS = 18  # of `integrated_gradients`
_MOST_DRAWN = 6  # decisions whose curves are drawn


def curves_of(
    found: Decisions, chosen: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Return `decision_curves` by name; points for the most frequent names only.

    `chosen` are the curves of dev, whose best thresholds are taken; `None` for dev.
    `threshold_from` says on which rows the threshold is the best.
    """
    frequent = sorted(found, key=lambda name: -int(found[name][0].sum()))
    drawn = set(frequent[:_MOST_DRAWN])
    curves = {}
    for name, (true, p) in found.items():
        of_dev = (chosen or {}).get(name)
        limit = None if of_dev is None else of_dev["at"][1]["threshold"]
        made = decision_curves(true, p, threshold=limit, with_points=name in drawn)
        if made:
            is_own = chosen is not None and of_dev is None
            curves[name] = {**made, "threshold_from": "these rows" if is_own else "dev"}
    return curves


def slices_of(
    task: Task,
    columns: Columns,
    answers: Answers,
    *,
    lengths: TextLengths | None = None,
    names: Sequence[str] = (),
) -> dict[str, list[dict[str, Any]]]:
    """Return the best score of all rows and of each slice, with its interval.

    The keys are what the slices have in common, such as a column; the values come
    from `slice_scores`. There are no slices unless there is one answer per row.
    `lengths` are the tokens of each row, whose slices also have `truncated`, the share
    of rows with truncated texts, if there are some; `names` are columns to slice by.
    """
    count, key = len(columns), task.best_score
    if any(len(values) != count for values in answers.values()):
        return {}

    def score(rows: np.ndarray) -> float:
        part = {name: values[rows] for name, values in answers.items()}
        try:
            return float(task.score(columns.take(rows.tolist()), part)[key])
        except Exception as error:  # of few rows, the score of a user's own task
            raise BertKerasError(str(error)) from error

    groups = {}
    if lengths is not None and len(lengths.read) == count:
        edge = lengths.max_length if lengths.are_longer else 0
        groups[LENGTH] = length_slices(lengths.whole.tolist(), edge)
    groups |= {name: value_slices(sliced(columns, name)) for name in names}
    found = {}
    for title, slices in ({ALL: {ALL: np.arange(count)}} | groups).items():
        found[title] = slice_scores(
            slices,
            score,
            name=key,
            most=task.most_score,
            seconds=_INTERVAL_SECONDS / (1 + len(groups)),
        )
    if lengths is not None and LENGTH in found and lengths.lost.any():
        for row in found[LENGTH]:
            cut = lengths.lost[groups[LENGTH][row["slice"]]] > 0
            row["truncated"] = round(float(cut.mean()), 4)
    return found


def findings_of(
    task: Task,
    scored: Mapping[str, tuple[Columns, Answers, TextLengths]],
    slices: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """Return `curves`, `slices` and `doubtful_labels`, each by data set, dev first.

    A data set is its rows, their answers by name and the lengths of its texts; `slices`
    are columns to slice the scores by.
    """
    found: dict[str, dict[str, Any]] = {"curves": {}, "slices": {}}
    found["doubtful_labels"] = {}
    for split, (columns, answers, lengths) in scored.items():
        if parts := slices_of(task, columns, answers, lengths=lengths, names=slices):
            found["slices"][split] = parts
        if not isinstance(task, Deciding):
            continue
        of_dev = None if split == "dev" else found["curves"].get("dev", {})
        if curves := curves_of(task.decisions(columns, answers), of_dev):
            found["curves"][split] = curves
        # No label to check is a finding, too.
        found["doubtful_labels"][split] = task.doubtful_labels(columns, answers)
    return found


def explanation_seconds(config: TrainConfig, seconds: float) -> float:
    """Return how long the explanations of a report may take, after so many seconds."""
    if not config.explain_mistakes:
        return 0.0
    share = training_config.EXPLAIN_SHARE * seconds
    return min(training_config.EXPLAIN_SECONDS, share)


@dataclasses.dataclass
class ExplanationCosts:
    """Forecasts how long explanations take, from the updates of a run.

    An explanation runs the Python of the layers and of their gradient, as the trace of
    the first update does, and computes a few points of each token. Measured with
    MiniLM, it takes a third of the first update. Of a run without updates, an answer
    that is computed op by op tells. After the first explanation, its time counts.

    Args:
        tracing_seconds: of the first update; NaN if unknown.
        token_seconds: of an update, per token position; NaN if unknown.
    """

    tracing_seconds: float
    token_seconds: float
    _factor: float = 1.0

    def fits(self, targets: Sequence[Target], seconds: float) -> bool:
        """Return whether explaining `targets` would end within `seconds`.

        It is if that is unknown, before an answer is computed.
        """
        return not self._factor * self._of(targets) > seconds

    def answered(self, seconds: float) -> None:
        """Take over how long an answer took op by op, if nothing else is known."""
        if math.isnan(self.tracing_seconds):
            self.tracing_seconds = _ANSWERS / _TRACING_SHARE * seconds

    def learn(self, targets: Sequence[Target], seconds: float) -> None:
        """Take over how long `targets` took."""
        self._factor = seconds / max(self._of(targets), 1e-9)

    def _of(self, targets: Sequence[Target]) -> float:
        tokens = sum(target.rows.words.size for target in targets)
        of_token = 0.0 if math.isnan(self.token_seconds) else self.token_seconds
        traces = _TRACING_SHARE * self.tracing_seconds * max(len(targets), 1)
        return traces + _LEAST_POINTS * tokens * of_token


def explained_mistakes(
    predictor: Any,
    columns: Columns,
    mistakes: Sequence[Mapping[str, Any]],
    *,
    most: int,
    seconds: float,
    costs: ExplanationCosts,
) -> list[dict[str, Any]]:
    """Return the attributions of the words of the first mistakes, for a page.

    Integrated gradients with 16 to 128 points. A wrong class is explained against the
    label; each pair of label and answer comes once before one comes twice. Mistakes
    without the `line` of one row are left out. None is begun that would end after
    `seconds`, by `costs` and the time of those before; a line tells how many are left
    out. Nothing is traced: for a few texts this takes longer than computing them op by
    op.

    Returns:
        `page_values` of each; none if the model is not in
        float32, or if its task has nothing that can be explained.
    """
    if not most or not mistakes or not seconds:
        return []
    start = time.perf_counter()
    from bert_keras.explanations.attribution import integrated_gradients
    from bert_keras.explanations.explainer import Explainer, predictor_of
    from bert_keras.explanations.explanation import page_values
    from bert_keras.explanations.items import item_of, targets_of
    from bert_keras.explanations.mistakes import true_label

    try:
        _, model = predictor_of(predictor)
    except ConfigError:  # 16 bits
        return []
    task = model.task
    if isinstance(task, Writing):  # nothing of it can be explained
        return []
    places = _unique(columns.lines)
    chosen = _different([row for row in mistakes if row.get("line") in places])[:most]
    if not chosen:
        return []
    try:
        texts = texts_of(task.paired(), columns)
    except ConfigError:  # settings, such as prompts, that do not allow it
        return []

    def left() -> float:
        return start + seconds - time.perf_counter()

    def attribute(path: Any) -> Any:
        return integrated_gradients(path, most=128, seconds=left())

    explain = Explainer(model, attribute, traces=False)
    found: list[dict[str, Any]] = []
    for mistake in chosen:
        if not costs.fits((), left()):
            say(_left_out(len(found), len(chosen)))
            break
        began = time.perf_counter()
        place = places[mistake["line"]]
        parts = tuple(part[place] for part in texts)
        against = task.rival(mistake) if isinstance(task, Deciding) else None
        try:
            answer = _answer(model, parts)
            costs.answered(time.perf_counter() - began)
            item = item_of(model, parts, answer, against=against)
            targets = targets_of(item)
            if not costs.fits(targets, left()):
                say(_left_out(len(found), len(chosen)))
                break
            explanation = dataclasses.replace(
                explain(item, targets), label=true_label(mistake), line=mistake["line"]
            )
        except ConfigError:  # the task has nothing that can be explained
            break
        except Exception as error:  # a user's own task: its model must not be lost
            reason = f"{type(error).__name__}: {one_line(error)}"
            say(f"the report explains {len(found)} mistakes, then failed: {reason}")
            break
        found.append(page_values(explanation))
        costs.learn(targets, time.perf_counter() - began)
    return found


def _left_out(done: int, chosen: int) -> str:
    if not done:
        return (
            "to save time, the report does not explain mistakes; `bert-keras explain` "
            "with `--mistakes N` does"
        )
    return (
        f"to save time, the report explains {counted(done, 'mistakes')}, not {chosen}; "
        "`bert-keras explain` with `--mistakes N` explains more"
    )


def _answer(model: Any, parts: Sequence[Any]) -> dict[str, Any]:
    """Return the answer to the texts of a row, computed op by op."""
    padded, task = model.preprocessor.replace(layout="padded"), model.task
    in_pairs = overrides(task, "paired")
    texts = preprocessor.as_tensors([parts] if in_pairs else [[part] for part in parts])
    found = model.answer(texts, preprocessor=padded)
    answers = rows_of({key: value.numpy() for key, value in found.items()})
    return task.paired().pair_answers(answers)[0] if in_pairs else answers[0]


def _different(mistakes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return mistakes with the first of each pair of label and answer in front.

    All second ones follow, and so on; within each turn the order is kept.
    """
    seen: collections.Counter[str] = collections.Counter()
    turns = []
    for row in mistakes:
        pair = str((row.get("label"), row.get("prediction")))
        turns.append(seen[pair])
        seen[pair] += 1
    return [mistakes[place] for place in np.argsort(turns, kind="stable")]


def _unique(lines: Sequence[int]) -> dict[int, int]:
    """Return the row of each line on which only one row begins."""
    counts = collections.Counter(lines)
    return {line: row for row, line in enumerate(lines) if counts[line] == 1}
