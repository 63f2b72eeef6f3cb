"""How pretraining data is made: `PretrainingDataConfig`; imports nothing heavy.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.1 and appendix A.2; the
defaults of google-research/bert `create_pretraining_data.py`; sentence order: Lan et
al. 2019 (arXiv:1909.11942), section 3.1.
"""

from __future__ import annotations

import dataclasses
import math

from bert_keras.errors import ConfigError
from bert_keras.settings import (
    MASKING,
    NEXT_SENTENCE,
    UNITS,
    check_choice,
    check_mask_shares,
    check_share,
    check_whole_number,
)

_STATIC_COPIES = 10
# Positions that a full row has room for are a multiple of it: 20 at 128, 76 at 512.
_PREDICTIONS_MULTIPLE = 4
_LEAST = {
    "max_length": 5,
    "max_predictions": 1,
    "dupe_factor": 1,
    "seed": 0,
    "block_characters": 1,
}


@dataclasses.dataclass(frozen=True)
class PretrainingDataConfig:
    """How documents become masked pairs; the defaults are those of Google's code.

    Args:
        max_length: tokens of a row, T, specials and padding included.
        max_predictions: most masked tokens of a row, P; `None` is the next multiple of
            4 that a full row needs: 20 at length 128, 76 at 512.
        short_sequence_probability: probability that all rows of a document aim at a
            shorter length, drawn evenly from 2 to the full one.
        mask_rate: share of a row's tokens to predict, specials not counted.
        mask_share: share of those that become `[MASK]`.
        random_share: share of those that become a random token; the rest stays.
        mask_unit: `piece`, `word` (whole words) or `ngram` (runs of up to three whole
            words), see `masking.Masking`.
        dupe_factor: passes over the text, each with other pairs and masks; `None` is 10
            for static masking and 1 for dynamic.
        next_sentence: `next`: B follows A in half of the pairs and is of another
            document in the others. `order`: A and B follow each other and change places
            in half of the pairs. `none`: one text a row, contiguous and of one
            document.
        masking: `static` writes the masks out; `dynamic` writes the tokens as they are,
            and the masks are drawn in the input pipeline.
        seed: of all draws; the same seed gives the same bytes.
        block_characters: about so much text becomes a shard. It is the unit of work
            and of memory: a worker holds one block, and the random B is of the same.

    Raises:
        ConfigError: a value is out of its range.

    Example:
        >>> PretrainingDataConfig(max_length=512).predictions
        76
    """

    max_length: int = 128
    max_predictions: int | None = None
    short_sequence_probability: float = 0.1
    mask_rate: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    mask_unit: str = "piece"
    dupe_factor: int | None = None
    next_sentence: str = "next"
    masking: str = "static"
    seed: int = 42
    block_characters: int = 8_000_000

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is None and name in ("max_predictions", "dupe_factor"):
                continue
            check_whole_number(name, value, least=least)
        check_share("short_sequence_probability", self.short_sequence_probability)
        check_share("mask_rate", self.mask_rate, above_zero=True)
        check_mask_shares(self.mask_share, self.random_share)
        choices = {
            "mask_unit": UNITS,
            "next_sentence": NEXT_SENTENCE,
            "masking": MASKING,
        }
        for name, allowed in choices.items():
            check_choice(name, getattr(self, name), allowed)
        if self.predictions > self.max_length:
            raise ConfigError(
                "`max_predictions` must be at most `max_length`; "
                f"received {self.predictions} and {self.max_length}"
            )

    @property
    def predictions(self) -> int:
        """Most masked tokens of a row, P."""
        if self.max_predictions is not None:
            return self.max_predictions
        full = math.floor((self.max_length - 3) * self.mask_rate + 0.5)
        multiple = _PREDICTIONS_MULTIPLE
        rounded = max(-(-full // multiple), 1) * multiple
        return min(rounded, self.max_length)

    @property
    def duplicates(self) -> int:
        """Passes over the text."""
        if self.dupe_factor is not None:
            return self.dupe_factor
        return _STATIC_COPIES if self.masking == "static" else 1

    @property
    def text_tokens(self) -> int:
        """Most tokens of a row's texts, without `[CLS]` and each text's `[SEP]`."""
        return self.max_length - (2 if self.next_sentence == "none" else 3)
