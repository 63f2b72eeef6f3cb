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
    INT32,
    MASK_RATE,
    MASK_SHARE,
    MASK_UNIT,
    MASKING,
    NEXT_SENTENCE,
    RANDOM_SHARE,
    SEED,
    check_mask_shares,
    check_options,
    option,
    with_options_documented,
)

_STATIC_COPIES = 10
# Positions that a full row has room for are a multiple of it: 20 at 128, 76 at 512.
_PREDICTIONS_MULTIPLE = 4


@with_options_documented
@dataclasses.dataclass(frozen=True)
class PretrainingDataConfig:
    """How documents become masked pairs; the defaults are those of Google's code.

    Raises:
        ConfigError: a value is not allowed.

    Example:
        >>> PretrainingDataConfig(max_length=512).predictions
        76
    """

    max_length: int = option(
        128,
        "length of a row in tokens, special tokens and padding included",
        unit="tokens",
        least=5,
        most=INT32,
    )
    max_predictions: int | None = option(
        None,
        "most masked tokens of a row",
        unit="tokens",
        least=1,
        most=INT32,
        unset="what a full row needs, as a multiple of 4: 20 at length 128, 76 at 512",
    )
    short_sequence_probability: float = option(
        0.1,
        "share of the documents whose rows have a shorter target length, drawn evenly "
        "from 2 to the full one",
        unit="share",
        least=0,
        most=1,
    )
    mask_rate: float = MASK_RATE.field()
    mask_share: float = MASK_SHARE.field()
    random_share: float = RANDOM_SHARE.field()
    mask_unit: str = MASK_UNIT.field()
    dupe_factor: int | None = option(
        None,
        "passes over the text, each with other pairs and masks",
        unit="passes",
        least=1,
        most=INT32,
        unset="10 for static masking, 1 for dynamic",
    )
    next_sentence: str = option(
        "next",
        "the second text of a row: next follows the first in half of the pairs, else "
        "is from another document; order swaps two neighbours in half of the pairs; "
        "none: one contiguous text a row",
        words=NEXT_SENTENCE,
    )
    masking: str = option(
        "static",
        "static writes masked tokens; dynamic writes the plain tokens, which are "
        "masked anew during training",
        words=MASKING,
    )
    seed: int = SEED.field(help="seed of all random choices: same seed, same bytes")
    block_characters: int = option(
        8_000_000,
        "approximate characters of text per shard; a worker holds one shard in memory, "
        "and takes random second texts from it",
        unit="characters",
        least=1,
        most=INT32,
    )

    def __post_init__(self) -> None:
        check_options(self)
        check_mask_shares(self.mask_share, self.random_share)
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
