"""Serve models over HTTP and gRPC, and query them.

`bert-keras serve`: read `config`, then the path of a request: `rest`,
`open_inference` or `grpc_services` (three protocols), `service` (limits, time, metrics
of each request), `tensors` (values of a request against a signature), `models` (names
and versions), `version` (a loaded model), `batcher` and `batch_choice` (requests
computed together) and `signatures` (how texts are measured and computed). `app` holds
the routes, `http_connection` the limits of a connection, and `server` starts and stops
everything. The web page is in `static/`.

`client` uses TF Serving's REST API. `forms` measures what can be served of a model.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
