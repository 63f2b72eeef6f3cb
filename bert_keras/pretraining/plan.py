"""The plan of a pretraining run: everything that is decided before training.

A plan is a value. Making it reads the data's facts and the checkpoints, and prints and
writes nothing; `pretrain` shows its table and follows it.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.2, for the two phases.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from bert_keras.checkpoints import Checkpoint
from bert_keras.checkpoints.model_types import BERT, title_of, to_theirs
from bert_keras.checkpoints.names import DISCRIMINATOR
from bert_keras.config import PRESETS, BertConfig
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import ConfigError, counted
from bert_keras.models.folder import Folder
from bert_keras.models.kept_layers import with_layers
from bert_keras.models.new_tokens import with_tokens
from bert_keras.models.pretrained_model import has_scope
from bert_keras.pretraining.clock import Clock
from bert_keras.pretraining.config import (
    BUDGET,
    PAPER,
    PretrainConfig,
    PretrainingDataConfig,
    initializer_range,
)
from bert_keras.pretraining.distillation import PretrainingDistillation
from bert_keras.pretraining.files import PretrainingFiles, find_files
from bert_keras.pretraining.pretrainer import (
    BertPretrainer,
    assign_pretrainer,
    generator_config,
    generator_of,
    new_pretrainer,
)
from bert_keras.pretraining.shards import masking_of
from bert_keras.report.report import HELD_OUT
from bert_keras.runs.notes import collected, say
from bert_keras.runs.progress import duration
from bert_keras.runs.run_folder import checked_steps, digest_of
from bert_keras.settings import CAUSAL, MASKED, REPLACED_TOKEN, options_of
from bert_keras.text.masking import Masking, mask_id_of
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.text.tokenizer_files import vocabulary_hash
from bert_keras.training.choices import GIVEN, Choice, Decided

# Settings that may change when a run resumes: the weights do not depend on them.
_FREE = (
    "checkpoint_every",
    "keep",
    "evaluate_every",
    "held_out_examples",
    "strategy",
    "on_nonfinite",
)
ENDLESS = 2**31 - 1  # steps of a phase that a budget ends
_OF_BUDGET = "of runs with a budget"
_PAPER = "the paper's"  # the reason of a default
_PAIR_HEAD, _MASKED_HEAD = "cls/seq_relationship/", "cls/predictions/"


@dataclasses.dataclass(frozen=True)
class Phase:
    """A data set and the steps that are trained on it."""

    data: Any  # the folder, or another input of `pretraining_dataset`
    files: PretrainingFiles
    masking: Masking | None  # `None` is as in the data
    first: int  # the step before its first one, in the whole run
    last: int

    def seed(self, config: PretrainConfig) -> int:
        """Return the seed of the order and the masks."""
        return config.seed + self.first

    def facts(self) -> dict[str, Any]:
        """Return the facts that distinguish data sets."""
        steps = self.last - self.first
        return {**self.files.facts(), **({"steps": steps} if steps < ENDLESS else {})}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PretrainingPlan(Decided):
    """All that a run follows: sizes and initial weights of the model, data by phases.

    Args:
        config: the settings.
        sizes: of the model; causal if the objective is.
        checkpoint: that training starts from; `None` for a new model.
        tokenizer: of the data.
        phases: the data sets in turn.
        next_sentence: whether pairs are trained.
        teacher: with a masked-LM head and the same vocabulary.
        held_out: data that is scored during training.
        steps: updates of the run; of a budget, about as many as it allows.
        generator: its sizes, if tokens are replaced.
        first_step: the steps that an interrupted run has made.
        clock: of a budget, see `Clock`.
        encoder: the place of the checkpoint; empty for a new model.
    """

    config: PretrainConfig
    sizes: BertConfig
    checkpoint: Checkpoint | None
    tokenizer: WordPieceTokenizer
    phases: tuple[Phase, ...]
    next_sentence: bool
    steps: int
    generator: BertConfig | None = None
    teacher: Checkpoint | None = None
    held_out: str | os.PathLike[str] | None = None
    first_step: int = 0
    clock: Clock | None = None
    encoder: str = ""

    def settings(self) -> dict[str, Any]:
        """Return everything that determines weights and curves, as JSON values."""
        config = dataclasses.asdict(self.config)
        free = {*_FREE, *self.config.unused()}
        found = {name: value for name, value in config.items() if name not in free}
        if self.teacher is not None:
            found["weights of the teacher"] = _digest(self.teacher)
        if self.config.has_masks:
            masks = [phase.masking or phase.files.masking for phase in self.phases]
            found["masking"] = [dataclasses.asdict(each) for each in masks]
        if self.generator is not None:
            own = self.checkpoint and generator_of(self.checkpoint)
            found["generator"] = self.generator.to_dict()
            found["start of generator"] = _digest(own)
        found["encoder"] = self.sizes.to_dict()
        found["start"] = _digest(self.checkpoint)
        found["data"] = [phase.facts() for phase in self.phases]
        if self.held_out is not None:
            files = find_files(self.held_out, self.tokenizer)
            masking = dataclasses.asdict(files.masking)
            found[HELD_OUT] = {**files.facts(), "masking": masking}
        found["vocabulary_sha256"] = vocabulary_hash(self.tokenizer.vocabulary)
        return found


def _digest(checkpoint: Checkpoint | None) -> str:
    """Return a digest of the weights of a checkpoint; without one they are random."""
    if checkpoint is None:
        return "random"
    names = sorted(checkpoint.shapes)
    return digest_of((name, checkpoint.arrays[name]) for name in names)


class _Start(NamedTuple):
    """What training starts from: a checkpoint, or the sizes of a new model."""

    sizes: BertConfig
    checkpoint: Checkpoint | None
    vocab: str | os.PathLike[str] | None  # `None`: the vocabulary of the checkpoint
    weights: str  # what the first weights are, in the words of the plan
    added: tuple[str, ...] = ()  # notes on added tokens
    place: str = ""  # of the checkpoint


def _start_of(
    encoder: BertConfig | str | os.PathLike[str] | None,
    config: PretrainConfig,
    vocab: str | os.PathLike[str] | None,
    reasons: Mapping[str, str],
) -> _Start:
    """Return what training starts from; arguments as in `make_pretraining_plan`."""
    source = _student_encoder(encoder, config)
    if isinstance(source, BertConfig):
        if config.add_tokens is not None:
            raise ConfigError(
                "`add_tokens` is for a checkpoint to continue from; a new model has "
                "the vocabulary of `vocab`"
            )
        weights = reasons.get("size", "a new model, with random weights")
        vocab = config.teacher if vocab is None else vocab
        return _Start(source, None, vocab, weights)
    folder = with_layers(Folder.open(source), config.keep_layers)
    with collected(shown=False) as added:
        folder = with_tokens(folder, config.add_tokens)
    found, place = folder.checkpoint, os.fspath(source)
    weights = f"continues from {place}"
    if encoder is None:
        weights = f"layers {config.keep_layers} of the teacher, and its heads"
    return _Start(found.config, found, vocab, weights, tuple(added), place)


def make_pretraining_plan(
    encoder: BertConfig | str | os.PathLike[str] | None,
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    vocab: str | os.PathLike[str] | None,
    held_out: str | os.PathLike[str] | None = None,
    config: PretrainConfig,
    steps: int = ENDLESS,
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> PretrainingPlan:
    """Decide everything about a run; arguments and errors as in `pretrain`.

    Without `output`, no run is resumed. Of a budget, `steps` are about the updates that
    it allows, `reasons` are those of chosen settings by name, and `size`.
    """
    places = [data] if isinstance(data, str | os.PathLike) else list(data)
    if not places:
        raise ConfigError("`data` must name at least one folder; received none")
    ends = [ENDLESS]
    if config.budget is None:
        ends = list(itertools.accumulate(config.steps_of(len(places))))
        steps = config.steps
    elif len(places) > 1:
        raise ConfigError(
            f"`data` must be one folder with a budget; received {len(places)}: phases "
            "need --steps"
        )
    start = _start_of(encoder, config, vocab, reasons)
    sizes, checkpoint = start.sizes, start.checkpoint
    rate_reason = "" if config.learning_rate else _OF_BUDGET
    config = config.fitted_to(sizes)
    tokenizer = _tokenizer(checkpoint, start.vocab)
    teacher = _teacher(config, tokenizer)
    files = [find_files(place, tokenizer) for place in places]
    check_sizes(sizes, tokenizer, files)
    notes = [*checkpoint.notes, *tokenizer.notes, *start.added] if checkpoint else []
    if held_out is not None and os.path.realpath(held_out) in map(
        os.path.realpath, places
    ):
        notes.append(
            "the held-out data is also trained on: its scores say nothing about other "
            f"text; {os.fspath(held_out)}"
        )
    sizes = _directed(sizes, checkpoint, config, notes)
    to_theirs(sizes.to_dict())  # before training: a folder can hold the model
    generator = _generator(sizes, checkpoint, config)
    if teacher is not None:
        _check_reads(teacher, config, sizes, tokenizer, files)
    phases = tuple(
        Phase(place, found, _masking(found, tokenizer, config), first, last)
        for place, found, first, last in zip(
            places, files, [0, *ends], ends, strict=False
        )
    )
    next_sentence, pairs = _trains_pairs(
        phases, sizes.model_type, checkpoint, config, notes
    )
    if config.distill_weight == 1 and next_sentence:
        raise ConfigError(
            "`distill_weight` must be below 1 with next-sentence pairs, which are "
            "learned from their labels only; received 1: `next_sentence` none leaves "
            "pairs out"
        )
    choices = (
        *_of_model(sizes, start, tokenizer, config),
        *_of_targets(phases, config, generator, next_sentence=pairs),
        *_of_updates(
            phases, config, held_out, steps, {"learning_rate": rate_reason, **reasons}
        ),
    )
    plan = PretrainingPlan(
        config=config,
        sizes=sizes,
        checkpoint=checkpoint,
        tokenizer=tokenizer,
        phases=phases,
        next_sentence=next_sentence,
        steps=steps,
        generator=generator,
        teacher=teacher,
        held_out=held_out,
        choices=choices,
        notes=tuple(notes),
        encoder=start.place,
    )
    return plan if output is None else _resumed(plan, output)


def _resumed(plan: PretrainingPlan, output: str | os.PathLike[str]) -> PretrainingPlan:
    """Return a plan that goes on with the run in a folder, if there is one.

    Raises:
        ConfigError: it has other settings or data.
        CheckpointError: the folder holds something else.
    """
    if not os.path.lexists(output):
        return plan
    steps = checked_steps(output, plan.settings(), may_lack=(HELD_OUT,))
    if not steps:
        return plan
    last = steps[-1]
    found = Choice("resumed", f"after step {last:,}", "the last checkpoint of the run")
    return dataclasses.replace(plan, first_step=last, choices=(*plan.choices, found))


def _chosen(
    config: PretrainConfig, name: str, value: Any = None, *, reason: str = ""
) -> Choice:
    """Return the choice of a setting: for a reason, as usual, or as it is given."""
    usual = PAPER if config.budget is None else BUDGET
    own = getattr(config, name)
    if not reason:
        default = usual.get(name, options_of(PretrainConfig)[name].default)
        words = _OF_BUDGET if usual is BUDGET and name in BUDGET else _PAPER
        reason = words if own == default else GIVEN
    return Choice(
        name.replace("_", " "),
        own if value is None else value,
        reason,
        f"--{name.replace('_', '-')}",
    )


def _shape(sizes: BertConfig) -> str:
    """Return layers, width and heads, as `--size` takes them."""
    parts = sizes.num_hidden_layers, sizes.hidden_size, sizes.num_attention_heads
    return "/".join(map(str, parts))


def _of_model(
    sizes: BertConfig,
    start: _Start,
    tokenizer: WordPieceTokenizer,
    config: PretrainConfig,
) -> Iterator[Choice]:
    """Yield the choices of the model."""
    option = "--size" if start.checkpoint is None else "--encoder"
    shape = _shape(sizes)
    names = [
        name for name, each in PRESETS.items() if "/".join(map(str, each)) == shape
    ]
    names += [title_of(sizes)] if sizes.model_type != BERT else []
    kind = f" ({' '.join(names)})" if names else ""
    yield Choice("model", f"{shape}{kind}", start.weights, option)
    place = "the checkpoint" if start.vocab is None else os.fspath(start.vocab)
    size = f"{tokenizer.vocab_size:,} tokens"
    yield Choice("vocabulary", size, f"of {place}", "--vocab")
    if start.checkpoint is None and config.budget is not None:
        deviation = f"standard deviation {sizes.initializer_range:g}"
        usual = sizes.initializer_range == initializer_range(sizes.hidden_size)
        reason = "1 divided by the root of the width" if usual else GIVEN
        yield Choice("initial weights", deviation, reason, "--set initializer_range")


def _of_targets(
    phases: Sequence[Phase],
    config: PretrainConfig,
    generator: BertConfig | None,
    *,
    next_sentence: Choice,
) -> Iterator[Choice]:
    """Yield the choices of what is read and predicted."""
    lengths = dict.fromkeys(phase.files.max_length for phase in phases)
    yield Choice("rows", f"{' and '.join(map(str, lengths))} tokens", "as in the data")
    yield _chosen(config, "objective")
    if generator is not None:
        share = f"{config.generator_share:.3g} of the width, with the same embeddings"
        yield Choice("generator", _shape(generator), share, "--generator-share")
    if config.has_masks:
        masks = [phase.masking or phase.files.masking for phase in phases]
        shown = dict.fromkeys(f"{each.rate:.0%} by {each.unit}" for each in masks)
        reason = GIVEN if config.masking_changes() else "as in the data"
        if any(phase.files.is_masked for phase in phases):
            reason += ", which stores its masks"
        yield Choice("masks", " and ".join(shown), reason, "--mask-rate")
    yield next_sentence
    if config.teacher is not None:
        share = f"its outputs have {config.distill_weight:.0%} of the loss"
        yield Choice("teacher", config.teacher, share, "--distill-weight")


def _of_updates(
    phases: Sequence[Phase],
    config: PretrainConfig,
    held_out: str | os.PathLike[str] | None,
    steps: int,
    reasons: Mapping[str, str],
) -> Iterator[Choice]:
    """Yield the choices of the updates, and of the scores between them."""
    if config.budget is not None:
        few = f"{config.minutes:g} min"  # not rounded
        budget = few if config.budget < 5400 else duration(config.budget)
        yield Choice("budget", budget, GIVEN, "--minutes")
        reads = _passes(phases[0], steps, config)
        reason = f"{reasons.get('steps', 'as many as it allows')}{reads}"
        yield Choice("steps", f"about {steps:,}", reason, "--steps")
    elif len(phases) == 1:
        found = _chosen(config, "steps", f"{steps:,}")
        reads = _passes(phases[0], steps, config)
        yield dataclasses.replace(found, reason=found.reason + reads)
    else:
        yield _chosen(config, "steps", f"{steps:,}")
        for phase in phases:
            count = phase.last - phase.first
            share = f"{count / steps:.0%} of the steps{_passes(phase, count, config)}"
            name = f"steps of {phase.data}"
            yield Choice(name, f"{count:,}", share, "--phase-shares")
    batch, why = f"{config.batch_size:,}", reasons.get("batch_size", "")
    yield _chosen(config, "batch_size", batch, reason=why)
    if config.accumulation > 1:
        yield _chosen(config, "accumulation")
    yield _chosen(config, "optimizer")
    if config.dropout is not None:
        yield _chosen(config, "dropout", f"{config.dropout:g}")
    rate = f"{config.learning_rate:.2g}"
    yield _chosen(config, "learning_rate", rate, reason=reasons["learning_rate"])
    if config.budget is None:
        warmup = f"{int(steps * config.warmup_ratio):,} steps"
        share = f"{config.warmup_ratio:.3g} of the steps"
    else:
        warmup = duration(config.budget * config.warmup_ratio)
        share = f"{config.warmup_ratio:.3g} of the budget, then down to 0 at its end"
    yield Choice("warmup", warmup, share, "--warmup-ratio")
    if held_out is not None:
        most, every = config.held_out_examples, config.evaluate_every
        scored = f"up to {most:,} examples, every {every:,} steps and at the end"
        yield Choice("held out", scored, f"of {held_out}", "--evaluate-every")


def _passes(phase: Phase, steps: int, config: PretrainConfig) -> str:
    """Return words on how often the examples of a phase are read; "" if unknown."""
    examples = phase.files.examples
    if not examples:
        return ""
    times = steps * config.batch_size / examples
    return f"; {times:.3g} passes over {counted(examples, 'examples')}"


def model_of(
    plan: PretrainingPlan, devices: Devices
) -> tuple[BertPretrainer, PretrainingDistillation | None]:
    """Return the model that a plan trains, and what its teacher teaches, if any."""
    config = plan.config
    with devices.strategy.scope():
        model = new_pretrainer(
            plan.sizes,
            config,
            next_sentence=plan.next_sentence,
            generator=plan.generator,
        )
    if plan.checkpoint is not None:
        assign_pretrainer(model, plan.checkpoint)
    if config.teacher is None:
        return model, None
    say(f"learning from the teacher {config.teacher}")
    with devices.strategy.scope():
        teacher = BertPretrainer.from_pretrained(
            config.teacher, next_sentence=False, precision=config.precision
        )
        return model, PretrainingDistillation(
            config, teacher, tokens=plan.tokenizer.vocab_size
        )


def _student_encoder(
    encoder: BertConfig | str | os.PathLike[str] | None, config: PretrainConfig
) -> BertConfig | str | os.PathLike[str]:
    """Return the encoder of a run: the given one, or else the teacher's.

    Raises:
        ConfigError: there is neither, or `keep_layers` has no effect.
    """
    if isinstance(encoder, BertConfig) and config.keep_layers is not None:
        raise ConfigError(
            "`keep_layers` is for a checkpoint, not for a new model; received "
            f"{config.keep_layers}"
        )
    if encoder is not None:
        return encoder
    if config.teacher is None or config.keep_layers is None:
        raise ConfigError(
            "`encoder` must be given: the sizes of a new model (--size), or a "
            "checkpoint; it may be left out with `teacher` and `keep_layers`"
        )
    return config.teacher


def _teacher(
    config: PretrainConfig, tokenizer: WordPieceTokenizer
) -> Checkpoint | None:
    """Return the checkpoint of the teacher, if there is one.

    Raises:
        ConfigError: it has no masked-LM head, or another vocabulary.
    """
    if config.teacher is None:
        return None
    folder = Folder.open(config.teacher)
    checkpoint, place = folder.checkpoint, config.teacher
    if not any(name.startswith(_MASKED_HEAD) for name in checkpoint.shapes):
        raise ConfigError(
            f"`teacher` must have a masked-LM head; received {place}, without one"
        )
    theirs = folder.tokenizer.vocabulary
    if theirs != tokenizer.vocabulary:
        raise ConfigError(
            f"`teacher` must have the vocabulary of the student, of "
            f"{len(tokenizer.vocabulary):,} tokens; received {place}, with another of "
            f"{len(theirs):,}"
        )
    return checkpoint


def _check_reads(
    teacher: Checkpoint,
    config: PretrainConfig,
    sizes: BertConfig,
    tokenizer: WordPieceTokenizer,
    files: Sequence[PretrainingFiles],
) -> None:
    """Raise ConfigError if a teacher cannot read the data as the student does."""
    place = config.teacher
    if teacher.config.is_decoder != sizes.is_decoder:
        read = "from left to right" if sizes.is_decoder else "in both directions"
        raise ConfigError(
            f"`teacher` must read {read}, as `objective` {config.objective}; received "
            f"{place}"
        )
    try:
        check_sizes(teacher.config, tokenizer, files)
    except ConfigError as error:
        raise ConfigError(f"`teacher` {place}: {error}") from None


def check_sizes(
    sizes: BertConfig, tokenizer: WordPieceTokenizer, files: Sequence[PretrainingFiles]
) -> None:
    """Raise ConfigError unless each token, position and segment has an embedding."""
    needs = {
        "vocab_size": tokenizer.vocab_size,
        "max_position_embeddings": max(each.max_length for each in files),
    }
    if sizes.type_vocab_size:  # others read no segments
        needs["type_vocab_size"] = 2 if any(each.has_pairs for each in files) else 1
    for name, least in needs.items():
        if getattr(sizes, name) < least:
            raise ConfigError(
                f"`{name}` must be at least {least:,} for this vocabulary and data; "
                f"received {getattr(sizes, name):,}"
            )


def _tokenizer(
    checkpoint: Checkpoint | None, vocab: str | os.PathLike[str] | None
) -> WordPieceTokenizer:
    """Return the tokenizer of a folder, or of the checkpoint to start from."""
    if checkpoint is not None and vocab is None:
        return Folder.open(checkpoint).tokenizer
    if checkpoint is None and vocab is not None:
        return WordPieceTokenizer.from_folder(vocab)
    raise ConfigError(
        "`vocab` must be given for a new model, and not for a checkpoint, which has "
        f"its own; received {vocab}"
    )


def _directed(
    sizes: BertConfig,
    checkpoint: Checkpoint | None,
    config: PretrainConfig,
    notes: list[str],
) -> BertConfig:
    """Return the sizes with attention and model type that fit the objective."""
    causal, detects = config.objective == CAUSAL, config.objective == REPLACED_TOKEN
    if sizes.is_decoder and not causal:
        raise ConfigError(
            "`objective` must be causal for a model with `is_decoder`; received "
            f"{config.objective}"
        )
    if not detects:
        if causal and checkpoint is not None and not sizes.is_decoder:
            notes.append("the checkpoint reads in both directions: now left to right")
        if checkpoint is not None and has_scope(checkpoint, f"{DISCRIMINATOR}/"):
            notes.append(
                "left out of the model: the checkpoint's head for replaced tokens, "
                f"since the objective is {config.objective}"
            )
        return dataclasses.replace(sizes, is_decoder=causal)
    if not sizes.type_vocab_size:
        raise ConfigError(
            "`objective` must be masked for a model without segments, which an ELECTRA "
            f"has; received replaced-token and the model type {sizes.model_type}"
        )
    if checkpoint is not None and sizes.model_type == BERT:
        notes.append(
            "the checkpoint, a BERT, continues as the discriminator of an ELECTRA: its "
            "pooler and heads are left out"
        )
    return dataclasses.replace(sizes, model_type="electra")


def _generator(
    sizes: BertConfig, checkpoint: Checkpoint | None, config: PretrainConfig
) -> BertConfig | None:
    """Return the sizes of the generator of a run: the checkpoint's, or new ones.

    Raises:
        ConfigError: they are given, and the checkpoint has others.
    """
    if config.objective != REPLACED_TOKEN:
        return None
    new = generator_config(sizes, config.generator_share)
    own = checkpoint and generator_of(checkpoint)
    if not own:
        return new
    if own.config.vocab_size != sizes.vocab_size:
        raise ConfigError(
            "`add_tokens` must be left out for a checkpoint with a generator, which "
            f"has {own.config.vocab_size:,} tokens; received {sizes.vocab_size:,} of "
            "the encoder: without the folder `generator` a new one starts"
        )
    is_given = config.generator_share != PretrainConfig.generator_share
    if is_given and new.hidden_size != own.config.hidden_size:
        raise ConfigError(
            "`generator_share` is for a new generator; the checkpoint has one of the "
            f"width {own.config.hidden_size}; received {config.generator_share}"
        )
    return own.config


def _masking(
    files: PretrainingFiles, tokenizer: WordPieceTokenizer, config: PretrainConfig
) -> Masking | None:
    """Return how the config hides tokens; `None` is as in the data."""
    changes = config.masking_changes()
    if files.is_masked and (changes or not config.has_masks):
        name = next(iter(changes), "objective")
        wanted = "masked" if name == "objective" else "None"
        raise ConfigError(
            f"`{name}` must be {wanted} for data with stored masks, as in "
            f"{files.paths[0]}; received {getattr(config, name)}: write the data with "
            "dynamic masking"
        )
    if changes and not config.has_masks:
        name, value = next(iter(changes.items()))
        raise ConfigError(
            f"`{name}` has an effect only with `objective` masked or replaced-token; "
            f"received {value} and causal"
        )
    if not files.is_masked and config.has_masks:
        mask_id_of(tokenizer)
    if not changes:
        return None
    made = PretrainingDataConfig(**(files.settings or {}))
    if config.mask_rate is not None:  # as many as that rate fills in a full row
        made = dataclasses.replace(
            made, mask_rate=config.mask_rate, max_predictions=None
        )
    names = {"mask_rate": "rate", "mask_unit": "unit"}
    changed = {names.get(name, name): value for name, value in changes.items()}
    return dataclasses.replace(masking_of(made), **changed)


def _trains_pairs(
    phases: Sequence[Phase],
    kind: str,
    checkpoint: Checkpoint | None,
    config: PretrainConfig,
    notes: list[str],
) -> tuple[bool, Choice]:
    """Return whether to train a next-sentence head, and the choice; note what is lost.

    A left-to-right model has none: its `[CLS]` does not see the texts. `kind` is the
    model type.
    """
    wanted = config.next_sentence == "auto" and config.objective == MASKED
    having = [phase.files.has_pairs for phase in phases]
    if wanted and any(having) and kind != BERT:
        notes.append(
            f"next sentences are not trained: the model type {kind} has no head for "
            "them"
        )
        wanted = False
    if wanted and any(having) and not all(having):
        raise ConfigError(
            "`next_sentence` must be none if only some of the data has pairs; "
            f"received auto, and none in {phases[having.index(False)].data}"
        )
    trains = wanted and all(having)
    if not trains and checkpoint is not None and config.objective != REPLACED_TOKEN:
        lost = [n for n in checkpoint.shapes if n.startswith((_PAIR_HEAD, "bert/pool"))]
        if lost:
            notes.append(
                "left out of the model: the pooler and the next-sentence head of the "
                "checkpoint, since pairs are not trained"
            )
    reasons = {
        "the data has pairs": trains,
        GIVEN: config.next_sentence != "auto",
        "a left-to-right model has no head for pairs": config.objective == CAUSAL,
        "the data has no pairs": not any(having),
        f"the model type {kind} has no head for pairs": True,
    }
    reason = next(each for each, holds in reasons.items() if holds)
    value = "trained" if trains else "not trained"
    return trains, Choice("next sentence", value, reason, "--next-sentence")
