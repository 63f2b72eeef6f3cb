"""`Needs`: what a task asks of the encoder, of its rows and of its training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bert_keras.lazy_names import deferred

if TYPE_CHECKING:
    from bert_keras.model import encoder
else:
    (encoder,) = deferred("bert_keras.model.encoder")


_HEADS = {
    "cls/predictions": "masked-LM head (cls/predictions)",
    "cls/seq_relationship": "next-sentence head (cls/seq_relationship)",
    "discriminator_predictions": (
        "head for replaced tokens (discriminator_predictions)"
    ),
    "qa_outputs": "question-answering head (qa_outputs)",
}


def named_scope(scope: str) -> str:
    """Return what messages call the weights in a scope, such as `cls/predictions/`."""
    name = scope.rstrip("/")
    return _HEADS.get(name, name)


@dataclasses.dataclass(frozen=True)
class Needs:
    """What a task asks of the encoder, of its rows and of its training.

    Args:
        pooler: whether the encoder has the pooler.
        outputs: extra outputs of the encoder, by their names in `BertEncoder`.
        scopes: scopes of the pretraining heads, such as `cls/predictions/`, that
            training loads from the checkpoint if it has them; the others are ignored.
        inputs: returns the Keras inputs by name; `None`: the inputs of a batch dict,
            with `cls_positions` if there is a pooler.
        filled_inputs: inputs of the model that other tools do not give, such as places
            to fill; in a file for an engine they are all places of a row.
        meanings: what inputs hold that other tasks lack or that hold something else
            there, for `answers.json` of an export to an engine.
        read_tokens: the special tokens that are read as such in texts to answer.
        max_length: default for training, in tokens.
        rows_per_text: rows per text in the padded layout; `None`: varies by text.
        readings: how often a text is read for its answer, such as once for each class;
            prediction computes fewer texts at once accordingly.
        learning_rate: the peak learning rate by default; `None`: by the encoder's size.
        rate_times: how many times as high it then is as that of other tasks; without
            LoRA.
        times_if_few: how many times as high it then is for few updates of an encoder
            narrower than BERT-base.
        least_epochs: of training by default; 4 are the most that the paper tried.
        dropout: of the blocks while training by default; `None`: as the encoder's
            config says.
        not_for_engines: why engines such as OpenVINO cannot run the model; empty if
            they can.
    """

    pooler: bool = True
    outputs: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    inputs: Callable[[], dict[str, Any]] | None = None
    filled_inputs: tuple[str, ...] = ()
    meanings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    read_tokens: tuple[str, ...] = ()
    max_length: int = 128
    rows_per_text: int | None = 1
    readings: int = 1
    learning_rate: float | None = None
    rate_times: float = 1.0
    times_if_few: float = 1.0
    least_epochs: int = 4
    dropout: float | None = None
    not_for_engines: str = ""

    def keras_inputs(self) -> dict[str, Any]:
        """Return the Keras inputs; one output per text needs `cls_positions`."""
        if self.inputs is not None:
            return self.inputs()
        return encoder.batch_inputs(cls_positions=self.pooler)
