"""The files of pretraining data and their content: `find_files`.

A manifest next to them is trusted after a check of vocabulary and sizes; Google's
files have none. The features are read from the first example.
"""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert_keras.errors import DataError, counted
from bert_keras.files.records import first_example
from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.pretraining.manifest import JOURNAL, MANIFEST, read_manifest
from bert_keras.pretraining.shards import masking_of
from bert_keras.runs.run_folder import what_differs
from bert_keras.text.masking import Masking
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.text.tokenizer_files import vocabulary_hash

LABEL = "next_sentence_labels"
TOKENS = ("input_ids", "input_mask", "segment_ids")
MASKED = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
_ENDINGS = (".tfrecord", ".tfrecord.gz", ".tfrecords", ".tf_record")
_Manifests = Mapping[str, Mapping[str, Any]]  # by folder


@dataclasses.dataclass(frozen=True)
class PretrainingFiles:
    """Files of examples of one kind."""

    paths: list[str]
    features: dict[str, tf.io.FixedLenFeature]  # includes `MASKED` if masks are stored
    settings: dict[str, Any] | None  # of `PretrainingDataConfig`; `None` if unknown
    counts: list[int] | None  # examples of each file; `None` if unknown

    @property
    def examples(self) -> int | None:
        """Number of examples; `None` if unknown."""
        return None if self.counts is None else sum(self.counts)

    @property
    def is_masked(self) -> bool:
        """Whether masks are stored."""
        return MASKED[0] in self.features

    @property
    def max_length(self) -> int:
        """Tokens of a row, T."""
        return self.features["input_ids"].shape[0]

    @property
    def masking(self) -> Masking:
        """How its tokens are hidden; if that is unknown, the defaults."""
        made = self.settings
        return masking_of(PretrainingDataConfig(**made)) if made else Masking()

    @property
    def has_pairs(self) -> bool:
        """Whether rows have two texts, as far as is known."""
        return self.settings is None or self.settings["next_sentence"] != "none"

    def facts(self) -> dict[str, Any]:
        """Return the facts that distinguish data sets."""
        return {
            "files": len(self.paths),
            "bytes": sum(os.path.getsize(path) for path in self.paths),
            "max_length": self.max_length,
            "masks": "static" if self.is_masked else "dynamic",
        }


def find_files(files: Any, tokenizer: WordPieceTokenizer) -> PretrainingFiles:
    """Return the files of a folder or pattern, a file, or several files.

    Raises:
        DataError: there is no file, one is broken or has other features, a run has not
            finished, or the data was made with another vocabulary or other text rules.
    """
    paths = paths_of(files)
    manifests = _manifests_of({os.path.dirname(path) for path in paths})
    if isinstance(files, str | os.PathLike) and os.path.isdir(files):
        _check_whole(os.fspath(files), paths, manifests)
    counts = _checked_counts(paths, manifests)
    settings = _settings_of(manifests, tokenizer)
    features = _features_of(paths, tokenizer)
    found = PretrainingFiles(paths, features, settings, counts)
    _check_settings(found)
    return found


def _check_settings(files: PretrainingFiles) -> None:
    """Raise DataError if the examples do not match the manifest's settings."""
    if files.settings is None:
        return
    has: dict[str, Any] = {"max_length": files.max_length}
    has["masking"] = "static" if files.is_masked else "dynamic"
    if files.is_masked:
        has["max_predictions"] = files.features[MASKED[0]].shape[0]
    for name, value in has.items():
        if files.settings[name] != value:
            raise DataError(
                f"`settings.{name}` must be {value}, as the examples are; received "
                f"{files.settings[name]}",
                path=Path(files.paths[0]).with_name(MANIFEST),
            )


def paths_of(files: Any) -> list[str]:
    """Return the files, sorted if a folder or a pattern selects them."""
    if not isinstance(files, str | os.PathLike):
        paths = [os.fspath(file) for file in files]
        if not paths:
            raise DataError("`files` must name at least one file; received none")
        return paths
    place, fault = os.fspath(files), "no such file or folder"
    if os.path.isdir(place):
        found = [os.path.join(place, name) for name in sorted(os.listdir(place))]
        paths = [path for path in found if path.endswith(_ENDINGS)]
        fault = f"contains no file that ends in {', '.join(_ENDINGS)}"
    else:
        paths = [place] if os.path.exists(place) else sorted(glob.glob(place))
    if not paths:
        raise DataError(fault, path=place)
    return paths


def _manifests_of(folders: Iterable[str]) -> _Manifests:
    """Return the manifest of each folder that has one."""
    found = {}
    for folder in sorted(folders):
        if os.path.exists(os.path.join(folder, JOURNAL)):
            raise DataError(
                f"pretraining data must be complete; received {JOURNAL}, which "
                "`bert-keras pretraining-data` keeps until it has finished: run the "
                "same command again, which resumes it",
                path=folder or ".",
            )
        manifest = read_manifest(folder)
        if manifest is not None:
            found[folder] = manifest
    return found


def _settings_of(
    manifests: _Manifests, tokenizer: WordPieceTokenizer
) -> dict[str, Any] | None:
    """Return the settings in the manifests, if any."""
    hash_ = vocabulary_hash(tokenizer.vocabulary)
    for folder, manifest in manifests.items():
        if manifest["vocabulary_sha256"] != hash_:
            more = len(manifest["tokenizer"].get("added_tokens", ()))
            more -= len(tokenizer.added_tokens)
            further = counted(more, "further added tokens")
            hint = f"; it has {further}: give its `--add-tokens`" if more > 0 else ""
            raise DataError(
                "was made with a vocabulary other than the tokenizer's: of "
                f"{manifest['vocabulary_size']:,} tokens, SHA-256 "
                f"{manifest['vocabulary_sha256'][:12]}…; received "
                f"{tokenizer.vocab_size:,}, {hash_[:12]}…{hint}",
                path=Path(folder) / MANIFEST,
            )
        difference = what_differs(
            _text_rules(manifest["tokenizer"]), _text_rules(tokenizer.get_config())
        )
        if difference:
            raise DataError(
                f"was made with other text rules than the tokenizer's: {difference}",
                path=Path(folder) / MANIFEST,
            )
    settings = [manifest["settings"] for manifest in manifests.values()]
    for name in ("max_length", "max_predictions", "next_sentence", "masking"):
        kinds = {each[name] for each in settings}
        if len(kinds) > 1:
            raise DataError(
                f"`files` must be of one kind; received `{name}` "
                f"{' and '.join(map(str, sorted(kinds)))}"
            )
    return settings[0] if settings else None


def _text_rules(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a tokenizer with this config reads texts, whatever its vocabulary."""
    rules = {name: value for name, value in config.items() if name != "vocabulary"}
    if rules.get("strip_accents") is None:  # the same as `lowercase`
        rules["strip_accents"] = rules.get("lowercase")
    return rules


def _check_whole(folder: str, paths: Sequence[str], manifests: _Manifests) -> None:
    """Raise DataError if a shard in the folder's manifest is missing."""
    names = {os.path.basename(path) for path in paths}
    missing = sorted(
        shard["file"]
        for manifest in manifests.values()
        for shard in manifest["shards"]
        if shard["instances"] and shard["file"] not in names
    )
    if missing:
        raise DataError(
            f"lacks {len(missing)} of the files that its manifest names, such as "
            f"{missing[0]}",
            path=folder,
        )


def _checked_counts(paths: Sequence[str], manifests: _Manifests) -> list[int] | None:
    """Return the number of examples of each file, if manifests give all of them.

    A truncated shard raises a DataError; TensorFlow would read the rest of it.
    """
    shards = {
        os.path.join(folder, shard["file"]): shard
        for folder, manifest in manifests.items()
        for shard in manifest["shards"]
    }
    for path in paths:
        if path in shards and os.path.getsize(path) != shards[path]["bytes"]:
            raise DataError(
                "is not the file that the manifest names: must have "
                f"{shards[path]['bytes']:,} bytes; has {os.path.getsize(path):,}",
                path=path,
            )
    if not all(path in shards for path in paths):
        return None
    return [shards[path]["instances"] for path in paths]


def _features_of(
    paths: Sequence[str], tokenizer: WordPieceTokenizer
) -> dict[str, tf.io.FixedLenFeature]:
    """Return how an example is parsed, from the first one of the files."""
    for path in paths:
        example = first_example(path)
        if example is None:
            continue
        names = [*TOKENS, LABEL]
        if any(name in example for name in MASKED):
            names += MASKED
        missing = [name for name in names if name not in example]
        lengths = [len({len(example.get(n, ())) for n in g}) for g in (TOKENS, MASKED)]
        if missing or max(lengths) > 1:
            reason = f"lack {', '.join(missing)}" if missing else "differ in length"
            raise DataError(f"the features of its examples {reason}", path=path)
        _check_ids(path, example, tokenizer)
        return {
            name: tf.io.FixedLenFeature(
                [len(example[name])],
                tf.float32 if name == "masked_lm_weights" else tf.int64,
            )
            for name in names
        }
    raise DataError("contains no example", path=paths[0])


def _check_ids(
    path: str, example: Mapping[str, Any], tokenizer: WordPieceTokenizer
) -> None:
    """Raise DataError if an example has another vocabulary; it may lack a manifest."""
    ids = example["input_ids"]
    if max(ids) >= tokenizer.vocab_size:
        raise DataError(
            f"was made with another vocabulary: holds the id {max(ids)}; received "
            f"{tokenizer.vocab_size:,} tokens",
            path=path,
        )
    ends = ids[0], ids[sum(example["input_mask"]) - 1]
    if ends != (tokenizer.cls_id, tokenizer.sep_id):
        raise DataError(
            f"was made with another vocabulary: an example begins with the id "
            f"{ends[0]} and ends with {ends[1]}; received [CLS] {tokenizer.cls_id} "
            f"and [SEP] {tokenizer.sep_id}",
            path=path,
        )
