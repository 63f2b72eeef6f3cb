"""Options: their declarations, and the single check of their values.

An option is a field of a config. Its declaration, `option(…)`, holds the default, the
help line, the unit and the allowed values; the name and the type are the field's. The
check of a config, the options of the command line and the tables of the documentation
are generated from it. Options that several configs share are declared here; each config
adds them with `.field()`. Imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from bert_keras.errors import ConfigError, received

_Config = TypeVar("_Config")

# The allowed words of options.
HEADER = ("auto", "yes", "no")
BAD_ROWS = ("error", "skip", "keep")
CORPUS_FORMS = (
    "text",
    "file",
    "lines",
    "jsonl",
    "parquet",
    "wikiextractor",
    "wikipedia",
)
LEARNERS = ("merges", "tf-text")
TRUNCATIONS = ("longest_first", "round_robin", "only_first", "only_second")
LAYOUTS = ("packed", "padded")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
ENGINES = ("tensorflow", "openvino", "onnx")
EXPORT_FORMATS = ("saved_model", "openvino", "onnx", "litert")
SHRINK_INT8 = ("auto", "openvino", "onnx", "none")
TRACKERS = ("tensorboard", "mlflow", "wandb")
STRATEGIES = ("auto", "single", "mirrored", "multi-worker", "tpu")
RESUME = ("auto", "never")
UNITS = ("piece", "word", "ngram")
NEXT_SENTENCE = ("next", "order", "none")
MASKING = ("static", "dynamic")
MASKED, CAUSAL, REPLACED_TOKEN = OBJECTIVES = ("masked", "causal", "replaced-token")
ATTRIBUTIONS = ("integrated-gradients", "gradient-input", "occlusion", "shapley")
BASELINES = ("pad", "mask")
VIEWS = ("words", "attention", "map")
PROJECTIONS = ("pca", "tsne", "umap")
# Of sentence-transformers; `mean_sqrt_len_tokens` divides the sum by the root of the
# number of tokens, `weightedmean` weights them by their position.
POOLER = "pooler"  # of BERT, in place of a pooling of the tokens
LAST_LAYER, ALL_LAYERS = "last", "all"  # that a head on vectors reads
CROSS, BI = "cross", "bi"  # a pair in one row, or each of its texts by itself
POOLINGS = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
DOCUMENT_PROMPTS = ("document", "passage", "corpus")  # in `encode_document`'s order
OWN_LENGTHS = ("query_length", "document_length")
FROM_DATA = "from the data"  # `unset` of a setting that follows from the rows
OF_VECTORS = (  # settings of vectors of texts that files of sentence-transformers hold
    *("kind", "pooling", "normalize", "dense", "prompts", "default_prompt"),
    *("include_prompt", "truncate_dim", *OWN_LENGTHS),
    *("skip_words", "query_expansion", "attend_expansion"),
)
DTYPES = ("float32", "int8", "binary")  # of stored vectors
SEARCH_ENGINES = ("exact", "faiss", "centroids")  # how the nearest ones are found
# The kinds of vectors of texts, and their names among a model's answers.
VECTOR_OUTPUTS = {
    "dense": "embedding",
    "sparse": "term_weights",
    "tokens": "token_embeddings",
}
LONG = ("truncate", "head-tail", "windows")
WINDOW_COMBINATIONS = ("mean", "max", "attention", "first")
COMBINATIONS = ("sum", "concat", "weighted")
SELECTIONS = ("margin", "entropy", "coverage", "mixture")  # of rows to label
DISTILLED = ("soft", "hidden", "relations")
METHODS = ("auto", "finetune", "linear", "contrastive")
STEMMERS = ("porter", "none")
# 0 is the embedding layer, L the last block. Negative numbers count from the end.
NAMED_LAYERS: dict[str, tuple[int, ...]] = {
    "embeddings": (0,),
    "last": (-1,),
    "second-to-last": (-2,),
    "last-four": (-4, -3, -2, -1),
}
# The hidden layers that `RecurrentHead` reads, as in table 7 of the BERT paper, and how
# many blocks the encoder must have for them.
FEATURES = {
    "embeddings": 0,
    "second_to_last": 1,
    "last": 1,
    "weighted_sum_last_four": 4,
    "concat_last_four": 4,
    "weighted_sum_all": 1,
}
# The grids of a search; `paper` is the grid of the paper's appendix A.3.
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "paper": {
        "batch_size": (16, 32),
        "learning_rate": (5e-5, 3e-5, 2e-5),
        "epochs": (2, 3, 4),
    }
}
# What a search takes besides: the values of one setting.
_SEARCHED: dict[str, type] = {
    "method": str,
    "batch_size": int,
    "learning_rate": float,
    "epochs": int,
}
SEARCHES = f"{', '.join(GRIDS)}, or values of {', '.join(_SEARCHED)} such as epochs=2,4"


def grid_of(search: str) -> dict[str, tuple[Any, ...]]:
    """Return the settings of a search and their values: a grid's, or `NAME=V,V`.

    Raises:
        ConfigError: it is neither.

    Example:
        >>> grid_of("epochs=2,4")
        {'epochs': (2, 4)}
    """
    if search in GRIDS:
        return dict(GRIDS[search])
    name, _, given = str(search).partition("=")
    values = given.split(",")
    with contextlib.suppress(KeyError, ValueError):
        found = tuple(map(_SEARCHED[name], values))
        if len(set(found)) == len(found) > 1:
            return {name: found}
    raise ConfigError(f"`search` must be {SEARCHES}, at least two; received {search}")


REQUIRED = dataclasses.MISSING  # as a default: there is none
INT32 = 2**31 - 1  # the largest; steps and lengths are counted in int32
LARGEST = 2**63 - 1  # of an int64, the dtype of counts and seeds


@dataclasses.dataclass(frozen=True)
class Condition:
    """What must hold for a setting of a task to have an effect.

    Args:
        setting: the other setting that it depends on.
        words: what it must be, as text.
        holds: returns whether it holds for a task.
    """

    setting: str
    words: str
    holds: Callable[[Any], bool]


@dataclasses.dataclass(frozen=True)
class Option:
    """The declaration of an option.

    Args:
        default: the value if none is given.
        help: what it does, in one sentence without the full stop.
        unit: what a number counts, such as `tokens`; for a path, what it refers to; for
            a list of strings, `file`: the command line takes a file with one per line.
        words: the allowed values of an option that takes one of several words.
        least, most: the smallest and the largest number allowed; whole numbers are at
            most `INT32` by default.
        above, below: exclusive limits of a number.
        pattern: regular expression of an option with its own notation; a whole number
            is read as its digits.
        form: description of the allowed values, for a `pattern` or for values that the
            config itself checks.
        unset: description of the value that replaces the default.
        free: whether a task's setting may change after training: no weight and no label
            depends on it.
        later: whether it is left out of model folders and runs at its default, so that
            a version without it opens them, and this one resumes the runs of such a
            version.
        read_by: what reads a task's setting, of `training`, `scores` and `answers`;
            empty: all of them.
        needs: without what a task's setting has no effect: the name and the value of
            another setting, or a `Condition`.
        unused_by: the methods of training with which it has no effect, each with the
            reason: what the method does instead.
        fitted_by: for a task's setting that is fitted on dev rows after training: the
            setting that asks for it, and the value with which it does not. Without dev
            rows it stays as it is; if it has no `unset`, the request is refused.
        fit_takes: for a task's setting by which `train` learns from its rows and `fit`
            does not: the settings that `fit` takes instead; `None` for others.
        name, kind, may_be_none, is_list: set by `options_of` from the field; `kind` is
            `int`, `float`, `str` or `bool`; for a list, the type of its items.
    """

    default: Any = None
    help: str = ""
    unit: str = ""
    words: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    pattern: str = ""
    form: str = ""
    unset: str = ""
    free: bool = False
    later: bool = False
    read_by: tuple[str, ...] = ()
    needs: tuple[str, Any] | Condition | None = None
    unused_by: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fitted_by: tuple[str, Any] | None = None
    fit_takes: tuple[str, ...] | None = None
    name: str = ""
    kind: type = str
    may_be_none: bool = False
    is_list: bool = False

    def field(self, **changes: Any) -> Any:
        """Return the field of a dataclass that has this option, with changes."""
        declared = dataclasses.replace(self, **changes)
        metadata = {"option": declared}
        if declared.default is REQUIRED:
            return dataclasses.field(metadata=metadata)
        if isinstance(declared.default, dict):
            return dataclasses.field(
                default_factory=declared.default.copy, metadata=metadata
            )
        return dataclasses.field(default=declared.default, metadata=metadata)

    def rule(self, value: Any = None) -> str:
        """Return the rule for values as text, for errors and tables.

        Args:
            value: the rejected value. The limits of int32 and int64 are only mentioned
                if it exceeds them.
        """
        if self.kind is bool:
            return "true or false"
        if self.words:
            return f"one of {', '.join(self.words)}"
        if self.form:
            return self.form
        if self.kind is str:
            return "a non-empty string"
        is_int = self.kind is int
        least, most = self.least, self.most
        if is_int and most in (None, INT32, LARGEST):
            most = INT32 if most is None else most
            if isinstance(value, int) and value > most:
                least = None
            else:
                most = None
        number = "a whole number" if is_int else "a number"
        return f"{number}{self._limits(least, most)}"

    def _limits(self, least: float | None, most: float | None) -> str:
        if least is not None and most is not None:
            return f" from {_plain(least)} to {_plain(most)}"
        low = f" of at least {_plain(least)}" if least is not None else ""
        low = f" above {_plain(self.above)}" if self.above is not None else low
        join = " and" if low else " of"
        high = f"{join} at most {_plain(most)}" if most is not None else ""
        if self.below is not None:
            high = f"{' and' if low else ''} below {_plain(self.below)}"
        return low + high

    def accepts(self, value: Any) -> bool:
        """Return whether a single value other than `None` is allowed."""
        if self._is_checked_elsewhere:
            return True
        if self.kind is bool or isinstance(value, bool):
            return self.kind is bool and isinstance(value, bool)
        if self.pattern:
            is_text = isinstance(value, str | int)
            return is_text and re.fullmatch(self.pattern, str(value)) is not None
        if self.kind is str:
            is_text = isinstance(value, str) and (value != "" or self.default == "")
            return is_text and (not self.words or value in self.words)
        if self.kind is int:
            least = -LARGEST - 1 if self.least is None else self.least
            most = INT32 if self.most is None else self.most
            return isinstance(value, int) and least <= value <= most
        if not isinstance(value, int | float):
            return False
        return (  # NaN fails each comparison
            abs(value) <= sys.float_info.max
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def check(self, value: Any) -> None:
        """Raise ConfigError unless a value is allowed."""
        if value is None and self.may_be_none or self._is_checked_elsewhere:
            return
        if not self.is_list:
            if not self.accepts(value):
                message = f"`{self.name}` must be {self.rule(value)}"
                raise ConfigError(f"{message}; {received(value)}")
        elif not isinstance(value, tuple):
            raise ConfigError(f"`{self.name}` must be a tuple; {received(value)}")
        else:
            for item in value:
                dataclasses.replace(self, is_list=False, may_be_none=False).check(item)

    @property
    def is_of_rows(self) -> bool:
        """Whether a task's setting follows from the rows, where none is given."""
        return self.unset == FROM_DATA or bool(self.fitted_by and self.unset)

    @property
    def _is_checked_elsewhere(self) -> bool:
        return bool(self.form) and not self.pattern


def option(default: Any, help: str, **rules: Any) -> Any:
    """Return the field for an option that only one config has, see `Option`."""
    return Option(default, help, **rules).field()


def options_of(config: type) -> Mapping[str, Option]:
    """Return the options of a config by name, with the types of its fields.

    In the order of the constructor's arguments; a field without a declaration is left
    out.
    """
    return _resolved(config)  # type checkers do not see that a class is hashable


@functools.cache
def _resolved(config: type) -> Mapping[str, Option]:
    every = sorted(dataclasses.fields(config), key=lambda field: bool(field.kw_only))
    fields = [field for field in every if "option" in field.metadata]
    names = {field.name for field in fields}
    hints: dict[str, Any] = {}
    for base in reversed(config.__mro__):
        # The types of other classes, such as in a task's methods, need not exist.
        if not names.isdisjoint(inspect.get_annotations(base)):
            # On Python 3.10, `typing.get_type_hints` refuses `dataclasses.KW_ONLY`.
            hints |= inspect.get_annotations(base, eval_str=True)
    found = {}
    for field in fields:
        kinds = [hints[field.name]]
        if isinstance(kinds[0], types.UnionType):
            kinds = list(typing.get_args(kinds[0]))
        kind = kinds[0]
        is_list = typing.get_origin(kind) is tuple
        found[field.name] = dataclasses.replace(
            field.metadata["option"],
            name=field.name,
            kind=typing.get_args(kind)[0] if is_list else kind,
            is_list=is_list,
            may_be_none=types.NoneType in kinds or field.default is None,
        )
    return found


def check_options(config: Any) -> None:
    """Raise ConfigError unless each option of a config has an allowed value."""
    for name, declared in options_of(type(config)).items():
        declared.check(getattr(config, name))


def with_options_documented(config: type[_Config]) -> type[_Config]:
    """Add the options of a config to its docstring; a class decorator."""
    if config.__doc__:  # `python -OO` has none
        start_of_rest = r"(?m)^(?=    (?:Raises|Example):)"
        summary, *rest = re.split(start_of_rest, config.__doc__, maxsplit=1)
        lines = [summary.rstrip(), "", *_argument_lines(config), "", *rest]
        config.__doc__ = "\n".join(lines)
    return config


def _argument_lines(config: type) -> list[str]:
    """Return the `Args` of a config's docstring, from its options."""
    lines = ["    Args:"]
    for name, declared in options_of(config).items():
        sentences = [declared.help]
        if declared.words or declared._is_checked_elsewhere:
            sentences.append(declared.rule())
        sentences.append(default_of(declared, none="`None`: "))
        lines += textwrap.wrap(
            f"{name}: {'; '.join(sentences)}.",
            width=88,
            initial_indent=" " * 8,
            subsequent_indent=" " * 12,
            break_on_hyphens=False,
        )
    return lines


def default_of(declared: Option, *, none: str) -> str:
    """Return the default of an option as text.

    Args:
        declared: the option.
        none: text before the description of a default of `None`.
    """
    if declared.default is None:
        return f"{none}{declared.unset}"
    if declared.unset:
        return f"default: {declared.unset}"
    if declared.kind is bool:
        return f"default: {'yes' if declared.default else 'no'}"
    return f"default: {declared.default}"


# Options that several configs share.
ADD_TOKENS = Option(
    None,
    "words that become tokens of their own; their embeddings start as the mean of the "
    "embeddings of their pieces",
    unit="file",
    unset="none",
)
ACCUMULATION = Option(
    1,
    "gradient accumulation: number of parts of a batch that are computed one after the "
    "other; saves memory and gives the same result",
    unit="parts",
    least=1,
)
OPTIMIZER = Option(
    "adamw",
    "adamw, or lamb for batches of many thousands of rows",
    words=("adamw", "lamb"),
)
WEIGHT_DECAY = Option(
    0.01,
    "decoupled weight decay, not applied to LayerNorm weights and biases",
    unit="rate",
    least=0,
    most=1,
)
GLOBAL_CLIPNORM = Option(
    1.0,
    "largest global norm of the gradients; larger ones are clipped",
    unit="norm",
    above=0,
)
DROPOUT = Option(
    None,
    "probability of dropout in the blocks while training; the model folder keeps its "
    "own for later training",
    unit="probability",
    least=0,
    below=1,
)
LAYOUT = Option(
    "packed", "packed puts several texts in a row, padded only one", words=LAYOUTS
)
SEED = Option(
    42,
    "seed of initial weights, row order, masks and dropout: same seed, same result",
    unit="n",
    least=0,
    most=LARGEST,
)
PRECISION = Option(
    "float32",
    "dtype policy of Keras; a mixed policy computes in 16 bits with float32 weights",
    words=PRECISIONS,
    name="precision",
)
KEEP_LAYERS = Option(
    None,
    "keep only these layers of the encoder, such as 0,2,4 of 6",
    unit="layers",
    form="numbers of layers from 0 in ascending order, such as 0,2,4",
    unset="all",
    name="keep_layers",
    may_be_none=True,
)
DISTILL = Option(
    "soft",
    "what the student learns from its teacher: soft, the answers; hidden, also the "
    "hidden states; relations, also the attention relations of the last block. hidden "
    "and relations need a model folder with the student's vocabulary",
    words=DISTILLED,
)
DISTILL_TEMPERATURE = Option(
    2.0,
    "divides the logits of teacher and student before they are compared",
    unit="t",
    above=0,
    most=1000,
)
DISTILL_WEIGHT = Option(
    0.5,
    "share of the teacher's answers in the loss; the labels have the rest",
    unit="share",
    above=0,
    most=1,
)
CARD = Option(
    True, "write a model card, README.md, into the model folder", name="card", kind=bool
)
HYBRID = Option(
    False,
    "fuse the ranking by vectors with one by words (BM25)",
    name="hybrid",
    kind=bool,
)
HYBRID_WEIGHT = Option(
    1.0,
    "with `hybrid`: weight of the ranking by words; the ranking by vectors has 1",
    unit="weight",
    least=0,
    most=1e6,
    name="hybrid_weight",
    kind=float,
)
RERANK_WEIGHT = Option(
    None,
    "with --rerank: weight of its score, which is added to the score of the search; "
    "the texts are sorted by the sum",
    unit="weight",
    above=0,
    most=1e6,
    unset="its score alone sorts",
    name="rerank_weight",
    kind=float,
    may_be_none=True,
)
MAX_DROP = Option(
    0.01,
    "largest drop of the task's main score in int8, for a score up to 1 (times 100 for "
    "the F1 of question-answering); if it drops more, nothing is written",
    unit="score",
    least=0,
    most=1,
    name="max_drop",
    kind=float,
)
STRATEGY = Option(
    "auto",
    "devices to train on: single, mirrored (all GPUs of this machine), multi-worker "
    "(the machines of TF_CONFIG or of a Slurm step), tpu, or auto (what is available)",
    words=STRATEGIES,
)
REMATERIALIZE = Option(
    False,
    "gradient checkpointing: recompute the blocks in the backward pass; saves memory, "
    "takes longer",
)
CHECKPOINT_EVERY = Option(
    "300s",
    "interval of the checkpoints, from which a killed run resumes: seconds such as "
    "300s (the first one after at most 60s), updates such as 500, or epoch; a run that "
    "is stopped or that fails writes one in any case",
    unit="interval",
    pattern="[1-9][0-9]{0,8}s?|epoch",
    form="seconds such as 300s, a number of updates such as 500, or epoch",
)
KEEP = Option(2, "number of newest checkpoints to keep", unit="checkpoints", least=1)
ON_NONFINITE = Option(
    "stop",
    "what to do if the loss or a gradient is not finite: stop ends the run and names "
    "the rows, skip leaves out the update",
    words=("stop", "skip"),
)
MASK_RATE = Option(
    0.15,
    "share of the tokens to predict, without special tokens",
    unit="share",
    above=0,
    most=1,
)
MASK_SHARE = Option(
    0.8,
    "share of the predicted tokens that become [MASK]",
    unit="share",
    least=0,
    most=1,
)
RANDOM_SHARE = Option(
    0.1,
    "share of the predicted tokens that become a random token; the rest is unchanged",
    unit="share",
    least=0,
    most=1,
)
MASK_UNIT = Option(
    "piece",
    "unit of masking: a piece, a word (whole-word masking), or an ngram of up to three "
    "words",
    words=UNITS,
)


# Checks of values that are not fields of a config.


def check_whole_number(
    name: str, value: Any, *, least: int, most: int = LARGEST
) -> None:
    """Raise ConfigError unless a setting is an integer from `least` to `most`."""
    Option(name=name, kind=int, least=least, most=most).check(value)


def layer_numbers(layers: Any) -> tuple[int, ...]:
    """Return the layers that `keep_layers` names: a string such as `0,2,4`, or numbers.

    Raises:
        ConfigError: they are not whole numbers from 0 in ascending order.
    """
    numbers: Any = layers
    if isinstance(layers, str):
        parts = [part.strip() for part in layers.split(",")]
        is_written = all(part.isascii() and part.isdigit() for part in parts)
        numbers = [int(part) for part in parts] if is_written else None
    is_list = isinstance(numbers, list | tuple | range) and len(numbers) > 0
    are_whole = is_list and all(type(number) is int for number in numbers)
    if are_whole and list(numbers) == sorted({*numbers}) and numbers[0] >= 0:
        return tuple(numbers)
    value = ",".join(map(str, numbers)) if is_list else layers
    raise ConfigError(f"`keep_layers` must be {KEEP_LAYERS.form}; {received(value)}")


def check_type(name: str, value: Any, wanted: type) -> None:
    """Raise ConfigError unless an argument is an object of a class."""
    if not isinstance(value, wanted):
        raise ConfigError(f"`{name}` must be a {wanted.__name__}; {received(value)}")


def check_boolean(name: str, value: Any) -> None:
    """Raise ConfigError unless a setting is true or false."""
    Option(name=name, kind=bool).check(value)


def check_number(
    name: str, value: Any, *, least: float, most: float | None = None
) -> None:
    """Raise ConfigError unless a setting is a finite number from `least` to `most`."""
    Option(name=name, kind=float, least=least, most=most).check(value)


def check_share(name: str, value: Any, *, above_zero: bool = False) -> None:
    """Raise ConfigError unless a setting is a share: from 0, or above 0, to 1."""
    low: dict[str, Any] = {"above": 0} if above_zero else {"least": 0}
    Option(name=name, kind=float, most=1, **low).check(value)


def check_choice(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Raise ConfigError unless a setting is one of the allowed words."""
    choices = tuple(allowed)
    words = tuple(str(choice) for choice in choices if choice is not None)
    Option(name=name, words=words, may_be_none=None in choices).check(value)


def check_mask_shares(mask_share: Any, random_share: Any) -> None:
    """Raise ConfigError unless both are shares with a sum of at most 1."""
    check_share("mask_share", mask_share)
    check_share("random_share", random_share)
    if mask_share + random_share > 1 + 1e-9:
        raise ConfigError(
            "`mask_share` and `random_share` must be 1 at most together; "
            f"received {mask_share} and {random_share}"
        )


def check_accumulation(batch_size: int, accumulation: int) -> None:
    """Raise ConfigError unless the parts of a batch have the same size."""
    if batch_size % accumulation:
        raise ConfigError(
            "`accumulation` must divide `batch_size`; received "
            f"{accumulation} and {batch_size}"
        )


def _plain(number: float) -> str:
    """Return a limit as text: 4096 and 0.5, not 4.1e+03."""
    return str(number) if isinstance(number, int) else f"{number:g}"
