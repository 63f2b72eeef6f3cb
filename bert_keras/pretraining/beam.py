"""Pretraining data for corpora too large for one machine, on Apache Beam.

`run_beam_pretraining_data` writes the same files as `write_pretraining_data` for the
same corpus, by the same code, on any runner and any number of workers:

1. each file is read for the lengths of its documents,
2. which determine where the blocks end, on any runner,
3. each file is read again, and each document is sent to its block,
4. each block becomes a shard, which is renamed when it is complete.

A worker holds one block, one document, or the lengths of the documents of 256 files.
Of the whole corpus only some hundred bytes per file and shard are held.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from bert_keras.corpus.documents import (
    CorpusReport,
    check_form,
    corpus_files,
    sentences_by,
)
from bert_keras.errors import ConfigError, DataError
from bert_keras.files import filesystems
from bert_keras.files.atomic import check_output_place, writing
from bert_keras.files.streams import check_errors
from bert_keras.pretraining import beam_steps as steps
from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.pretraining.manifest import (
    JOURNAL,
    MANIFEST,
    as_text,
    check_job,
    check_names,
    check_none_left,
    is_partial,
    job_of,
    journal_shards,
    manifest_of,
)
from bert_keras.pretraining.shards import totals_of
from bert_keras.runs.beam import pipeline_of, raise_mistake, run_pipeline
from bert_keras.text.masking import mask_id_of
from bert_keras.text.tokenizer import WordPieceTokenizer

WORK = "unfinished-beam"  # the folder of a run, inside the folder of the shards


def run_beam_pretraining_data(
    inputs: str | os.PathLike[str] | Iterable[str],
    output: str | os.PathLike[str],
    *,
    tokenizer: WordPieceTokenizer,
    config: PretrainingDataConfig | None = None,
    form: str = "auto",
    text_field: str = "text",
    errors: str = "strict",
    language: str = "en",
    pipeline_args: Sequence[str] = (),
    report: CorpusReport | None = None,
) -> dict[str, Any]:
    """Write shards and a manifest of a corpus on Apache Beam; returns the manifest.

    The folder is equal, byte for byte, to the output of the verb `pretraining-data` for
    the same files in the same order, that is, of `write_pretraining_data` with
    `raw_documents` and `sentences_of`. Only resuming differs:

    * The same call resumes a killed run. All documents are read again; blocks that
      already have shards are skipped.
    * In a finished folder it returns at once, without reading any document; the sizes
      of the shards and the settings are compared. A folder with a lost shard is
      rejected.
    * The two ways cannot always resume each other's folders: finished shards of
      `write_pretraining_data` are written again here, and it rejects a folder that
      contains `unfinished-beam`.

    Args:
        inputs: files, folders and globs, local or of a file system of fsspec, such as
            `gs://bucket/text/*.gz`. All workers must be able to read them.
        output: a new folder, or the folder of an unfinished run; local and visible to
            all workers, or of a file system of fsspec. `pretraining_dataset` reads
            a local copy.
        tokenizer, config: as in `write_pretraining_data`.
        form, text_field, errors, report: as in `raw_documents`; the report is filled in
            at the end.
        language: as in `sentences_of`.
        pipeline_args: Beam's own flags, such as `--runner=FlinkRunner` or
            `--direct_num_workers=4`. Workers need bert_keras: `--requirements_file`,
            `--sdk_container_image` and the like install it there.

    Raises:
        ConfigError: an argument or a flag is wrong; a package is missing; the
            vocabulary has no `[MASK]`.
        DataError: as in `raw_documents` and `write_pretraining_data`; the corpus
            changed while it was read; the pipeline failed, or its runner cannot be
            reached. Finished shards are kept.

    Example:
        >>> manifest = run_beam_pretraining_data(
        ...     "corpus/*.txt",
        ...     "data",
        ...     tokenizer=tokenizer,
        ...     pipeline_args=[
        ...         "--runner=DirectRunner",
        ...         "--direct_running_mode=multi_processing",
        ...         "--direct_num_workers=2",
        ...     ],
        ... )
    """
    config = PretrainingDataConfig() if config is None else config
    check_form(form)
    check_errors(errors)
    mask_id_of(tokenizer)
    places = {"inputs": inputs}
    check_output_place("output", output, places, around=True, inside=True)
    folder = _folder(output)
    pipeline = pipeline_of(pipeline_args)
    job = job_of(config, tokenizer, sentences_by(language))
    with writing(folder):
        done = _finished(folder, job)
        if done is not None:
            return done
        files = [
            path if filesystems.is_remote(path) else os.path.abspath(path)
            for path in corpus_files(inputs)
        ]
        work = f"{folder}/{WORK}"
        _begin(folder, work, job, files)
    write = steps.WriteShard(
        folder, work, json.dumps(tokenizer.get_config()), config, language
    )
    _run(pipeline, write, steps.Measure(form, text_field, errors))
    with writing(folder):
        shards = _results(work, CorpusReport() if report is None else report)
        return _finish(folder, job, shards, config)


def _folder(output: str | os.PathLike[str]) -> str:
    folder = os.fspath(output)
    if re.search(r"[*?[\]]", folder):
        raise ConfigError(
            f"`output` must not contain the characters *?[] on Beam; received {folder}"
        )
    if filesystems.is_remote(folder):
        return folder.rstrip("/")
    return os.path.abspath(folder)


def _finished(folder: str, job: dict[str, Any]) -> dict[str, Any] | None:
    """Return the manifest of a folder that this job has finished, else `None`."""
    sizes = filesystems.sizes_in(folder)
    check_names(folder, sizes)
    if MANIFEST not in sizes:
        return None
    path = f"{folder}/{MANIFEST}"
    manifest = manifest_of(path, filesystems.read(path) or b"")
    check_job(folder, manifest, job)
    for shard in manifest["shards"]:
        if sizes.get(shard["file"]) != shard["bytes"]:
            raise DataError(
                "is missing or truncated; delete manifest.json to write all again",
                path=f"{folder}/{shard['file']}",
            )
    _tidy(folder, sizes)
    return manifest


def _begin(folder: str, work: str, job: dict[str, Any], files: list[str]) -> None:
    """Record the job; the output of an earlier run of the same job is kept."""
    journal = f"{folder}/{JOURNAL}"
    if journal_shards(folder, filesystems.read(journal) or b"", job) is None:
        filesystems.write(journal, (json.dumps(job) + "\n").encode())
    filesystems.remove([f"{work}/{name}" for name in (steps.PLAN, steps.SHARDS)])
    filesystems.write(f"{work}/{steps.FILES}", json.dumps(files).encode())


def _run(pipeline: Any, write: steps.WriteShard, measure: steps.Measure) -> None:
    """Run the pipeline to completion; Beam's exception is the cause of a DataError."""
    import apache_beam as beam

    work, config = write.work, write.config
    keyed = tuple[int, Any]
    _ = (
        pipeline
        | "Begin" >> beam.Create([work])
        | "ListFiles" >> beam.FlatMap(steps.listed)
        | "SpreadFiles" >> beam.Reshuffle()
        | "Measure" >> beam.Map(measure).with_output_types(keyed)
        | "GroupLengths" >> beam.GroupByKey()
        | "KeepLengths" >> beam.Map(functools.partial(steps.keep_lengths, work))
        | "AllFiles" >> beam.combiners.ToList()
        | "Plan"
        >> beam.FlatMap(steps.Plan(work, config.block_characters, config.next_sentence))
        | "SpreadPlan" >> beam.Reshuffle()
        | "ReadDocuments"
        >> beam.FlatMap(
            steps.ReadDocuments(measure.text_field, measure.errors)
        ).with_output_types(keyed)
        | "GroupBlocks" >> beam.GroupByKey()
        | "WriteShard" >> beam.Map(write)
        | "AllShards" >> beam.combiners.ToList()
        | "KeepShards" >> beam.Map(functools.partial(steps.keep_shards, work))
    )
    failed = "the pipeline failed; finished shards are kept, and the same call resumes"
    run_pipeline(pipeline, failed, write.output)


def _results(work: str, report: CorpusReport) -> list[dict[str, Any]]:
    """Return the facts about the shards, and fill in the report."""
    plan = json.loads(filesystems.read(f"{work}/{steps.PLAN}") or b"null")
    shards = json.loads(filesystems.read(f"{work}/{steps.SHARDS}") or b"null")
    if plan is not None and plan["mistake"] is not None:
        raise_mistake(plan["mistake"])
    for shard in shards or ():
        if "mistake" in shard:
            raise_mistake(shard["mistake"])
    if plan is None or shards is None or len(shards) != plan["blocks"]:
        raise DataError("the pipeline ended before its work was done", path=work)
    steps.reported(plan["files"], report)
    return shards


def _finish(
    folder: str,
    job: dict[str, Any],
    shards: list[dict[str, Any]],
    config: PretrainingDataConfig,
) -> dict[str, Any]:
    """Write the manifest, remove temporary files, and return the manifest."""
    totals = totals_of(shards, config)
    sizes = filesystems.sizes_in(folder)
    parts = [name for name in sizes if name.startswith("part-")]
    check_none_left(folder, parts, len(shards))
    manifest = {**job, **totals, "shards": shards}
    filesystems.write(f"{folder}/{MANIFEST}", as_text(manifest).encode())
    _tidy(folder, sizes)
    return manifest


def _tidy(folder: str, names: Iterable[str]) -> None:
    """Remove temporary files from a finished folder, the journal last."""
    filesystems.remove([f"{folder}/{name}" for name in names if is_partial(name)])
    filesystems.remove_folder(f"{folder}/{WORK}")
    filesystems.remove([f"{folder}/{JOURNAL}"])
