"""`examples/deploy`: files that TF Serving and its platforms read, for an export."""

from __future__ import annotations

import importlib.resources
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import yaml
from conftest import ROOT
from google.protobuf import text_format
from server_messages import parsed

from bert_keras.serving.config import ServeConfig
from serving.rest_stub import running, stub_of

FOLDER = ROOT / "examples" / "deploy"
IMAGE = "tensorflow/serving:2.20.0"
METRICS = "/monitoring/prometheus/metrics"
NAME = "mail"
PORTS = {"grpc": ServeConfig().port - 1, "rest": ServeConfig().port}


@pytest.fixture(scope="module")
def exported(spam_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the folder with an export, as the README says."""
    folder = tmp_path_factory.mktemp("deployments") / "deploy"
    shutil.copytree(FOLDER, folder)
    shutil.copytree(spam_export, folder / "models" / NAME / spam_export.name)
    return folder


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def compose_service() -> Any:
    (name, service), *others = documents("compose.yaml")[0]["services"].items()
    assert name == NAME and not others
    return service


def container() -> Any:
    (found,) = documents("kubernetes.yaml")[0]["spec"]["template"]["spec"]["containers"]
    return found


def test_models_config_names_the_export(exported: Path) -> None:
    configs = pytest.importorskip("tensorflow_serving.config.model_server_config_pb2")
    text = (FOLDER / "models.config").read_text()
    (found,) = text_format.Parse(
        text, configs.ModelServerConfig()
    ).model_config_list.config
    assert (found.name, found.model_platform) == (NAME, "tensorflow")
    assert found.base_path == f"/deployment/models/{NAME}"
    assert (exported / "models" / found.name / "1" / "saved_model.pb").is_file()
    commented = "".join(re.findall(r"#   (.*\n)", text))
    labelled = text_format.Parse(commented, configs.ModelConfig())
    assert dict(labelled.version_labels) == {"stable": 1, "canary": 2}
    assert list(labelled.model_version_policy.specific.versions) == [1, 2]


def test_monitoring_and_batching_are_those_of_the_server(exported: Path) -> None:
    text = (FOLDER / "monitoring.config").read_text()
    monitoring = parsed("MonitoringConfig", text).prometheus_config
    assert (monitoring.enable, monitoring.path) == (True, METRICS)
    text = (FOLDER / "batching_params.pbtxt").read_text()
    common = parsed("BatchingParameters", text)
    assert common.thread_pool_name.value == "batches"
    limits = compose_service()["deploy"]["resources"]["limits"]
    cpus = container()["resources"]["limits"]["cpu"]
    assert str(common.num_batch_threads.value) == limits["cpus"] == cpus
    (own,) = (exported / "models").rglob("batching_params.pbtxt")
    most = parsed("BatchingParameters", own.read_text()).max_batch_size.value
    readme = (FOLDER / "README.md").read_text()
    assert f"hold at most {most} texts" in " ".join(readme.split())


def test_flags_name_files_that_the_image_holds(exported: Path) -> None:
    flags = compose_service()["command"]
    assert flags == container()["args"]
    places = re.findall("/deployment/(.*)", "\n".join(flags))
    assert len(places) == 3 and "--enable_per_model_batching_parameters=true" in flags
    text = (FOLDER / "Dockerfile").read_text()
    copied = [line.split()[1:-1] for line in text.splitlines() if "COPY" in line]
    assert sorted(sum(copied, [])) == sorted(["models", *places])
    assert all((exported / name).exists() for names in copied for name in names)


def test_all_name_one_image() -> None:
    assert compose_service()["image"] == IMAGE
    assert f"FROM {IMAGE}\n" in (FOLDER / "Dockerfile").read_text()
    assert IMAGE in (FOLDER / "README.md").read_text()
    (service,) = documents("kserve.yaml")
    assert service["metadata"]["name"] == NAME
    model = service["spec"]["predictor"]["model"]
    assert model["runtimeVersion"] == IMAGE.rpartition(":")[2]
    assert model["storageUri"].endswith(f"/{NAME}")
    assert model["resources"] == container()["resources"]


def test_compose_file() -> None:
    service = compose_service()
    ports = [f"127.0.0.1:{port}:{port}" for port in PORTS.values()]
    assert service["ports"] == ports
    jsonschema = pytest.importorskip("jsonschema")
    pytest.importorskip("check_jsonschema")
    schemas = importlib.resources.files("check_jsonschema.builtin_schemas.vendor")
    schema = json.loads((schemas / "compose-spec.json").read_text("utf-8"))
    jsonschema.validate(documents("compose.yaml")[0], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"services": {NAME: {**service, "imag": "x"}}}, schema)


def test_the_health_check_of_compose() -> None:
    _, *command, script = compose_service()["healthcheck"]["test"]

    def status(port: int) -> int:
        words = [*command, script.replace(str(PORTS["rest"]), str(port))]
        return subprocess.run(words, capture_output=True, check=False).returncode

    spec = (tf.TensorSpec([None], tf.string, name="text"),)
    with running(
        stub_of({"serving_default": (spec, lambda text: {"text": text})})
    ) as stub:
        port = int(stub.url.rpartition(":")[2])
        assert status(port) == 0
        assert stub.requests[0][:2] == ("GET", f"/v1/models/{NAME}/metadata")
        stub.failures.append((404, {}, "{}"))
        assert status(port) != 0
    assert status(port) != 0


def test_kubernetes_objects() -> None:
    work, service = documents("kubernetes.yaml")
    pod = work["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert work["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    assert pod["metadata"]["annotations"]["prometheus.io/path"] == METRICS
    server = container()
    assert {p["name"]: p["containerPort"] for p in server["ports"]} == PORTS
    assert {p["targetPort"]: p["port"] for p in service["spec"]["ports"]} == PORTS
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = server[probe]["httpGet"]
        assert asked["path"].startswith(f"/v1/models/{NAME}")
        assert asked["port"] == "rest"


def test_kubernetes_objects_follow_the_schemas() -> None:
    objects = documents("kubernetes.yaml")
    validate = pytest.importorskip("kubernetes_validate")
    for each in objects:
        validate.validate(each, "1.34", strict=True)
    del objects[0]["spec"]["selector"]
    with pytest.raises(validate.ValidationError):
        validate.validate(objects[0], "1.34", strict=True)


def commands() -> Iterator[str]:
    """Yield the lines of the README's commands."""
    text = (FOLDER / "README.md").read_text()
    for block in re.findall(r"(?s)```bash\n(.*?)```", text):
        yield from block.splitlines()


def test_commands_of_the_readme_fit_the_files(exported: Path) -> None:
    text = "\n".join(commands())
    (asked,) = re.findall(
        rf"curl -d '(.*)' localhost:{PORTS['rest']}/v1/models/{NAME}:predict", text
    )
    graph = tf.saved_model.load(exported / "models" / NAME / "1")
    texts = tf.constant(json.loads(asked)["instances"])
    found = graph.signatures["serving_default"](text=texts)
    assert found["label"].shape == (1,)
    assert f"localhost:{PORTS['rest']}{METRICS}" in text
    assert f"docker build -t {container()['image']} ." in text
    for kind, each in zip(
        ("deployment", "service"), documents("kubernetes.yaml"), strict=True
    ):
        assert f"{kind}/{each['metadata']['name']}" in text
    for name in re.findall(r"-f (\S+)", text):
        assert (FOLDER / name).is_file()
    rows = re.findall(r"(?m)^\| `(.*?)` \|", (FOLDER / "README.md").read_text())
    assert {*rows, "README.md"} == {path.name for path in FOLDER.iterdir()}
