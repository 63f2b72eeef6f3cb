"""Logs of a server as JSON, one object per line on stderr, without the texts."""

from __future__ import annotations

import datetime
import json
import logging
import sys
import traceback
from typing import Any

_LOG = logging.getLogger("bert_keras.serving")
_LOGS = ("bert_keras.serving", "uvicorn.error")


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object; `extra={"fields": {…}}` adds its keys."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        fields: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1]:
            fields |= _places(record.exc_info[1])
        return json.dumps(fields, ensure_ascii=False)


def log(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with further keys."""
    _LOG.log(level, event, extra={"fields": fields})


def log_error(event: str, error: BaseException) -> None:
    """Log an unexpected error by its type and where it was raised.

    Its message is left out, since TensorFlow writes texts into some messages.
    """
    log(event, level=logging.ERROR, **_places(error))


def _places(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "error": type(error).__name__,
        "places": [f"{each.filename}:{each.lineno}" for each in frames],
    }


def log_to_stderr(*, is_quiet: bool = False) -> None:
    """Send a server's logs to stderr; with `is_quiet` only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in _LOGS:
        log = logging.getLogger(name)
        log.handlers = [handler]
        log.propagate = False
        log.setLevel(logging.WARNING if is_quiet or name != _LOGS[0] else logging.INFO)
