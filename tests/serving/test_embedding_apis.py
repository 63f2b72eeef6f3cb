"""Embedding and ranking in the forms of OpenAI, TEI, Jina and Cohere."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import VOCABULARY, refused

pytest.importorskip("starlette")

import bert_keras
from bert_keras.inference.predictor import Predictor
from bert_keras.models.model_folder import save_model
from bert_keras.retrieval.export import export_search
from bert_keras.retrieval.index import SearchIndex, reranked
from bert_keras.serving import Server, embedding_apis
from bert_keras.serving.config import ServeConfig
from bert_keras.serving.tensors import dump_json
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.long_texts import most_tokens
from bert_keras.tasks.reranking import Reranking
from bert_keras.text.token_ids import TokenIds
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.text.tokenizer_files import write_tokenizer_json
from serving.conftest import Client

TEXTS = ["free cash prize", "lunch at six", "a", "cash"]
QUERY = "free cash"
TASKS = {
    "vectors": Embedding(),
    "ranker": Reranking(),
    "letters": Classification(classes=("a", "b", "c")),
    "sparse": Embedding(kind="sparse"),
    "entailed": Classification(
        classes=("no", "yes"), pairs=True, long="windows", max_windows=2
    ),
}
OTHERS = {  # of a second server
    "linear": Reranking(activation="linear"),
    "classes": Classification(classes=("no", "yes"), pairs=True),
    "named": Classification(classes=("no", "yes"), pairs=True, positive_class="no"),
    "prompts": Embedding(prompts={"query": "cash "}),
}
SENTENCES = {"source_sentence": "a", "sentences": ["b"]}
DOCUMENTS = ["win free cash", "lunch at six, you", "see you at home"]


@pytest.fixture(scope="module")
def served(
    make_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, dict[str, Predictor]]]:
    """Return a running server, and predictors of its models by name."""
    place = tmp_path_factory.mktemp("apis")
    models = {name: make_model(task) for name, task in TASKS.items()}
    for name, model in models.items():
        save_model(model, place / name)
    index = place / "index.npz"
    SearchIndex.of(Predictor(models["vectors"]), DOCUMENTS, index=index)
    export_search(models["vectors"], place / "found", index=index, top=2)
    config = ServeConfig(
        port=0,
        no_grpc=True,
        max_texts=20,
        max_characters=800,
        index=f"vectors={index}",
        index_top=2,
        hybrid=True,
        hybrid_weight=0.5,
        rerank=str(place / "ranker"),
        candidates=3,
    )
    paths = [str(place / name) for name in (*TASKS, "found")]
    with Server(paths, config=config, is_quiet=True).running() as server:
        yield server, {name: Predictor(model) for name, model in models.items()}


@pytest.mark.slow
def test_a_served_index_is_searched(
    served: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server, predictors = served
    ranking: dict[str, Any] = {"hybrid": True, "hybrid_weight": 0.5}
    index = SearchIndex.of(predictors["vectors"], DOCUMENTS, **ranking)
    queries = [QUERY, "six"]
    near = index(queries, top=3)
    with bert_keras.Client(server.url, model="vectors") as client:
        assert client.embed([QUERY]).shape == (1, 16)  # as without an index
        for top, given in ((2, {}), (1, {"top": 1})):
            for query, rows, texts in zip(
                queries, client.search(queries, **given), near, strict=True
            ):
                expected = reranked(predictors["ranker"], query, texts, top=top)
                assert [row["id"] for row in rows] == [str(r["line"]) for r in expected]
                assert [row["text"] for row in rows] == [r["text"] for r in expected]
                for name in ("score", "search_score"):
                    scores = [row[name] for row in expected]
                    assert [row[name] for row in rows] == pytest.approx(scores, 1e-4)
        refused(
            lambda: client.search(["cash", " "]),
            "`text` must not be empty; received ' ' at index 1",
        )
        rule = "`top` must be a whole number from 1 to 2; received 5"
        refused(lambda: client.search(queries, top=5), "400", rule)
    with bert_keras.Client(server.url, model="found") as client:  # an export
        assert [len(rows) for rows in client.search(queries, top=1)] == [1, 1]
        refused(lambda: client.search(queries, top=3), "from 1 to 2; received 3")


@pytest.mark.slow
def test_what_is_searched_is_told(served: Any) -> None:
    client = Client(served[0].url)
    facts = {"ranking": "hybrid", "hybrid_weight": 0.5, "rerank": True, "top": 2}
    dense = {"ranking": "dense", "rerank": False, "top": 2}
    metadata = client.get("/v1/models/vectors/metadata")[1]
    assert metadata["search"] == {"search": facts}
    assert "search" not in client.get("/v1/models/ranker/metadata")[1]
    (found,) = (
        m for m in client.get("/v1/models")[1]["models"] if m["name"] == "found"
    )
    assert found["signatures"]["serving_default"]["search"] == dense
    paths = client.get("/openapi.json")[1]["paths"]
    body = paths["/v1/models/vectors:predict"]["post"]["requestBody"]["content"]
    for form in body["application/json"]["schema"]["oneOf"]:
        assert form["properties"]["top"]["maximum"] == 2
        assert "hybrid, reranked" in form["properties"]["top"]["description"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"signature_name": "search", "top": 0}, "from 1 to 2; received 0"),
        ({"signature_name": "search", "top": "1"}, "from 1 to 2; received '1'"),
        ({"top": 1}, "`top` must be left out for `serving_default`"),
    ],
)
def test_a_wrong_top_is_refused(ask: Any, given: dict[str, Any], part: str) -> None:
    found = ask("/v1/models/vectors:predict", status=400, instances=["a"], **given)
    assert part in found["error"]
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a"]}
    found = ask(
        "/v2/models/vectors/infer", status=400, inputs=[tensor], parameters=given
    )
    assert part in found["error"]


@pytest.mark.slow
def test_an_index_that_cannot_be_served(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    places = {"max": Embedding("max"), "letters": TASKS["letters"]}
    for name, task in places.items():
        save_model(make_model(task), tmp_path / name)
    index = tmp_path / "index.npz"
    SearchIndex.of(Predictor(make_model(TASKS["vectors"])), DOCUMENTS, index=index)
    (tmp_path / "broken.npz").write_bytes(b"PK")

    def serve(names: tuple[str, ...], given: str) -> None:
        config = ServeConfig(port=0, no_grpc=True, index=given)
        Server([str(tmp_path / name) for name in names], config=config)

    refused(lambda: serve(("max",), str(index)), "another model", str(index))
    refused(lambda: serve(("letters",), str(index)), "the task embedding")
    refused(lambda: serve(("max", "letters"), str(index)), "NAME of max, letters")
    refused(lambda: serve(("max",), str(tmp_path / "broken.npz")), "broken.npz")
    refused(lambda: serve(("max",), str(tmp_path / "none.npz")), "none.npz")
    refused(lambda: ServeConfig(index_top=3), "`index_top` needs `index`; received 3")
    refused(lambda: ServeConfig(hybrid=True), "`hybrid` needs `index`; received True")
    few: dict[str, Any] = {"index": "a", "rerank": "b", "candidates": 9}
    refused(lambda: ServeConfig(**few), "`candidates` must be at least", "received 9")
    refused(lambda: ServeConfig(index="a", hybrid_weight=2.0), "needs `hybrid`", "2.0")


@pytest.fixture
def ask(served: Any) -> Callable[..., Any]:
    """Return a function that posts fields and returns the answer."""
    client = Client(served[0].url)

    def ask(path: str, *, status: int = 200, **fields: Any) -> Any:
        code, found = client.post(path, fields)
        assert code == status, found
        return found

    return ask


@pytest.fixture
def vectors(served: Any) -> np.ndarray:
    """Return the vectors of TEXTS."""
    rows = served[1]["vectors"].predict(TEXTS)
    return np.array([row["embedding"] for row in rows])


def test_openai_embeddings(ask: Any, served: Any, vectors: np.ndarray) -> None:
    found = ask("/v1/embeddings", input=TEXTS, model="vectors")
    rows = [each["embedding"] for each in found["data"]]
    np.testing.assert_allclose(rows, vectors, atol=1e-5)
    assert [each["index"] for each in found["data"]] == [0, 1, 2, 3]
    preprocessor = served[1]["vectors"].model.preprocessor
    read = preprocessor.lengths(TEXTS)[0].numpy().sum()
    assert found["usage"] == {"prompt_tokens": read, "total_tokens": read}
    without_effect = {"user": "me", "modality": "text", "late_chunking": False}
    packed = ask(
        "/v1/embeddings", input=TEXTS[0], encoding_format="base64", **without_effect
    )
    decoded = base64.b64decode(packed["data"][0]["embedding"])
    np.testing.assert_allclose(np.frombuffer(decoded, "<f4"), vectors[0], atol=1e-5)
    short = ask("/v1/embeddings", input=TEXTS, dimensions=8)
    wanted = vectors[:, :8] / np.linalg.norm(vectors[:, :8], axis=1, keepdims=True)
    rows = [each["embedding"] for each in short["data"]]
    np.testing.assert_allclose(rows, wanted, atol=1e-5)


def test_tei_vectors_and_similarities(
    ask: Any, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.testing.assert_allclose(ask("/embed", inputs=TEXTS), vectors, atol=1e-5)
    with monkeypatch.context() as patched:  # as of a model that does not normalize
        patched.setattr(embedding_apis, "_shortened", lambda found, _: 2 * found)
        for given, scale in ((None, 1), (True, 1), (False, 2)):
            found = ask("/embed", inputs=TEXTS, normalize=given)
            np.testing.assert_allclose(found, scale * vectors, atol=1e-5)
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    found = ask("/similarity", inputs=inputs)
    np.testing.assert_allclose(found, vectors[1:] @ vectors[0], atol=1e-5)


def test_tei_weights_of_tokens(ask: Any, served: Any) -> None:
    found = ask("/embed_sparse", inputs=TEXTS[:2])
    for row, wanted in zip(found, served[1]["sparse"].predict(TEXTS[:2]), strict=True):
        row.sort(key=lambda each: -each["value"])
        assert [each["index"] for each in row] == wanted["indices"]
        values = [each["value"] for each in row]
        assert values == pytest.approx(wanted["values"], abs=1e-5)


def test_tei_tokens_and_facts(ask: Any, served: Any) -> None:
    text = "Free cash, 💰 lunch"
    (row,) = ask("/tokenize", inputs=text, model="vectors")
    tokenizer = served[1]["vectors"].model.preprocessor.tokenizer
    assert [each["id"] for each in row[1:-1]] == tokenizer(text).numpy().tolist()
    assert [each["text"] for each in (row[0], row[-1])] == ["[CLS]", "[SEP]"]
    assert all(each["text"] == text[each["start"] : each["stop"]] for each in row[1:-1])
    plain = ask("/tokenize", inputs=[text], model="ranker", add_special_tokens=False)
    assert plain == [row[1:-1]]
    client = Client(served[0].url)
    wanted = {
        "vectors": {"embedding": {"pooling": "mean"}},
        "sparse": {"embedding": {"pooling": "splade"}},
        "ranker": {
            "reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
        },
    }
    for name, kind in wanted.items():
        code, found = client.get(f"/info?model={name}")
        assert code == 200 and found["model_type"] == kind
        assert found["model_dtype"] == "float32"
        assert found["max_input_length"] == 24 and found["max_client_batch_size"] == 20
    # Two windows: [CLS], [SEP], [SEP] and 21 tokens, and 21 more.
    entailed = client.get("/info?model=entailed")[1]
    assert (entailed["max_input_length"], entailed["model_dtype"]) == (45, "float32")
    assert most_tokens(Embedding(long="windows"), 24) is None
    assert client.get("/info")[1]["models"] == [*TASKS, "found"]
    assert client.get("/info?model=x")[0] == 404
    ask("/tokenize", status=413, inputs=["a"] * 21, model="vectors")


def test_tokens_of_an_engine_folder(tmp_path: Path) -> None:
    """They are those of the graph."""
    tokenizer = WordPieceTokenizer(VOCABULARY, lowercase=True)
    write_tokenizer_json(tmp_path, tokenizer.get_config(), max_length=24)
    texts = ["Free cash, 💰 é lunch".encode(), b"", b"a \xed\xa0\x80 cash", b"cash"]
    for special in (True, False):
        in_graph = embedding_apis._tokens(tokenizer, texts, special)
        assert embedding_apis._tokens(TokenIds(tmp_path), texts, special) == in_graph


def test_clients_embed_rank_and_search(served: Any, vectors: np.ndarray) -> None:
    server, predictors = served
    url = server.url
    with bert_keras.Client(url, model="vectors") as client:
        np.testing.assert_allclose(client.embed(TEXTS), vectors, atol=1e-5)
        assert client.embed([]).shape == (0, 16)
        for prompt in ("query", "search"):
            action = functools.partial(client.embed, TEXTS, prompt=prompt)
            refused(action, "`prompt` must be left out", "no prompts", repr(prompt))
        refused(lambda: client.rank(QUERY, DOCUMENTS), "must take a query and")
    with bert_keras.Client(url, model="sparse") as client:
        refused(lambda: client.search([QUERY]), "an export with an index")
    wanted = predictors["ranker"].rank(QUERY, DOCUMENTS, top=2)
    near = SearchIndex.of(predictors["vectors"], DOCUMENTS)([QUERY], top=2)[0]
    with bert_keras.Client(url, model="ranker") as client:
        ranked = client.rank(QUERY, DOCUMENTS, top=2)
        refused(lambda: client.rank(QUERY, ["a", ""]), "`documents` must not be empty")
        refused(lambda: client.search([QUERY]), "an export with an index")

    async def ask() -> tuple[Any, Any]:
        async with bert_keras.AsyncClient(url, model="ranker") as client:
            again = await client.rank(QUERY, DOCUMENTS, top=2)
        async with bert_keras.AsyncClient(url, model="found") as client:
            return again, await client.search([QUERY])

    again, (found,) = asyncio.run(ask())
    assert again == ranked
    for one, other in zip([*ranked, *found], [*wanted, *near], strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)
        assert (one["rank"], one["text"]) == (other["rank"], other["text"])


def test_tei_classes(ask: Any, served: Any) -> None:
    found = ask("/predict", inputs=TEXTS[0], model="letters")
    wanted = served[1]["letters"].predict(TEXTS[:1])[0]["probabilities"]
    assert {e["label"]: e["score"] for e in found} == pytest.approx(wanted, abs=1e-5)
    scores = [each["score"] for each in found]
    assert scores == sorted(scores, reverse=True)
    rows = [[text] for text in TEXTS[:2]]
    together = ask("/predict", inputs=rows, model="letters", raw_scores=False)
    assert len(together) == 2
    assert [e["score"] for e in together[0]] == pytest.approx(scores, abs=1e-5)
    pair = (TEXTS[0], TEXTS[3])
    wanted = served[1]["entailed"].predict([pair])[0]["probabilities"]
    for inputs in (pair, [pair]):
        found = ask("/predict", inputs=inputs, model="entailed")
        found = found if inputs is pair else found[0]
        assert {e["label"]: e["score"] for e in found} == pytest.approx(
            wanted, abs=1e-5
        )


def test_documents_are_ranked(ask: Any, served: Any) -> None:
    documents = [TEXTS[0], TEXTS[1], TEXTS[3]]
    ranked = served[1]["ranker"].rank(QUERY, documents)
    wanted = [
        (each["index"], pytest.approx(each["score"], abs=1e-5)) for each in ranked
    ]
    found = ask("/rerank", query=QUERY, texts=documents, return_text=True)
    assert [(each["index"], each["score"]) for each in found] == wanted
    assert [each["text"] for each in found] == [each["text"] for each in ranked]
    given = [{"text": text} for text in documents]
    limits = {"max_tokens_per_doc": 4096, "max_chunks_per_doc": 10, "priority": 1}
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        found = ask(
            path,
            model="ranker",
            query=QUERY,
            documents=given,
            top_n=2,
            return_documents=True,
            rank_fields=["text"],
            **limits,
        )
        rows = [(each["index"], each["relevance_score"]) for each in found["results"]]
        assert rows == wanted[:2]
        assert found["usage"]["total_tokens"] > 0
        texts = [each["text"] for each in ranked[:2]]
        if path != "/rerank":  # infinity returns strings
            texts = [{"text": text} for text in texts]
        assert [each["document"] for each in found["results"]] == texts


@pytest.fixture(scope="module")
def others(
    make_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Client, dict[str, Predictor]]]:
    """Return a client of a second server, and predictors of its models by name."""
    place = tmp_path_factory.mktemp("others")
    models = {name: make_model(task) for name, task in OTHERS.items()}
    head = models["linear"].get_layer("classifier")
    head.kernel.assign(head.kernel * 300)  # scores beyond 0 and 1
    for name, model in models.items():
        save_model(model, place / name)
    config = ServeConfig(port=0, no_grpc=True, positive_class="classes=yes")
    paths = [str(place / name) for name in OTHERS]
    with Server(paths, config=config, is_quiet=True).running() as server:
        found = {name: Predictor(model) for name, model in models.items()}
        yield Client(server.url), found


@pytest.mark.slow
def test_scores_of_linear_rankers_are_from_0_to_1(others: Any) -> None:
    client, predictors = others
    ranked = predictors["linear"].rank(QUERY, DOCUMENTS)
    logits = np.array([row["score"] for row in ranked])
    assert np.abs(logits).max() > 1
    request = {"model": "linear", "query": QUERY}
    for path, field, score in (
        ("/rerank", "texts", "score"),
        ("/rerank", "documents", "relevance_score"),
        ("/v1/rerank", "documents", "relevance_score"),
        ("/v2/rerank", "documents", "relevance_score"),
    ):
        for raw, wanted in ((False, 1 / (1 + np.exp(-logits))), (True, logits)):
            fields = {**request, field: DOCUMENTS, "raw_scores": raw}
            code, found = client.post(path, fields)
            rows = found if field == "texts" else found["results"]
            assert code == 200
            assert [each["index"] for each in rows] == [e["index"] for e in ranked]
            np.testing.assert_allclose([e[score] for e in rows], wanted, rtol=1e-4)


def test_raw_scores_of_a_sigmoid(ask: Any, served: Any) -> None:
    scores = np.array(
        [each["score"] for each in served[1]["ranker"].rank(QUERY, DOCUMENTS)]
    )
    found = ask("/rerank", query=QUERY, texts=DOCUMENTS, raw_scores=True, top_n=2)
    wanted = np.log(scores / (1 - scores))[:2]
    np.testing.assert_allclose([e["score"] for e in found], wanted, atol=1e-5)


@pytest.mark.slow
def test_a_classifier_of_pairs_ranks(others: Any) -> None:
    client, predictors = others
    pairs = [(QUERY, text) for text in DOCUMENTS]
    for name, relevant in (("classes", "yes"), ("named", "no")):
        predictor = predictors[name]
        rows = [row["probabilities"][relevant] for row in predictor.predict(pairs)]
        order = sorted(range(3), key=lambda at: -rows[at])
        given = relevant if name == "classes" else None
        ranked = predictor.rank(QUERY, DOCUMENTS, positive_class=given)
        assert [row["index"] for row in ranked] == order
        assert [*ranked[0]] == ["rank", "score", "index", "text"]
        scores = [pytest.approx(rows[at], abs=1e-5) for at in order]
        assert [row["score"] for row in ranked] == scores
        code, found = client.post(
            "/v1/rerank", {"model": name, "query": QUERY, "documents": DOCUMENTS}
        )
        assert code == 200
        assert [each["index"] for each in found["results"]] == order
        assert [each["relevance_score"] for each in found["results"]] == scores
    unnamed = predictors["classes"]
    refused(lambda: unnamed.rank(QUERY, DOCUMENTS), "whose `positive_class` names")
    other = functools.partial(unnamed.rank, QUERY, DOCUMENTS, positive_class="maybe")
    refused(other, "`positive_class` must be one of", "'maybe'")


@pytest.mark.slow
def test_prompts_by_name(others: Any) -> None:
    client = others[0]
    given = {"model": "prompts", "inputs": ["lunch"]}
    _, plain = client.post("/embed", {**given, "inputs": ["cash lunch"]})
    _, found = client.post("/embed", {**given, "prompt_name": "query"})
    np.testing.assert_allclose(found, plain, atol=1e-5)
    given = {"model": "prompts", "input": "lunch", "prompt_name": "query"}
    _, found = client.post("/v1/embeddings", given)
    np.testing.assert_allclose(found["data"][0]["embedding"], plain[0], atol=1e-5)
    code, found = client.post("/v1/embeddings", {**given, "prompt_name": "other"})
    assert code == 400 and "`prompt_name` must be one of" in found["error"]["message"]
    given = {"model": "prompts", "inputs": ["lunch"]}
    code, found = client.post("/embed", {**given, "prompt_name": "other"})
    assert code == 400
    assert "`prompt_name` must be one of query, document" in found["error"]


@pytest.mark.parametrize("blank", ["", " \t", "\u200b\u3000"])
def test_no_route_answers_an_empty_text(ask: Any, blank: str) -> None:
    many, pair = ["a", blank], ["a", blank]
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("/v1/embeddings", "input", {"input": blank}),
        ("/v1/embeddings", "input", {"input": many}),
        ("/embed", "inputs", {"inputs": many}),
        ("/embed_sparse", "inputs", {"inputs": many}),
        ("/similarity", "sentences", {"inputs": {**SENTENCES, "sentences": many}}),
        ("/tokenize", "inputs", {"inputs": many, "model": "vectors"}),
        ("/predict", "inputs", {"inputs": [["a"], [blank]], "model": "letters"}),
        ("/predict", "inputs", {"inputs": pair, "model": "entailed"}),
        ("/rerank", "texts", {"texts": many, "query": "a"}),
        ("/rerank", "documents", {"documents": many, "query": "a"}),
        ("/v1/rerank", "query", {"documents": ["a"], "query": blank}),
        ("/v2/rerank", "documents", {"documents": many, "query": "a"}),
        ("/v1/models/letters:predict", "text", {"instances": many}),
        ("/v1/models/letters:predict", "text", {"inputs": {"text": many}}),
        ("/v1/models/found:predict", "text", {"instances": many}),
        (
            "/v1/models/entailed:predict",
            "text_b",
            {"instances": [{"text_a": "a", "text_b": blank}]},
        ),
        (
            "/v2/models/letters/infer",
            "text",
            {
                "inputs": [
                    {"name": "text", "datatype": "BYTES", "shape": [2], "data": many}
                ]
            },
        ),
    ]
    for path, name, fields in requests:
        found = message_of(ask(path, status=400, **fields))
        assert f"`{name}` must not be empty; received" in found, (path, found)


def message_of(body: dict[str, Any]) -> str:
    """Return the message of an error in the form of any of the APIs."""
    error = body.get("error", body)
    if isinstance(error, str):
        return error
    return str(error["message"] if "message" in error else error["detail"])


def test_errors_have_the_form_of_each_api(ask: Any) -> None:
    unknown = {"model": "none", "query": "a", "documents": ["a"]}
    words = "`model` must be one of"
    found = ask("/v1/embeddings", status=404, input="a", model="none")["error"]
    assert words in found.pop("message")
    kind = "invalid_request_error"
    assert found == {"type": kind, "param": None, "code": "model_not_found"}
    found = ask("/v1/embeddings", status=400, input=[[1, 2], [3]])["error"]
    assert (found["type"], found["code"]) == (kind, None)
    assert "`check_embedding_ctx_length=False`" in found["message"]
    assert "must be a string or a list of strings" in found["message"]
    found = ask("/embed", status=404, inputs="a", model="none")
    assert words in found.pop("error") and found == {"error_type": "Validation"}
    (jina,) = ask("/v1/rerank", status=404, **unknown).items()
    (cohere,) = ask("/v2/rerank", status=404, **unknown).items()
    assert (jina[0], cohere[0]) == ("detail", "message")
    assert words in jina[1] and words in cohere[1]


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        ("/v1/embeddings", {}, "`input`"),
        ("/v1/embeddings", {"input": [1, 2]}, "`input`"),
        ("/v1/embeddings", {"input": "a", "dimensions": 9999}, "`dimensions`"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "x"}, "`encoding_format`"),
        ("/v1/embeddings", {"input": "a", "temperature": 1}, "temperature"),
        ("/v1/embeddings", {"input": "a", "model": "letters"}, "`model`"),
        ("/embed", {"inputs": "a", "normalize": False}, "`normalize`"),
        (
            "/embed",
            {"inputs": "a", "normalize": "no"},
            "`normalize` must be true or false; received 'no'",
        ),
        ("/embed_sparse", {"inputs": "a", "truncate": "false"}, "`truncate` must be"),
        (
            "/rerank",
            {"texts": ["a"], "query": "b", "return_text": "yes"},
            "`return_text` must be true or false",
        ),
        (
            "/rerank",
            {"texts": ["a"], "query": "b", "raw_scores": 0},
            "`raw_scores` must be true or false; received 0",
        ),
        (
            "/v1/rerank",
            {"documents": ["a"], "query": "b", "return_documents": "true"},
            "`return_documents` must be true or false",
        ),
        (
            "/tokenize",
            {"inputs": "a", "model": "vectors", "add_special_tokens": 1},
            "`add_special_tokens` must be true or false",
        ),
        ("/rerank", {"texts": ["a"]}, "`query`"),
        (
            "/v1/rerank",
            {"documents": [{"text": "a", "title": "b"}], "query": "b"},
            "or objects with `text` alone; received",
        ),
        ("/rerank", {"texts": ["a"], "query": " "}, "`query` must not be empty"),
        ("/rerank", {"texts": ["a", " "], "query": "b"}, "`texts` must not be empty"),
        ("/v2/rerank", {"documents": [""], "query": "b"}, "`documents` must not be"),
        (
            "/predict",
            {"inputs": "a", "model": "letters", "raw_scores": True},
            "`raw_scores` must be false",
        ),
        (
            "/rerank",
            {"texts": ["a"], "query": "b", "truncation_direction": "Left"},
            '`truncation_direction` must be "Right"; received',
        ),
        (
            "/v1/rerank",
            {"documents": ["a"], "query": "b", "rank_fields": ["title"]},
            '`rank_fields` must be ["text"]; received',
        ),
        (
            "/v1/rerank",
            {"documents": ["a"], "query": "b", "max_chunks_per_doc": 0},
            "`max_chunks_per_doc` must be a whole number of at least 1; received 0",
        ),
        (
            "/v1/embeddings",
            {"input": "a", "late_chunking": True},
            "`late_chunking` must be false; received True",
        ),
        (
            "/embed",
            {"inputs": "a", "prompt_name": "query"},
            "`prompt_name` must be left out for vectors, which has no prompts",
        ),
        ("/v1/rerank", {"documents": ["a"], "query": "b", "top_n": 0}, "`top_n`"),
        (
            "/v2/rerank",
            {"documents": ["a"], "query": "b", "max_tokens_per_doc": 2},
            "`max_tokens_per_doc` must be at least",
        ),
        ("/similarity", {"inputs": ["a"]}, "`source_sentence`"),
        (
            "/similarity",
            {"inputs": SENTENCES, "parameters": {"prompt_name": "query"}},
            "`parameters` may have truncate; received 'prompt_name'",
        ),
        (
            "/similarity",
            {"inputs": SENTENCES, "parameters": {"truncate": "no"}},
            "`truncate` must be true or false",
        ),
        (
            "/similarity",
            {"inputs": SENTENCES, "parameters": [1]},
            "`parameters` must be an object",
        ),
        (
            "/predict",
            {"inputs": "a", "model": "entailed"},
            "`model` must take 1 text a row; entailed takes text_a, text_b",
        ),
        *(
            ("/predict", {"inputs": inputs, "model": "letters"}, words)
            for inputs, words in (
                (["a", "b"], "`model` must take 2 texts a row; letters takes text"),
                (["a", "b", "c"], "`inputs` must be a text, a pair"),
                ([["a"], ["a", "b"]], "`inputs` must be a text, a pair"),
                ([["a"], 1], "`inputs` must be a text, a pair"),
                ([[1]], "`inputs` must be a text, a pair"),
                ([], "`inputs` must be a text, a pair"),
            )
        ),
        (
            "/v1/models/ranker:predict",
            {
                "signature_name": "rank",
                "instances": [{"query": " ", "documents": ["a"]}],
            },
            "`query` must not be empty; received ' ' at index 0",
        ),
        ("/v1/models/found:predict", {"instances": ["a", " "]}, "must not be empty"),
    ],
)
def test_wrong_requests_are_refused(
    ask: Any, path: str, fields: Any, words: str
) -> None:
    assert words in message_of(ask(path, status=400, **fields))


def test_limits_hold(ask: Any) -> None:
    ask("/v1/embeddings", status=404, input="a", model="other")
    many = ["a"] * 21

    def refusal(path: str, **fields: Any) -> str:
        return message_of(ask(path, status=413, **fields))

    assert "`input` must hold 1 to 20" in refusal("/v1/embeddings", input=many)
    assert "`input` must have at most" in refusal("/v1/embeddings", input="a" * 999)
    assert "`texts` must hold 1 to 20" in refusal("/rerank", texts=many, query="a")
    found = refusal("/v1/rerank", documents=many, query="a", model="ranker")
    assert "`documents` must hold 1 to 20" in found
    long = "word " * 99
    for direction in ("Right", "right"):
        assert ask("/embed", inputs=long, truncation_direction=direction)
    refusal("/embed", inputs=long, truncate=False)
    refusal("/v1/embeddings", input=long, truncate=False)
    inputs = {"source_sentence": "a", "sentences": [long]}
    found = refusal("/similarity", inputs=inputs, parameters={"truncate": False})
    assert "`truncate` must be true" in found
    assert len(ask("/similarity", inputs=inputs, parameters={"truncate": True})) == 1


def test_the_listing_has_openais_form(served: Any) -> None:
    found = Client(served[0].url).get("/v1/models")[1]
    assert found["object"] == "list"
    assert {each["id"] for each in found["data"]} == {*TASKS, "found"}
    one = Client(served[0].url).get("/v1/models/ranker")[1]
    assert {key: one[key] for key in found["data"][0]} in found["data"]


def test_numbers_of_vectors_are_written_exactly() -> None:
    vectors = np.random.default_rng(0).normal(size=(2, 99)).astype(np.float32)
    vectors[0, :4] = [0, 1, np.finfo(np.float32).max, np.finfo(np.float32).tiny]
    text = dump_json({"a": "é", "data": [{"vector": each} for each in vectors]})
    found = json.loads(text)
    assert found["a"] == "é"
    read = np.array([row["vector"] for row in found["data"]]).astype(np.float32)
    assert (read == vectors).all()
    with pytest.raises(ValueError, match="finite"):
        dump_json(np.float32([1, np.nan]))
