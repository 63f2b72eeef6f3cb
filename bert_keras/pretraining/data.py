"""Documents to shards of pretraining examples: `write_pretraining_data`.

Documents are grouped in blocks of about a fixed number of characters. A block is
processed by one process and becomes one shard, whose bytes depend only on its text, its
number and the settings: any number of workers, and a killed and resumed run, write the
same bytes. Until there is a manifest, the `Journal` records the finished shards in
`unfinished.jsonl`: the settings in its first line, then one line for each shard.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.1 and appendix A.2; the feature
names and types of google-research/bert `create_pretraining_data.py`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_keras.errors import DataError, counted
from bert_keras.files.atomic import check_path, locked_file, replaced_file, writing
from bert_keras.pretraining.blocks import Block, blocks_of, check_documents
from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.pretraining.manifest import (
    JOURNAL,
    LOCK,
    MANIFEST,
    as_text,
    check_job,
    check_names,
    check_none_left,
    check_text,
    is_partial,
    job_of,
    journal_shards,
    read_manifest,
    shard_name,
)
from bert_keras.pretraining.shards import ShardWriter, shard_writer, totals_of
from bert_keras.runs.process_pool import map_in_processes
from bert_keras.runs.progress import Progress
from bert_keras.settings import check_whole_number
from bert_keras.text.tokenizer import WordPieceTokenizer


@contextlib.contextmanager
def journal_of(
    folder: str | os.PathLike[str], job: Mapping[str, Any]
) -> Iterator[Journal]:
    """Yield the journal of a folder, which only one process at a time can open.

    Raises:
        DataError: another process has it open; or as `Journal`.
    """
    check_path("output", folder)
    place = Path(folder)
    with contextlib.ExitStack() as stack:
        with writing(place):
            place.mkdir(parents=True, exist_ok=True)
            check_names(place, os.listdir(place))
            try:
                stack.enter_context(locked_file(place / LOCK))
            except BlockingIOError:
                raise DataError(
                    "another process writes here: wait for it, or stop it", path=place
                ) from None
            except OSError:
                if read_manifest(place) is None:
                    raise  # otherwise nothing needs to be written
        yield Journal(place, job)


class Journal:
    """The finished shards of a job, each recorded as soon as it is finished.

    Attributes:
        shards: number to the facts about a finished shard, also of an earlier run.
        manifest: the manifest of an earlier, finished run, or `None`.

    Raises:
        DataError: the folder holds another job's data or other files, or cannot be
            written.
    """

    def __init__(self, folder: Path, job: Mapping[str, Any]) -> None:
        self.folder = folder
        self.job = dict(job)
        self.shards: dict[int, dict[str, Any]] = {}
        self.manifest = read_manifest(self.folder)
        with writing(self.folder):
            for left in filter(is_partial, os.listdir(folder)):  # of a killed run
                with contextlib.suppress(OSError):  # if the folder is read-only
                    (folder / left).unlink()
            if self.manifest is not None:
                check_job(self.folder, self.manifest, self.job)
                self._keep(self.manifest["shards"])
            else:
                self._resume()

    def _resume(self) -> None:
        """Read the journal of an unfinished run, if any, and start a complete one."""
        path = self.folder / JOURNAL
        data = path.read_bytes() if path.exists() else b""
        self._keep(journal_shards(self.folder, data, self.job) or [])
        rows = [self.job, *(self.shards[number] for number in sorted(self.shards))]
        _replace(path, "".join(json.dumps(row) + "\n" for row in rows))

    def _keep(self, shards: list[dict[str, Any]]) -> None:
        """Keep those shards whose files exist with the recorded sizes."""
        for shard in shards:
            path = self.folder / shard["file"]
            if path.is_file() and path.stat().st_size == shard["bytes"]:
                self.shards[shard["number"]] = shard

    def holds(self, number: int, text_hash: str) -> bool:
        """Return whether the shard of a block is finished; other text is an error."""
        shard = self.shards.get(number)
        if shard is None:
            return False
        check_text(self.folder, shard, text_hash)
        return True

    def add(self, shard: Mapping[str, Any]) -> None:
        """Record that a shard is finished; its file is in place."""
        self.shards[shard["number"]] = dict(shard)
        if self.manifest is not None:  # one of its shards was lost and written again
            return
        path = self.folder / JOURNAL
        with writing(path), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(shard) + "\n")

    def finish(self, count: int, totals: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest of `count` shards and return it.

        Raises:
            DataError: an earlier run wrote more shards; writing fails.
        """
        check_none_left(self.folder, map(shard_name, self.shards), count)
        shards = [self.shards[number] for number in range(count)]
        manifest = {**self.job, **totals, "shards": shards}
        if self.manifest == json.loads(json.dumps(manifest)):
            return manifest
        path = self.folder / MANIFEST
        with writing(path):
            _replace(path, as_text(manifest))
            (self.folder / JOURNAL).unlink(missing_ok=True)
        return manifest


def _replace(path: Path, text: str) -> None:
    with replaced_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_pretraining_data(
    documents: Iterable[Any],
    output: str | os.PathLike[str],
    *,
    to_sentences: Callable[[Any], Iterable[str]],
    tokenizer: WordPieceTokenizer,
    config: PretrainingDataConfig | None = None,
    workers: int = 1,
    characters: int | None = None,
    say: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Write documents as gzipped TFRecord shards and a manifest; return the manifest.

    The examples have the features of Google's code: `input_ids`, `input_mask` and
    `segment_ids` int64 [T], `masked_lm_positions` and `masked_lm_ids` int64 [P],
    `masked_lm_weights` float32 [P] (0 at padding) and `next_sentence_labels`
    int64 [1] (0: B is next). Dynamic data lacks the features that start with `masked`.

    The same call resumes a killed run, and returns at once if the run has finished; in
    both cases the documents are read again and compared.

    Args:
        documents: strings, or objects with a string `text`, that can be pickled. Text
            and `form`, if there is one, are compared when a run resumes.
        output: a new folder, or the folder of an unfinished run.
        to_sentences: splits a document into sentences; a function at the top of a
            module, or a `functools.partial` of one, so that other processes can import
            it.
        tokenizer: with `[MASK]` in its vocabulary.
        config: the settings; `None` is `PretrainingDataConfig()`.
        workers: number of processes. With 2 or more, new processes start, so a script
            that calls this needs `if __name__ == "__main__":`.
        characters: of all documents, if known; progress then shows the time left.
        say: receives a line of progress after each shard; `None` reports it to stderr.

    Returns:
        The settings, the SHA-256 of the vocabulary, the content of each shard, and the
        numbers of documents, sentences, tokens and instances with the shares of real
        tokens, of `[UNK]` and of pairs whose B is not next.

    Raises:
        ConfigError: an argument is wrong; the vocabulary has no `[MASK]`.
        DataError: there is no document or none long enough, or only one although next
            sentences are requested; `output` holds other files; writing fails.
            Finished shards are kept, and the same call resumes there.

    Example:
        >>> manifest = write_pretraining_data(
        ...     ["One sentence.\\nA second.", "Another text.\\nIts end."],
        ...     "data",
        ...     to_sentences=str.splitlines,
        ...     tokenizer=tokenizer,
        ... )
        >>> manifest["documents"]
        2
    """
    config = PretrainingDataConfig() if config is None else config
    check_whole_number("workers", workers, least=1)
    writer = ShardWriter(
        output, to_sentences=to_sentences, tokenizer=tokenizer, config=config
    )
    blocks = _checked(blocks_of(documents, config.block_characters), config)
    with journal_of(output, job_of(config, tokenizer, to_sentences)) as journal:
        bar = Progress(
            "shards", unit="characters", total=characters, is_shown=say is None
        )
        numbers, finished = [], 0

        def unfinished() -> Iterator[Block]:
            """Yield the blocks without a shard from an earlier run."""
            nonlocal finished
            for block in blocks:
                numbers.append(block.number)
                if journal.holds(block.number, block.text_blake2b):
                    bar.skip(block.characters)
                    finished += 1
                else:
                    yield block

        def fields() -> list[str]:
            return [counted(finished, "shards")]

        made: Iterator[dict[str, Any]] = map(writer, unfinished())
        if workers > 1:
            settings = json.dumps(tokenizer.get_config())
            place = os.fspath(output)
            make = functools.partial(
                shard_writer, place, to_sentences, settings, config
            )
            made = map_in_processes(make, unfinished(), workers=workers)
        with bar:
            for shard in made:
                journal.add(shard)
                finished += 1
                bar.add(shard["characters"], fields)
                if say is not None:
                    say(bar.line(fields()))
        shards = [journal.shards[number] for number in numbers]
        return journal.finish(len(shards), totals_of(shards, config))


def _checked(blocks: Iterator[Block], config: PretrainingDataConfig) -> Iterator[Block]:
    """Return the blocks; raise if there are none, or too few documents."""
    first = list(itertools.islice(blocks, 1))
    check_documents(sum(len(block.documents) for block in first), config.next_sentence)
    return itertools.chain(first, blocks)
