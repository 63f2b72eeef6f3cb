"""Clients of TF Serving's REST API with the answers of `predict`.

`Client` and `AsyncClient` query `bert-keras serve`, TF Serving, or any server with the
same API that serves a model written by `export`. They read the signatures from the
server, so they need neither the model nor TensorFlow.

Source: tensorflow/serving, `g3doc/api_rest.md`; RFC 9110, section 10.2.3 (Retry-After).
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime
import email.utils
import itertools
import json
import random
import re
import time
import urllib.parse
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_keras.data.items import as_items, as_strings, query_and_documents
from bert_keras.errors import (
    ConfigError,
    DataError,
    ServerError,
    counted,
    needs,
    one_line,
    shown,
)
from bert_keras.files.json_file import refuse_constant
from bert_keras.runs.notes import say
from bert_keras.settings import check_number, check_whole_number
from bert_keras.tasks.answer_rows import rows_of

if TYPE_CHECKING:
    import httpx
    import numpy as np
    from typing_extensions import Self  # of Python 3.11

_URL = re.compile("https?://")
_KEY = re.compile(r"[!-~]+")
_SEARCH = "search"  # a signature
# Outputs of a signature that searches, and the names of one of their values.
_FOUND = {"scores": "score", "texts": "text", "ids": "id"}
_FOUND_TOO = {"search_scores": "search_score"}  # of an export with another model
_PROMPTS = ("query", "document")  # signatures with a prompt before each text
# Answers whose `score` is how sure the model is of them.
_SURE_OF = {"label", "probabilities", "answer"}
_BUSY = (429, 502, 503)  # statuses after which a request is retried
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 60.0  # seconds
# The steps of a call, which both clients make: a request (method, place, body), seconds
# to wait, or a list of steps of which each can be made beside the others. A step is
# sent its result.
_Steps = Generator[Any, Any, Any]


@dataclasses.dataclass(frozen=True)
class _Signature:
    """A signature that takes strings: name, rank of each input by name, and width of
    each output by sorted name, 0 if the server does not tell it.

    `is_ordered` is whether the server tells the order of the inputs, and `takes_top`
    whether a request may choose how many texts are found.
    """

    name: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    is_ordered: bool
    takes_top: bool = False

    def fits(self, item: Any) -> bool:
        """Return whether a row, as `as_items` gives it, has the form of the inputs."""
        parts = [item]
        if len(self.inputs) > 1:
            parts = list(item) if isinstance(item, tuple | list) else []
        return len(parts) == len(self.inputs) and all(
            isinstance(part, str)
            if rank == 1
            else isinstance(part, tuple | list)
            and all(isinstance(text, str) for text in part)
            for part, rank in zip(parts, self.inputs.values(), strict=True)
        )

    def body(self, items: Sequence[Any], more: Mapping[str, Any]) -> bytes:
        """Return the JSON of a request in column form.

        Args:
            items: the rows.
            more: further entries of the request, or `None` in their place; `top` is
                left out if the signature does not take it.
        """
        rows = items if len(self.inputs) > 1 else [(item,) for item in items]
        columns = zip(*rows, strict=True)
        inputs = {
            name: _column(column, rank)
            for (name, rank), column in zip(self.inputs.items(), columns, strict=True)
        }
        request: dict[str, Any] = {"signature_name": self.name, "inputs": inputs}
        for name, value in more.items():
            if value is not None and (name != "top" or self.takes_top):
                request[name] = value
        return json.dumps(request, ensure_ascii=False).encode()

    def rows(self, outputs: Any, count: int) -> list[dict[str, Any]]:
        """Return the outputs of a reply as one dict per text.

        Raises:
            ValueError: they are not lists of `count` values.
        """
        # The API omits the name of a single output.
        if len(self.outputs) == 1 and not isinstance(outputs, dict):
            outputs = dict.fromkeys(self.outputs, outputs)
        if not isinstance(outputs, dict) or not outputs:
            raise ValueError("`outputs` must be an object")
        for name, values in outputs.items():
            if not isinstance(values, list) or len(values) != count:
                raise ValueError(f"`{name}` must be a list of {count} values")
        return rows_of(outputs)


@dataclasses.dataclass(eq=False)
class _Client:
    """The settings, requests and replies of both clients, without the transport."""

    url: str
    _: dataclasses.KW_ONLY
    model: str
    version: int | None = None
    label: str | None = None
    api_key: str | None = dataclasses.field(default=None, repr=False)
    batch_size: int = 32
    timeout: float = 30.0
    retries: int = 5

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not _URL.match(self.url):
            raise _wrong_url(self.url)
        if not isinstance(self.model, str) or not self.model:
            raise ConfigError(
                f"`model` must be a model's name; received {shown(self.model)}"
            )
        if self.version is not None and self.label is not None:
            raise ConfigError(
                "`version` or `label` must be left out; received "
                f"{shown(self.version)} and {shown(self.label)}"
            )
        check_whole_number("batch_size", self.batch_size, least=1)
        check_whole_number("retries", self.retries, least=0)
        check_number("timeout", self.timeout, least=0.001)
        self._place = self.url.rstrip("/") + self._path()
        self._signatures: list[_Signature] = []
        self._told = False  # whether truncated texts were mentioned
        self._told_few = False  # whether it was told that a search returns few texts
        httpx = _httpx()
        try:
            httpx.URL(self._place)
        except httpx.InvalidURL as error:
            raise _wrong_url(self.url, f": {error}") from None

    def _path(self) -> str:
        path = f"/v1/models/{urllib.parse.quote(self.model, safe='')}"
        if self.version is not None:
            check_whole_number("version", self.version, least=1)
            path += f"/versions/{self.version}"
        elif self.label is not None:
            path += f"/labels/{urllib.parse.quote(self.label, safe='')}"
        return path

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if self.api_key is not None:
            if not isinstance(self.api_key, str) or not _KEY.fullmatch(self.api_key):
                raise ConfigError(  # the key itself is not shown
                    "`api_key` must be a string of ASCII characters without spaces"
                )
            headers["authorization"] = f"Bearer {self.api_key}"
        return headers

    def _read_signatures(self) -> _Steps:
        """Keep the signatures of a model that take strings, the default one first.

        Raises:
            ServerError: there is no such signature.
        """
        if self._signatures:
            return
        reply = yield from self._reply("GET", "/metadata")
        try:
            listed = reply["metadata"]["signature_def"]["signature_def"]
            order, searches = (reply.get(k, {}) for k in ("input_order", "search"))
            found = [
                _signature(name, listed[name], order.get(name, ()), name in searches)
                for name in sorted(listed)
            ]
        except (KeyError, TypeError, AttributeError, ValueError):
            raise ServerError(f"{self._place}/metadata: lists no signatures") from None
        texts = [signature for signature in found if signature is not None]
        if not texts:
            raise ServerError(f"{self._place}: has no signature that takes strings")
        texts.sort(key=lambda each: each.name != "serving_default")
        self._signatures = texts

    def _batches(
        self, texts: Any, name: str | None
    ) -> tuple[_Signature, list[list[Any]]]:
        """Return the signature that takes these texts, and its batches of rows.

        `name` is the signature's, if it is a certain one.

        Raises:
            DataError: no signature takes a text of this form.
        """
        signatures = [s for s in self._signatures if name in (None, s.name)]
        forms = [list(each.inputs) for each in signatures]
        items = as_items(texts, forms, is_ordered=signatures[0].is_ordered)
        chosen = next((s for s in signatures if items and s.fits(items[0])), None)
        chosen = chosen or signatures[0]
        for row, item in enumerate(items):
            if not chosen.fits(item):
                wanted = ", ".join(
                    name if rank == 1 else f"a list of {name}"
                    for name, rank in chosen.inputs.items()
                )
                raise DataError(
                    f"each item of `texts` must hold {wanted}; received "
                    f"{shown(item)} at index {row}"
                )
        size = self.batch_size
        return chosen, [items[at : at + size] for at in range(0, len(items), size)]

    def _rows(
        self,
        signature: _Signature,
        items: list[Any],
        more: Mapping[str, Any],
        start: int,
    ) -> _Steps:
        """Request the answers to a batch; return a dict for each text.

        `more` are further entries of the request, and `start` is the index of the first
        text among all.

        Raises:
            ServerError: the request failed, or the reply does not match the signature.
        """
        body = signature.body(items, more)
        try:
            reply = yield from self._reply("POST", ":predict", body)
        except ServerError as error:
            if not start:
                raise
            raise ServerError(f"{error} (of the texts from {start})") from None
        try:
            rows = signature.rows(reply["outputs"], len(items))
            lost = [int(count) for count in reply.get("truncated_tokens", ())]
            if any(lost) and not self._told:  # once, as `Predictor` does
                self._told = True
                count = sum(map(bool, lost))
                say(
                    f"texts truncated by {self._place}: {count:,} of {len(items):,}, "
                    f"{counted(sum(lost), 'tokens')} in all"
                )
            return rows
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ServerError(
                f"{self._place}: the answer does not match `{signature.name}`: "
                f"{type(error).__name__}: {one_line(error)}"
            ) from None

    def _answers(self, texts: Any, name: str | None = None, **more: Any) -> _Steps:
        """Return the answers of a signature; `None`: the one that takes such texts.

        `more` are further entries of the request.
        """
        yield from self._read_signatures()
        signature, batches = self._batches(texts, name)
        parts = yield [
            self._rows(signature, batch, more, number * self.batch_size)
            for number, batch in enumerate(batches)
        ]
        return [row for part in parts for row in part]

    def _redacted(self, texts: Any, types: str | Sequence[str] | None) -> _Steps:
        """Return redacted rows, which a server that ignores the request does not give.

        Raises:
            ServerError: the server gave others.
        """
        if not isinstance(types, str | None):
            types = list(types)
        rows = yield from self._answers(texts, redact=True if types is None else types)
        if not all("text" in row and {"entities", "tags"} & row.keys() for row in rows):
            raise ServerError(f"{self._place}: does not redact texts")
        return rows

    def _vectors(self, texts: Any, prompt: str | None) -> _Steps:
        """Return the vectors of texts, float32 [N, D].

        Raises:
            ConfigError: the model has no such prompt.
        """
        import numpy as np

        yield from self._read_signatures()
        known = [s.name for s in self._signatures if s.name in _PROMPTS]
        if prompt is not None and prompt not in known:
            allowed = f"one of {', '.join(known)}" if known else "left out"
            reason = "" if known else ", which has no prompts"
            raise ConfigError(
                f"`prompt` must be {allowed} for {self._place}{reason}; received "
                f"{shown(prompt)}"
            )
        rows = yield from self._answers(texts, prompt)
        if not all("embedding" in row for row in rows):
            raise ServerError(f"{self._place}: does not answer with `embedding`")
        if not rows:
            width = self._signatures[0].outputs.get("embedding", 0)
            return np.zeros((0, width), "float32")
        return np.array([row["embedding"] for row in rows], "float32")

    def _ranked(self, query: Any, documents: Any, top: int | None) -> _Steps:
        """Return documents in the order of their scores, see `Predictor.rank`."""
        _check_top(top)
        yield from self._read_signatures()
        query, texts = query_and_documents(query, documents)
        signature = self._signatures[0]
        sure_of = _SURE_OF.intersection(signature.outputs)
        if sure_of:
            raise ServerError(
                f"{self._place}: to rank documents, a model must score pairs of texts, "
                "of the task reranking or regression; received one that answers "
                f"{', '.join(sorted(sure_of))}"
            )
        names = list(signature.inputs)
        if len(names) != 2:
            raise ServerError(
                f"{self._place}: must take a query and a document to rank; it takes "
                f"{', '.join(names)}"
            )
        pairs = [dict(zip(names, (query, text), strict=True)) for text in texts]
        rows = (yield from self._answers(pairs)) if pairs else []
        if not all("score" in row for row in rows):
            raise ServerError(f"{self._place}: does not answer with `score`")
        first: dict[str, int] = {}  # equal texts differ by rounding
        rows = [rows[first.setdefault(text, at)] for at, text in enumerate(texts)]
        order = sorted(range(len(texts)), key=lambda at: -rows[at]["score"])
        return [
            {"rank": n, **rows[at], "index": at, "text": texts[at]}
            for n, at in enumerate(order[:top], 1)
        ]

    def _searched(self, queries: Any, top: int | None) -> _Steps:
        """Return what is found in an index for each query."""
        _check_top(top)
        yield from self._read_signatures()
        queries = as_strings(queries, name="queries")
        rows = yield from self._answers(queries, self._searching(), top=top)
        return [self._found(row, top) for row in rows]

    def _searching(self) -> str | None:
        """Return the signature that searches, unless it is the default one."""
        found = [
            each.name
            for each in self._signatures
            if _FOUND.keys() <= each.outputs.keys()
        ]
        if not found:
            raise ServerError(
                f"{self._place}: must be an export with an index to search: "
                "`bert-keras export --index` writes it; or be served with `--index`"
            )
        return _SEARCH if _SEARCH in found else None

    def _found(self, row: Mapping[str, Any], top: int | None) -> list[dict[str, Any]]:
        """Return what is found in an index for a query."""
        names = {**_FOUND, **_FOUND_TOO}
        columns = {one: row[name] for name, one in names.items() if name in row}
        found = [
            dict(zip(columns, each, strict=True))
            for each in zip(*columns.values(), strict=True)
        ]
        if top is not None and top > len(found) and not self._told_few:
            self._told_few = True
            say(f"top {top:,}: {self._place} returns {len(found):,} texts of a query")
        found = [each for each in found if each["text"] or each["id"]][:top]  # faiss
        return [{"rank": rank, **each} for rank, each in enumerate(found, 1)]

    def _reply(self, method: str, place: str, body: bytes | None = None) -> _Steps:
        """Send a request until it succeeds; return the JSON of the response."""
        for attempt in itertools.count():
            result = yield method, place, body
            wait = self._wait(attempt, result)
            if wait is None:
                return self._parsed(result)
            yield wait

    def _wait(self, attempt: int, result: Any) -> float | None:
        """Return the seconds to wait before a retry; `None` if the request succeeded.

        Args:
            attempt: number of retries so far.
            result: the response, or the transport error.

        Raises:
            ServerError: the request failed permanently.
        """
        httpx, requested = _httpx(), 0.0
        wait = min(_FIRST_WAIT * 2 ** min(attempt, 10), _LONGEST_WAIT)
        wait *= random.uniform(0.5, 1)  # so that clients do not retry at the same time
        if isinstance(result, Exception):
            passing = (httpx.NetworkError, httpx.RemoteProtocolError)
            again = isinstance(result, passing + (httpx.ConnectTimeout,))
            reason = one_line(result) or type(result).__name__
            if isinstance(result, httpx.TimeoutException):
                reason = f"no answer within {self.timeout:g} seconds"
        elif result.is_success:
            return None
        else:
            again = result.status_code in _BUSY
            reason = f"{result.status_code}: {_reason(result)}"
            requested = _retry_after(result.headers.get("retry-after", ""))
        if not again or attempt >= self.retries or requested > _LONGEST_WAIT:
            tries = f" (after {attempt + 1} tries)" if attempt else ""
            raise ServerError(f"{self._place}: {reason}{tries}")
        return requested + wait

    def _parsed(self, response: Any) -> Any:
        """Return the JSON of a response.

        Raises:
            ServerError: it is not JSON, or holds a number that is not finite.
        """
        try:
            return json.loads(response.content, parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ServerError(
                f"{self._place}: the answer cannot be read: {one_line(error)}"
            ) from None


class Client(_Client):
    """Queries a served model, with the answers of `Predictor.predict`.

    If the server is busy (429, 502, 503) or unreachable, a request is retried after
    0.25, 0.5, 1 … seconds, and the time in `Retry-After` before. Needs httpx:
    `pip install 'bert_keras[client]'`.

    Args:
        url: `http://host:8501`; a path before `/v1` may follow.
        model: name of the model on the server.
        version: the version to query; default: the server's choice.
        label: the label of a version, such as `stable`, in place of its number.
        api_key: sent as `Authorization: Bearer KEY`.
        batch_size: texts per request.
        timeout: seconds to wait for a connection, and for each part of an answer.
        retries: maximum retries of a request.

    Raises:
        ConfigError: an argument is wrong, or httpx is missing.

    Example:
        >>> with Client("http://localhost:8501", model="emails") as client:
        ...     client.predict(["You have won!"])[0]["label"]
        'spam'
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._http = _httpx().Client(headers=self._headers(), timeout=self.timeout)

    def predict(self, texts: Any) -> list[dict[str, Any]]:
        """Return one dict per text, as `Predictor.predict` does.

        For a custom task, it holds the outputs of the graph by name.

        Args:
            texts: strings; tuples, or dicts by input name, if the model reads several
                texts; or lists of words; any form that `Predictor.predict` accepts.
                Tuples need a server that tells the order of the inputs, as ours does
                and TF Serving does not.

        Raises:
            DataError: a text is missing or does not have the form that the model reads.
            ServerError: the server is unreachable, rejects a request, or its answer has
                an unexpected form.
        """
        return self._run(self._answers(texts))

    def redact(
        self, texts: Any, *, types: str | Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return texts whose entities are replaced, as `Predictor.redact` does.

        The server is `bert-keras serve`.

        Args:
            texts: as in `predict`.
            types: of the entities to replace; `None`: all.

        Raises:
            ServerError: as in `predict`; or the model or the server does not redact.
        """
        return self._run(self._redacted(texts, types))

    def embed(self, texts: Any, *, prompt: str | None = None) -> np.ndarray:
        """Return the vectors of texts by an embedding model, float32 [N, D].

        Args:
            texts: strings.
            prompt: `query` or `document`, if the model has such prompts.

        Raises:
            ConfigError: the model has no such prompt.
            ServerError: as in `predict`; or the model gives no vectors.
        """
        return self._run(self._vectors(texts, prompt))

    def rank(
        self, query: str, documents: Any, *, top: int | None = None
    ) -> list[dict[str, Any]]:
        """Return documents by their scores for a query, as `Predictor.rank` does.

        Raises:
            ServerError: as in `predict`; or the model does not score pairs.
        """
        return self._run(self._ranked(query, documents, top))

    def search(
        self, queries: Any, *, top: int | None = None
    ) -> list[list[dict[str, Any]]]:
        """Return the texts of an index that are found for each query.

        The model is an export with an index, or is served with `--index`.

        Args:
            queries: strings.
            top: maximum texts; by default as many as the server returns. `bert-keras
                serve` refuses a larger number; with other servers, a message says so.

        Returns:
            For each query its texts, best first: `rank`, `score`, `text` and `id`;
            where another model sorts them, also `search_score`.

        Raises:
            ServerError: as in `predict`; or the model has no index.
        """
        return self._run(self._searched(queries, top))

    def _run(self, steps: _Steps) -> Any:
        """Make all steps; return what they return."""
        result: Any = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                return end.value
            result = None
            if isinstance(step, float):
                time.sleep(step)
            elif isinstance(step, list):
                result = [self._run(each) for each in step]
            else:
                method, place, body = step
                url = self._place + place
                try:
                    result = self._http.request(method, url, content=body)
                except _httpx().TransportError as error:
                    result = error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclasses.dataclass(eq=False, kw_only=True)
class AsyncClient(_Client):
    """Queries a served model like `Client`, with several requests at once.

    Args:
        url, model, version, label, api_key, batch_size, timeout, retries: see `Client`.
        concurrency: maximum simultaneous requests of one `predict`.

    Raises:
        ConfigError: an argument is wrong, or httpx is missing.

    Example:
        >>> async with AsyncClient("http://localhost:8501", model="emails") as client:
        ...     rows = await client.predict(texts)
    """

    concurrency: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole_number("concurrency", self.concurrency, least=1)
        httpx = _httpx()
        self._http = httpx.AsyncClient(headers=self._headers(), timeout=self.timeout)

    async def predict(self, texts: Any) -> list[dict[str, Any]]:
        """Return one dict per text, see `Client.predict`."""
        return await self._run(self._answers(texts))

    async def redact(
        self, texts: Any, *, types: str | Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return texts whose entities are replaced, see `Client.redact`."""
        return await self._run(self._redacted(texts, types))

    async def embed(self, texts: Any, *, prompt: str | None = None) -> np.ndarray:
        """Return the vectors of texts, see `Client.embed`."""
        return await self._run(self._vectors(texts, prompt))

    async def rank(
        self, query: str, documents: Any, *, top: int | None = None
    ) -> list[dict[str, Any]]:
        """Return documents by their scores for a query, see `Client.rank`."""
        return await self._run(self._ranked(query, documents, top))

    async def search(
        self, queries: Any, *, top: int | None = None
    ) -> list[list[dict[str, Any]]]:
        """Return the texts found for each query, see `Client.search`."""
        return await self._run(self._searched(queries, top))

    async def _run(self, steps: _Steps) -> Any:
        """Make all steps, see `Client._run`."""
        result: Any = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                return end.value
            result = None
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif isinstance(step, list):
                result = await self._together(step)
            else:
                method, place, body = step
                url = self._place + place
                try:
                    result = await self._http.request(method, url, content=body)
                except _httpx().TransportError as error:
                    result = error

    async def _together(self, steps: Sequence[_Steps]) -> list[Any]:
        """Make several lists of steps at once; return what each returns."""
        free = asyncio.Semaphore(self.concurrency)

        async def run(each: _Steps) -> Any:
            async with free:
                return await self._run(each)

        tasks = [asyncio.ensure_future(run(each)) for each in steps]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # after an error the others are not needed
                task.cancel()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _check_top(top: int | None) -> None:
    if top is not None:
        check_whole_number("top", top, least=1)


def _httpx() -> Any:
    with needs("a client", extra="client", runtime_extra="client"):
        import httpx
    return httpx


def _signature(
    name: str, listed: Any, order: Sequence[str], takes_top: bool
) -> _Signature | None:
    """Return a signature of the server's metadata; `None` if it takes other types.

    `order` are the names of its inputs in the order of the texts, if the server tells.
    """
    kinds = {key: info["dtype"] for key, info in listed.get("inputs", {}).items()}
    if not kinds or set(kinds.values()) != {"DT_STRING"}:
        return None
    is_ordered = len(kinds) == 1 or sorted(order) == sorted(kinds)
    names = order if is_ordered and order else sorted(kinds)
    shapes = {key: listed["inputs"][key].get("tensor_shape", {}) for key in names}
    ranks = {key: len(shape.get("dim", ())) for key, shape in shapes.items()}
    if not set(ranks.values()) <= {1, 2}:
        return None
    outputs = {key: _width(listed["outputs"][key]) for key in sorted(listed["outputs"])}
    return _Signature(name, ranks, outputs, is_ordered, takes_top)


def _width(info: Mapping[str, Any]) -> int:
    dims = info.get("tensor_shape", {}).get("dim", ())
    return max(int(dims[-1]["size"]), 0) if dims else 0


def _column(column: Sequence[Any], rank: int) -> list[Any]:
    """Return the values of an input; lists are padded with empty strings."""
    if rank == 1:
        return [_json_string(text) for text in column]
    width = max(1, *map(len, column))
    return [
        [*map(_json_string, texts), *[""] * (width - len(texts))] for texts in column
    ]


def _json_string(text: str) -> Any:
    """Return a string for the API, which accepts lone surrogates only as bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        octets = text.encode("utf-8", "surrogatepass")
        return {"b64": base64.b64encode(octets).decode()}
    return text


def _reason(response: httpx.Response) -> str:
    """Return why a server rejects a request, according to its API or the body."""
    try:
        message = response.json()["error"]
    except (ValueError, TypeError, KeyError, RecursionError):
        message = response.text or response.reason_phrase
    return one_line(message)


def _retry_after(value: str) -> float:
    """Return the seconds of a `Retry-After` header: a number or a date; else 0."""
    if value.strip().isdecimal():
        return float(value)
    try:
        then = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if then.tzinfo is None:
        then = then.replace(tzinfo=datetime.timezone.utc)
    now = datetime.datetime.now(datetime.timezone.utc)
    return max(0.0, (then - now).total_seconds())


def _wrong_url(url: Any, reason: str = "") -> ConfigError:
    return ConfigError(
        f"`url` must be http(s)://host:port; received {shown(url)}{reason}"
    )
