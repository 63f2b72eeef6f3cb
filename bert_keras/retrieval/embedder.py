"""Vectors of texts from any encoder, trained or not: `embed` and `load_embedder`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.checkpoints import Checkpoint
from bert_keras.data.items import as_strings
from bert_keras.errors import ConfigError, shown
from bert_keras.exports.answers_file import read_answers_file
from bert_keras.exports.saved_model_folder import ANSWERS
from bert_keras.inference.equal_texts import joined
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.inference.session import find_engine
from bert_keras.lazy_names import deferred
from bert_keras.retrieval.vector_store import VectorStore, store_of
from bert_keras.runs.notes import say
from bert_keras.runs.progress import Progress
from bert_keras.settings import PRECISIONS, check_choice, check_whole_number
from bert_keras.tasks import find_task
from bert_keras.tasks.base import Task
from bert_keras.tasks.plain_settings import check_effects
from bert_keras.tasks.protocols import check_dense
from bert_keras.text.truncation import Truncation

if TYPE_CHECKING:
    from bert_keras.models import folder as model_folder
    from bert_keras.models import loading
else:
    model_folder, loading = deferred(
        "bert_keras.models.folder", "bert_keras.models.loading"
    )

_OF_LONG_TEXTS = {"long", "stride", "max_windows"}  # also of sparse vectors
_CHANGES = {
    "layers",
    "combine_layers",
    "pooling",
    "normalize",
    "combine",
    *_OF_LONG_TEXTS,
}
Source = str | os.PathLike[str] | Predictor
_TASK = "embedding"


def load_embedder(
    source: Source,
    *,
    max_length: int | None = None,
    precision: str = "float32",
    kind: type[Task] | None = None,
    prompt: str | None = None,
    dimensions: int | None = None,
    **changes: Any,
) -> Predictor:
    """Return a predictor of text vectors.

    Settings that are not given come from the folder: a model folder of the task
    `embedding` and a folder of sentence-transformers hold layers, pooling,
    normalization and maximum length. Any other encoder returns the mean over the tokens
    of the last layer, not normalized.

    Args:
        source: a model folder of any task, an encoder (Hugging Face folder, Google
            checkpoint, `hf://owner/name`), an export for OpenVINO or ONNX, whose
            settings are fixed but for prompt and width, or a loaded predictor.
        max_length: in tokens; longer texts are truncated, queries and documents, too,
            whatever the folder says of them.
        precision: as in `load`.
        kind: the class of the task, `Embedding` by default, or a subclass of it with
            other answers.
        prompt: the name of the folder's prompt that is put before each text, such as
            `query`; as there, `document` may be named `passage` or `corpus`, and it
            is told if there is none. By default the folder's default prompt.
        dimensions: width to which vectors are shortened, for models trained with
            `dimensions`; with a message for another width.
        **changes: `layers`, `combine_layers`, `pooling` and `normalize`; for long texts
            `long`, `stride`, `max_windows` and `combine`, as in `Embedding`.

    Raises:
        CheckpointError: there is no encoder, or it is broken.
        ConfigError: a setting is out of range.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    kind = find_task(_TASK) if kind is None else kind
    if not isinstance(source, Predictor) and find_engine(source):
        place = os.fspath(source)
        source = load_predictor(source, precision=precision)
        if not isinstance(source.model.task, kind):
            raise ConfigError(
                f"{place}: must be an export of the task {kind.name}; received one of "
                f"{source.model.task.name}"
            )
        if given or max_length:
            fixed = ", ".join([*given, *(["max_length"] if max_length else [])])
            raise ConfigError(
                f"{place}: settings of an export are fixed; received {fixed}"
            )
    if isinstance(source, Predictor):
        if given or max_length or not isinstance(source.model.task, kind):
            raise ConfigError(
                "`source` must be a folder if settings are given, or a predictor of "
                f"the task {kind.name}; received a predictor of "
                f"{source.model.task.name}"
            )
        found = source if prompt is None else with_given_prompt(source, prompt)
        return found if dimensions is None else _shortened(found, dimensions)
    unknown = set(given) - _CHANGES
    if unknown:
        raise ConfigError(f"no setting of features is named {sorted(unknown)[0]!r}")
    check_choice("precision", precision, PRECISIONS)
    folder = model_folder.Folder.open(source)
    held = folder.embedding(plain=True)
    for name in given:
        if name not in _OF_LONG_TEXTS:
            check_dense(held, f"`{name}`")
    task: Any = kind(**{**held.get_config(), **given})
    if max_length is not None:
        task = dataclasses.replace(task, query_length=0, document_length=0)
    check_effects(task, given)
    if prompt is not None:
        task = _with_given(task, prompt)
    checkpoint = folder.checkpoint
    _check_learned(task, checkpoint, os.fspath(source))
    model = loading.load_model(folder, task=task, dtype=precision)
    if dimensions is not None:
        model.task = shortened_task(model, dimensions)
    if max_length is not None:
        model_folder.check_max_length(max_length, checkpoint.config)
        model.preprocessor = model.preprocessor.replace(max_length=max_length)
    return Predictor(model)


def shared_settings(
    source: Source, *, prompt: str | None, **settings: Any
) -> dict[str, Any]:
    """Return the settings of a search that a second model takes, too.

    They are `prompt` and arguments of `load_embedder`. A message names the others, such
    as a prompt that this model does not have, or `combine` for sparse vectors.
    """
    given = {"prompt": prompt, **settings}
    given = {name: value for name, value in given.items() if value is not None}
    taken = {"max_length", "precision", *_OF_LONG_TEXTS}
    task: Any
    if isinstance(source, Predictor):
        taken, task = set(), source.model.task
    elif find_engine(source):
        place = Path(source)
        taken, task = {"precision"}, read_answers_file(place, place / ANSWERS, None)[0]
    else:
        folder = model_folder.Folder.open(source)
        task = folder.embedding(plain=True)
        taken |= {"combine"} if task.kind == "dense" else set()
    if prompt in ("query", "document", *getattr(task, "prompts", ())):
        taken.add("prompt")
    others = [
        f"{name} {shown(value)}" for name, value in given.items() if name not in taken
    ]
    if others:
        say(f"{', '.join(others)} applies to the first model only, not to --fuse")
    return {name: value for name, value in given.items() if name in taken}


def embed(
    source: Source, texts: Iterable[str], *, batch_size: int = 32, **settings: Any
) -> np.ndarray:
    """Return the vectors of texts, float32 [N, D].

    Vectors of tokens (`kind` tokens): [N, T, D], 0 for tokens that do not count.

    Args:
        source: as in `load_embedder`; for many calls, load and pass a predictor.
        texts: N strings, see `data.items.as_items`.
        batch_size: texts computed at once.
        **settings: arguments of `load_embedder`, such as `layers="last-four"`.

    Example:
        >>> embed("hf://sentence-transformers/all-MiniLM-L6-v2", ["good day"]).shape
        (1, 384)
    """
    strings = as_strings(texts)
    return vectors_of(load_embedder(source, **settings), strings, batch_size)


def _with_given(task: Any, prompt: str) -> Any:
    """Return the task with a prompt before each text; say if it has none."""
    found = task.with_prompt(prompt)
    if not found.prompt():
        say(f"the model has no prompt {prompt}: none is put before the texts")
    return found


def with_given_prompt(predictor: Predictor, prompt: str) -> Predictor:
    """Return a predictor with a prompt that the user names; say if it has none."""
    _with_given(predictor.model.task, prompt)
    return with_prompt(predictor, prompt)


def with_prompt(predictor: Predictor, prompt: str) -> Predictor:
    """Return a predictor that puts a prompt of its folder before each text.

    `query` and `document` may be missing.
    """
    task: Any = predictor.model.task
    changed = task.with_prompt(prompt)
    if changed == task:
        return predictor
    return Predictor(predictor.model.prompted(changed, prompt))


def shortened_task(model: Any, width: int) -> Any:
    """Return a model's task with vectors of a width; a message tells an untrained one.

    Raises:
        ConfigError: the task is not `embedding`, or has no vectors of this width.
    """
    task = model.task
    check_whole_number("dimensions", width, least=1)
    if not task.vector_output:
        raise ConfigError(
            "`dimensions` must be left out for models of other tasks than embedding; "
            f"received {width} and a model of {task.name}"
        )
    check_dense(task, "`dimensions`")
    output = getattr(model, "output", None)  # an engine has none
    if output is not None and width > output.shape[-1]:
        raise ConfigError(
            f"`dimensions` must be at most {output.shape[-1]}, the width of the "
            f"vectors; received {width}"
        )
    is_whole = output is not None and width == output.shape[-1]
    if width not in task.dimensions and not is_whole:
        trained = ", ".join(map(str, task.dimensions))
        say(
            f"dimensions {width}: the model was trained for "
            + (f"{trained} numbers of its vectors" if trained else "whole vectors")
        )
    return dataclasses.replace(task, truncate_dim=width)


def _shortened(predictor: Predictor, width: int) -> Predictor:
    """Return a predictor of vectors of a width."""
    if predictor.model.has_fixed_task:
        raise ConfigError(
            "`dimensions` must be left out for a SavedModel, whose width is fixed in "
            f"its graph; received {width}: export the model folder with it"
        )
    changed = shortened_task(predictor.model, width)
    return Predictor(predictor.model.with_task(changed))


def vectors_of(
    predictor: Predictor,
    texts: Sequence[str],
    batch_size: int,
    *,
    progress: str = "",
    max_batch_tokens: int | None = None,
) -> np.ndarray:
    """Return the vectors of N texts by a predictor of vectors, float32 [N, …, D].

    Truncated texts are reported as in `Predictor.predict`; the progress is, too, by
    this name.
    """
    limits = (batch_size, max_batch_tokens)
    found = [*_batches(predictor, texts, limits, progress=progress)]
    if not found:
        sizes = predictor.outputs[_output_of(predictor)].shape[1:]
        return np.zeros((0, *(size or 0 for size in sizes)), np.float32)
    return joined([{"": each} for each in found])[""]


def stored_vectors(
    predictor: Predictor,
    texts: Sequence[str],
    batch_size: int,
    *,
    dtype: str | None = None,
    rescored: bool = True,
    progress: str = "",
    max_batch_tokens: int | None = None,
) -> VectorStore:
    """Return the vectors of N texts in the store of their kind, see `VectorStore`.

    Reports as `vectors_of` does. `dtype` and `rescored` are as in `SearchIndex.of`.
    """
    store = store_of(predictor.model.task, dtype)
    limits = (batch_size, max_batch_tokens)
    found = _batches(predictor, texts, limits, progress=progress)
    width = int(predictor.outputs[_output_of(predictor)].shape[-1])
    return store.of_batches(found, width, dtype or store.dtypes[0], rescored=rescored)


def _batches(
    predictor: Predictor,
    texts: Sequence[str],
    limits: tuple[int, int | None],
    *,
    progress: str = "",
) -> Iterator[np.ndarray]:
    """Yield the vectors of texts, float32 [B, D], and report as `vectors_of` does."""
    parts, counts = predictor.model.task.parts(texts), Truncation()
    with Progress(
        progress, unit="texts", total=len(texts), is_shown=bool(progress)
    ) as shown:
        for answer in predictor.stream(
            parts,
            batch_size=limits[0],
            max_batch_tokens=limits[1],
            seen=shown.add,
            truncation=counts,
        ):
            yield answer[_output_of(predictor)]
    predictor.tell_truncated(counts)


def _output_of(predictor: Predictor) -> str:
    """Return the name of the vectors among the answers."""
    task: Any = predictor.model.task
    name: str = task.vector_output
    return name


def _check_learned(task: Task, checkpoint: Checkpoint, place: str) -> None:
    """Raise if a weighted combination of layers or windows has no learned weights."""
    for name, word, weight, others in (
        ("combine_layers", "weighted", "layer_mix/scores", "sum or concat"),
        ("combine", "attention", "windows/query", "mean, max or first"),
    ):
        if getattr(task, name) == word and weight not in checkpoint.shapes:
            raise ConfigError(
                f"`{name}` {word} needs learned weights, {place} contains none: "
                f"train embedding with --set {name}={word}, or use {others}"
            )
