"""Pretrain a new encoder with its heads, or continue from one: `pretrain`.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.2.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_keras.config import BertConfig
from bert_keras.distribution.strategy import Devices, find_strategy
from bert_keras.exports.model_card import write_readme
from bert_keras.files.atomic import check_output_place, check_path, replaced_folder
from bert_keras.pretraining.budget import plan_of_budget
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.pretraining.estimate import estimate_of
from bert_keras.pretraining.files import paths_of
from bert_keras.pretraining.loop import PretrainingLoop
from bert_keras.pretraining.plan import PretrainingPlan, make_pretraining_plan, model_of
from bert_keras.pretraining.pretrainer import BertPretrainer, write_pretrainer
from bert_keras.pretraining.source import PretrainingBatches
from bert_keras.report.comparison import write_run
from bert_keras.report.report import HELD_OUT, write_report
from bert_keras.report.terminal import plan_lines
from bert_keras.runs.environment import environment
from bert_keras.runs.notes import collected, notes_so_far, say, show
from bert_keras.runs.run_folder import MODEL, RunFolder
from bert_keras.runs.stop_signal import StopSignal
from bert_keras.text.new_tokens import described
from bert_keras.training.loop import RunContext


@dataclasses.dataclass(frozen=True)
class PretrainResult:
    """The results of `pretrain`.

    Args:
        folder: the model folder, `model` in the folder of the run.
        model: the encoder with its heads.
        scores: of the held-out data at the end; empty if none was given.
        history: rows of the curves, by step.
        notes: the lines on what the run guessed or did not use.
    """

    folder: Path
    model: BertPretrainer
    scores: dict[str, float]
    history: list[dict[str, Any]]
    notes: tuple[str, ...] = ()


def pretrain(
    encoder: BertConfig | str | os.PathLike[str] | None,
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    vocab: str | os.PathLike[str] | None = None,
    held_out: str | os.PathLike[str] | None = None,
    config: PretrainConfig | None = None,
    command: str = "",
) -> PretrainResult:
    """Train an encoder with its heads on masked tokens and pairs of texts.

    Or on replaced tokens (`config.objective`), with a generator. With a budget
    (`config.hours`) training ends by the clock, and a run that is resumed goes on with
    the time that was left at its last checkpoint.

    The folder of the run gets checkpoints, each a model folder with the state needed to
    resume; the curves (`curves.jsonl`); and at the end `report.html` and `model`, which
    also opens in `transformers`. The same call resumes an interrupted run from its last
    checkpoint, and ends with the same weights.

    On several replicas (`config.strategy`) the result equals one device's, except for
    rounding and dropout. With several processes each makes this call, and only the
    first writes. If one ends early, so do the others: see `Devices.together`.

    Args:
        encoder: the sizes of a new one; or a checkpoint to continue from, with its
            heads; `None` with `config.teacher` and `config.keep_layers`: the teacher's;
            `None` with a budget: a new one of the size that fits.
        data: the folder of `write_pretraining_data`; or several, trained on in turn,
            such as rows of 128 and then of 512 tokens.
        output: a new folder, or the folder of the same run.
        vocab: folder of the vocabulary, by default the teacher's; a checkpoint uses
            its own.
        held_out: data that is scored during training.
        config: how to train.
        command: the command line, for the report.

    Raises:
        ConfigError: a setting is wrong; `output` holds a run with other settings or
            data; the strategy's devices are missing.
        DataError: the data is missing, broken or of another tokenizer.
        CheckpointError: a checkpoint is broken, or writing fails.
        TrainingError: a loss or gradient is not finite, and the config stops the run.
        WorkerLostError: another worker has ended.

    Example:
        >>> sizes = BertConfig.from_preset("tiny", vocab_size=8000)
        >>> config = PretrainConfig(steps=2000, batch_size=64, learning_rate=1e-3)
        >>> pretrain(sizes, "data", "runs/tiny", vocab="vocab", config=config).folder
        PosixPath('runs/tiny/model')
    """
    check_path("output", output)
    planned, devices = _plan_of(encoder, data, output, vocab, held_out, config)
    with devices.together(), collected(shown=devices.is_chief):
        return _run(planned, devices, output, command)


def plan_pretraining(
    encoder: BertConfig | str | os.PathLike[str] | None,
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    vocab: str | os.PathLike[str] | None = None,
    held_out: str | os.PathLike[str] | None = None,
    config: PretrainConfig | None = None,
) -> PretrainingPlan:
    """Return what `pretrain` would decide with these arguments, and its estimated cost.

    Nothing is trained, and nothing is written. `PretrainingPlan.choices` is the table
    that `pretrain` shows before it trains, `PretrainingPlan.estimate` are seconds,
    memory and bytes on disk, measured by a few updates on the data.

    Args:
        encoder, data, vocab, held_out, config: as in `pretrain`, with its errors.
        output: the folder of the run, if an interrupted run is to be resumed.
    """
    planned, devices = _plan_of(encoder, data, output, vocab, held_out, config)
    with devices.together():
        estimate = estimate_of(planned, devices)
    return dataclasses.replace(planned, estimate=estimate)


def _plan_of(
    encoder: Any, data: Any, output: Any, vocab: Any, held_out: Any, config: Any
) -> tuple[PretrainingPlan, Devices]:
    """Return the plan of a call of `pretrain`, and where it runs."""
    config = config or PretrainConfig()
    inputs = {"encoder": encoder, "data": data, "vocab": vocab, "held_out": held_out}
    if output is not None:
        check_output_place("output", output, {**inputs, "teacher": config.teacher})
    if held_out is not None:
        paths_of(held_out)  # before anything is measured
    devices = find_strategy(config.strategy)  # before TensorFlow computes anything
    with devices.together():
        own = output if devices.is_chief else None  # which alone reads the run

        def make(encoder: Any, **chosen: Any) -> PretrainingPlan:
            return make_pretraining_plan(
                encoder, data, vocab=vocab, held_out=held_out, **chosen
            )

        if config.budget is None:
            plan = make(encoder, output=own, config=config)
        else:
            plan = plan_of_budget(
                make, encoder, config, own, vocab=vocab, devices=devices
            )
    return plan, devices


def _run(
    plan: PretrainingPlan,
    devices: Devices,
    output: str | os.PathLike[str],
    command: str,
) -> PretrainResult:
    """Show the table of a plan, train, and write the model folder and the report."""
    config = plan.config
    source = PretrainingBatches(plan, devices)
    losses = None if plan.held_out is None else source.held_out(plan.held_out)
    for line in plan_lines(plan.table()):
        show(line)
    devices.announce(config.precision)
    for note in plan.notes:
        say(note)
    model, distillation = model_of(plan, devices)
    opened: contextlib.AbstractContextManager[RunFolder | None]
    opened = contextlib.nullcontext()
    if devices.is_chief:
        opened = RunFolder(output, plan.settings(), may_lack=(HELD_OUT,))
    with opened as run:
        with StopSignal(devices.vote) as stop:
            context = RunContext(run, config, devices, stop, distillation=distillation)
            loop = PretrainingLoop(model, source, losses, context)
            if loop.step < loop.steps:
                about = "" if plan.clock is None else "about "
                show(
                    f"pretraining {model.count_params():,} parameters, {about}"
                    f"{plan.steps:,} steps of {config.batch_size:,} examples; "
                    f"the run is in {os.fspath(output)}"
                )
            loop.train()
        scores = loop.scores or loop.evaluate()
        if run is not None:
            _write(run, loop, plan, command)
    folder = Path(output) / MODEL
    return PretrainResult(folder, model, scores, loop.history, notes_so_far())


def _write(
    run: RunFolder, loop: PretrainingLoop, plan: PretrainingPlan, command: str
) -> None:
    """Write the model and the report of a completed run."""
    added = plan.config.add_tokens
    best_score = "replaced_token_loss" if plan.generator else "perplexity"
    scores = {HELD_OUT: loop.scores} if loop.scores else {}
    unused = plan.config.unused()
    config = dataclasses.asdict(plan.config)
    skipped = int(sum(row.get("skipped_updates", 0) for row in loop.history))
    with replaced_folder(run.path / MODEL) as folder:
        write_pretrainer(folder, loop.model, plan.tokenizer)
        scored = {"scores": scores, "best_score": best_score}
        write_readme(run.path / MODEL, folder, name=run.path.name, report=scored)
    model = os.fspath(run.path / MODEL)
    report: dict[str, Any] = {
        "settings": {
            "encoder": plan.encoder or "new, with random weights",
            **{name: value for name, value in config.items() if name not in unused},
            "steps_made": loop.step,
            **plan.sizes.to_dict(),
            **({"add_tokens": described(added)} if added else {}),
            **({"skipped_updates": skipped} if skipped else {}),
        },
        "data": {str(phase.data): phase.facts() for phase in plan.phases},
        "history": loop.history,
        "scores": scores,
        "mistakes": [],
        "best_score": best_score,
        "environment": {**environment(), "devices": loop.devices.line()},
        "command": command,
        "choices": plan.table(),
        "notes": notes_so_far(),
        "usage": {
            "Fine-tune it": (
                f"bert-keras train classification --encoder {shlex.quote(model)} "
                "--train train.csv --output models/mine"
            ),
            "In Python": (
                "import bert_keras\n\n"
                f"encoder = bert_keras.BertEncoder.from_pretrained({model!r})"
            ),
        },
    }
    title = f"pretraining: {run.path.name}"
    write_report(run.path / "report.html", title=title, **report)
    write_run(run.path, report)
