"""The error of a rejected request: `RequestError`."""

from __future__ import annotations


class RequestError(Exception):
    """A request that is not answered; the message goes to the client.

    Args:
        message: one line: argument, rule and value.
        status: the HTTP status; 400 for a mistake of the client.
        retry_after: seconds after which the client may try again.
    """

    def __init__(
        self, message: str, *, status: int = 400, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
