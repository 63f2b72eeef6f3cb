"""The steps of `run_beam_pretraining_data` on Apache Beam's workers.

They do not import Beam nor, except for `WriteShard`, TensorFlow. A user's mistake is
passed on (`runs.beam`), and ends in a file that the process that started the run reads.
"""

from __future__ import annotations

import array
import dataclasses
import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bert_keras.corpus.documents import (
    CorpusReader,
    CorpusReport,
    RawDocument,
    documents_of,
    no_text,
    sentences_by,
)
from bert_keras.errors import BertKerasError, DataError
from bert_keras.files import filesystems
from bert_keras.files.atomic import writing
from bert_keras.files.streams import Replaced
from bert_keras.pretraining.blocks import Block, block_of, check_documents, shares_of
from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.pretraining.manifest import check_text, is_shard, shard_name
from bert_keras.runs.beam import mistake_of, raise_mistake

# In the folder of the run: the names of the files, the plan, the results.
FILES, PLAN, SHARDS = "files.json", "plan.json", "shards.json"
_FILES_TOGETHER = 256  # whose lengths are stored in one file
_LENGTHS = np.dtype("<u4")
_COUNTS = "documents", "characters", "empty", "cut"  # of a `CorpusReport`
_MISTAKE = -1  # in place of a block number
_CHANGED = "was changed while it was read"


def listed(work: str) -> list[tuple[int, str]]:
    """Return the files of the corpus with their numbers."""
    return list(enumerate(json.loads(filesystems.read(f"{work}/{FILES}") or b"[]")))


@dataclasses.dataclass(frozen=True)
class Measure:
    """Reads a file for the lengths of its documents; settings as in `raw_documents`."""

    form: str
    text_field: str
    errors: str

    def __call__(self, file: tuple[int, str]) -> tuple[int, tuple[int, Any, bytes]]:
        """Return the file's group, and its number, report and lengths."""
        number, path = file
        report = CorpusReport()
        lengths = array.array("L")  # of eight or four bytes
        entry: dict[str, Any] = {"number": number, "path": path}
        try:
            reader = CorpusReader(self.text_field, self.errors, report)
            for document in documents_of(path, self.form, reader):
                lengths.append(len(document.text))
        except BertKerasError as error:
            entry["mistake"] = mistake_of(error)
        entry |= {name: getattr(report, name) for name in _COUNTS}
        entry |= {"form": report.forms.get(path), "replaced": vars(report.replaced)}
        data = np.asarray(lengths).astype(_LENGTHS).tobytes()
        return number // _FILES_TOGETHER, (number, entry, data)


def reported(files: Iterable[dict[str, Any]], report: CorpusReport) -> None:
    """Fill in a report from the facts about each file, in their order."""
    for entry in files:
        report.forms[entry["path"]] = entry["form"]
        for name in _COUNTS:
            setattr(report, name, getattr(report, name) + entry[name])
        report.replaced.extend(Replaced(**entry["replaced"]))


def keep_lengths(
    work: str, group: tuple[int, Iterable[tuple[int, Any, bytes]]]
) -> list[dict[str, Any]]:
    """Store the lengths of a group of files, from `Measure`; return their reports."""
    name, found = group
    files = sorted(found, key=lambda file: file[0])
    data = b"".join(lengths for _, _, lengths in files)
    filesystems.write(_lengths_name(work, name), data)
    return [entry for _, entry, _ in files]


def _lengths_name(work: str, group: int) -> str:
    return f"{work}/lengths-{group:05d}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """Assigns the documents of each file to blocks, see `blocks_of`."""

    work: str
    characters: int
    next_sentence: str

    def __call__(
        self, groups: list[list[dict[str, Any]]]
    ) -> Iterator[tuple[int, str, str, list[tuple[int, int, int]]]]:
        """Yield number, path, form and shares of each file; see `shares_of`."""
        files = sorted(itertools.chain(*groups), key=lambda entry: entry["number"])
        blocks, mistake = 0, None
        try:
            self._check(files)
            shares = shares_of(self._lengths(files), self.characters)
            for number, parts in shares:
                blocks = parts[-1][0] + 1
                entry = files[number]
                yield number, entry["path"], entry["form"], parts
        except BertKerasError as error:
            mistake = mistake_of(error)
        plan = {"blocks": blocks, "mistake": mistake, "files": files}
        filesystems.write(f"{self.work}/{PLAN}", json.dumps(plan).encode())

    def _check(self, files: list[dict[str, Any]]) -> None:
        for entry in files:
            if "mistake" in entry:
                raise_mistake(entry["mistake"])
        documents = sum(entry["documents"] for entry in files)
        if not documents:
            raise no_text(len(files))
        check_documents(documents, self.next_sentence)

    def _lengths(self, files: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
        """Yield the length and the file of each document."""
        for start in range(0, len(files), _FILES_TOGETHER):
            name = _lengths_name(self.work, start // _FILES_TOGETHER)
            lengths = np.frombuffer(filesystems.read(name) or b"", _LENGTHS)
            for entry in files[start : start + _FILES_TOGETHER]:
                some, lengths = np.split(lengths, [entry["documents"]])
                yield from ((int(length), entry["number"]) for length in some)


@dataclasses.dataclass(frozen=True)
class ReadDocuments:
    """Reads a file again and gives each document to its block."""

    text_field: str
    errors: str

    def __call__(
        self, file: tuple[int, str, str, list[tuple[int, int, int]]]
    ) -> Iterator[tuple[int, Any]]:
        """Yield a block's number; a document's file and place; and the document.

        Each comes with the number of documents in the block.
        """
        number, path, form, shares = file
        reader = CorpusReader(self.text_field, self.errors, CorpusReport())
        places = itertools.count()
        try:
            documents = documents_of(path, form, reader)
            for block, count, total in shares:
                for document in itertools.islice(documents, count):
                    parts = (document.text, document.form, list(document.silent))
                    yield block, (number, next(places), total, parts)
            most = sum(count for _, count, _ in shares)
            if next(places) != most or next(documents, None) is not None:
                raise DataError(_CHANGED, path=path)
        except BertKerasError as error:
            yield _MISTAKE, (number, 0, 0, mistake_of(error))


@dataclasses.dataclass(frozen=True)
class WriteShard:
    """Writes the shard of a block, unless an earlier attempt did."""

    output: str  # the folder of the shards
    work: str  # the folder of the run
    tokenizer: str  # its settings, as JSON
    config: PretrainingDataConfig
    language: str

    def __call__(self, found: tuple[int, Iterable[Any]]) -> dict[str, Any]:
        """Return the facts about the shard, or the error."""
        number, values = found
        parts = sorted(values, key=lambda part: part[:2])
        try:
            if number == _MISTAKE:
                raise_mistake(parts[0][3])
            if len(parts) != parts[0][2]:
                raise DataError(f"the corpus {_CHANGED}")
            texts = (part[3] for part in parts)
            documents = [
                RawDocument(text, form, "", tuple(silent))
                for text, form, silent in texts
            ]
            return self._shard(block_of(number, documents))
        except BertKerasError as error:
            return {"number": number, "mistake": mistake_of(error)}

    def _shard(self, block: Block) -> dict[str, Any]:
        name = shard_name(block.number)
        path, note = f"{self.output}/{name}", f"{self.work}/{name}.json"
        with writing(path):
            known: dict[str, Any] | None = json.loads(filesystems.read(note) or b"null")
            if known is not None:
                if not is_shard(known):
                    raise DataError("must be a file that bert_keras wrote", path=note)
                if filesystems.size_of(path) == known["bytes"]:
                    check_text(self.output, known, block.text_blake2b)
                    return known
            shard = self._made(block, path)
            filesystems.write(note, json.dumps(shard).encode())
        return shard

    def _made(self, block: Block, path: str) -> dict[str, Any]:
        """Write a shard by the same code as on one machine, and move it there."""
        from bert_keras.runs.environment import load_tensorflow

        load_tensorflow()
        from bert_keras.pretraining.shards import shard_writer

        split = sentences_by(self.language)
        with tempfile.TemporaryDirectory(prefix="bert_keras-") as folder:
            shard = shard_writer(folder, split, self.tokenizer, self.config)(block)
            with open(f"{folder}/{shard['file']}", "rb") as file:
                filesystems.put(file, path)
        return shard


def keep_shards(work: str, shards: list[dict[str, Any]]) -> None:
    """Record the shards, in the order of the blocks."""
    ordered = sorted(shards, key=lambda shard: shard["number"])
    filesystems.write(f"{work}/{SHARDS}", json.dumps(ordered).encode())
