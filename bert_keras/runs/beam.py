"""Pipelines of Apache Beam: their flags, their runs, and mistakes on their workers.

A worker does not raise a user's mistake, since a runner would try again and bury the
line in its log: it passes the mistake on, to the process that started the run.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Any

from bert_keras import errors
from bert_keras.errors import BertKerasError, ConfigError, DataError, needs

# Runners in this process; others accept flags unknown to Beam's own parser.
_LOCAL = re.compile(
    r"(?i)(switching|bundlebased)?direct(runner)?|(fnapi|prism)(runner)?"
)


def pipeline_of(flags: Sequence[str]) -> Any:
    """Return a new pipeline with Beam's own flags, such as `--runner=FlinkRunner`.

    Raises:
        ConfigError: Beam is missing; a flag or the runner is wrong or unknown.
    """
    with needs("Apache Beam", extra="beam"):
        import apache_beam as beam
    if isinstance(flags, str) or not all(isinstance(flag, str) for flag in flags):
        raise ConfigError(f"`pipeline_args` must be strings; received {flags!r}")
    options = _options(list(flags))
    try:
        pipeline = beam.Pipeline(options=options)
    except (ValueError, ImportError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"`pipeline_args`: {reason}") from None
    return pipeline


def _options(flags: list[str]) -> Any:
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output):
            options = PipelineOptions(flags)
            known = options.get_all_options(drop_default=True)
            given = options.get_all_options(
                drop_default=True, retain_unknown_options=True
            )
    except SystemExit:
        reason = (output.getvalue().strip().splitlines() or ["wrong"])[-1]
        reason = reason.partition("error: ")[2] or reason
        raise ConfigError(f"`pipeline_args`: {reason}") from None
    unknown = sorted(set(given) - set(known))
    runner = options.view_as(StandardOptions).runner or "DirectRunner"
    if unknown and _LOCAL.fullmatch(runner):
        raise ConfigError(
            f"`pipeline_args` must be flags of Beam; received --{unknown[0]}"
        )
    return options


def run_pipeline(pipeline: Any, failed: str, place: str) -> None:
    """Run a pipeline to completion; Beam's exception is the cause of a DataError.

    `failed` says what a failure leaves, at `place`.
    """
    try:
        state = pipeline.run().wait_until_finish()
    except Exception as error:
        # The last line of a worker's output is its error.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise DataError(f"{failed}: {reason}", path=place) from error
    if state != "DONE":
        raise DataError(f"{failed}: it ended as {state}", path=place)


def mistake_of(error: BertKerasError) -> list[str]:
    """Return an error in the form that is passed on."""
    return [type(error).__name__, str(error)]


def raise_mistake(mistake: list[str]) -> None:
    """Raise an error that a worker passed on."""
    kind, message = mistake
    raise getattr(errors, kind)(message)
