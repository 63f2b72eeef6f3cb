"""What each format's own code computes: its activations, LayerNorm and heads.

A model is written in a format only if that code computes it; where the answers differ
a little, or a head is left out, a note says so. Which names the weights have is in
`names`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError

MASKED_LM = "cls/predictions/"
NEXT_SENTENCE = "cls/seq_relationship/"
CLASSIFIER = "classifier/"
ANSWERS = "qa_outputs/"
_HEADS = {NEXT_SENTENCE: "next-sentence", ANSWERS: "question-answering"}


@dataclasses.dataclass(frozen=True)
class Dialect:
    """What the code of one format computes.

    Args:
        code: whose code, for messages.
        activations: our name of each activation to its own. All compute gelu by the
            tanh form, our `gelu_new`; the erf form, our `gelu`, is written with a note.
        heads: scopes of the heads that it has.
        left_out: scopes of heads that are dropped with a note. Other weights that it
            does not have are refused by `names`.
        epsilon: of LayerNorm, which no config of these formats changes.
    """

    code: str
    activations: Mapping[str, str]
    heads: frozenset[str]
    left_out: frozenset[str] = frozenset()
    epsilon: float = 1e-12

    def check(self, sizes: BertConfig) -> list[str]:
        """Return notes on what this code computes differently.

        Raises:
            CheckpointError: it has no such computation.
        """
        if sizes.is_decoder:
            raise CheckpointError(f"{self.code} has no causal attention (`is_decoder`)")
        if sizes.hidden_act not in self.activations:
            raise CheckpointError(
                f"{self.code} has no activation {sizes.hidden_act}; "
                f"it has {', '.join(sorted(set(self.activations.values())))}"
            )
        notes = []
        if sizes.hidden_act == "gelu":
            notes.append(
                f"{self.code} computes gelu by its tanh form, this model by erf: "
                "there its outputs differ a little"
            )
        if sizes.layer_norm_eps != self.epsilon:
            notes.append(
                f"{self.code} computes LayerNorm with epsilon {self.epsilon:g}, this "
                f"model with {sizes.layer_norm_eps:g}: there its outputs differ"
            )
        return notes

    def kept(self, weights: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return the names of the weights to write, and notes on heads left out."""
        weights = list(weights)
        lost = [s for s in self.left_out if any(n.startswith(s) for n in weights)]
        notes = [
            f"left out: the {_HEADS[scope]} head, which {self.code} does not have"
            for scope in sorted(lost)
        ]
        return [n for n in weights if not n.startswith(tuple(lost))], notes


GOOGLE = Dialect(
    code="Google's code",
    activations={"gelu": "gelu", "gelu_new": "gelu", "relu": "relu", "tanh": "tanh"},
    heads=frozenset((MASKED_LM, NEXT_SENTENCE, CLASSIFIER, ANSWERS)),
)
MODEL_GARDEN = Dialect(
    code="TF Model Garden",
    activations={**GOOGLE.activations, "silu": "swish"},
    heads=frozenset((MASKED_LM, NEXT_SENTENCE)),
)
KERAS_HUB = Dialect(
    code="KerasHub",
    activations={"gelu": "gelu", "gelu_new": "gelu"},
    heads=frozenset((MASKED_LM, CLASSIFIER)),
    left_out=frozenset((NEXT_SENTENCE,)),
)
