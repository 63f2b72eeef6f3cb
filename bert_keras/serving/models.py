"""The models in service, by name and version: `Models`.

A folder of SavedModel versions is polled. A new version is loaded next to the old one,
then takes over the requests, and the old one is drained.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_keras.errors import ConfigError, one_line
from bert_keras.exports.saved_model_folder import GRAPH, saved_versions
from bert_keras.serving.batcher import Seen
from bert_keras.serving.config import ServeConfig
from bert_keras.serving.errors import RequestError
from bert_keras.serving.logs import log, log_error
from bert_keras.serving.version import Version
from bert_keras.settings import options_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_REMEMBERED = 10  # former versions that a status lists


def named_paths(paths: Sequence[str]) -> dict[str, str]:
    """Return the models to serve by name, from PATH or NAME=PATH arguments.

    Raises:
        ConfigError: a name is missing, given twice, or has characters that would need
            escaping in a URL.
    """
    found: dict[str, str] = {}
    for given in paths:
        name, equals, path = given.partition("=")
        if not equals or os.path.exists(given):
            path = given
            plain = os.path.normpath(given)
            name = os.path.basename(plain)
            # `emails/1` is version 1 of `emails`.
            if name.isdigit() and (Path(plain) / GRAPH).is_file():
                name = os.path.basename(os.path.dirname(os.path.abspath(plain)))
        if not path or not _NAME.fullmatch(name):
            raise ConfigError(
                "a model must be PATH or NAME=PATH, with a name of letters, digits, "
                f"`_`, `-` and `.`; received {given!r}"
            )
        if name in found:
            raise ConfigError(
                f"models must have different names; received {name!r} twice: name one "
                "by NAME=PATH"
            )
        found[name] = path
    return found


class Models:
    """The models in service.

    Args:
        paths: model folders, SavedModels or folders of versions, by name.
        config: limits, and how often to look for new versions.
        seen_of: returns the callback for the batches of a name, see `Batcher`.

    Raises:
        CheckpointError: one of the models cannot be loaded.
        ConfigError: the index has no model, or the model has another task; so for the
            class that ranks.
        DataError: the index is broken or of another model.
    """

    def __init__(
        self,
        paths: dict[str, str],
        config: ServeConfig,
        *,
        seen_of: Callable[[str], Seen],
    ) -> None:
        index, positive_class = (
            value_by_name(option, getattr(config, option), list(paths))
            for option in ("index", "positive_class")
        )
        self._models = {
            name: _Model(
                name,
                path,
                config,
                seen_of(name),
                index=index.get(name),
                positive_class=positive_class.get(name),
            )
            for name, path in paths.items()
        }
        self._seconds = config.poll_interval
        self._end = threading.Event()
        self._watcher = threading.Thread(
            target=self._watch, name="new versions", daemon=True
        )
        self._watcher.start()

    @property
    def names(self) -> list[str]:
        """The names, in the order given."""
        return list(self._models)

    @contextlib.contextmanager
    def lease(self, name: str, version: str | None = None) -> Iterator[Version]:
        """Return a context in which a version stays in memory.

        Args:
            name: of the model.
            version: its number; `None` for the newest.

        Raises:
            RequestError: there is no such model or version, status 404.
        """
        model = self._models.get(name)
        if model is None:
            raise _not_found(name, version)
        found = model.enter(version)
        try:
            yield found
        finally:
            found.leave()

    def states(self, name: str, version: str | None = None) -> list[VersionState]:
        """Return the state of each version of a model, the newest first.

        Raises:
            RequestError: there is no such model or version, status 404.
        """
        model = self._models.get(name)
        found = model.states() if model else []
        if version is not None:
            found = [each for each in found if str(each.number) == version]
        if not found:
            which = "any versions" if version is None else f"version {version[:20]}"
            raise RequestError(
                f"Could not find {which} of model {name[:100]}", status=404
            )
        return found

    def queued(self) -> dict[str, int]:
        """Return the number of waiting rows by model."""
        return {name: model.current.queued for name, model in self._models.items()}

    def look(self) -> None:
        """Load new versions, if there are any, and drain the old ones."""
        for model in self._models.values():
            model.look()

    def close(self) -> None:
        """Answer all submitted requests, and stop looking for new versions."""
        self._end.set()
        self._watcher.join()
        for model in self._models.values():
            model.current.drain()

    def _watch(self) -> None:
        while not self._end.wait(self._seconds):
            try:
                self.look()
            except Exception as error:  # such as a folder that cannot be read now
                log_error("cannot look for new versions", error)


class VersionState(NamedTuple):
    """The state of a version, TF Serving's: LOADING, AVAILABLE, UNLOADING, END.

    `error` is why a version, which is END then, could not be loaded.
    """

    number: int
    state: str
    error: str = ""


class _Model:
    """A name, and the version that answers its requests; the newest one is loaded.

    Raises:
        CheckpointError: it cannot be loaded.
    """

    def __init__(
        self, name: str, path: str, config: ServeConfig, seen: Seen, **own: str | None
    ) -> None:
        self.name = name
        self._own = own  # `index` and `positive_class` of this model
        self._given = path  # may be hf://owner/name
        self._path = Path(path)
        self._config = config
        self._seen = seen
        self._lock = threading.Lock()
        self._states: dict[int, VersionState] = {}
        self._failed: dict[int, Any] = {}  # its files when it could not be read
        self._numbers = saved_versions(self._path)
        self.current = self._load(self._numbers[-1] if self._numbers else None)

    def enter(self, version: str | None) -> Version:
        """Return the current version, counted as in use."""
        while True:
            current = self.current
            if version not in (None, str(current.number)):
                raise _not_found(self.name, version)
            if current.enter():
                return current

    def states(self) -> list[VersionState]:
        with self._lock:
            return sorted(self._states.values(), reverse=True)

    def look(self) -> None:
        """Load the newest version unless it is current, and drain the old one."""
        before, self._numbers = self._numbers, saved_versions(self._path)
        if before and not self._numbers:
            log(
                "all versions were removed: the last one still answers",
                level=logging.WARNING,
                model=self.name,
                version=self.current.number,
            )
        for number in reversed(self._numbers):
            if number == self.current.number:
                return
            fingerprint = self._fingerprint(number)
            if self._failed.get(number) == fingerprint:
                continue  # the previous one
            try:
                new = self._load(number, waits=True)
            except Exception as error:  # a broken export must not end the service
                self._failed[number] = fingerprint
                self._set(number, "END", one_line(error))
                log(
                    "a new version cannot be loaded",
                    level=logging.ERROR,
                    model=self.name,
                    version=number,
                    error=one_line(error),
                )
                continue
            old, self.current = self.current, new
            self._set(old.number, "UNLOADING")
            old.drain()
            self._set(old.number, "END")
            del old
            gc.collect()  # its graphs refer to each other
            return

    def _fingerprint(self, number: int) -> Any:
        """Return a value that changes with the files of a version."""
        found = []
        for folder, _, names in os.walk(self._path / str(number)):
            for path in (os.path.join(folder, name) for name in names):
                with contextlib.suppress(OSError):
                    file = os.stat(path)
                    found.append((path, file.st_ino, file.st_mtime_ns, file.st_size))
        return sorted(found)

    def _load(self, number: int | None, *, waits: bool = False) -> Version:
        """Load a version; `waits` until it is warmed up, if another one answers."""
        path = self._given if number is None else str(self._path / str(number))
        if number is None:  # a model folder, or one SavedModel
            is_saved = (self._path / GRAPH).is_file()
            is_number = re.fullmatch(r"[1-9]\d{0,17}", self._path.name)
            number = int(self._path.name) if is_saved and is_number else 1
        self._set(number, "LOADING")
        version = Version(
            path, number, config=self._config, seen=self._seen, **self._own
        )
        if waits:
            version.wait_for_warm_up()
        self._set(number, "AVAILABLE")
        log("model loaded", model=self.name, version=number, task=version.task)
        return version

    def _set(self, number: int, state: str, error: str = "") -> None:
        with self._lock:
            self._states.pop(number, None)
            self._states[number] = VersionState(number, state, error)
            ended = [n for n, each in self._states.items() if each.state == "END"]
            for old in ended[:-_REMEMBERED]:
                del self._states[old]


def value_by_name(
    option: str, given: str | None, names: Sequence[str]
) -> dict[str, str]:
    """Return the value of an option by the name of its model, from VALUE or NAME=VALUE.

    Raises:
        ConfigError: there is no such model, or several and none is named.
    """
    if given is None:
        return {}
    name, equals, value = given.partition("=")
    if equals and name in names:
        return {name: value}
    if len(names) == 1:
        return {names[0]: given}
    word = options_of(ServeConfig)[option].unit.upper()
    raise ConfigError(
        f"`{option}` must be NAME={word}, with a NAME of {', '.join(names)}; received "
        f"{given}"
    )


def _not_found(name: str, version: str | None) -> RequestError:
    which = f"Latest({name[:100]})"
    if version is not None:
        which = f"Specific({name[:100]}, {version[:20]})"
    return RequestError(f"Servable not found for request: {which}", status=404)
