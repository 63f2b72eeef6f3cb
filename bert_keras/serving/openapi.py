"""The OpenAPI description of the HTTP interface and the models: `openapi`.

Source: OpenAPI 3.1.
"""

from __future__ import annotations

from typing import Any

from bert_keras.serving.embedding_apis import INFO, PATHS
from bert_keras.serving.errors import error_body
from bert_keras.serving.rest import model_list
from bert_keras.serving.service import Service
from bert_keras.serving.signatures import TRUNCATED
from bert_keras.version import __version__

_JSON = "application/json"
_KINDS = {"string": "string", "bool": "boolean", "int32": "integer", "int64": "integer"}
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string"}},
    "required": ["error"],
}
_REDACT = {
    "type": ["boolean", "string", "array"],
    "items": {"type": "string"},
    "description": "whether entities are replaced in the texts, or their types",
}


def openapi(service: Service) -> dict[str, Any]:
    """Return the OpenAPI document of a server."""
    paths: dict[str, Any] = {
        "/v1/models": _get("The models, each with its task and signatures"),
        "/v2": _get("Name and version of the server"),
        "/v2/health/live": _get("Whether the server runs"),
        "/v2/health/ready": _get("Whether all models are loaded"),
        "/monitoring/prometheus/metrics": _get("Metrics", kind="text/plain"),
        INFO: _get("Facts about a model (TEI)"),
        **{path: _call(path, summary) for path, summary in PATHS.items()},
    }
    for model in model_list(service):
        name = model["name"]
        default = model["signatures"][model["default_signature"]]
        paths |= {
            f"/v1/models/{name}": _get(f"State of {name} ({model['task']})"),
            f"/v1/models/{name}/metadata": _get(f"Signatures of {name}"),
            f"/v1/models/{name}:predict": _predict(model, default),
            f"/v2/models/{name}": _get(f"Inputs and outputs of {name}"),
            f"/v2/models/{name}/ready": _get(f"Whether {name} answers"),
            f"/v2/models/{name}/infer": _infer(model, default),
        }
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "bert_keras", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
    if service.asks_for_key:
        document["security"] = [{"key": []}]
    return document


def _get(summary: str, *, kind: str = _JSON) -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": _responses({}, kind)}}


def _call(path: str, summary: str) -> dict[str, Any]:
    """Return a path whose body and answer another API describes."""
    error = {
        name: {"type": "object" if isinstance(value, dict) else "string"}
        for name, value in error_body(path, "", 400).items()
    }
    schema = {"type": "object", "properties": error, "required": [*error]}
    return _post(summary, {"type": "object"}, _responses({}, error=schema))


def _responses(
    schema: dict[str, Any], kind: str = _JSON, *, error: dict[str, Any] | None = None
) -> dict[str, Any]:
    error = {"schema": error or {"$ref": "#/components/schemas/Error"}}
    return {
        "200": {"description": "the answer", "content": {kind: {"schema": schema}}},
        "default": {"description": "an error", "content": {_JSON: error}},
    }


def _predict(model: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    inputs, outputs = default["inputs"], default["outputs"]
    row, columns = (_object(inputs, drop_batch=drop) for drop in (True, False))
    if len(inputs) == 1:  # may be given without its name
        row = {"anyOf": [_values(inputs[0], drop_batch=True), row]}
        columns = {"anyOf": [_values(inputs[0], drop_batch=False), columns]}
    answer = _object(outputs, drop_batch=True)
    if len(outputs) == 1:
        answer = _values(outputs[0], drop_batch=True)
    names = {"type": "string", "enum": sorted(model["signatures"])}
    found = [
        each["search"] for each in model["signatures"].values() if "search" in each
    ]
    more = {"top": _top(found[0])} if found else {}
    more |= {"redact": _REDACT} if model["redacts"] else {}
    body = {
        "oneOf": [
            {
                "type": "object",
                "properties": {"signature_name": names, form: schema, **more},
                "required": [form],
                "additionalProperties": False,
            }
            for form, schema in (("instances", _list(row)), ("inputs", columns))
        ]
    }
    answers = {
        "type": "object",
        "properties": {
            "predictions": _list(answer),
            "outputs": {},
            TRUNCATED: _list({"type": "integer", "minimum": 0}),
        },
    }
    return _post(_summary(model), body, _responses(answers))


def _top(search: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the number of texts that a search answers with."""
    how = f"{search['ranking']}{', reranked' if search['rerank'] else ''}"
    return {
        "type": "integer",
        "minimum": 1,
        "maximum": search["top"],
        "description": f"texts that a search answers with ({how})",
    }


def _infer(model: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    def message(word: str) -> dict[str, Any]:
        tensor = {
            "name": {"enum": [info["name"] for info in default[word]]},
            "shape": _list({"type": "integer"}),
            "datatype": {"type": "string"},
            "data": {"type": "array"},
        }
        tensors = {"type": "object", "properties": tensor, "required": list(tensor)}
        return {
            "type": "object",
            "properties": {"id": {"type": "string"}, word: _list(tensors)},
            "required": [word],
        }

    responses = _responses(message("outputs"))
    return _post(_summary(model), message("inputs"), responses)


def _summary(model: dict[str, Any]) -> str:
    return f"Answers of {model['name']} ({model['task']})"


def _post(summary: str, body: Any, responses: Any) -> dict[str, Any]:
    content = {_JSON: {"schema": body}}
    request = {"required": True, "content": content}
    return {
        "post": {"summary": summary, "requestBody": request, "responses": responses}
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _object(infos: list[dict[str, Any]], *, drop_batch: bool) -> dict[str, Any]:
    names = [info["name"] for info in infos]
    schemas = [_values(info, drop_batch=drop_batch) for info in infos]
    return {
        "type": "object",
        "properties": dict(zip(names, schemas, strict=True)),
        "required": names,
    }


def _values(info: dict[str, Any], *, drop_batch: bool) -> dict[str, Any]:
    """Return the schema of a tensor, or of one row of it."""
    schema: dict[str, Any] = {"type": _KINDS.get(info["dtype"], "number")}
    for size in reversed(info["shape"][1:] if drop_batch else info["shape"]):
        schema = _list(schema)
        if size > 0:
            schema |= {"minItems": size, "maxItems": size}
    return schema
