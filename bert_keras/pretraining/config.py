"""How pretraining data is made and a model pretrained; imports nothing heavy.

Sources of `PretrainingDataConfig`: Devlin et al. 2018 (arXiv:1810.04805), section 3.1
and appendix A.2; the defaults of google-research/bert `create_pretraining_data.py`;
sentence order: Lan et al. 2019 (arXiv:1909.11942), section 3.1. Of `PretrainConfig`:
appendix A.2; You et al. 2019 (arXiv:1904.00962) for LAMB; Clark et al. 2020
(arXiv:2003.10555) for replaced tokens; Geiping and Goldstein 2022 (arXiv:2212.14034)
for a budget.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any

from bert_keras import settings
from bert_keras.errors import ConfigError
from bert_keras.settings import (
    check_mask_shares,
    check_options,
    option,
    options_of,
    with_options_documented,
)
from bert_keras.training.config import check_options_of_run, unused_options

if TYPE_CHECKING:
    from bert_keras.config import BertConfig

_STATIC_COPIES = 10
# The positions of a full row are a multiple of this: 20 at 128, 76 at 512.
_MULTIPLE = 4


def initializer_range(width: int) -> float:
    """Return the standard deviation of initial weights for a hidden size.

    Narrow models learn faster with it than with the paper's 0.02 for all widths.
    Source: LeCun et al. 1998, "Efficient BackProp", section 4.6.
    """
    return round(width**-0.5, 3)


@with_options_documented
@dataclasses.dataclass(frozen=True)
class PretrainingDataConfig:
    """How documents become masked pairs; the defaults follow Google's code.

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
    )
    max_predictions: int | None = option(
        None,
        "maximum masked tokens in a row",
        unit="tokens",
        least=1,
        unset="the need of a full row, as a multiple of 4: 20 at length 128, 76 at 512",
    )
    short_sequence_probability: float = option(
        0.1,
        "share of the documents whose rows have a shorter target length, drawn evenly "
        "from 2 to the full one",
        unit="share",
        least=0,
        most=1,
    )
    mask_rate: float = settings.MASK_RATE.field()
    mask_share: float = settings.MASK_SHARE.field()
    random_share: float = settings.RANDOM_SHARE.field()
    mask_unit: str = settings.MASK_UNIT.field()
    dupe_factor: int | None = option(
        None,
        "passes over the text, each with different pairs and masks",
        unit="passes",
        least=1,
        unset="10 for static masking, 1 for dynamic",
    )
    next_sentence: str = option(
        "next",
        "the second text of a row: next follows the first in half of the pairs, else "
        "is from another document; order swaps two neighbours in half of the pairs; "
        "none: one contiguous text per row",
        words=settings.NEXT_SENTENCE,
    )
    masking: str = option(
        "static",
        "static writes masked tokens; dynamic writes the plain tokens, which are "
        "masked dynamically during training",
        words=settings.MASKING,
    )
    seed: int = settings.SEED.field(
        help="seed of all random choices: same seed, same bytes"
    )
    block_characters: int = option(
        8_000_000,
        "approximate characters of text per shard; a worker holds one shard in memory, "
        "and takes random second texts from it",
        unit="characters",
        least=1,
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
        """Maximum masked tokens in a row, P."""
        if self.max_predictions is not None:
            return self.max_predictions
        full = math.floor((self.max_length - 3) * self.mask_rate + 0.5)
        rounded = max(math.ceil(full / _MULTIPLE), 1) * _MULTIPLE
        return min(rounded, self.max_length)

    @property
    def duplicates(self) -> int:
        """Passes over the text."""
        if self.dupe_factor is not None:
            return self.dupe_factor
        return _STATIC_COPIES if self.masking == "static" else 1

    @property
    def text_tokens(self) -> int:
        """Maximum tokens of a row's texts, without `[CLS]` and each text's `[SEP]`."""
        return self.max_length - (2 if self.next_sentence == "none" else 3)


# For two data sets, rows of 128 and then of 512 tokens, as in the paper.
PHASE_SHARES: dict[int, tuple[float, ...]] = {1: (1.0,), 2: (0.9, 0.1)}
_LEAST_BUDGET = 60  # seconds
# Settings that are the paper's, unless a budget leads to others.
PAPER: dict[str, Any] = {
    "steps": 1_000_000,
    "batch_size": 256,
    "learning_rate": 1e-4,
    "warmup_ratio": 0.01,
}
# Of runs with a budget, see docs/figures.md; the learning rate follows the width.
BUDGET: dict[str, Any] = {"warmup_ratio": 0.1, "dropout": 0.0}
_NARROW = 128  # hidden size up to which 2e-3 was the best rate; 1e-3 is usual
# Options of replaced tokens, without an effect on other objectives.
_OF_GENERATOR = ("generator_share", "discriminator_weight")
_OF_THE_DATA: dict[str, Any] = {
    "default": None,
    "unset": "as in the data; other values need data without masks (dynamic)",
}


@with_options_documented
@dataclasses.dataclass(frozen=True)
class PretrainConfig:
    """How a model is pretrained; the defaults are the paper's recipe.

    With a budget, what is not given of `steps`, `batch_size` and `learning_rate` is
    `None` until the plan of a run chooses it.

    Raises:
        ConfigError: a value is not allowed.

    Example:
        >>> PretrainConfig(steps=1000).steps_of(2)
        (900, 100)
    """

    steps: int = option(
        None,
        "updates of the weights, of all phases together",
        unit="n",
        least=1,
        unset="1000000; with a budget, as many as it allows",
    )
    hours: float | None = option(
        None,
        "train for this time instead of a number of steps",
        unit="hours",
        above=0,
        unset="no budget",
    )
    minutes: float | None = option(
        None,
        "the same in minutes, at least 1",
        unit="minutes",
        above=0,
        unset="no budget",
    )
    phase_shares: tuple[float, ...] | None = option(
        None,
        "share of the steps for each data set, in the order of the data; their sum is "
        "1",
        unit="share",
        above=0,
        most=1,
        unset="0.9 and 0.1 for two data sets",
    )
    batch_size: int = option(
        None,
        "examples per update",
        unit="examples",
        least=1,
        unset="256; with a budget, by the measured speed",
    )
    accumulation: int = settings.ACCUMULATION.field()
    optimizer: str = settings.OPTIMIZER.field()
    learning_rate: float = option(
        None,
        "peak learning rate",
        unit="rate",
        above=0,
        unset="0.0001; with a budget, 0.001, up to a hidden size of 128 0.002",
    )
    warmup_ratio: float = option(
        None,
        "share of the steps during which the learning rate rises from 0",
        unit="share",
        least=0,
        most=1,
        unset="0.01; with a budget, 0.1",
    )
    dropout: float | None = settings.DROPOUT.field(
        unset="the model's own; with a budget, 0"
    )
    weight_decay: float = settings.WEIGHT_DECAY.field()
    global_clipnorm: float = settings.GLOBAL_CLIPNORM.field()
    objective: str = option(
        "masked",
        "what is predicted: masked tokens; (causal) each next token from left to "
        "right; or (replaced-token, ELECTRA) which tokens a generator has replaced",
        words=settings.OBJECTIVES,
    )
    generator_share: float = option(
        0.25,
        "width of the generator of replaced-token, as a share of the model's",
        unit="share",
        above=0,
        most=1,
    )
    discriminator_weight: float = option(
        50.0,
        "weight of the model's loss on replaced tokens; the generator's has 1",
        unit="weight",
        above=0,
    )
    next_sentence: str = option(
        "auto",
        "auto trains the next-sentence head if the data has pairs and the objective is "
        "masked, none leaves it out",
        words=("auto", "none"),
    )
    add_tokens: tuple[str, ...] | None = settings.ADD_TOKENS.field(
        help="words that the tokenizer of --encoder gets as added tokens, as for the "
        "data; their embeddings start as the mean of the embeddings of their pieces"
    )
    mask_rate: float | None = settings.MASK_RATE.field(**_OF_THE_DATA)
    mask_share: float | None = settings.MASK_SHARE.field(**_OF_THE_DATA)
    random_share: float | None = settings.RANDOM_SHARE.field(**_OF_THE_DATA)
    mask_unit: str | None = settings.MASK_UNIT.field(**_OF_THE_DATA)
    layout: str = settings.LAYOUT.field()
    seed: int = settings.SEED.field()
    precision: str = settings.PRECISION.field()
    strategy: str = settings.STRATEGY.field()
    rematerialize: bool = settings.REMATERIALIZE.field()
    checkpoint_every: str | int = settings.CHECKPOINT_EVERY.field(
        help="interval of the checkpoints, from which a killed run resumes: seconds "
        "such as 300s (the first one after at most 60s), or updates such as 500; one "
        "is also written at the end",
        pattern="[1-9][0-9]{0,8}s?",
        form="seconds such as 300s, or a number of updates such as 500",
    )
    keep: int = settings.KEEP.field()
    evaluate_every: int = option(
        1_000, "updates between scores on the held-out data", unit="updates", least=1
    )
    held_out_examples: int = option(
        2_000,
        "maximum held-out examples that are scored, rounded up to a multiple of 32",
        unit="examples",
        least=1,
    )
    on_nonfinite: str = settings.ON_NONFINITE.field()
    keep_layers: str | tuple[int, ...] | None = settings.KEEP_LAYERS.field()
    teacher: str | None = option(
        None,
        "a model folder with a masked-LM head and the same vocabulary: the student "
        "also learns its predictions for the masked tokens. Without --encoder and "
        "--size, the student starts with the teacher's layers --keep-layers",
        unit="path_or_name",
        unset="none",
    )
    distill: str = settings.DISTILL.field()
    temperature: float = settings.DISTILL_TEMPERATURE.field()
    distill_weight: float = settings.DISTILL_WEIGHT.field(
        help="share of the teacher in the loss; the labels have the rest"
    )

    def __post_init__(self) -> None:
        self._set_budget()
        check_options_of_run(self)
        self._check_objective()
        if self.mask_share is not None and self.random_share is not None:
            check_mask_shares(self.mask_share, self.random_share)
        if self.batch_size is not None:
            settings.check_accumulation(self.batch_size, self.accumulation)
        shares = self.phase_shares
        if shares is not None and not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
            raise ConfigError(f"`phase_shares` must sum to 1; received {shares}")

    def _set_budget(self) -> None:
        """Check a budget and keep it in minutes; set what is usual with or without it.

        Raises:
            ConfigError: it is given twice, beside `steps`, or is too short.
        """
        has_budget = self.hours is not None or self.minutes is not None
        for name, value in (BUDGET if has_budget else PAPER).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if not has_budget:
            return
        name, *others = "minutes", "steps", "phase_shares"
        if self.hours is not None:
            name, *others = "hours", "minutes", *others
        value = getattr(self, name)
        options_of(type(self))[name].check(value)
        for other in others:
            if (given := getattr(self, other)) is not None:
                raise ConfigError(
                    f"`{other}` must be left out with `{name}`, the budget; received "
                    f"{given}"
                )
        minutes = value if name == "minutes" else value * 60
        if minutes * 60 < _LEAST_BUDGET:
            raise ConfigError(
                f"`{name}` must be a budget of at least one minute; received {value:g}"
            )
        object.__setattr__(self, "hours", None)
        object.__setattr__(self, "minutes", float(minutes))

    def _check_objective(self) -> None:
        """Raise ConfigError for options without an effect on the objective."""
        if self.objective != settings.REPLACED_TOKEN:
            for name in _OF_GENERATOR:
                value = getattr(self, name)
                if value != options_of(type(self))[name].default:
                    raise ConfigError(
                        f"`{name}` has an effect only with `objective` replaced-token; "
                        f"received {value} and {self.objective}"
                    )
        elif self.teacher is not None:
            raise ConfigError(
                "`teacher` must be left out with `objective` replaced-token, whose "
                f"model predicts no masked tokens; received {self.teacher}"
            )

    @property
    def budget(self) -> float | None:
        """The seconds that a run takes; `None`: it has a number of steps."""
        return None if self.minutes is None else 60 * self.minutes

    def new_sizes(self, size: str, vocab_size: int, /, **given: Any) -> BertConfig:
        """Return the sizes of a new model by name, with the fields that are given.

        A given `vocab_size` may be larger than the vocabulary. With a budget, the
        initial weights fit the width, unless they are given.

        Raises:
            ConfigError: the size or a field is unknown.
        """
        from bert_keras.config import BertConfig

        found = BertConfig.from_preset(size, vocab_size=vocab_size)
        scaled = {}
        if self.budget is not None:
            scaled["initializer_range"] = initializer_range(found.hidden_size)
        return BertConfig.from_dict(found.to_dict() | scaled | given, ignore=())

    def fitted_to(self, sizes: BertConfig) -> PretrainConfig:
        """Return the config with the learning rate for a model, if none is set."""
        if self.learning_rate is not None:
            return self
        rate = 2e-3 if sizes.hidden_size <= _NARROW else 1e-3
        return dataclasses.replace(self, learning_rate=rate)

    @property
    def has_masks(self) -> bool:
        """Whether masked tokens are predicted, by the model or by a generator."""
        return self.objective != settings.CAUSAL

    def unused(self) -> set[str]:
        """Return the options that have no part in the result of a run."""
        found = {*unused_options(self), "hours"}
        if self.dropout is None:
            found.add("dropout")
        if self.objective != settings.REPLACED_TOKEN:
            found |= set(_OF_GENERATOR)
        return found | {"minutes" if self.budget is None else "steps"}

    def masking_changes(self) -> dict[str, Any]:
        """Return the settings that differ from the data's masking."""
        names = ("mask_rate", "mask_share", "random_share", "mask_unit")
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def steps_of(self, phases: int) -> tuple[int, ...]:
        """Return the number of steps of each phase; their sum is `steps`.

        Raises:
            ConfigError: `phase_shares` do not match the number of data sets, or leave
                one without a step.
        """
        shares = self.phase_shares or PHASE_SHARES.get(phases, ())
        if len(shares) != phases:
            raise ConfigError(
                f"`phase_shares` must hold a share for each data set; received "
                f"{len(shares)} for {phases}"
            )
        ends = [round(self.steps * sum(shares[:n])) for n in range(1, phases)]
        edges = itertools.pairwise([0, *ends, self.steps])
        found = tuple(end - start for start, end in edges)
        if min(found) < 1:
            raise ConfigError(
                f"`steps` must leave one for each data set; received {self.steps} "
                f"for {phases}"
            )
        return found
