"""A server of TF Serving's REST API for tests: metadata and predict, on loopback."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.server
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

Answer = Callable[..., Mapping[str, Any]]


@dataclasses.dataclass
class Stub:
    """A running server: its address, its requests, and its planned failures.

    `failures` are answered first, one per request: status, headers and body; a status
    of 0 closes the connection.
    """

    url: str = ""
    signatures: dict[str, tuple[tuple[tf.TensorSpec, ...], Answer]] = dataclasses.field(
        default_factory=dict
    )
    outputs: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str], Any]] = dataclasses.field(
        default_factory=list
    )
    failures: list[tuple[int, dict[str, str], str]] = dataclasses.field(
        default_factory=list
    )
    tells_order: bool = True  # of the inputs, which TF Serving does not tell

    def metadata(self) -> dict[str, Any]:
        """Return the signatures as TF Serving prints them, in its own order."""
        listed = {
            name: {
                "inputs": {s.name: _info(s.dtype, s.shape) for s in specs[::-1]},
                "outputs": {key: {"name": key} for key in self.outputs[name]},
                "method_name": "tensorflow/serving/predict",
            }
            for name, (specs, _) in self.signatures.items()
        }
        order = {
            name: [spec.name for spec in specs]
            for name, (specs, _) in self.signatures.items()
        }
        return {
            "model_spec": {"name": "m", "signature_name": "", "version": "1"},
            "metadata": {"signature_def": {"signature_def": listed}},
            **({"input_order": order} if self.tells_order else {}),
        }

    def status(self) -> dict[str, Any]:
        """Return the state of the model's only version."""
        version = {"version": "1", "state": "AVAILABLE"}
        return {"model_version_status": [version]}

    def predict(self, body: Any) -> dict[str, Any]:
        """Return the answer to a request of one input in row form, or of columns."""
        if "instances" in body:
            (spec,) = self.signatures["serving_default"][0]
            columns = {"inputs": {spec.name: body["instances"]}}
            outputs = self.predict(columns)["outputs"]
            rows = zip(*outputs.values(), strict=True)
            return {"predictions": [dict(zip(outputs, r, strict=True)) for r in rows]}
        specs, answer = self.signatures[body.get("signature_name", "serving_default")]
        inputs = [
            tf.constant(_octets(body["inputs"][s.name]), tf.string) for s in specs
        ]
        outputs = {key: _plain(value) for key, value in answer(*inputs).items()}
        if len(outputs) == 1:
            (alone,) = outputs.values()
            return {"outputs": alone}
        return {"outputs": outputs}


def _info(dtype: tf.DType, shape: Any) -> dict[str, Any]:
    dims = [{"size": str(size or -1), "name": ""} for size in shape.as_list()]
    return {
        "dtype": f"DT_{dtype.name.upper()}",
        "tensor_shape": {"dim": dims, "unknown_rank": False},
        "name": "x:0",
    }


def _octets(value: Any) -> Any:
    if isinstance(value, list):
        return [_octets(each) for each in value]
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return value


def _plain(value: Any) -> Any:
    value = value.numpy() if hasattr(value, "numpy") else value
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def stub_of(signatures: Mapping[str, tuple[tuple[tf.TensorSpec, ...], Answer]]) -> Stub:
    """Return a stub of functions that answer tensors; each declares its outputs."""
    stub = Stub(signatures=dict(signatures))
    for name, (specs, answer) in signatures.items():
        probes = [tf.fill([1] * s.shape.rank, "a") for s in specs]
        stub.outputs[name] = sorted(answer(*probes), reverse=True)
    return stub


@contextlib.contextmanager
def running(stub: Stub) -> Iterator[Stub]:
    """Run the server of a stub on a free port of this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            self._answer(json.loads(self.rfile.read(length)))

        def _answer(self, body: Any) -> None:
            headers = {key.lower(): value for key, value in self.headers.items()}
            stub.requests.append((self.command, self.path, headers, body))
            status, extra, text = 200, {}, ""
            if stub.failures:
                status, extra, text = stub.failures.pop(0)
            elif body is None:
                is_metadata = self.path.endswith("/metadata")
                text = json.dumps(stub.metadata() if is_metadata else stub.status())
            else:
                text = json.dumps(stub.predict(body))
            if status == 0:
                self.close_connection = True
                return
            data = text.encode()
            self.send_response(status)
            for key, value in {"Content-Length": str(len(data)), **extra}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        stub.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()
