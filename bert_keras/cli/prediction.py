"""The verbs `predict`, `features` and `search`."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bert_keras.cli.arguments import (
    ASKED,
    MODEL,
    QUERY_ENCODER,
    ROWS,
    add_batches,
    add_beam,
    add_column,
    add_columns,
    add_dimensions,
    add_header,
    add_inference,
    add_text_column,
    check_named_columns,
    check_needed,
    check_texts,
    chosen_columns,
    declared_task,
    load_backend,
    places_of,
    predictor_of,
    suggest_bfloat16,
)
from bert_keras.cli.given_texts import batches, given_texts, piped_lines, words
from bert_keras.cli.options import (
    add_count,
    add_option,
    add_path,
    add_switch,
    add_word,
    path,
)
from bert_keras.errors import ConfigError, DataError, counted, received
from bert_keras.runs.notes import say, say_once
from bert_keras.runs.progress import Progress
from bert_keras.settings import (
    COMBINATIONS,
    DTYPES,
    HYBRID,
    HYBRID_WEIGHT,
    LONG,
    NAMED_LAYERS,
    POOLINGS,
    RERANK_WEIGHT,
    SEARCH_ENGINES,
    WINDOW_COMBINATIONS,
)

if TYPE_CHECKING:
    from bert_keras.data.columns import Columns
    from bert_keras.inference.predictor import Predictor


_TOP = 5  # alternatives that a terminal shows


def add_predict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=path, help=ASKED)
    parser.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT",
        help="text to answer; default: each line of standard input, answered as it "
        "arrives (a pair: separated by a tab, or two TEXTs; a context and its choices: "
        "separated by tabs, or several TEXTs)",
    )
    add_path(parser, "input", "FILE", f"{ROWS} with the texts")
    add_path(
        parser,
        "output",
        "FILE",
        "file to write: .jsonl, .csv with lists as JSON, or .parquet; default: "
        "standard output. Of other columns of --input, only that of --id is written",
    )
    add_columns(parser, label=False)
    add_column(
        parser,
        "id",
        "of the ids, which are written with the answers; default: id, if there is one",
    )
    add_count(
        parser,
        "top",
        None,
        "number of alternatives in each answer, best first: classes with their "
        "probabilities, words for a mask, answers to a question, texts of a decoder; "
        "0: all",
        least=0,
        unset=f"{_TOP} on a terminal, else all",
    )
    _add_on_empty(parser, "a row with an empty text")
    parser.add_argument(
        "--redact",
        nargs="*",
        metavar="TYPE",
        help="replace the entities in a text by their types, such as [PER]; default: "
        "all types. Commas may separate them. Give texts before this option",
    )
    add_inference(parser)
    add_beam(parser)


def _add_on_empty(parser: argparse.ArgumentParser, what: str) -> None:
    add_word(
        parser,
        "on_empty",
        ("null", "error"),
        f"{what}: null answers it with null and a `reason`, error ends the command "
        "with its line and exit code 2",
    )


def run_predict(options: argparse.Namespace) -> None:
    from bert_keras.files.answer_file import answers_to, check_answer_file

    check_answer_file(options.output, places_of(options, "model", "input"))
    if options.beam is not None:
        _predict_on_beam(options)
        return
    check_named_columns(
        options, options.input, task=declared_task(options), labelled=False
    )
    load_backend(options.model)
    from bert_keras.inference.answered_rows import (
        BATCHES_TOGETHER,
        BlankTexts,
        answered,
        check_redacts,
    )
    from bert_keras.tasks.answer_rows import has_alternatives
    from bert_keras.text.truncation import Truncation

    predictor = predictor_of(options)
    task = predictor.model.task
    if options.top and not has_alternatives(task.name):
        raise ConfigError(
            f"`--top` has no effect: answers of {task.name} have no alternatives; "
            f"received {options.top}"
        )
    if options.redact is not None:
        try:
            check_redacts(predictor, options.redact)
        except ConfigError as error:
            if options.texts or options.input or not options.redact:
                raise
            raise ConfigError(f"{error}; give each TEXT before --redact") from None
    piped = piped_lines()
    given = given_texts(options, task, piped)
    place = options.input or ("TEXT" if options.texts else "stdin")
    blank = BlankTexts(task, options.on_empty, place)
    wait = bool if options.texts or options.input else piped.wait
    truncation = Truncation()
    if options.texts:
        predictor.answer_once_without_graph()
    # A bar would be drawn between the answers of a terminal.
    on_terminal = not options.output and sys.stdout.isatty()
    is_shown = bool(options.input) and not on_terminal
    top = options.top
    if top is None:
        top = _TOP if on_terminal else 0
    with (
        answers_to(options.output) as write,
        Progress("answers", unit="rows", is_shown=is_shown) as shown,
        _told_how_far(shown, options.output),
    ):
        for batch in batches(given, BATCHES_TOGETHER * options.batch_size, wait):
            for row in answered(
                predictor,
                blank.rows(batch),
                batch_size=options.batch_size,
                max_batch_tokens=options.max_batch_tokens,
                truncation=truncation,
                redact=options.redact,
            ):
                write(_shortened(row, top, is_told=options.top is None))
            shown.add(len(batch))
    blank.report()
    for line in predictor.truncated(truncation):
        say(line)
    # A graph in 16 bits takes longer to make, which a single batch does not win back.
    if predictor.answering.runs_keras and blank.seen > options.batch_size:
        suggest_bfloat16(options, "answered 1.8 times as fast")


def _shortened(row: dict[str, Any], top: int, *, is_told: bool) -> dict[str, Any]:
    """Return a row with its best `top` alternatives, 0: all; tell what is left out."""
    from bert_keras.tasks.answer_rows import with_top

    if not top:
        return row
    found = with_top(row, top)
    if is_told and found != row:
        say_once(
            f"only the {top} best alternatives of each answer are shown (--top 0: all)"
        )
    return found


@contextlib.contextmanager
def _told_how_far(shown: Progress, output: str | None) -> Iterator[None]:
    """Add to an error how many rows have been answered on standard output."""
    try:
        yield
    except DataError as error:
        if shown.done and output is None:
            error.args = (
                f"{error}; the {counted(shown.done, 'rows')} before it are answered",
            )
        raise


def _predict_on_beam(options: argparse.Namespace) -> None:
    for name in ("input", "output"):
        if getattr(options, name) is None:
            raise ConfigError(f"`--beam` needs `--{name}`, which is not given")
    if options.texts:
        raise ConfigError("`TEXT` and `--input` cannot both be given")
    if options.top is not None:
        raise ConfigError(
            f"`--top` has no effect with `--beam`; received {options.top}"
        )
    load_backend(options.model)
    from bert_keras.inference.beam import run_beam_predictions

    if os.path.exists(options.model):  # workers have another current folder
        options.model = os.path.abspath(options.model)
    run_beam_predictions(
        functools.partial(predictor_of, options),
        options.input,
        options.output,
        columns=chosen_columns(options),
        header=options.header,
        on_empty=options.on_empty,
        batch_size=options.batch_size,
        max_batch_tokens=options.max_batch_tokens,
        redact=options.redact,
        pipeline_args=shlex.split(options.beam),
    )


def add_features(parser: argparse.ArgumentParser) -> None:
    add_encoder_and_texts(parser)
    add_path(
        parser,
        "output",
        "FILE",
        "file to write: .npz, which must fit in memory, or .parquet",
        required=True,
    )
    levels = ("text", "token")
    add_word(parser, "level", levels, "one vector per text, or one per token")
    parser.add_argument(
        "--layers",
        metavar="LAYERS",
        help=f"{', '.join(NAMED_LAYERS)}, all, or numbers such as 0,12 (0: embeddings; "
        "--layers=-1: from the end); default: the model's, or last",
    )
    add_word(
        parser,
        "combine_layers",
        COMBINATIONS,
        "how several layers are combined",
        unset="the model's, or sum",
    )
    add_word(
        parser,
        "combine",
        WINDOW_COMBINATIONS,
        "how the vectors of the windows of a text become one",
        unset="the model's, or mean",
    )
    parser.add_argument(
        "--pooling",
        metavar="POOLING",
        help="how the vectors of the tokens are pooled into one of the text: "
        f"{', '.join(POOLINGS)}, or a concatenation such as cls+mean; default: the "
        "model's, or mean",
    )
    add_word(
        parser,
        "normalize",
        ("yes", "no"),
        "scale vectors to length 1",
        unset="the model's, or no; no for tokens",
    )
    add_prompt(parser, "the model's default prompt, if it has one")
    add_word(
        parser,
        "dtype",
        DTYPES,
        "type of a text's vectors in .npz: int8 has a quarter of the size, binary "
        "(bits) 1/32",
    )


def add_prompt(parser: argparse.ArgumentParser, unset: str) -> None:
    parser.add_argument(
        "--as",
        dest="prompt",
        metavar="PROMPT",
        help="the model's prompt before each text: query, document, or the name of "
        f"another; default: {unset}",
    )


def run_features(options: argparse.Namespace) -> None:
    check_texts(options, options.file)
    load_backend(options.model)
    from bert_keras.retrieval.features import write_features

    count = write_features(
        options.model,
        options.file,
        options.output,
        level=options.level,
        layers=options.layers,
        normalize={"yes": True, "no": False}.get(options.normalize),
        column=options.text,
        header=options.header,
        batch_size=options.batch_size,
        skip_empty=options.skip_empty,
        combine_layers=options.combine_layers,
        combine=options.combine,
        pooling=options.pooling,
        prompt=options.prompt,
        dtype=options.dtype,
        **_embedder_settings(options),
    )
    print(f"{options.output}: {counted(count, 'texts')}")


def add_search(parser: argparse.ArgumentParser) -> None:
    add_encoder_and_texts(parser)
    parser.add_argument(
        "texts",
        nargs="*",
        metavar="QUERY",
        help="text to search for; default: each line of standard input",
    )
    _add_on_empty(parser, "an empty line of standard input")
    add_count(parser, "top", 5, "number of texts to return per query")
    add_path(
        parser,
        "rerank",
        "MODEL",
        "model of the task reranking, such as a cross-encoder, that sorts the texts by "
        "its scores",
    )
    add_positive_class(parser)
    add_count(
        parser,
        "candidates",
        None,
        "number of texts per query that --rerank sorts",
        unset="100",
    )
    add_option(parser, RERANK_WEIGHT)
    add_path(parser, "index", "FILE", "file that stores the vectors for reuse")
    add_path(
        parser,
        "output",
        "FILE",
        "file to write: .jsonl, .csv or .parquet; default: standard output",
    )
    add_column(
        parser,
        "id",
        "of the ids of the texts, which are added to the results; default: id, or "
        "BEIR's _id, if there is one",
    )
    add_switch(parser, "with_text", "add the texts of query and result")
    add_prompt(parser, "query for queries, document for texts")
    add_word(
        parser,
        "dtype",
        DTYPES,
        "type of the vectors: int8 takes a quarter of the memory, bits (binary) 1/32",
        unset="the index's, or float32",
    )
    add_count(
        parser,
        "rescore",
        None,
        "with --dtype binary: the best N × --top texts are compared again by int8 "
        "vectors, which are stored in the index, too; 0: none",
        unset="4",
        least=0,
    )
    add_path(parser, "query_encoder", "MODEL", QUERY_ENCODER)
    add_option(parser, HYBRID)
    add_option(parser, HYBRID_WEIGHT)
    add_path(
        parser,
        "fuse",
        "MODEL",
        "fuse the ranking of another model, such as one of sparse vectors",
    )
    add_word(
        parser,
        "engine",
        SEARCH_ENGINES,
        "exact compares all texts; for many texts, faiss searches a graph, and "
        "centroids find candidates for MaxSim (vectors of tokens): both may miss some",
    )


def run_search(options: argparse.Namespace) -> None:
    from bert_keras.files.answer_file import answers_to, check_answer_file
    from bert_keras.files.atomic import check_output_place
    from bert_keras.retrieval.vector_file import check_index

    inputs = ("model", "file", "index", "rerank", "fuse", "query_encoder")
    check_answer_file(options.output, places_of(options, *inputs))
    given = words(options.texts)
    blank = next((query for query in given if not query.strip()), None)
    if blank is not None:
        raise ConfigError(f"`QUERY` must not be empty; {received(blank)}")
    check_texts(options, options.file)
    if options.index is not None:  # before TensorFlow is imported
        check_output_place("index", options.index, places_of(options, "model"))
        check_index(options.index, may_be_new=True)
    load_backend(options.model, options.rerank, options.fuse, options.query_encoder)
    from bert_keras.inference.answered_rows import BlankTexts
    from bert_keras.retrieval.index import SearchIndex, reranked

    ranker, candidates = _ranker(options)
    columns = _documents(options)
    search = SearchIndex.of(
        options.model,
        columns["text"],
        lines=columns.lines,
        ids=columns["id"] if "id" in columns else None,
        engine=options.engine,
        index=options.index,
        batch_size=options.batch_size,
        prompt=options.prompt,
        dtype=options.dtype,
        rescore=options.rescore,
        hybrid=options.hybrid,
        hybrid_weight=options.hybrid_weight,
        fuse=options.fuse,
        query_encoder=options.query_encoder,
        **_embedder_settings(options),
    )
    piped, number = piped_lines(), 0
    blanks = BlankTexts(search.predictor.model.task, options.on_empty, "stdin")
    named = () if search.ids is None else ("id",)
    no_answer = dict.fromkeys(("rank", "score", "line", *named))
    # A bar would be drawn between the answers of a terminal.
    is_shown = bool(options.output) or not sys.stdout.isatty()
    total = len(given) or None
    with (
        answers_to(options.output) as write,
        Progress("answers", unit="queries", total=total, is_shown=is_shown) as shown,
    ):
        for batch in batches(given or piped, 32, bool if given else piped.wait):
            rows = blanks.rows((None, query, None) for query in batch)
            texts = [row.item for row in rows if not row.reason]
            answers = iter(search(texts, top=candidates))
            for row in rows:
                shown.add(int(number > 0))  # the one before
                number += 1
                start: dict[str, Any] = {"query": number}
                start |= {"query_text": row.item} if options.with_text else {}
                found = [] if row.reason else next(answers)
                if not found:
                    reason = row.reason or "no text shares a token with its vector"
                    write({**start, **no_answer, "reason": reason})
                    continue
                if ranker is not None:
                    found = reranked(
                        ranker,
                        row.item,
                        found,
                        top=options.top,
                        batch_size=options.batch_size,
                        weight=options.rerank_weight,
                    )
                for each in found:
                    text = {"text": each.pop("text")}
                    write({**start, **each, **(text if options.with_text else {})})
        shown.add(int(number > 0))
    blanks.report()


def _ranker(options: argparse.Namespace) -> tuple[Predictor | None, int]:
    """Return the model that sorts what is found, if any, and how many texts to find.

    Raises:
        ConfigError: an option has no effect, or `--candidates` is below `--top`.
    """
    from bert_keras.retrieval.index import CANDIDATES

    check_needed(options, "rerank", "candidates", "rerank_weight", "positive_class")
    if options.rerank is None:
        return None, options.top
    candidates = options.candidates or max(CANDIDATES, options.top)
    if candidates < options.top:
        raise ConfigError(
            f"`--candidates` must be at least --top, {options.top}; received "
            f"{candidates}"
        )
    return ranker_of(options), candidates


def ranker_of(options: argparse.Namespace) -> Predictor:
    """Return the model of `--rerank`; a message names options that it does not take."""
    from bert_keras.inference.predictor import load_predictor
    from bert_keras.tasks.protocols import check_scores_pairs

    given = {"--max-length": options.max_length, "--long": options.long}
    others = [f"{name} {value}" for name, value in given.items() if value is not None]
    if others:
        say(f"{', '.join(others)} applies to the vectors only, not to --rerank")
    ranker = load_predictor(options.rerank, precision=options.precision)
    set_positive_class(ranker.model, options.positive_class)
    check_scores_pairs(ranker.model.task)
    return ranker


def add_positive_class(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--positive-class",
        metavar="CLASS",
        help="with a --rerank model that classifies pairs: the class that means "
        "relevant; its probability is the score. Default: the model's own "
        "positive_class",
    )


def set_positive_class(model: Any, name: str | None) -> None:
    """Let a model score pairs by the probability of a class, if one is named."""
    from bert_keras.tasks.base import changed

    if name is None:
        return
    if not hasattr(model.task, "positive_class"):
        raise ConfigError(
            f"`--positive-class` is for a model that classifies pairs; received {name} "
            f"for a model of the task {model.task.name}"
        )
    model.task = changed(model.task, positive_class=name)


def _documents(options: argparse.Namespace) -> Columns:
    """Return the texts to search, with their names if the file has them."""
    from bert_keras.data.collection import document_rules, with_titles
    from bert_keras.data.table import read_columns
    from bert_keras.retrieval.features import tell_empty

    rules = document_rules(options.file, text=options.text, name=options.id)
    columns = with_titles(read_columns(options.file, header=options.header, **rules))
    found = columns.filled("text", skip_empty=options.skip_empty)
    tell_empty(len(columns) - len(found), len(columns))
    return found


def add_encoder_and_texts(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", type=path, help=f"encoder, checkpoint, {MODEL}")
    add("file", metavar="FILE", type=path, help=f"{ROWS} with the texts")
    add_text_column(parser, default="text")
    add_header(parser)
    help = "leave out rows with an empty text, and count them"
    add_switch(parser, "skip_empty", help)
    add_dimensions(parser)
    add_lengths(parser)
    add_batches(parser)


def add_lengths(parser: argparse.ArgumentParser) -> None:
    """Add the options of how an encoder of sentences reads a text."""
    add_count(
        parser,
        "max_length",
        None,
        "longest text in tokens; longer ones are truncated, or read as --long says",
        unit="tokens",
        unset="the model's, or the longest that it accepts",
    )
    add_word(
        parser,
        "long",
        LONG,
        "what is read of a text longer than the maximum length: its start, both ends, "
        "or all of it in windows",
        unset="the model's, or truncate",
    )


def _embedder_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that `features` and `search` share."""
    names = ("max_length", "long", "precision", "dimensions")
    return {name: getattr(options, name) for name in names}


VERBS = {
    "predict": (add_predict, run_predict),
    "features": (add_features, run_features),
    "search": (add_search, run_search),
}
