"""Names, versions, and their change while requests come."""

from __future__ import annotations

import concurrent.futures
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import refused

from bert_keras.serving import ServeConfig, Server, models
from bert_keras.serving.models import named_paths
from serving.conftest import Client, Folders


def test_a_model_has_the_name_of_its_folder(tmp_path: Path) -> None:
    version = tmp_path / "emails" / "3"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    given = [str(version.parent), "b=x", f"{tmp_path}/spam/", "hf://owner/bert"]
    assert named_paths(given) == {
        "emails": str(version.parent),
        "b": "x",
        "spam": f"{tmp_path}/spam/",
        "bert": "hf://owner/bert",
    }
    assert named_paths([str(version)]) == {"emails": str(version)}


@pytest.mark.parametrize(
    ("paths", "part"),
    [
        (["a", "b/a"], "different names"),
        (["a b"], "letters"),
        (["=x"], "letters"),
        (["x="], "letters"),
        (["a:b=x"], "letters"),
    ],
)
def test_a_name_is_rejected(paths: list[str], part: str) -> None:
    refused(lambda: named_paths(paths), part)


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    config = ServeConfig(port=0, no_grpc=True)
    missing = str(tmp_path / "nothing")
    refused(lambda: Server([missing], config=config, is_quiet=True), "nothing")


def test_a_version_is_loaded_once_it_is_whole_and_the_last_one_answers_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loaded:
        task = "x"

        def __init__(self, path: str, number: int, **others: Any) -> None:
            (Path(path) / "variables" / "variables.index").stat()
            self.number = number

        def drain(self) -> None: ...

        wait_for_warm_up = drain

    for number in ("1", "2"):
        (tmp_path / number / "variables").mkdir(parents=True)
        (tmp_path / number / "saved_model.pb").touch()
    (tmp_path / "1" / "variables" / "variables.index").touch()
    events: list[str] = []
    monkeypatch.setattr(models, "Version", Loaded)
    monkeypatch.setattr(models, "log", lambda event, **fields: events.append(event))
    (tmp_path / "2").rename(tmp_path / "copied")
    config = ServeConfig(poll_interval=1000)
    served = models.Models({"x": str(tmp_path)}, config, seen_of=lambda name: print)
    try:
        (tmp_path / "copied").rename(tmp_path / "2")
        served.look()
        served.look()  # not tried again as long as its files stay
        failed, current = served.states("x")
        assert failed[:2] == (2, "END") and "variables" in failed.error
        assert current == (1, "AVAILABLE", "")
        (tmp_path / "2" / "variables" / "variables.index").touch()
        served.look()
        assert served.states("x") == [(2, "AVAILABLE", ""), (1, "END", "")]
        for number in ("1", "2"):
            shutil.rmtree(tmp_path / number)
        served.look()
        served.look()
    finally:
        served.close()
    told = ["model loaded", "a new version cannot be loaded", "model loaded"]
    assert events == [*told, "all versions were removed: the last one still answers"]


def put(source: Path, target: Path) -> None:
    """Copy a SavedModel so that it appears whole."""
    shutil.copytree(source, target.with_name("copying"))
    target.with_name("copying").rename(target)


@pytest.mark.slow
def test_versions_change_without_a_failed_request(
    folders: Folders, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "spam"
    folder.mkdir()
    put(folders.exported / "1", folder / "1")
    config = ServeConfig(port=0, no_grpc=True, poll_interval=0.05)
    with (
        Server([str(folder)], config=config, is_quiet=True).running() as server,
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):
        client = Client(server.url)
        is_over = False

        def ask() -> list[int]:
            found = []
            while not is_over:
                asked = {"instances": ["win cash", "see you at six"]}
                found.append(client.post("/v1/models/spam:predict", asked)[0])
            return found

        def states() -> dict[str, str]:
            told = client.get("/v1/models/spam")[1]["model_version_status"]
            return {each["version"]: each["state"] for each in told}

        def until(wanted: dict[str, str]) -> None:
            end = time.monotonic() + 120
            while states() != wanted:
                assert time.monotonic() < end, states()
                time.sleep(0.02)

        asking = [pool.submit(ask) for _ in range(4)]
        try:
            until({"1": "AVAILABLE"})
            put(folders.exported / "1", folder / "2")
            until({"1": "END", "2": "AVAILABLE"})
            # A broken version changes nothing.
            (folder / "3").mkdir()
            (folder / "3" / "saved_model.pb").write_bytes(b"broken")
            end = time.monotonic() + 60
            while "cannot be loaded" not in capfd.readouterr().err:
                assert time.monotonic() < end
                time.sleep(0.02)
            assert states() == {"1": "END", "2": "AVAILABLE", "3": "END"}
            # The previous version answers again if the newest is removed.
            shutil.rmtree(folder / "3")
            shutil.rmtree(folder / "2")
            until({"1": "AVAILABLE", "2": "END", "3": "END"})
        finally:
            is_over = True
        codes: list[Any] = sum((each.result() for each in asking), [])
    assert len(codes) > 20
    assert set(codes) == {200}
