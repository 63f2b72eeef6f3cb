"""Embedding and ranking in the forms of other servers: `EmbeddingApis`.

OpenAI's `/v1/embeddings`; `/embed`, `/embed_sparse`, `/rerank`, `/predict`,
`/similarity`, `/tokenize` and `/info` of Hugging Face's Text Embeddings Inference
(TEI); `/v1/rerank` of Jina, `/v2/rerank` of Cohere and `/rerank` of infinity, which
takes `documents` where TEI takes `texts`.
Requests are answered as in REST, within the same limits.

Sources: the API references of OpenAI, TEI, Jina, Cohere and infinity.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bert_keras.data.items import query_and_documents
from bert_keras.errors import DataError, counted, shown
from bert_keras.inference.equal_texts import EqualTexts
from bert_keras.serving.errors import RequestError
from bert_keras.serving.rest import check_fields, json_response, read_body
from bert_keras.serving.service import Answered, Service
from bert_keras.serving.signatures import Parts
from bert_keras.serving.tensors import parse_json
from bert_keras.serving.version import Version
from bert_keras.settings import VECTOR_OUTPUTS
from bert_keras.tasks.answer_rows import plain_values
from bert_keras.text.token_ids import TokenIds, Tokens
from bert_keras.version import __version__

if TYPE_CHECKING:
    from bert_keras.text.tokenizer import WordPieceTokenizer

_EMBEDS = ("embedding",)
_VECTORS, _WEIGHTS = VECTOR_OUTPUTS["dense"], VECTOR_OUTPUTS["sparse"]  # outputs
_RANKS = ("reranking", "regression")  # a classifier of pairs, too, if one class ranks
_CLASSIFIES = ("classification", "multi-label")
_TRUNCATED = "x-truncated-tokens"  # a header; these answers have no place for it
_UNIT = 1e-3  # of the norm of a vector of length 1
_PROMPTS = ("query", "document")  # signatures with a prompt before each text
# Fields that change nothing here, with the values that do not; `None`: any value.
_Fields = Mapping[str, tuple[Any, ...] | None]
_OF_TEI: _Fields = {"truncation_direction": ("Right", "right")}
_OF_DOCUMENTS: _Fields = {"priority": None, "rank_fields": (["text"],)}  # Cohere
_OF_EMBEDDINGS: _Fields = {
    "user": None,  # OpenAI
    "modality": ("text",),  # infinity
    "embedding_type": ("float",),  # Jina, as the next two
    "late_chunking": (False,),
    "return_multivector": (False,),
}
# Scores of a sigmoid are float32: of a score of 1, the logit is above this.
_MOST_PROBABLE = 1 - 2**-25
_FLAGS = (  # fields that are true or false
    "add_special_tokens",
    "normalize",
    "raw_scores",
    "return_documents",
    "return_text",
    "truncate",
)
PATHS = {
    "/v1/embeddings": "Embeddings of texts (OpenAI)",
    "/embed": "Embeddings of texts (TEI)",
    "/embed_sparse": "Weights of tokens for texts (TEI)",
    "/similarity": "Similarities of a sentence to others (TEI)",
    "/predict": "Classes of texts (TEI)",
    "/rerank": "Indices and scores of texts for a query (TEI)",
    "/v1/rerank": "Indices and scores of documents for a query (Jina)",
    "/v2/rerank": "Indices and scores of documents for a query (Cohere)",
    "/tokenize": "Tokens of texts (TEI)",
}
INFO = "/info"


class EmbeddingApis:
    """The routes.

    Args:
        service: answers the requests.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        calls = (
            self.embeddings,
            self.embed,
            self.embed_sparse,
            self.similarity,
            self.predict,
            self.rerank,
            self.rerank_documents,
            self.rerank_documents,
            self.tokenize,
        )
        posts = [
            Route(path, call, methods=["POST"])
            for path, call in zip(PATHS, calls, strict=True)
        ]
        return [*posts, Route(INFO, self.info)]

    async def embeddings(self, request: Request) -> Response:
        """Answer `input` as OpenAI does, with `encoding_format` float or base64."""
        given = await self._read(
            request,
            "input",
            may=("model", "encoding_format", "dimensions", "truncate", "prompt_name"),
            without_effect=_OF_EMBEDDINGS,
        )
        if _are_ids(given["input"]):
            raise RequestError(
                "`input` must be a string or a list of strings; received "
                f"{shown(given['input'])}: token ids are not read; LangChain's "
                "OpenAIEmbeddings sends texts with `check_embedding_ctx_length=False`"
            )
        form = given.get("encoding_format", "float")
        if form not in ("float", "base64"):
            raise RequestError(
                f"`encoding_format` must be float or base64; received {shown(form)}"
            )
        answered = await self._embed(request, given, {"input": given["input"]})
        vectors = _shortened(answered.answers["embedding"], given.get("dimensions"))
        data = [
            {
                "object": "embedding",
                "index": place,
                "embedding": _base64(vector) if form == "base64" else vector,
            }
            for place, vector in enumerate(vectors)
        ]
        name = request.state.record.model
        usage = {"prompt_tokens": answered.tokens, "total_tokens": answered.tokens}
        return _response(
            {"object": "list", "data": data, "model": name, "usage": usage}, answered
        )

    async def embed(self, request: Request) -> Response:
        """Answer `inputs` with vectors, by default of length 1, as TEI does."""
        may = ("model", "normalize", "truncate", "dimensions", "prompt_name")
        given = await self._read(request, "inputs", may=may)
        answered = await self._embed(request, given, {"inputs": given["inputs"]})
        vectors = _shortened(answered.answers["embedding"], given.get("dimensions"))
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if given.get("normalize", True):
            vectors = vectors / np.maximum(norms, 1e-12)
        elif np.abs(norms - 1).max() < _UNIT:
            raise RequestError(
                "`normalize` must be true: the vectors of this model have length 1"
            )
        return _response(list(vectors), answered)

    async def embed_sparse(self, request: Request) -> Response:
        """Answer `inputs` with the weights above 0 of tokens, as TEI does."""
        may = ("model", "truncate", "prompt_name")
        given = await self._read(request, "inputs", may=may)
        texts = {"inputs": given["inputs"]}
        answered = await self._embed(request, given, texts, output=_WEIGHTS)
        rows = [
            [
                {"index": int(place), "value": float(weights[place])}
                for place in np.flatnonzero(weights > 0)
            ]
            for weights in answered.answers[_WEIGHTS]
        ]
        return _response(rows, answered)

    async def tokenize(self, request: Request) -> Response:
        """Answer `inputs` with their tokens, none of them left out, as TEI does."""
        may = ("model", "add_special_tokens")
        given = await self._read(request, "inputs", may=may)
        texts = _texts("inputs", given["inputs"])
        strings = self._service.decoder.texts("inputs", texts)
        special = given.get("add_special_tokens", True)
        name = self._model(given, None)
        with self._service.models.lease(name) as leased:
            record = request.state.record
            record.model, record.version = name, leased.number
            record.texts = len(texts)
            tokenizer = leased.preprocessor.tokenizer
            rows = await self._service.work(
                request.state.size, lambda: _tokens(tokenizer, strings, special)
            )
        return json_response(rows)

    async def info(self, request: Request) -> Response:
        """Answer with the facts of a model, in TEI's form; `?model=` names it.

        Of several models, none of them named, only their names are told.
        """
        given, names = dict(request.query_params), self._service.models.names
        config = self._service.config
        found: dict[str, Any] = {"models": names}
        if "model" in given or len(names) == 1:
            name = self._model(given, None)
            with self._service.models.lease(name) as leased:
                found = {
                    "model_id": name,
                    "model_sha": None,
                    "model_dtype": _model_dtype(leased),
                    "model_type": _model_type(leased),
                    "max_input_length": leased.max_tokens,
                }
        return json_response(
            {
                **found,
                "max_concurrent_requests": config.max_requests,
                "max_batch_tokens": config.max_batch_tokens,
                "max_batch_requests": None,
                "max_client_batch_size": config.max_texts,
                "auto_truncate": True,
                "version": __version__,
            }
        )

    async def similarity(self, request: Request) -> Response:
        """Answer a sentence and others with their cosine similarities, as TEI does."""
        given = await self._read(request, "inputs", may=("model", "parameters"))
        parameters = given.get("parameters", {})
        if not isinstance(parameters, dict):
            raise RequestError(
                f"`parameters` must be an object; received {shown(parameters)}"
            )
        parameters = _checked("`parameters`", parameters, ("truncate",), _OF_TEI)
        inputs = given["inputs"]
        names = {"source_sentence", "sentences"}
        if not isinstance(inputs, dict) or set(inputs) != names:
            raise RequestError(
                "`inputs` must have `source_sentence` and `sentences`; received "
                f"{shown(inputs)}"
            )
        source = _texts("source_sentence", inputs["source_sentence"], many=False)
        fields = {"source_sentence": source, "sentences": inputs["sentences"]}
        answered = await self._embed(request, {**given, **parameters}, fields)
        vectors = answered.answers["embedding"].astype(np.float64)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return _response((vectors[1:] @ vectors[0]).tolist(), answered)

    async def predict(self, request: Request) -> Response:
        """Answer a text or pair with all classes, the most probable first, as TEI does.

        A list of lists are several texts or pairs, each with an answer.
        """
        may = ("model", "raw_scores", "truncate")
        given = await self._read(request, "inputs", may=may)
        if given.get("raw_scores"):
            raise RequestError(
                "`raw_scores` must be false: a classifier answers with probabilities"
            )
        texts = _rows(given["inputs"])
        width = len(texts[0])
        name = self._model(given, _CLASSIFIES, width=width)

        def decode() -> Parts:
            columns = zip(*texts, strict=True)
            return [self._service.decoder.texts("inputs", part) for part in columns]

        answered = await self._answer(request, given, name, decode, width=width)
        with self._service.models.lease(name) as leased:
            classes = leased.classes
        rows = [
            sorted(
                (
                    {"label": label, "score": score}
                    for label, score in zip(classes, scores, strict=True)
                ),
                key=lambda each: -each["score"],
            )
            for scores in plain_values(answered.answers["probabilities"])
        ]
        is_one = texts is not given["inputs"]
        return _response(rows[0] if is_one else rows, answered)

    async def rerank(self, request: Request) -> Response:
        """Answer `query` and `texts` with the places and scores, as TEI does.

        `documents` in place of `texts` are answered as infinity does.
        """
        body = await self._body(request)
        if "documents" in body:
            return await self._rank_documents(request, body, in_objects=False)
        may = ("model", "query", "return_text", "truncate", "raw_scores", "top_n")
        given = _needed(body, "texts", may, _OF_TEI)
        texts = _texts("texts", given["texts"])
        ranked, answered = await self._ranked(request, given, "texts", texts)
        found: list[Any] = [{"index": at, "score": score} for at, score in ranked]
        if given.get("return_text") is True:
            found = [{**each, "text": texts[each["index"]]} for each in found]
        return _response(found, answered)

    async def rerank_documents(self, request: Request) -> Response:
        """Answer `query` and `documents` as Jina and Cohere do."""
        body = await self._body(request)
        return await self._rank_documents(request, body, in_objects=True)

    async def _rank_documents(
        self, request: Request, body: Mapping[str, Any], *, in_objects: bool
    ) -> Response:
        """Answer `query` and `documents`; the texts are objects, or strings."""
        may = (
            "model",
            "query",
            "top_n",
            "return_documents",
            "raw_scores",
            "max_tokens_per_doc",
            "max_chunks_per_doc",
        )
        given = _needed(body, "documents", may, _OF_DOCUMENTS)
        documents = given["documents"]
        if isinstance(documents, list):
            documents = [
                each["text"] if isinstance(each, dict) and [*each] == ["text"] else each
                for each in documents
            ]
        texts = _texts("documents", documents, also=", or objects with `text` alone")
        ranked, answered = await self._ranked(request, given, "documents", texts)
        found: list[dict[str, Any]] = [
            {"index": place, "relevance_score": score} for place, score in ranked
        ]
        if given.get("return_documents") is True:
            for each in found:
                text = texts[each["index"]]
                each["document"] = {"text": text} if in_objects else text
        name = request.state.record.model
        usage = {"prompt_tokens": answered.tokens, "total_tokens": answered.tokens}
        return _response({"model": name, "results": found, "usage": usage}, answered)

    # What they share.

    async def _read(
        self,
        request: Request,
        needed: str,
        *,
        may: Sequence[str],
        without_effect: _Fields = _OF_TEI,
    ) -> dict[str, Any]:
        """Return the JSON of a request, of which no field may be unknown."""
        return _needed(await self._body(request), needed, may, without_effect)

    async def _body(self, request: Request) -> dict[str, Any]:
        """Return the JSON of a request."""
        body = await read_body(request, self._service.config.max_body_bytes)
        request.state.size = len(body)
        return await self._service.work(len(body), lambda: parse_json(body))

    def _model(
        self,
        given: Mapping[str, Any],
        tasks: Sequence[str] | None,
        output: str = "",
        *,
        width: int | None = None,
    ) -> str:
        """Return the model that is named, or else the only one of some tasks.

        `output` is an answer that it must have; without `tasks` any model fits. One
        that is not named must take `width` texts a row.
        """
        models = self._service.models
        names = models.names
        if "model" in given:
            chosen = given["model"]
            if chosen not in names:
                raise RequestError(
                    f"`model` must be one of {', '.join(names)}; received "
                    f"{shown(chosen)}",
                    status=404,
                )
            names, width = [chosen], None
        fits = []
        for name in names:
            with models.lease(name) as leased:
                answers = [each.name for each in leased.signature("").outputs]
                is_fit = tasks is None or leased.task in tasks
                is_fit = is_fit or (tasks is _RANKS and leased.scores_pairs)
                is_fit = is_fit and (width is None or width in _by_width(leased))
                if is_fit and (not output or output in answers):
                    fits.append(name)
        if len(fits) != 1:
            found = ", ".join(fits) or f"none among {', '.join(names)}"
            kind = f" of the task {' or '.join(tasks)}" if tasks else ""
            kind += f" that answers `{output}`" if output else ""
            kind += f" that takes {counted(width, 'texts')} a row" if width else ""
            raise RequestError(
                f"`model` must name a model{kind}; there "
                f"{'are' if fits else 'is'} {found}"
            )
        return fits[0]

    async def _embed(
        self,
        request: Request,
        given: Mapping[str, Any],
        fields: Mapping[str, Any],
        *,
        output: str = _VECTORS,
    ) -> Answered:
        """Return the answers to the texts of fields, one after the other.

        `prompt_name` of the request is the prompt that is put before each text.
        `output` is an answer that the model must have.
        """
        name, prompt = self._model(given, _EMBEDS, output), given.get("prompt_name")
        found = {field: _texts(field, value) for field, value in fields.items()}

        def decode() -> Parts:
            texts = (self._service.decoder.texts(*each) for each in found.items())
            return [list(itertools.chain.from_iterable(texts))]

        if prompt is not None:
            with self._service.models.lease(name) as leased:
                known = [each for each in _PROMPTS if each in leased.signatures]
            if prompt not in known:
                allowed = f"one of {', '.join(known)}" if known else "left out"
                why = "" if known else ", which has no prompts"
                raise RequestError(
                    f"`prompt_name` must be {allowed} for {name}{why}; received "
                    f"{shown(prompt)}"
                )
        return await self._answer(
            request, given, name, decode, width=1, signature=prompt
        )

    async def _ranked(
        self, request: Request, given: Mapping[str, Any], field: str, texts: list[str]
    ) -> tuple[list[tuple[int, float]], Answered]:
        """Return the places and scores of the best texts for `query`, by default all.

        `field` is the field of the request that holds the texts.
        """
        top = given.get("top_n", len(texts))
        if type(top) is not int or top < 1:
            raise RequestError(
                f"`top_n` must be a whole number of at least 1; received {shown(top)}"
            )
        query = _texts("query", given.get("query"), many=False)
        try:
            query_and_documents(query[0], texts, name=field)
        except DataError as error:
            raise RequestError(str(error)) from None
        name = self._model(given, _RANKS, width=2)
        self._check_reading(name, given)

        def decode() -> Parts:
            documents = self._service.decoder.texts(field, texts)
            queries = self._service.decoder.texts("query", query) * len(documents)
            return [queries, documents]

        answered = await self._answer(request, given, name, decode, width=2)
        equal = EqualTexts(texts)  # their scores differ by rounding
        with self._service.models.lease(name) as leased:
            scores = leased.pair_scores(answered.answers).astype(np.float64)
            is_linear = leased.is_linear
        scores = scores[equal.first[equal.places]]
        order = np.argsort(-scores, kind="stable")[:top]
        if is_linear and not given.get("raw_scores"):
            scores = np.exp(-np.logaddexp(0, -scores))
        elif not is_linear and given.get("raw_scores"):
            scores = np.clip(scores, np.finfo(np.float32).tiny, _MOST_PROBABLE)
            scores = np.log(scores) - np.log1p(-scores)
        return [*zip(order.tolist(), scores[order].tolist(), strict=True)], answered

    def _check_reading(self, name: str, given: Mapping[str, Any]) -> None:
        """Raise if documents must be read in another way than by the model."""
        with self._service.models.lease(name) as leased:
            read, in_windows = leased.max_tokens, leased.reads_windows
        if (most := given.get("max_tokens_per_doc")) is not None:
            if type(most) is not int or read is None or most < read:
                rule = f"at least {read}" if read else "left out"
                why = f"{name} reads {f'{read} tokens' if read else 'whole documents'}"
                raise RequestError(
                    f"`max_tokens_per_doc` must be {rule}, as {why}; received "
                    f"{shown(most)}"
                )
        if (chunks := given.get("max_chunks_per_doc")) is not None:
            if type(chunks) is not int or chunks < 1 or in_windows:
                rule = "left out" if in_windows else "a whole number of at least 1"
                why = f", as {name} reads documents in windows" if in_windows else ""
                raise RequestError(
                    f"`max_chunks_per_doc` must be {rule}{why}; received "
                    f"{shown(chunks)}"
                )

    async def _answer(
        self,
        request: Request,
        given: Mapping[str, Any],
        name: str,
        decode: Callable[[], Parts],
        *,
        width: int,
        signature: str | None = None,
    ) -> Answered:
        """Return the answers to rows of `width` texts, a list for each input.

        By the signature that is named, or else the first one for such rows.

        Raises:
            RequestError: a text was truncated and the request forbids it.
        """
        with self._service.models.lease(name) as leased:
            signatures = _by_width(leased)
            first = leased.signature("")
        if width not in signatures:
            taken = ", ".join(each.name for each in first.inputs)
            raise RequestError(
                f"`model` must take {counted(width, 'texts')} a row; {name} takes "
                f"{taken}"
            )
        answered = await self._service.predict(
            request.state.record,
            model=name,
            version=None,
            signature=signature or signatures[width],
            decode=lambda signature: decode(),
            size=request.state.size,
        )
        if given.get("truncate") is False and answered.truncated:
            raise RequestError(
                "`truncate` must be true for texts that are longer than the model "
                f"reads; tokens that it does not read: {shown(answered.truncated)}",
                status=413,
            )
        return answered


def _by_width(leased: Version) -> dict[int, str]:
    """Return signatures by the number of texts of a row; the default one first."""
    found = {len(each.inputs): name for name, each in leased.signatures.items()}
    first = leased.signature("")
    return {**found, len(first.inputs): first.name}


def _needed(
    given: Mapping[str, Any],
    needed: str,
    may: Sequence[str],
    without_effect: _Fields,
) -> dict[str, Any]:
    """Return the fields of a body that must have one of them, see `_checked`."""
    if needed not in given:
        raise RequestError(f"the body must have `{needed}`")
    found = _checked("the body", given, (needed, *may), without_effect)
    if needed not in found:
        raise RequestError(f"the body must have `{needed}`; received null")
    return found


def _checked(
    where: str,
    given: Mapping[str, Any],
    may: Sequence[str],
    without_effect: _Fields,
) -> dict[str, Any]:
    """Return fields of which none is unknown, and flags are true or false.

    A field without a value is left out, and so is one without an effect.
    """
    found = {name: each for name, each in given.items() if each is not None}
    for name, allowed in without_effect.items():
        value = found.pop(name, None)
        if not (value is None or allowed is None or value in allowed):
            raise RequestError(
                f"`{name}` must be {json.dumps(allowed[0])}; received {shown(value)}"
            )
    check_fields(where, found, may)
    for name, each in found.items():
        if name in _FLAGS and not isinstance(each, bool):
            raise RequestError(
                f"`{name}` must be true or false; received {shown(each)}"
            )
    return found


def _tokens(
    tokenizer: WordPieceTokenizer | TokenIds, texts: list[bytes], special: bool
) -> list[Any]:
    """Return the tokens of each text, with their places in characters."""
    given = [text.decode("utf-8", "replace") for text in texts]
    if isinstance(tokenizer, TokenIds):
        found = tokenizer(given, with_places=True)
    else:
        parts = tokenizer.tokenize_with_offsets(texts, unit="characters")
        cells = zip(*(part.to_list() for part in parts), strict=True)
        found = [
            Tokens(ids, [*zip(starts, ends, strict=True)])
            for ids, starts, ends in cells
        ]
    cls = _token(tokenizer.cls_id, "[CLS]", None, None)
    sep = _token(tokenizer.sep_id, "[SEP]", None, None)
    rows = []
    for text, (ids, places) in zip(given, found, strict=True):
        row = [
            _token(number, text[start:stop], start, stop)
            for number, (start, stop) in zip(ids, places, strict=True)
        ]
        rows.append([cls, *row, sep] if special else row)
    return rows


def _token(number: int, text: str, start: int | None, stop: int | None) -> Any:
    """Return a token in TEI's form; a special one has no place."""
    places = {"special": start is None, "start": start, "stop": stop}
    return {"id": number, "text": text, **places}


def _model_dtype(leased: Version) -> str | None:
    """Return the dtype of the numbers that a model answers with."""
    dtypes = (each.dtype for each in leased.signature("").outputs)
    return next((each for each in dtypes if each.startswith("float")), None)


def _model_type(leased: Version) -> dict[str, Any]:
    """Return what a model does, as TEI names it; another task by its own name."""
    if leased.task in _EMBEDS:
        is_sparse = leased.signature("").outputs[0].name == _WEIGHTS
        return {"embedding": {"pooling": "splade" if is_sparse else leased.pooling}}
    names = leased.classes or ("LABEL_0",) * (leased.task in _RANKS)
    kind = "reranker" if leased.task in _RANKS else "classifier"
    labels = {str(number): name for number, name in enumerate(names)}
    numbers = {name: number for number, name in enumerate(names)}
    named = {"id2label": labels, "label2id": numbers}
    return {kind: named} if names else {leased.task: {}}


def _texts(name: str, value: Any, *, many: bool = True, also: str = "") -> list[str]:
    """Return a text, or a list of them, as a list; `also` is said of its elements."""
    if isinstance(value, str):
        return [value]
    if many and isinstance(value, list) and value:
        if all(isinstance(each, str) for each in value):
            return list(value)
    allowed = f"a string or a list of strings{also}" if many else "a string"
    raise RequestError(f"`{name}` must be {allowed}; received {shown(value)}")


def _are_ids(value: Any) -> bool:
    """Return whether a value is a list of token ids, or of lists of them."""
    if not isinstance(value, list) or not value:
        return False
    ids = itertools.chain.from_iterable(
        each if isinstance(each, list) else [each] for each in value
    )
    return all(type(each) is int for each in ids)


def _rows(inputs: Any) -> list[list[str]]:
    """Return texts or pairs as lists: the inputs, or a list of the only one.

    Raises:
        RequestError: they have another form, or are not all alike.
    """
    rows = inputs
    if isinstance(inputs, str):
        rows = [[inputs]]
    elif isinstance(inputs, list) and all(isinstance(each, str) for each in inputs):
        rows = [inputs]
    is_list = isinstance(rows, list) and all(isinstance(row, list) for row in rows)
    texts = [each for row in rows for each in row] if is_list else [None]
    widths = {len(row) for row in rows} if is_list else set()
    if widths not in ({1}, {2}) or not all(isinstance(each, str) for each in texts):
        raise RequestError(
            "`inputs` must be a text, a pair [text, text], or a list of several, each "
            f"[text] or each [text, text]; received {shown(inputs)}"
        )
    return rows


def _shortened(vectors: np.ndarray, dimensions: Any) -> np.ndarray:
    """Return the first numbers of vectors; vectors of length 1 get it again."""
    if dimensions is None:
        return vectors
    width = vectors.shape[1]
    if type(dimensions) is not int or not 1 <= dimensions <= width:
        raise RequestError(
            f"`dimensions` must be a whole number from 1 to {width}; received "
            f"{shown(dimensions)}"
        )
    found = vectors[:, :dimensions]
    norms = np.linalg.norm(vectors, axis=1)
    if np.abs(norms - 1).max() > _UNIT:
        return found
    kept: np.ndarray = found / np.linalg.norm(found, axis=1, keepdims=True)
    return kept


def _base64(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _response(value: Any, answered: Answered) -> Response:
    found = json_response(value)
    if answered.truncated:
        found.headers[_TRUNCATED] = ",".join(map(str, answered.truncated))
    return found
