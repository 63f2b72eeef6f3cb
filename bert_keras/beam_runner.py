"""An empty pipeline of Apache Beam for a user's flags: `pipeline_of`."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Any

from bert_keras.beam_files import INSTALL
from bert_keras.errors import ConfigError

# Runners of this process; others know flags of which Beam's own parser does not.
_LOCAL = re.compile(
    r"(?i)(switching|bundlebased)?direct(runner)?|(fnapi|prism)(runner)?"
)


def pipeline_of(flags: Sequence[str]) -> Any:
    """Return a new pipeline, whose flags hold for Beam's file systems, too.

    Args:
        flags: Beam's own, such as `--runner=FlinkRunner`.

    Raises:
        ConfigError: Beam is missing; a flag is wrong or not known; the runner is.
    """
    try:
        import apache_beam as beam
        from apache_beam.io.filesystems import FileSystems
    except ImportError:
        raise ConfigError(f"Apache Beam needs a package: {INSTALL}") from None
    if isinstance(flags, str) or not all(isinstance(flag, str) for flag in flags):
        raise ConfigError(f"`pipeline_args` must be several texts; received {flags!r}")
    options = _options(list(flags))
    try:
        pipeline = beam.Pipeline(options=options)
    except (ValueError, ImportError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"`pipeline_args`: {reason}") from None
    FileSystems.set_options(options)
    return pipeline


def _options(flags: list[str]) -> Any:
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options = PipelineOptions(flags)
            known = options.get_all_options(drop_default=True)
            given = options.get_all_options(
                drop_default=True, retain_unknown_options=True
            )
    except SystemExit:
        reason = (said.getvalue().strip().splitlines() or ["wrong"])[-1]
        reason = reason.partition("error: ")[2] or reason
        raise ConfigError(f"`pipeline_args`: {reason}") from None
    unknown = sorted(set(given) - set(known))
    runner = options.view_as(StandardOptions).runner or "DirectRunner"
    if unknown and _LOCAL.fullmatch(runner):
        raise ConfigError(
            f"`pipeline_args` must be flags of Beam; received --{unknown[0]}"
        )
    return options
