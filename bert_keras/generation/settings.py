"""How a decoder writes: `Decoding`, also from transformers' generation settings.

Imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_keras.settings import Option, check_options, option, with_options_documented

MOST_BEAMS = 64
NO_REPEAT_NGRAM = Option(
    0,
    "no n-gram of this length is written twice; 0 allows all",
    least=0,
    most=64,
    free=True,
)
LENGTH_RATIO = Option(
    2.0,
    "longest answer in tokens relative to the source, plus 10",
    least=0,
    most=1000,
    free=True,
)


_SAMPLING = ("sample", True)


@with_options_documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
    """The settings of decoding.

    With `sample`, `beams` are independent samples. Draws depend on the seed, the source
    and the step, so a source gets the same texts in any batch.

    Raises:
        ConfigError: a value is out of its range.

    Example:
        >>> Decoding(beams=1, length_ratio=1.0).max_target_length
        128
    """

    beams: int = option(
        4,
        "hypotheses of beam search; 1 is greedy search; with sample, the number of "
        "samples",
        least=1,
        most=MOST_BEAMS,
        free=True,
    )
    length_penalty: float = option(
        1.0,
        "exponent of the length by which log-probabilities are divided; above 0 "
        "prefers long texts",
        least=-10,
        most=10,
        free=True,
    )
    no_repeat_ngram: int = NO_REPEAT_NGRAM.field()
    max_target_length: int = option(
        128,
        "longest text in tokens, [SEP] included, in training and in answers",
        least=1,
        free=True,
    )
    length_ratio: float = LENGTH_RATIO.field()
    sample: bool = option(
        False, "draws tokens at random instead of searching", free=True
    )
    temperature: float = option(
        1.0,
        "divides the logits before drawing",
        above=0,
        most=100,
        free=True,
        needs=_SAMPLING,
    )
    sample_top_k: int = option(
        0,
        "draws from this many of the most probable tokens; 0: from all",
        least=0,
        free=True,
        needs=_SAMPLING,
    )
    sample_top_p: float = option(
        1.0,
        "draws from the most probable tokens with this total probability",
        above=0,
        most=1,
        free=True,
        needs=_SAMPLING,
    )
    seed: int = option(0, "seed of the draws", least=0, free=True, needs=_SAMPLING)

    def __post_init__(self) -> None:
        check_options(self)


# Keys of transformers' `GenerationConfig`, and ours.
_KEYS = {
    "num_beams": "beams",
    "length_penalty": "length_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "max_new_tokens": "max_target_length",
    "do_sample": "sample",
    "temperature": "temperature",
    "top_k": "sample_top_k",
    "top_p": "sample_top_p",
}
# Other keys that change what is written, with the value that changes nothing.
_UNUSED = {
    "early_stopping": False,
    "min_length": 0,
    "min_new_tokens": 0,
    "max_time": None,
    "stop_strings": None,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "penalty_alpha": None,
    "min_p": None,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "force_words_ids": None,
    "constraints": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "exponential_decay_length_penalty": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "guidance_scale": None,
    "num_return_sequences": 1,
}
_THEIR_TOP_K = 50  # transformers' default, where it samples
_NO_RATIO = 1000.0  # transformers does not limit a text by the length of its source


def from_transformers(
    values: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the `Decoding` settings and the unused keys of a generation config.

    Their `max_length` counts the token that the decoder reads first, ours does not.

    Example:
        >>> from_transformers({"num_beams": 2, "min_length": 5})
        ({'beams': 2}, {'min_length': 5})
    """
    given = {key: value for key, value in values.items() if value is not None}
    found = {ours: given[key] for key, ours in _KEYS.items() if key in given}
    longest = given.get("max_length")
    if "max_target_length" not in found and type(longest) is int:
        found["max_target_length"] = longest - 1
    if "max_target_length" in found:
        found["length_ratio"] = _NO_RATIO
    if found.get("sample"):
        found.setdefault("sample_top_k", _THEIR_TOP_K)
    unused = {
        key: given[key]
        for key, neutral in _UNUSED.items()
        if key in given and given[key] != neutral
    }
    return found, unused
