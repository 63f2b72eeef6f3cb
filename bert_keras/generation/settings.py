"""How a decoder writes: `Decoding`, also from transformers' settings of generation.

Imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_keras.errors import ConfigError
from bert_keras.settings import INT32, check_boolean, check_number, check_whole_number

MOST_BEAMS = 64


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

    beams: int = 4  # hypotheses of each source; 1 is greedy search
    length_penalty: float = 1.0  # power of the length that divides log-probabilities
    no_repeat_ngram: int = 0  # no n-gram of this length is written twice; 0 allows all
    max_target_length: int = 128  # tokens, `[SEP]` included
    length_ratio: float = 2.0  # longest text in tokens relative to the source, plus 10
    sample: bool = False  # whether tokens are drawn rather than searched for
    temperature: float = 1.0  # divides the logits before drawing
    sample_top_k: int = 0  # draws from this many of the likeliest tokens; 0: from all
    sample_top_p: float = 1.0  # draws from the likeliest, with this total probability
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least, most in (
            ("beams", 1, MOST_BEAMS),
            ("no_repeat_ngram", 0, 64),
            ("max_target_length", 1, INT32),
            ("sample_top_k", 0, INT32),
            ("seed", 0, INT32),
        ):
            check_whole_number(name, getattr(self, name), least=least, most=most)
        check_number("length_penalty", self.length_penalty, least=-10, most=10)
        check_number("length_ratio", self.length_ratio, least=0, most=1000)
        check_boolean("sample", self.sample)
        for name, highest in (("temperature", 100.0), ("sample_top_p", 1.0)):
            value = getattr(self, name)
            check_number(name, value, least=0, most=highest)
            if not value:
                raise ConfigError(f"`{name}` must be above 0; received {value!r}")


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
    """Return settings of `Decoding` from transformers' of generation, and unused ones.

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
