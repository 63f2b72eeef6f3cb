"""Write a folder that runs TensorFlow Serving with exported models: `write_deployment`.

The folder holds the models and everything that a server, Docker Compose, Kubernetes and
KServe need to run them, from the files in `templates`. It can be kept under version
control: the same models produce the same files.

Source: `model_servers/main.cc`, `config/*.proto` and `tools/docker/Dockerfile` of
tensorflow/serving 2.20.0; Compose specification; Kubernetes API `apps/v1`; KServe API
`serving.kserve.io/v1beta1`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from bert_keras.errors import (
    BertKerasError,
    CheckpointError,
    ConfigError,
    shown,
)
from bert_keras.files.atomic import check_output_place, replaced_folder
from bert_keras.files.json_file import json_text, read_json
from bert_keras.models.export import export_model, meta_graphs, refuse_unknown_ops
from bert_keras.models.loading import load_model
from bert_keras.models.saved_model_folder import (
    ANSWERS,
    EXTRA,
    find_saved_model,
    is_exported,
)
from bert_keras.settings import SERVER_IMAGE, SERVER_STORAGE
from bert_keras.tasks.catalog import VARIANTS
from bert_keras.version import __version__

RECORD = "deployment.json"  # the files that `write_deployment` wrote to a folder
_MODELS = "models"
_FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WORD = re.compile(r"[\w.:/-]+")  # a task or an input, as shown in a README
_IMAGE = re.compile(r"[a-z0-9][\w.\-/:]*:[\w.\-]+")
_STORAGE = re.compile(r"[a-z0-9]+://[\w.\-/:@]+")
_CPUS = 2
_MIB = 2**20
# For a process with a small model, and per byte of weights: starting values to tune.
_BASE_MIB, _WEIGHT_COPIES = 1024, 3


@dataclasses.dataclass(frozen=True)
class _Given:
    """A model to deploy: its path, and its name and version on the server."""

    place: str
    name: str
    version: int
    exported: Path | None  # `None`: a model folder, to be exported


@dataclasses.dataclass(frozen=True)
class _Model:
    """A model of the new folder, as used by the templates."""

    name: str
    versions: tuple[int, ...]
    task: str
    request: str

    @property
    def service(self) -> str:
        """The name in a form that Kubernetes accepts."""
        return _kubernetes_name(self.name)

    @property
    def labels(self) -> dict[str, int]:
        """The labels of two versions: the older is stable, the newer the canary."""
        if len(self.versions) != 2:
            return {}
        return dict(zip(("stable", "canary"), self.versions, strict=True))


def write_deployment(
    folder: str | os.PathLike[str],
    models: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    image: str = SERVER_IMAGE,
    storage: str = SERVER_STORAGE,
) -> Path:
    """Write a folder that runs TensorFlow Serving with these models; return it.

    It holds `models`, `models.config`, `monitoring.config`, `batching_params.pbtxt`,
    `compose.yaml`, `Dockerfile`, `kubernetes.yaml`, `kserve.yaml`, a README with the
    commands, and `deployment.json`, the record of what was written.

    Args:
        folder: absent, empty, or written by this function and holding nothing else; it
            is replaced as a whole.
        models: exported models, `NAME/VERSION` or `NAME` for its newest version, or
            model folders, which are exported as version 1. Two versions of a name get
            the labels `stable` and `canary`.
        image: the server's image with its tag.
        storage: where KServe finds the models, as a URI; `/NAME` is appended.

    Raises:
        CheckpointError: a model is missing or broken, its graph holds an op that a
            stock server lacks, or `folder` cannot be replaced.
        ConfigError: a setting or a model's name is wrong.
    """
    given = [models] if isinstance(models, str | os.PathLike) else list(models)
    if not given:
        raise ConfigError("`models` must name a model; received none")
    check_output_place("folder", folder, {"models": given})
    _check_pattern("image", image, _IMAGE, "an image with its tag")
    _check_pattern("storage", storage, _STORAGE, "a URI such as gs://bucket/models")
    found = [_found(os.fspath(place)) for place in given]
    _check_distinct(found)
    with replaced_folder(
        folder,
        files=_written_before(Path(folder)),
        needed=RECORD,
        kind="one that `deploy` wrote",
    ) as new:
        for each in found:
            place = new / _MODELS / each.name
            if each.exported is None:
                export_model(load_model(each.place), place)
            else:
                shutil.copytree(each.exported, place / str(each.version))
        name = _kubernetes_name(Path(os.path.abspath(folder)).name)
        _write_files(new, name, _described(new), image, storage.rstrip("/"))
    return Path(folder)


def _check_pattern(name: str, value: str, pattern: re.Pattern[str], rule: str) -> None:
    if not pattern.fullmatch(value):
        raise ConfigError(f"`{name}` must be {rule}; received {shown(value)}")


def _found(place: str) -> _Given:
    """Return a model with its name and version.

    Raises:
        CheckpointError: a SavedModel was not written by `export`.
        ConfigError: its name or version is not allowed for a served model.
    """
    is_hub = "://" in place  # hf://owner/name@revision
    folder = Path(place.partition("@")[0] if is_hub else os.path.abspath(place))
    exported, version, named = find_saved_model(folder), 1, folder
    if exported is not None:
        named = exported.parent
        if not re.fullmatch(r"[1-9]\d{0,17}", exported.name):
            raise ConfigError(
                f"`models` must hold exports NAME/VERSION; received {place}, whose "
                f"version is {exported.name}"
            )
        version = int(exported.name)
        if not is_exported(exported):
            raise CheckpointError(
                f"{exported}: must be an export of bert-keras; {EXTRA}/{ANSWERS} is "
                "missing"
            )
    if not _NAME.fullmatch(named.name):
        raise ConfigError(
            "the name of a model must be letters, digits, dots, dashes and "
            f"underscores; received {shown(named.name or place)}"
        )
    return _Given(place, named.name, version, exported)


def _check_distinct(found: list[_Given]) -> None:
    seen: dict[tuple[str, int], str] = {}
    for each in found:
        key = each.name, each.version
        if key in seen:
            raise ConfigError(
                f"`models` must have different names or versions; {seen[key]} and "
                f"{each.place} are both {each.name}/{each.version}"
            )
        seen[key] = each.place
    names = {each.name for each in found}
    if len({_kubernetes_name(name) for name in names}) < len(names):
        raise ConfigError(
            "`models` must have names that differ in more than case and punctuation; "
            f"received {', '.join(sorted(names))}"
        )


def _written_before(folder: Path) -> frozenset[str]:
    """Return the files that `write_deployment` wrote to a folder, from its record."""
    try:
        record = read_json(folder / RECORD)
        files = record["files"] if record["format"] == _FORMAT else []
        return frozenset(str(name) for name in files)
    except (OSError, CheckpointError, KeyError, TypeError):
        return frozenset()


def _described(new: Path) -> list[_Model]:
    """Return the models of the new folder, with their tasks and a request to each.

    Raises:
        CheckpointError: a SavedModel is broken, or holds an op that a stock server
            lacks.
    """
    models = []
    for folder in sorted((new / _MODELS).iterdir()):
        versions = sorted(int(version.name) for version in folder.iterdir())
        newest = folder / str(versions[-1])
        for version in versions:
            graph = meta_graphs(folder / str(version))[0]
            try:
                refuse_unknown_ops([graph.graph_def])
            except BertKerasError as error:
                raise CheckpointError(f"{folder.name}/{version}: {error}") from None
        task, names = _task_and_inputs(newest / EXTRA / ANSWERS)
        specs = graph.signature_def["serving_default"].inputs
        if not set(names) <= set(specs):
            raise CheckpointError(
                f"{newest}: has no inputs {', '.join(names)}, which {EXTRA}/{ANSWERS} "
                "names"
            )
        ranks = {name: len(specs[name].tensor_shape.dim) for name in names}
        models.append(_Model(folder.name, tuple(versions), task, _request(ranks)))
    return models


def _task_and_inputs(path: Path) -> tuple[str, list[str]]:
    """Return the task and the inputs that the record of an export names.

    Raises:
        CheckpointError: it does not name them, or not as words.
    """
    record = read_json(path)
    try:
        task, names = record["task"], record["inputs"]
        if names and all(_WORD.fullmatch(word) for word in (task, *names)):
            return VARIANTS.get(task, task), list(names)
    except (KeyError, TypeError):
        pass
    raise CheckpointError(f"{path}: must name the `task` and its `inputs`")


def _request(ranks: dict[str, int]) -> str:
    """Return the JSON of a request in row form, with a text for each input."""
    row: Any = {
        name: f"the {name}" if rank == 1 else [f"{name} {n}" for n in (1, 2)]
        for name, rank in ranks.items()
    }
    (*_, first) = row.values()
    return json.dumps({"instances": [row if len(row) > 1 else first]})


def _kubernetes_name(name: str) -> str:
    """Return a name as a DNS label: lowercase letters, digits and dashes."""
    label = re.sub(r"[^a-z0-9]+", "-", name.lower())[:50].strip("-")
    return label if label[:1].isalpha() else f"model-{label}".rstrip("-")


def _write_files(
    new: Path, name: str, models: list[_Model], image: str, storage: str
) -> None:
    """Render the templates, and write the record last."""
    weights = sum(path.stat().st_size for path in new.rglob("variables/*"))
    memory = _BASE_MIB + -(-_WEIGHT_COPIES * weights // _MIB)
    values = {
        "name": name,
        "models": models,
        "image": image,
        "image_tag": image.rpartition(":")[2],
        "storage": storage,
        "cpus": _CPUS,
        "memory_mib": memory,
        "flags": _flags(models),
    }
    environment = _environment()
    for template in environment.list_templates(extensions=["jinja"]):
        text = environment.get_template(template).render(values)
        (new / template.removesuffix(".jinja")).write_text(text, encoding="utf-8")
    record = {
        "format": _FORMAT,
        "bert_keras": __version__,
        "image": image,
        "models": {model.name: list(model.versions) for model in models},
        "files": [*_entries(new), RECORD],
    }
    (new / RECORD).write_text(json_text(record, indent=2) + "\n", encoding="utf-8")


def _entries(folder: Path) -> list[str]:
    """Return the files and the empty folders in a folder, by relative path."""
    return [
        path.relative_to(folder).as_posix()
        for path in sorted(folder.rglob("*"))
        if not path.is_dir() or not any(path.iterdir())
    ]


def _flags(models: list[_Model]) -> list[str]:
    """Return the flags of the server, except the ports, which its image sets."""
    flags = [
        "--model_config_file=/deployment/models.config",
        "--monitoring_config_file=/deployment/monitoring.config",
        "--enable_batching=true",
        "--enable_per_model_batching_parameters=true",
        "--batching_parameters_file=/deployment/batching_params.pbtxt",
    ]
    if any(model.labels for model in models):
        # Otherwise labels could only be assigned to versions that are already loaded.
        flags.append("--allow_version_labels_for_unavailable_models=true")
    return flags


def _environment() -> jinja2.Environment:
    # The values are checked: none is special in Markdown, or within quotes in YAML.
    return jinja2.Environment(
        loader=jinja2.PackageLoader("bert_keras.serving"),
        autoescape=False,  # noqa: S701
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
