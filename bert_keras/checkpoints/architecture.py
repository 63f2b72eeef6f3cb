"""What the weights of a head tell of the `config.json` that belongs to them.

Google's files name no architecture and no classes, and old configs of Hugging Face
leave them out. Source: Hugging Face transformers, `configuration_utils.py`, where a
config without names of classes means two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bert_keras.checkpoints.base import Shape
from bert_keras.errors import CheckpointError, shown

_LABELLED = ("BertForSequenceClassification", "BertForTokenClassification")


def head_config(raw: Mapping[str, Any], shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Return the entries of `config.json` on a head: `architectures`, perhaps classes.

    What `raw` says is kept; where it is silent, the weights tell: `cls`, `classifier`
    or `qa_outputs`, and as many classes `LABEL_0` … as the head has outputs.

    Args:
        raw: a parsed config.
        shapes: canonical name to canonical shape.

    Raises:
        CheckpointError: `num_labels` is not the number of outputs of the head.
    """
    architecture = _architecture(raw, shapes)
    entries: dict[str, Any] = {"architectures": [architecture]}
    bias = shapes.get("classifier/bias", ())
    if architecture in _LABELLED and len(bias) == 1 and raw.get("id2label") is None:
        said = raw.get("num_labels")
        if said is not None and (type(said) is not int or said != bias[0]):
            raise CheckpointError(
                f"config.json: `num_labels` must be the number of outputs of the head, "
                f"{bias[0]:,}; received {shown(said)}"
            )
        names = [f"LABEL_{number}" for number in range(bias[0])]
        entries["id2label"] = {str(i): name for i, name in enumerate(names)}
        entries["label2id"] = {name: i for i, name in enumerate(names)}
    return entries


def _architecture(raw: Mapping[str, Any], shapes: Mapping[str, Shape]) -> str:
    """Return Hugging Face's class for weights: what the source says, or their heads."""
    said = raw.get("architectures")
    if isinstance(said, list) and len(said) == 1:
        return str(said[0])
    scopes = {name.split("/")[0] for name in shapes}
    if "classifier" in scopes:
        return "BertForSequenceClassification"
    if "qa_outputs" in scopes:
        return "BertForQuestionAnswering"
    if "cls" not in scopes:
        return "BertModel"
    parts = {name.split("/")[1] for name in shapes if name.startswith("cls/")}
    if parts == {"seq_relationship"}:
        return "BertForNextSentencePrediction"
    return "BertForMaskedLM" if parts == {"predictions"} else "BertForPreTraining"
