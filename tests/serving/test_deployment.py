"""The folder of `deploy`: files that the server and its platforms can read."""

from __future__ import annotations

import importlib.resources
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import yaml
from conftest import files_of, refused
from google.protobuf import text_format
from server_messages import parsed
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from bert_keras.cli.main import main
from bert_keras.models.warmup import WARMUP
from bert_keras.serving import write_deployment
from bert_keras.serving.deployment import RECORD
from serving.rest_stub import running, stub_of

Fake = Callable[..., Path]


def fake_export(
    folder: Path, inputs: dict[str, int], *, task: str = "embedding", op: str = "NoOp"
) -> Path:
    """Write what `deploy` reads of an export: a signature, one op, and the record."""
    saved = saved_model_pb2.SavedModel()
    graph = saved.meta_graphs.add()
    graph.graph_def.node.add(name="node", op=op)
    for name, rank in inputs.items():
        info = graph.signature_def["serving_default"].inputs[name]
        info.dtype = types_pb2.DT_STRING
        for _ in range(rank):
            info.tensor_shape.dim.add(size=-1)
    (folder / "assets.extra").mkdir(parents=True)
    (folder / "assets").mkdir()
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString(deterministic=True))
    record = {"task": task, "inputs": list(inputs)}
    (folder / "assets.extra" / "answers.json").write_text(json.dumps(record))
    return folder


@pytest.fixture(scope="module")
def given(spam_export: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return exports: a real one, two versions of a name, a task of two inputs."""
    folder = tmp_path_factory.mktemp("exports")
    versions = [fake_export(folder / "Mail_2" / n, {"text": 1}) for n in ("4", "12")]
    choices = {"context": 1, "choices": 2}
    fake_export(folder / "choices" / "1", choices, task="multiple-choice")
    return [spam_export, *versions, folder / "choices"]


@pytest.fixture(scope="module")
def deployment(given: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a written folder; tests do not change it."""
    folder = tmp_path_factory.mktemp("deployments") / "Mail models"
    return write_deployment(folder, given, storage="gs://bucket/models/")


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def test_the_models_are_copied_completely(deployment: Path, given: list[Path]) -> None:
    found = files_of(deployment / "models")
    assert {name for name in found if name.startswith("spam/")} == {
        f"spam/1/{name}" for name in files_of(given[0])
    }
    assert sorted(p.name for p in (deployment / "models/Mail_2").iterdir()) == [
        "12",
        "4",
    ]


def test_models_config_is_one_of_the_server(deployment: Path) -> None:
    configs = pytest.importorskip("tensorflow_serving.config.model_server_config_pb2")
    text = (deployment / "models.config").read_text()
    found = text_format.Parse(text, configs.ModelServerConfig())
    listed = {each.name: each for each in found.model_config_list.config}
    assert list(listed) == ["Mail_2", "choices", "spam"]
    for name, each in listed.items():
        assert each.base_path == f"/deployment/models/{name}"
        assert each.model_platform == "tensorflow"
        for version in each.model_version_policy.specific.versions:
            assert (deployment / "models" / name / str(version)).is_dir()
    assert list(listed["Mail_2"].model_version_policy.specific.versions) == [4, 12]
    assert dict(listed["Mail_2"].version_labels) == {"stable": 4, "canary": 12}
    assert not listed["spam"].version_labels


def test_monitoring_and_batching_are_those_of_the_server(deployment: Path) -> None:
    monitoring = parsed(
        "MonitoringConfig", (deployment / "monitoring.config").read_text()
    ).prometheus_config
    assert (monitoring.enable, monitoring.path) == (
        True,
        "/monitoring/prometheus/metrics",
    )
    common = parsed(
        "BatchingParameters", (deployment / "batching_params.pbtxt").read_text()
    )
    assert (common.num_batch_threads.value, common.thread_pool_name.value) == (
        2,
        "batches",
    )
    (own,) = (deployment / "models").rglob("batching_params.pbtxt")
    assert parsed("BatchingParameters", own.read_text()).max_batch_size.value == 128


def test_flags_name_existing_files(deployment: Path, tmp_path: Path) -> None:
    (service,) = documents(deployment / "compose.yaml")[0]["services"].values()
    container = documents(deployment / "kubernetes.yaml")[0]["spec"]["template"][
        "spec"
    ]["containers"][0]
    assert service["command"] == container["args"]
    places = [
        p for flag in service["command"] for p in re.findall("/deployment/(.*)", flag)
    ]
    assert len(places) == 3
    assert all((deployment / place).is_file() for place in places)
    labels = "--allow_version_labels_for_unavailable_models=true"
    assert labels in service["command"]
    alone = write_deployment(tmp_path / "one", deployment / "models" / "choices")
    assert labels not in (alone / "compose.yaml").read_text()


def test_compose_file(deployment: Path) -> None:
    (compose,) = documents(deployment / "compose.yaml")
    ((name, service),) = compose["services"].items()
    assert name == "mail-models"
    assert service["image"] == "tensorflow/serving:2.20.0"
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    jsonschema = pytest.importorskip("jsonschema")
    pytest.importorskip("check_jsonschema")
    schemas = importlib.resources.files("check_jsonschema.builtin_schemas.vendor")
    schema = json.loads((schemas / "compose-spec.json").read_text("utf-8"))
    jsonschema.validate(compose, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"services": {name: {**service, "imag": "x"}}}, schema)


def test_the_health_check_of_compose(deployment: Path) -> None:
    (service,) = documents(deployment / "compose.yaml")[0]["services"].values()
    _, *command, script = service["healthcheck"]["test"]

    def status(port: int) -> int:
        words = [*command, script.replace("8501", str(port))]
        return subprocess.run(words, capture_output=True, check=False).returncode

    spec = (tf.TensorSpec([None], tf.string, name="text"),)
    with running(
        stub_of({"serving_default": (spec, lambda text: {"text": text})})
    ) as stub:
        port = int(stub.url.rpartition(":")[2])
        assert status(port) == 0
        assert stub.requests[0][:2] == ("GET", "/v1/models/Mail_2/metadata")
        stub.failures.append((404, {}, "{}"))
        assert status(port) != 0
    assert status(port) != 0


def test_kubernetes_objects(deployment: Path) -> None:
    objects = documents(deployment / "kubernetes.yaml")
    work, service = objects
    pod = work["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert work["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == set(ports)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"].startswith("/v1/models/Mail_2")
    assert set(container["resources"]) == {"requests", "limits"}


def test_kubernetes_objects_follow_the_schemas(deployment: Path) -> None:
    objects = documents(deployment / "kubernetes.yaml")
    validate = pytest.importorskip("kubernetes_validate")
    for each in objects:
        validate.validate(each, "1.34", strict=True)
    del objects[0]["spec"]["selector"]
    with pytest.raises(validate.ValidationError):
        validate.validate(objects[0], "1.34", strict=True)


def test_kserve_services(deployment: Path) -> None:
    found = documents(deployment / "kserve.yaml")
    assert [each["metadata"]["name"] for each in found] == [
        "mail-2",
        "choices",
        "spam",
    ]
    for each, name in zip(found, ("Mail_2", "choices", "spam"), strict=True):
        assert each["apiVersion"] == "serving.kserve.io/v1beta1"
        assert each["kind"] == "InferenceService"
        model = each["spec"]["predictor"]["model"]
        assert model["modelFormat"] == {"name": "tensorflow"}
        assert model["runtimeVersion"] == "2.20.0"
        assert model["storageUri"] == f"gs://bucket/models/{name}"


def test_the_image_holds_the_files_of_the_flags(deployment: Path) -> None:
    text = (deployment / "Dockerfile").read_text()
    assert "FROM tensorflow/serving:2.20.0\n" in text
    copied = [line.split()[1:-1] for line in text.splitlines() if "COPY" in line]
    assert sorted(sum(copied, [])) == [
        "batching_params.pbtxt",
        "models",
        "models.config",
        "monitoring.config",
    ]
    assert all((deployment / name).exists() for names in copied for name in names)


def test_commands_of_the_readme_fit_the_models(
    deployment: Path, spam_export: Path
) -> None:
    text = (deployment / "README.md").read_text()
    asked = re.findall(r"curl -d '(.*)' localhost:8501/v1/models/(.*):predict", text)
    bodies = {name: json.loads(body)["instances"] for body, name in asked}
    graph = tf.saved_model.load(spam_export).signatures["serving_default"]
    assert graph(text=tf.constant(bodies["spam"]))["label"].shape == (1,)
    assert bodies["choices"] == [
        {"context": "the context", "choices": ["choices 1", "choices 2"]}
    ]
    assert "| Mail_2 | 4, 12 (stable, canary) | embedding |" in text


def test_names_that_yaml_reads_as_other_values(tmp_path: Path) -> None:
    model = fake_export(tmp_path / "exports" / "No" / "1", {"text": 1})
    folder = write_deployment(tmp_path / "null", model)
    assert list(documents(folder / "compose.yaml")[0]["services"]) == ["null"]
    (service,) = documents(folder / "kserve.yaml")
    assert service["metadata"]["name"] == "no"
    for each in documents(folder / "kubernetes.yaml"):
        assert each["metadata"]["labels"] == {"app.kubernetes.io/name": "null"}


def test_a_model_folder_is_exported(spam_folder: Path, tmp_path: Path) -> None:
    folder = write_deployment(tmp_path / "new", spam_folder)
    version = folder / "models" / "spam" / "1"
    assert (version / "saved_model.pb").is_file()
    assert (version / "assets.extra" / WARMUP).is_file()


# An old folder.


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return an export without a graph, called `small`."""
    return fake_export(tmp_path / "exports" / "small" / "1", {"text": 1})


def test_writing_again_gives_the_same_files(small: Path, tmp_path: Path) -> None:
    folder = write_deployment(tmp_path / "new", small)
    before = files_of(folder)
    (folder / "README.md").write_text("edited")
    (folder / "compose.yaml").unlink()
    write_deployment(folder, small)
    assert files_of(folder) == before


def test_omitted_models_are_removed(small: Path, tmp_path: Path) -> None:
    other = fake_export(tmp_path / "exports" / "other" / "7", {"text": 1})
    folder = write_deployment(tmp_path / "new", [small, other])
    write_deployment(folder, other)
    assert [path.name for path in (folder / "models").iterdir()] == ["other"]


@pytest.mark.parametrize("name", ["notes.md", "models/small/2/saved_model.pb"])
def test_a_folder_with_other_files_is_kept(
    small: Path, tmp_path: Path, name: str
) -> None:
    folder = write_deployment(tmp_path / "new", small)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("mine")
    before = files_of(folder)
    refused(
        lambda: write_deployment(folder, small),
        "must be a new folder or one that `deploy` wrote; holds other files",
        name.removesuffix("/saved_model.pb"),
    )
    assert files_of(folder) == before


@pytest.mark.parametrize("record", [None, "[]", '{"format": 2, "files": ["mine"]}'])
def test_a_folder_that_is_not_ours_is_kept(
    small: Path, tmp_path: Path, record: str | None
) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "mine").write_text("mine")
    if record is not None:
        (folder / RECORD).write_text(record)
    refused(lambda: write_deployment(folder, small), "that `deploy` wrote", "mine")
    assert (folder / "mine").read_text() == "mine"


# What cannot be deployed.


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"models": []}, ("`models` must name a model; received none",)),
        ({"image": "tensorflow/serving"}, ("`image` must be an image with its tag",)),
        ({"image": "a:b\n  privileged: true"}, ("`image` must be",)),
        ({"storage": "/models"}, ("`storage` must be a URI", "'/models'")),
    ],
    ids=["no model", "no tag", "lines", "no scheme"],
)
def test_wrong_settings(
    small: Path, tmp_path: Path, settings: dict[str, Any], parts: tuple[str, ...]
) -> None:
    given: dict[str, Any] = {"models": small, **settings}
    refused(lambda: write_deployment(tmp_path / "new", **given), *parts)
    assert not (tmp_path / "new").exists()


def test_a_folder_that_holds_its_models(small: Path) -> None:
    for place in (small, small.parent, small.parent.parent):
        refused(lambda place=place: write_deployment(place, small), "`folder` must be")


def test_wrong_models(small: Path, tmp_path: Path) -> None:
    def write(*models: Path) -> Callable[[], object]:
        return lambda: write_deployment(tmp_path / "new", models)

    copy = tmp_path / "copy" / "small" / "1"
    shutil.copytree(small, copy)
    refused(write(small, small), "different names or versions", "both small/1")
    refused(write(small, copy), "different names or versions", "both small/1")
    upper = fake_export(tmp_path / "SMALL" / "1", {"text": 1})
    refused(write(small, upper), "differ in more than case", "SMALL, small")
    first = fake_export(tmp_path / "small" / "first", {"text": 1})
    refused(write(first), "exports NAME/VERSION", "whose version is first")
    blank = fake_export(tmp_path / "a b" / "1", {"text": 1})
    refused(write(blank), "the name of a model must be", "'a b'")
    refused(write(tmp_path / "missing"), "missing")
    odd = fake_export(tmp_path / "odd" / "1", {"text": 1}, op="RoundRobinTrim")
    refused(write(odd), "odd/1: ", "it holds RoundRobinTrim")
    (copy / "saved_model.pb").write_bytes(b"graph")
    refused(write(copy), "a broken SavedModel")
    (copy / "assets.extra" / "answers.json").unlink()
    refused(write(copy), "must be an export of bert-keras", "answers.json is missing")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("record", "part"),
    [
        ({"task": "x"}, "must name the `task` and its `inputs`"),
        ({"task": "x", "inputs": []}, "must name the `task` and its `inputs`"),
        ({"task": "x |\n# y", "inputs": ["text"]}, "must name the `task`"),
        ({"task": "x", "inputs": ["'; rm"]}, "must name the `task`"),
        ({"task": "x", "inputs": ["other"]}, "has no inputs other"),
    ],
    ids=range(5),
)
def test_a_record_that_does_not_fit(
    small: Path, tmp_path: Path, record: Any, part: str
) -> None:
    (small / "assets.extra" / "answers.json").write_text(json.dumps(record))
    refused(lambda: write_deployment(tmp_path / "new", small), part)
    assert not (tmp_path / "new").exists()


def test_the_command_line(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "new")
    words = ["deploy", folder, str(small), "--image", "registry.example.com/a/b:3"]
    assert main([*words, "--storage", "s3://bucket"]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    assert "b:3" in (tmp_path / "new" / "compose.yaml").read_text()
    assert "s3://bucket/small" in (tmp_path / "new" / "kserve.yaml").read_text()
    (tmp_path / "new" / "mine").write_text("mine")
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "holds other files (mine)" in line
