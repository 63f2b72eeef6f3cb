"""A model folder of a classifier without training rows: `save_classes`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_keras.data.rows import ColumnNames
from bert_keras.files.atomic import check_output_place
from bert_keras.inference.predictor import load_predictor
from bert_keras.models.model_folder import save_model


def save_classes(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    classes: str | Sequence[str],
    *,
    template: str | Sequence[str] | None = None,
    multi_label: bool = False,
    dev: Any = None,
    columns: ColumnNames | None = None,
    header: str = "auto",
    card: bool = True,
) -> Path:
    """Write a model folder that answers with other classes, and return it.

    It is a folder of the task `classification`, or `multi-label`, which every command
    takes; of an entailment model its classes may be changed later.

    Args:
        model: a model folder or `hf://owner/name`, as in `load_predictor`.
        output: created, or replaced if it is a model folder.
        classes, template, multi_label, dev, columns, header: as in
            `Predictor.with_classes`.
        card: whether to write a model card.

    Raises:
        BertKerasError: as in `Predictor.with_classes`, or the folder cannot be written.

    Example:
        >>> save_classes("models/nli", "models/helpdesk", "billing, delivery")
        PosixPath('models/helpdesk')
    """
    check_output_place("output", output, {"model": model})
    made: Any = load_predictor(model).with_classes(
        classes,
        template=template,
        multi_label=multi_label,
        dev=dev,
        columns=columns,
        header=header,
    )
    return save_model(made.model, output, card=card)
