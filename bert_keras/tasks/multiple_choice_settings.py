"""What is known of multiple choice before TensorFlow is imported."""

from __future__ import annotations

from bert_keras.tasks.classifier_settings import ConfidenceSettings
from bert_keras.tasks.declaration import Row, RowForm, TaskHelp


def _row(row: Row) -> Row:
    """Return the answers with as many probabilities as there are choices."""
    return {**row, "probabilities": [p for p in row["probabilities"] if p]}


# The columns of context, question, choices and label; columns of one choice each are
# separated by commas. First our own, then SWAG's and COPA's.
_ROLES = ("context", "question", "choices", "label")
LAYOUTS: tuple[dict[str, str], ...] = tuple(
    dict(zip(_ROLES, names, strict=True))
    for names in (
        _ROLES,
        ("sent1", "sent2", "ending0,ending1,ending2,ending3", "label"),
        ("premise", "question", "choice1,choice2", "label"),
    )
)
HELP = TaskHelp(
    place="bert_keras.tasks.multiple_choice:MultipleChoice",
    settings=ConfidenceSettings,
    summary="the choice that fits a context best (SWAG, COPA, exam questions …)",
    data="JSONL with context, choices and label; the files of SWAG and COPA",
    file="train.jsonl",
    rows='{"context": "It rained.", '
    '"choices": ["I took an umbrella.", "I ate."], "label": 0}',
    scores="accuracy, loss, calibration error",
    answers="choice, index, score, probabilities [B, C]; abstained",
    row_forms=(RowForm(("choice", "index", "score", "probabilities"), _row),),
    columns=tuple(
        {role: names[role] for role in _ROLES if role != "question"}
        for names in LAYOUTS
    ),
)
