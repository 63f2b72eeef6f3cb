"""Start and stop a server: `serve`, and `Server` to run it within a program."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib.util
import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from bert_keras.errors import BertKerasError, ConfigError, install_line, reason_of
from bert_keras.runs.notes import say
from bert_keras.serving.config import ServeConfig

_HTTP_PACKAGES = ("starlette", "uvicorn", "httptools", "prometheus_client")
_GRPC_PACKAGES = ("grpc", "tensorflow_serving")
_GRPC_PORT = 8500
_STOP_SECONDS = 60  # for the accepted requests
_IDLE_SECONDS = 75  # between two requests of a connection
_BACKLOG = 1024


def serve(
    paths: Sequence[str], *, config: ServeConfig | None = None, is_quiet: bool = False
) -> None:
    """Serve models until SIGTERM or Ctrl-C, then answer all accepted requests.

    Args:
        paths: model folders, SavedModels or folders of SavedModel versions, each PATH
            or NAME=PATH.
        config: addresses and limits.
        is_quiet: log only warnings and errors.

    Raises:
        BertKerasError: a package is missing, a model cannot be loaded, or an address is
            taken.
    """
    server = Server(paths, config=config, is_quiet=is_quiet)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.run(started=lambda: say(server.description))


class Server:
    """Serves models over HTTP and gRPC; they are loaded by the constructor.

    Args:
        paths, config, is_quiet: as in `serve`.

    Attributes:
        url: the address of HTTP.
        grpc_address: host and port of gRPC while it runs, or `None`.

    Raises:
        BertKerasError: as in `serve`.

    Example:
        >>> with Server(["models/emails"]).running() as server:
        ...     urllib.request.urlopen(f"{server.url}/v1/models/emails")
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        config: ServeConfig | None = None,
        is_quiet: bool = False,
    ) -> None:
        _check_packages(
            _HTTP_PACKAGES, install_line("serving", runtime_extra="serving")
        )
        from bert_keras.inference.session import answers_alone
        from bert_keras.serving.logs import log_to_stderr
        from bert_keras.serving.metrics import Metrics
        from bert_keras.serving.models import Models, named_paths
        from bert_keras.serving.service import Service, read_keys

        self._config = config or ServeConfig()
        named = named_paths(paths)
        keys = read_keys(self._config.api_key_file)
        # gRPC brings TensorFlow, which these models do not need.
        self._is_light = all(answers_alone(path) for path in named.values())
        self._with_grpc = _with_grpc(self._config, only_asked=self._is_light)
        self._socket = _listening(self._config.host, self._config.port)
        host, port = self._socket.getsockname()[:2]
        self._host = f"[{host}]" if ":" in host else host
        self.url = f"http://{self._host}:{port}"
        self.grpc_address: str | None = None
        self._is_local = ipaddress.ip_address(host.partition("%")[0]).is_loopback
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._is_stopped = False
        log_to_stderr(is_quiet=is_quiet)
        try:
            metrics = Metrics(lambda: self._models.queued())
            # An engine reads the weights of a model while the packages are imported.
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                pool.submit(importlib.import_module, "bert_keras.serving.app")
                self._models = Models(named, self._config, seen_of=metrics.seen_of)
        except BaseException:
            self._socket.close()
            raise
        self._service = Service(self._models, self._config, metrics, keys)

    @property
    def description(self) -> str:
        """The models and addresses, in one or several lines."""
        names = ", ".join(self._models.names)
        lines = [f"serving {names} on {self.url}"]
        if self.grpc_address:
            lines[0] += f", gRPC on {self.grpc_address}"
        elif self._is_light and not self._config.no_grpc:
            lines.append("gRPC is off, as it brings TensorFlow: --grpc-port starts it")
        elif not self._config.no_grpc:
            lines.append(f"gRPC is off: it needs packages: {install_line('serving')}")
        if not self._is_local and not self._service.asks_for_key:
            lines.append(
                "other machines can reach this server, and no key is required: see "
                "--api-key-file"
            )
        return "\n".join(lines)

    def run(self, *, started: Callable[[], object] = lambda: None) -> None:
        """Serve until `stop` is called; may be called only once.

        Args:
            started: called once requests are answered.

        Raises:
            BertKerasError: the port of gRPC is taken.
        """
        try:
            _run_in_loop(self._run(started))
        finally:
            self._models.close()
            self._socket.close()

    def stop(self) -> None:
        """Accept no more requests, answer the accepted ones, and let `run` return.

        It may be called from any thread, and from a signal handler.
        """
        self._is_stopped = True
        if self._loop is not None and self._end is not None:
            with contextlib.suppress(RuntimeError):  # has already ended
                self._loop.call_soon_threadsafe(self._end.set)

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """Serve in a thread, within a context.

        Raises:
            BertKerasError: as in `run`.
        """
        is_started = threading.Event()
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self.run(started=is_started.set)
            except BaseException as error:
                errors.append(error)
            finally:
                is_started.set()

        thread = threading.Thread(target=run, name="server")
        thread.start()
        is_started.wait()
        try:
            if errors:
                raise errors[0]
            yield self
        finally:
            self.stop()
            thread.join()

    async def _run(self, started: Callable[[], object]) -> None:
        from bert_keras.serving.app import App
        from bert_keras.serving.http_connection import LimitedConnection

        self._end, self._loop = asyncio.Event(), asyncio.get_running_loop()
        if self._is_stopped:
            self._end.set()
        most = self._config.max_connections
        connection = type("Connection", (LimitedConnection,), {"max_connections": most})
        http = _http_server(App(self._service), connection)
        grpc = await self._started_grpc() if self._with_grpc else None
        task = asyncio.create_task(http.serve([self._socket]))
        while not http.started and not task.done():
            await asyncio.sleep(0.001)
        if http.started:
            started()
        await asyncio.wait(
            [task, asyncio.create_task(self._end.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        http.should_exit = True
        if grpc is not None:
            await asyncio.gather(task, grpc.stop(_STOP_SECONDS))
        else:
            await task

    async def _started_grpc(self) -> Any:
        """Return the gRPC server, started.

        Raises:
            BertKerasError: its port is taken.
        """
        from bert_keras.serving.grpc_services import grpc_server

        port = self._config.grpc_port
        port = _GRPC_PORT if port is None else port
        try:
            server, port = grpc_server(self._service, f"{self._host}:{port}")
        except RuntimeError:
            raise ConfigError(
                f"`grpc_port` must be free on {self._config.host}; received {port}, "
                "which is taken"
            ) from None
        await server.start()
        self.grpc_address = f"{self._host}:{port}"
        return server


def _run_in_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine, in uvloop's loop where it is installed."""
    if importlib.util.find_spec("uvloop") is None:
        asyncio.run(main)
    else:
        import uvloop

        uvloop.run(main)


def _http_server(app: Any, connection: type) -> Any:
    """Return a uvicorn server that leaves signals to us, instead of ending on them."""
    import uvicorn

    class Quiet(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return Quiet(
        uvicorn.Config(
            app,
            http=connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
    )


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ConfigError: the address does not exist or is taken.
    """
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(
            f"`host` must be an address of this machine; received {host!r}: "
            f"{reason_of(error)}"
        ) from None
    try:
        if sys.platform != "win32":  # where it would share a port that is taken
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"`port` must be free on {host}; received {port}: {reason_of(error)}"
        ) from None
    return listener


def _with_grpc(config: ServeConfig, *, only_asked: bool = False) -> bool:
    """Return whether gRPC is served: if it is asked for, or else if it can be.

    Raises:
        BertKerasError: its port is given, and a package is missing.
    """
    if config.no_grpc:
        return False
    if config.grpc_port is not None:
        _check_packages(_GRPC_PACKAGES, install_line("serving"))
        return True
    return not only_asked and all(map(importlib.util.find_spec, _GRPC_PACKAGES))


def _check_packages(names: Sequence[str], install: str) -> None:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise BertKerasError(f"serving needs {', '.join(missing)}: {install}")
