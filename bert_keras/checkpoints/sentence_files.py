"""The small files that make an encoder's folder a sentence-transformers model.

`modules.json` lists the steps after the encoder: `1_Pooling/config.json` describes how
tokens become one vector, `2_Normalize` scales it to length 1;
`sentence_bert_config.json` holds the maximum text length. Read and written as by
sentence-transformers 2 to 6.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_keras.errors import CheckpointError, one_line
from bert_keras.files.json_file import read_json

MODULES = "modules.json"
SETTINGS = "sentence_bert_config.json"
MODEL_SETTINGS = "config_sentence_transformers.json"
POOLING = "1_Pooling"
NORMALIZE = "2_Normalize"
# sentence-transformers' names of the poolings that this package supports.
_OLD_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
}
_MODES = tuple(_OLD_KEYS.values())
_STEPS = ("Transformer", "Pooling", "Normalize")
_NO_LIMIT = 1 << 20  # tokenizers without one say 1e30
_LENGTHS = ((SETTINGS, "max_seq_length"), ("tokenizer_config.json", "model_max_length"))


def read_sentence_files(folder: Path) -> dict[str, Any]:
    """Return `pooling`, `normalize` and, if given, `max_length`; or an empty dict.

    Empty if there is no `modules.json`: the folder holds only an encoder.

    Raises:
        CheckpointError: a file is broken, or requires a step that is not supported.
    """
    if not (folder / MODULES).is_file():
        return {}
    steps = _steps(folder / MODULES)
    kinds = [kind for kind, _ in steps]
    if tuple(kinds) not in (_STEPS, _STEPS[:2]):
        raise CheckpointError(
            f"{folder / MODULES}: must name the steps {', '.join(_STEPS[:2])} and "
            f"perhaps {_STEPS[2]}; names {one_line(', '.join(kinds)) or 'none'}"
        )
    if steps[0][1]:
        raise CheckpointError(
            f"{folder / MODULES}: the encoder must be in the folder itself; it is in "
            f"{one_line(steps[0][1])}"
        )
    found: dict[str, Any] = {
        "pooling": _pooling(folder / steps[1][1] / "config.json"),
        "normalize": len(kinds) == len(_STEPS),
    }
    _check_texts_are_unchanged(folder)
    for name, key in _LENGTHS:
        length = _entry(folder / name, key)
        if type(length) is int and 3 <= length < _NO_LIMIT:
            return {**found, "max_length": length}
    return found


def write_sentence_files(
    folder: Path, *, hidden_size: int, pooling: str, normalize: bool, max_length: int
) -> None:
    """Write the files next to an encoder, so that sentence-transformers can open it."""
    places = ["", POOLING] + ([NORMALIZE] if normalize else [])
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": place,
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, (place, kind) in enumerate(zip(places, _STEPS, strict=False))
    ]
    pooled: dict[str, Any] = {"word_embedding_dimension": hidden_size}
    pooled |= {key: mode == pooling for key, mode in _OLD_KEYS.items()}
    settings = {"max_seq_length": max_length, "do_lower_case": False}
    _write(folder / MODULES, modules)
    _write(folder / SETTINGS, settings)
    _write(folder / MODEL_SETTINGS, {"prompts": {}, "similarity_fn_name": "cosine"})
    (folder / POOLING).mkdir(exist_ok=True)
    _write(folder / POOLING / "config.json", pooled)


def _steps(path: Path) -> list[tuple[str, str]]:
    """Return kind and folder of each step, in order."""
    rows = read_json(path, kind=list)
    try:
        steps = [
            (row["type"].rpartition(".")[2], row["path"])
            for row in sorted(rows, key=lambda row: row["idx"])
        ]
    except (TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"{path}: must be a JSON list of steps with `idx`, `path` and `type`: "
            f"{type(error).__name__}: {one_line(error)}"
        ) from None
    for _, place in steps:
        if not isinstance(place, str) or "/" in place or "\\" in place or place == "..":
            raise CheckpointError(
                f"{path}: `path` must be an adjacent folder; received {one_line(place)}"
            )
    return steps


def _pooling(path: Path) -> str:
    """Return the only pooling that a config enables."""
    config = read_json(path)
    modes = config.get("pooling_mode")
    if modes is None:
        old = {key for key in config if key.startswith("pooling_mode_") and config[key]}
        modes = [_OLD_KEYS.get(key, key) for key in sorted(old)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in _MODES:
        raise CheckpointError(
            f"{path}: the pooling must be one of {', '.join(_MODES)}; "
            f"received {one_line(modes)}"
        )
    return modes[0]


def _check_texts_are_unchanged(folder: Path) -> None:
    """Raise if texts get a prompt, or are lower-cased though their tokenizer is not."""
    path = folder / MODEL_SETTINGS
    prompt = _entry(path, "default_prompt_name")
    if prompt is not None:
        raise CheckpointError(
            f"{path}: `default_prompt_name` must be null, since no prompt is put "
            f"before a text here; received {one_line(prompt)}"
        )
    path = folder / SETTINGS
    cased = _entry(folder / "tokenizer_config.json", "do_lower_case") is False
    if cased and _entry(path, "do_lower_case"):
        raise CheckpointError(
            f"{path}: `do_lower_case` must be false where the tokenizer keeps capital "
            "letters; received true"
        )


def _entry(path: Path, key: str) -> Any:
    """Return an entry of a JSON file, `None` where there is no file."""
    return read_json(path).get(key) if path.is_file() else None


def _write(path: Path, values: Mapping[str, Any] | list[Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
