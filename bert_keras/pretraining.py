"""Pretrain an encoder with its heads, or go on with one: `pretrain`.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.2.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras

from bert_keras.checkpoints import Checkpoint, read_checkpoint
from bert_keras.config import BertConfig
from bert_keras.encoder import assign
from bert_keras.errors import ConfigError
from bert_keras.folder import replaced_folder
from bert_keras.held_out import HeldOut
from bert_keras.masking import Masking
from bert_keras.model_folder import check_vocabulary
from bert_keras.optimizers import AdamW, Lamb, WarmupLinearDecay
from bert_keras.pretrain_config import PretrainConfig
from bert_keras.pretrainer import BertPretrainer
from bert_keras.pretrainer_folder import (
    assign_pretrainer,
    new_pretrainer,
    weights_of,
    write_pretrainer,
)
from bert_keras.pretraining_data_config import PretrainingDataConfig
from bert_keras.pretraining_files import PretrainingFiles, find_files
from bert_keras.pretraining_input import pretraining_dataset
from bert_keras.pretraining_manifest import vocabulary_hash
from bert_keras.pretraining_objective import PretrainingObjective
from bert_keras.pretraining_progress import PretrainingProgress
from bert_keras.pretraining_shard import masking_of
from bert_keras.progress import say
from bert_keras.report import write_report
from bert_keras.run_facts import environment
from bert_keras.run_folder import MODEL, RunFolder
from bert_keras.tokenizer import WordPieceTokenizer
from bert_keras.train_step import TrainStep
from bert_keras.training_state import TrainingState, write_state

_ROWS = 200  # of the curves; each is of a hundred steps at most
# Settings that may change when a run goes on: the weights do not follow from them.
_FREE = ("save_every", "keep", "evaluate_every", "held_out_examples", "strategy")


@dataclasses.dataclass(frozen=True)
class PretrainResult:
    """What `pretrain` made.

    Args:
        folder: the model folder, `model` in the folder of the run.
        model: the encoder with its heads.
        scores: of the held-out data at the end; empty where none was given.
        history: rows of the curves, by step.
    """

    folder: Path
    model: BertPretrainer
    scores: dict[str, float]
    history: list[dict[str, Any]]


def pretrain(
    encoder: BertConfig | str | os.PathLike[str],
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    vocab: str | os.PathLike[str] | None = None,
    held_out: str | os.PathLike[str] | None = None,
    config: PretrainConfig | None = None,
    command: str = "",
) -> PretrainResult:
    """Train an encoder with its heads on masked tokens and pairs of texts.

    The folder of the run gets checkpoints, each a model folder with what training needs
    to go on; the curves (`curves.jsonl`); and at the end `report.html` and `model`,
    which opens in `transformers`, too. The same call goes on after the last checkpoint
    where a run was stopped, and ends with the same weights.

    Args:
        encoder: the sizes of a new one; or a checkpoint to go on with, its heads
            included.
        data: the folder of `write_pretraining_data`; or several, trained on one after
            the other, such as rows of 128 and then of 512 tokens.
        output: a new folder, or that of the same run.
        vocab: folder of the vocabulary; that of a checkpoint is the checkpoint's own.
        held_out: data that is scored while training.
        config: how to train.
        command: the command line, for the report.

    Raises:
        ConfigError: a setting is wrong; `output` holds a run with other settings.
        DataError: the data is missing, broken or of another vocabulary.
        CheckpointError: a checkpoint is broken, or the disk refuses.
        TrainingError: a loss is not finite.

    Example:
        >>> sizes = BertConfig.from_preset("tiny", vocab_size=8000)
        >>> config = PretrainConfig(steps=2000, batch_size=64, learning_rate=1e-3)
        >>> pretrain(sizes, "data", "runs/tiny", vocab="vocab", config=config).folder
        PosixPath('runs/tiny/model')
    """
    config = config or PretrainConfig()
    places = [data] if isinstance(data, str | os.PathLike) else list(data)
    steps = config.steps_of(len(places))
    checkpoint, origin = None, ""
    if isinstance(encoder, BertConfig):
        sizes = encoder
    else:
        checkpoint, origin = read_checkpoint(encoder), os.fspath(encoder)
        sizes = checkpoint.config
    tokenizer = _tokenizer(checkpoint, vocab)
    files = [find_files(place, tokenizer) for place in places]
    _check_sizes(sizes, tokenizer, files)
    objective = PretrainingObjective(next_sentence=_has_pairs(files, config))
    held = None
    if held_out is not None:
        held = HeldOut(held_out, tokenizer, objective, config)
    facts = [_facts(place, each) for place, each in zip(places, files, strict=True)]
    settings = {
        **{k: v for k, v in dataclasses.asdict(config).items() if k not in _FREE},
        "encoder": sizes.to_dict(),
        "start": os.path.basename(origin.rstrip("/")) or "random",
        "data": [{k: v for k, v in fact.items() if k != "folder"} for fact in facts],
        "vocabulary_sha256": vocabulary_hash(tokenizer),
    }
    run = RunFolder(output, settings)
    model = new_pretrainer(sizes, config, next_sentence=objective.next_sentence)
    if checkpoint is not None:
        for note in (*checkpoint.notes, *tokenizer.notes):
            say(note)
        assign_pretrainer(model, checkpoint, say)
    loop = _Loop(model, tokenizer, run, objective, config, held)
    for place, (first, last) in zip(places, _spans(steps), strict=True):
        if loop.step < last:
            loop.train_on(place, first, last)
    run.wait()
    scores = loop.scores or loop.evaluate()
    with replaced_folder(run.path / MODEL) as folder:
        write_pretrainer(folder, model, tokenizer)
    write_report(
        run.path / "report.html",
        title=f"pretraining: {run.path.name}",
        settings={**dataclasses.asdict(config), **model.encoder.config.to_dict()},
        data={f"data {n}": fact for n, fact in enumerate(facts, 1)},
        history=loop.history,
        scores={"held_out": scores} if scores else {},
        mistakes=[],
        best_score="perplexity",
        environment=environment(),
        command=command,
    )
    return PretrainResult(run.path / MODEL, model, scores, loop.history)


class _Loop:
    """Training, from where the run's last checkpoint stands."""

    def __init__(
        self,
        model: BertPretrainer,
        tokenizer: WordPieceTokenizer,
        run: RunFolder,
        objective: PretrainingObjective,
        config: PretrainConfig,
        held_out: HeldOut | None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.run = run
        self.objective = objective
        self.config = config
        self.held_out = held_out
        self.optimizer = _optimizer(config)
        self.optimizer.build(model.trainable_variables)
        self.state = TrainingState(model, self.optimizer)
        self.scores: dict[str, float] = {}
        self.step = 0
        if run.steps:
            self.step = run.steps[-1]
            folder = run.checkpoint(self.step)
            assign(model, read_checkpoint(folder))
            self.state.restore(folder)
            say(f"going on after step {self.step:,} of {config.steps:,}: {folder}")
        self.history = run.rows(self.step)
        self.progress = PretrainingProgress(
            model.encoder.config,
            steps=config.steps,
            start=self.step,
            row_every=min(max(config.steps // _ROWS, 1), 100),
        )
        if self.step < config.steps:
            say(
                f"pretraining {model.count_params():,} parameters, {config.steps:,} "
                f"steps of {config.batch_size:,} examples; the run is in {run.path}"
            )

    def train_on(self, data: Any, first: int, last: int) -> None:
        """Make the updates of one phase, counted over the whole run."""
        config, parts = self.config, self.config.accumulation
        dataset = pretraining_dataset(
            data,
            self.tokenizer,
            batch_size=config.batch_size // parts,
            objective=config.objective,
            masking=_masking(data, self.tokenizer, config),
            next_sentence=self.objective.next_sentence,
            seed=config.seed + first,
            epochs=None,
            skip_batches=(self.step - first) * parts,
            layout=config.layout,
        )
        update = TrainStep(
            self.model, self.optimizer, self.objective, dataset.element_spec
        )
        batches = iter(dataset)
        self.progress.go_on()
        while self.step < last:
            some = list(itertools.islice(batches, parts))
            sums, totals = update(some)
            self.step += 1
            row = self.progress.add(sums, totals, some)
            if row is not None:
                row["learning_rate"] = float(self.optimizer.learning_rate)
                self._add(row)
            self._evaluate_and_save(row is not None)

    def evaluate(self) -> dict[str, float]:
        """Return the held-out scores as the weights are now."""
        self.scores = self.held_out(self.model) if self.held_out else {}
        return self.scores

    def _evaluate_and_save(self, is_row: bool) -> None:
        """Do what is due after a step."""
        is_last = self.step == self.config.steps
        scored = self.held_out and self.step % self.config.evaluate_every == 0
        if not scored and not is_last and self.step % self.config.save_every:
            return
        self.progress.check()
        self.progress.pause()
        if scored or is_last:
            found = self.evaluate()
            if found:
                self._add({"step": self.step, **_prefixed(found)})
                shown = "  ".join(f"{key} {value:.4f}" for key, value in found.items())
                say(f"step {self.step:,}  held out: {shown}")
        if is_last or self.step % self.config.save_every == 0:
            self._save()
        self.progress.go_on()

    def _save(self) -> None:
        weights, state = weights_of(self.model), self.state.copy()

        def write(folder: Path) -> None:
            write_pretrainer(folder, self.model, self.tokenizer, weights)
            write_state(folder, state)

        self.run.save(self.step, write, keep=self.config.keep)

    def _add(self, row: dict[str, Any]) -> None:
        self.history.append(row)
        self.run.add_row(row)


def _prefixed(scores: dict[str, float]) -> dict[str, float]:
    """Return held-out scores as the report's curves name them."""
    return {f"dev_{name}": value for name, value in scores.items()}


def _tokenizer(
    checkpoint: Checkpoint | None, vocab: str | os.PathLike[str] | None
) -> WordPieceTokenizer:
    """Return the tokenizer of a folder, or of the checkpoint that training starts from.

    Raises:
        ConfigError: `vocab` is missing, or given beside a checkpoint.
    """
    if checkpoint is not None and vocab is None:
        tokenizer = WordPieceTokenizer.from_folder(checkpoint.path)
        check_vocabulary(tokenizer, checkpoint)
        return tokenizer
    if checkpoint is None and vocab is not None:
        return WordPieceTokenizer.from_folder(vocab)
    raise ConfigError(
        "`vocab` must be given for a new model, and for no checkpoint, which has its "
        f"own; received {vocab}"
    )


def _masking(
    data: Any, tokenizer: WordPieceTokenizer, config: PretrainConfig
) -> Masking | None:
    """Return how the config hides tokens; `None` is what the data was made for.

    Raises:
        ConfigError: the masks of the data are written out, and others are asked for.
    """
    changes = config.masking_changes()
    if not changes:
        return None
    settings = find_files(data, tokenizer).settings
    made = PretrainingDataConfig(**settings) if settings else PretrainingDataConfig()
    renamed = {"mask_rate": "rate", "mask_unit": "unit"}
    changes = {renamed.get(name, name): value for name, value in changes.items()}
    if "rate" in changes:  # as many places as that rate fills in a full row
        made = dataclasses.replace(
            made, mask_rate=changes["rate"], max_predictions=None
        )
    return dataclasses.replace(masking_of(made), **changes)


def _check_sizes(
    sizes: BertConfig, tokenizer: WordPieceTokenizer, files: Sequence[PretrainingFiles]
) -> None:
    """Raise ConfigError unless tokens and positions have rows in their tables."""
    longest = max(each.max_length for each in files)
    for name, least in (
        ("vocab_size", tokenizer.vocab_size),
        ("max_position_embeddings", longest),
    ):
        if getattr(sizes, name) < least:
            raise ConfigError(
                f"`{name}` must be at least the {least:,} of vocabulary and data; "
                f"received {getattr(sizes, name):,}"
            )


def _has_pairs(files: Sequence[PretrainingFiles], config: PretrainConfig) -> bool:
    """Say whether there is a next-sentence head to train.

    A left-to-right model has none: its `[CLS]` sees nothing of the texts.
    """
    wanted = config.next_sentence == "auto" and config.objective == "masked"
    return wanted and all(each.has_pairs for each in files)


def _facts(place: Any, files: PretrainingFiles) -> dict[str, Any]:
    """Return what tells data sets apart, for `run.json` and the report."""
    return {
        "folder": os.fspath(place) if isinstance(place, str | os.PathLike) else "",
        "files": len(files.paths),
        "bytes": sum(os.path.getsize(path) for path in files.paths),
        "max_length": files.max_length,
        "masks": "static" if files.is_masked else "dynamic",
    }


def _spans(steps: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first step of each phase and the one behind its last."""
    return itertools.pairwise([0, *itertools.accumulate(steps)])


def _optimizer(config: PretrainConfig) -> keras.optimizers.Optimizer:
    schedule = WarmupLinearDecay(
        config.learning_rate,
        total_steps=config.steps,
        warmup_steps=int(config.steps * config.warmup_share),
    )
    kind = {"adamw": AdamW, "lamb": Lamb}[config.optimizer]
    optimizer = kind(
        schedule,
        weight_decay=config.weight_decay,
        global_clipnorm=config.global_clipnorm,
    )
    if config.precision == "mixed_float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer
