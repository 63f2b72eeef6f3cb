"""The verb `mine`: hard negatives of pairs."""

from __future__ import annotations

import argparse

from bert_keras.cli.arguments import (
    MODEL,
    ROWS,
    add_batches,
    add_column,
    add_header,
    add_text_column,
    check_needed,
    check_texts,
    load_backend,
    places_of,
)
from bert_keras.cli.options import add_count, add_option, add_path, path
from bert_keras.cli.prediction import add_lengths, add_positive_class, ranker_of
from bert_keras.errors import ConfigError, NoColumnError, first_of
from bert_keras.runs.notes import say
from bert_keras.settings import Option


def add_mine(parser: argparse.ArgumentParser) -> None:
    help = f"encoder, checkpoint, {MODEL}"
    parser.add_argument("model", metavar="MODEL", type=path, help=help)
    add_path(
        parser,
        "pairs",
        "FILE",
        f"{ROWS} of matching pairs: text and text_pair",
        required=True,
    )
    add_path(
        parser,
        "corpus",
        "FILE",
        f"{ROWS} of texts from which negatives are taken; default: the second texts of "
        "the pairs",
    )
    add_text_column(parser)
    add_column(parser, "text_pair", "of the second text; default: text_pair")
    add_column(parser, "corpus_text", "of the texts of --corpus; default: text")
    add_path(
        parser,
        "output",
        "FILE",
        "file to write: .jsonl, .csv with lists as JSON, or .parquet, with the column "
        "negative",
        required=True,
    )
    add_count(parser, "negatives", 5, "maximum number of new negatives of a pair")
    ranks = Option(
        "10:50",
        "take negatives from these ranks, by cosine to the first text, without known "
        "pairs; the first rank is 0. The nearest texts are often right answers that "
        "the pairs lack",
        unit="from:to",
        name="range",
        pattern=r"\d{1,9}:\d{1,9}",
        form="two whole numbers such as 10:50",
    )
    add_option(parser, ranks)
    margin = Option(
        0.05,
        "how much lower than the cosine of the pair the cosine of a negative must be; "
        "for sparse vectors its dot product, for vectors of tokens its MaxSim, with "
        "--rerank its score",
        unit="score",
        name="margin",
        kind=float,
        least=0,
    )
    add_option(parser, margin)
    add_path(
        parser,
        "rerank",
        "MODEL",
        "model of the task reranking; the margin is then a difference of its scores",
    )
    add_positive_class(parser)
    add_header(parser)
    add_lengths(parser)
    add_batches(parser)


def run_mine(options: argparse.Namespace) -> None:
    from bert_keras.files.answer_file import answers_to, check_answer_file

    places = places_of(options, "model", "pairs", "corpus", "rerank")
    check_answer_file(options.output, places)
    first, end = map(int, options.range.split(":"))
    if first >= end:
        raise ConfigError(
            f"`--range` must be FROM:TO, FROM below TO; received {first}:{end}"
        )
    of_corpus = options.corpus_text or "text"
    chosen = {"text": options.text, "text_pair": options.text_pair}
    chosen = {role: column for role, column in chosen.items() if column is not None}
    check_texts(options, options.pairs, text_pair=chosen.get("text_pair", "text_pair"))
    if options.corpus is not None:
        _check_corpus(options.corpus, of_corpus, options.header)
    check_needed(options, "corpus", "corpus_text")
    check_needed(options, "rerank", "positive_class")
    load_backend(options.model, options.rerank)
    from bert_keras.data.collection import document_rules, with_titles
    from bert_keras.data.table import names_of, read_columns
    from bert_keras.retrieval.features import tell_empty
    from bert_keras.retrieval.mining import mine_negatives
    from bert_keras.tasks import find_task
    from bert_keras.tasks.negatives import NEGATIVE, is_numbered, read_with_negatives

    ranker = None if options.rerank is None else ranker_of(options)
    corpus = None
    if options.corpus is not None:
        documents = document_rules(options.corpus, text=of_corpus)
        read = with_titles(
            read_columns(options.corpus, **documents, header=options.header)
        )
        corpus = read.filled("text", skip_empty=True)["text"]
        tell_empty(len(read) - len(corpus), len(read))
    optional = ("label", NEGATIVE)
    columns = {**find_task("embedding").columns, **chosen}
    names = names_of(options.pairs)
    pairs = read_with_negatives(
        options.pairs, columns, names=names, optional=optional, header=options.header
    )
    read_names = {*columns.values()}
    others = [n for n in names if n not in read_names and not is_numbered(n)]
    if others:
        say(f"{options.pairs}: these columns are not written: {first_of(others)}")
    found = mine_negatives(
        options.model,
        pairs,
        corpus,
        negatives=options.negatives,
        ranks=(first, end),
        margin=options.margin,
        batch_size=options.batch_size,
        rerank=ranker,
        max_length=options.max_length,
        long=options.long,
        precision=options.precision,
    )
    cells = found.columns.cells
    with answers_to(options.output) as write:
        for values in zip(*cells.values(), strict=True):
            write(dict(zip(cells, values, strict=True)))
    say(str(found))


def _check_corpus(path: str, text: str, header: str) -> None:
    """Raise NoColumnError if a table lacks the column of the texts."""
    from bert_keras.data.table import check_columns

    try:
        check_columns(path, {"text": text}, header=header, fixed=True)
    except NoColumnError as error:
        raise NoColumnError(
            f"{error}; to read another column: --corpus-text NAME"
        ) from None


VERBS = {"mine": (add_mine, run_mine)}
