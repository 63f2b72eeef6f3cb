"""How a decoder writes: `Decoding`. Imports nothing heavy."""

from __future__ import annotations

import dataclasses

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
