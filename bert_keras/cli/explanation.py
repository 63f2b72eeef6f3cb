"""The verb `explain`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bert_keras.cli.arguments import (
    MODEL,
    ROWS,
    add_column,
    add_columns,
    add_own_task,
    check_named_columns,
    check_texts,
    chosen_columns,
    declared_task,
    given_classes,
    load_backend,
    places_of,
    refuse_columns,
    with_settings,
)
from bert_keras.cli.given_texts import given_texts, piped_lines, words
from bert_keras.cli.options import add_count, add_path, add_word, flag, path
from bert_keras.errors import ConfigError, DataError
from bert_keras.runs.notes import say_once
from bert_keras.settings import ATTRIBUTIONS, BASELINES, PROJECTIONS, VIEWS

if TYPE_CHECKING:
    from bert_keras.data.columns import Columns
    from bert_keras.explanations.attention import AttentionList
    from bert_keras.explanations.embedding_map import EmbeddingMap
    from bert_keras.explanations.explanation import Explanations


def add_explain(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", type=path, help=MODEL)
    add(
        "texts",
        nargs="*",
        metavar="TEXT",
        help="text to explain; default: each line of standard input, as for `predict`; "
        "an embedding model takes pairs, whose similarity is explained",
    )
    add_path(parser, "input", "FILE", f"{ROWS} with the texts")
    add_word(
        parser,
        "view",
        VIEWS,
        "words that led to the answers; attention of all layers and heads; or a map of "
        "the texts by their vectors",
    )
    add_path(
        parser,
        "output",
        "FILE",
        "page to write, FILE.html, which opens offline; FILE.jsonl: the attributions",
        required=True,
    )
    add_word(parser, "method", ATTRIBUTIONS, "how the answer is attributed to words")
    add(
        "--target",
        metavar="NAME",
        help="answer to explain: a class, a choice's number, a type of entity, a part "
        "of the context, a word for [MASK]; default: the model's answer",
    )
    add(
        "--against",
        metavar="NAME",
        help="answer to compare with; default: all others together",
    )
    add_word(parser, "baseline", BASELINES, "token that stands for an absent word")
    add_count(
        parser,
        "steps",
        None,
        "points of integrated gradients, or word orders of shapley",
        unit="steps",
        unset="16 points, doubled up to 1,024 while the sum is off by more than 1%; or "
        "24 orders",
    )
    add_word(
        parser,
        "projection",
        PROJECTIONS,
        "projection of the vectors for --view map; tsne and umap need bert_keras[maps]",
    )
    add_count(
        parser,
        "mistakes",
        None,
        "explain only N rows of --input that the model answers wrongly, the most "
        "confident first; the file needs labels, as for `evaluate`",
        unset="every text is explained",
    )
    add_count(parser, "batch_size", 32, "rows computed at once", unit="rows")
    add_columns(parser, label=False)
    add_column(
        parser,
        "label",
        "of the true label, shown next to the answer; default: label, if there is one. "
        "The colour of --view map; default: the predicted class, if the model has "
        "classes",
    )
    add_own_task(parser)


# The views that read an option, and its default.
_OF_VIEWS: dict[str, tuple[tuple[str, ...], Any]] = {
    **dict.fromkeys(
        ("target", "against", "steps", "mistakes", "source", "task"), (("words",), None)
    ),
    **dict.fromkeys(("settings", "column"), (("words",), [])),
    "method": (("words",), ATTRIBUTIONS[0]),
    "baseline": (("words",), BASELINES[0]),
    "text_pair": (("words", "attention"), None),
    "projection": (("map",), PROJECTIONS[0]),
    "label": (("words", "map"), None),
}


def run_explain(options: argparse.Namespace) -> None:
    from bert_keras.files.atomic import check_output_place

    check_output_place("output", options.output, places_of(options, "model", "input"))
    endings = (".html", ".htm", *([".jsonl"] if options.view == "words" else ()))
    if not options.output.lower().endswith(endings):
        raise ConfigError(
            f"`--output` must end in {' or '.join(endings)} for --view {options.view}; "
            f"received {options.output}"
        )
    for name, (views, default) in _OF_VIEWS.items():
        given = getattr(options, name)
        if options.view not in views and given != default:
            option = flag({"settings": "set"}.get(name, name))
            raise ConfigError(
                f"`{option}` is for --view {' and '.join(views)}; received {given}"
            )
    is_labelled = options.mistakes is not None
    if is_labelled and (options.input is None or options.texts):
        raise ConfigError(
            "`--mistakes` needs `--input`, a file with labels, and no `TEXT`; received "
            f"{options.mistakes}"
        )
    if options.input is not None:
        if options.view == "words":
            task, label = declared_task(options), options.label
            # Of plain texts, the label is no role, but it may be named.
            further = () if label is None or is_labelled else (label,)
            rules: dict[str, Any] = {"task": task, "further": further}
            check_named_columns(options, options.input, labelled=is_labelled, **rules)
        else:
            check_texts(options, options.input)
    if options.view == "map":  # needs no gradients
        load_backend(options.model)
    else:
        load_backend(checkpoints=[options.model])
    run: dict[str, Any] = {
        "words": _explain_words,
        "attention": _attention,
        "map": _map,
    }
    found = run[options.view](options)
    if is_labelled and not found:
        print(f"no mistake in {options.input}: nothing is written")
        return
    print(found.write(options.output))


def _explain_words(options: argparse.Namespace) -> Explanations:
    from bert_keras.explanations.explainer import explain
    from bert_keras.inference.answered_rows import BlankTexts
    from bert_keras.inference.predictor import load_predictor

    predictor = load_predictor(
        options.model, task=options.task, classes=given_classes(options)
    )
    task = with_settings(predictor.model, options, uses=["answers"]).paired()
    if options.mistakes is None:
        labels = _true_labels(options)
        given = given_texts(options, task, piped_lines())
        place = options.input or ("TEXT" if options.texts else "stdin")
        blank = BlankTexts(task, "error", place)
        items: Any = [row.item for row in blank.rows(given)]
    else:
        labels, columns = [], chosen_columns(options)
        items = predictor.model.task.read(
            options.input, columns=columns, header=options.header
        )
    found = explain(
        predictor,
        items,
        method=options.method,
        target=options.target,
        against=options.against,
        baseline=options.baseline,
        steps=options.steps,
        batch_size=options.batch_size,
        # Rows of a format of the task's own may have several lines.
        labels=labels if labels and len(labels) == len(items) else None,
        mistakes=options.mistakes,
    )
    found.model = options.model
    return found


def _true_labels(options: argparse.Namespace) -> list[str | None]:
    """Return the labels of a file; none if it is no table that has any.

    The option is taken out of `options`: the model does not read labels.
    """
    from bert_keras.data.table import names_of, read_columns

    if options.input is None:
        return []
    name, options.label = options.label, None
    try:
        if name is None and "label" not in names_of(options.input):
            return []
        found = read_columns(
            options.input,
            {"label": name or "label"},
            empty=["label"],
            whole=["label"],
            header=options.header,
        )
    except DataError:
        if name is not None:
            raise
        return []  # of another format
    return [_shown_label(cell) for cell in found["label"]]


def _shown_label(cell: Any) -> str | None:
    """Return a label as text; `None` if there is none."""
    if isinstance(cell, list) and all(isinstance(each, str) for each in cell):
        return ", ".join(cell) or "none"
    return None if cell is None or cell == "" else str(cell)


def _attention(options: argparse.Namespace) -> AttentionList:
    from bert_keras.explanations.attention import PAGE_TOKENS, explain_attention

    columns = _some_columns(options, "text_pair")
    parts = [columns[role] for role in ("text", "text_pair") if role in columns]
    texts = [tuple(filter(None, row)) or ("",) for row in zip(*parts, strict=True)]
    return explain_attention(
        options.model, texts, max_length=PAGE_TOKENS, batch_size=options.batch_size
    )


def _map(options: argparse.Namespace) -> EmbeddingMap:
    from bert_keras.explanations.embedding_map import map_texts

    columns = _some_columns(options, "label")
    if "text_pair" in columns and options.text is None:
        raise DataError(
            "has a second text, `text_pair`, and a map places single texts: choose one "
            "of them by --text",
            path=options.input,
        )
    return map_texts(
        options.model,
        columns["text"],
        labels=columns["label"] if "label" in columns else "predicted",
        projection=options.projection,
        batch_size=options.batch_size,
    )


def _some_columns(options: argparse.Namespace, further: str) -> Columns:
    """Return the texts on the command line, of a file or piped, with another column.

    A pair on the command line or piped has a tab between.
    """
    from bert_keras.data.table import as_columns, read_columns

    if options.texts and options.input:
        raise ConfigError("`TEXT` and `--input` cannot both be given")
    chosen = getattr(options, further)
    if options.input:
        # A column of labels is read only if it is named: classes may be predicted.
        wanted = {"text": options.text or "text", "text_pair": "text_pair"}
        if chosen is not None:
            wanted[further] = chosen
        optional = [] if further == "text_pair" and chosen else ["text_pair"]
        return read_columns(
            options.input,
            wanted,
            optional=optional,
            empty=["text_pair"],
            header=options.header,
        )
    refuse_columns(options, "columns need `--input`, which is not given")
    texts = words(options.texts) or list(piped_lines())
    most = 1 if further == "text_pair" else 0  # tabs that separate texts
    if any(text.count("\t") > most for text in texts):
        say_once("a tab within a text is read as a space")
    if not most:
        return as_columns(text=texts)
    pairs = [text.partition("\t") for text in texts]
    return as_columns(text=[p[0] for p in pairs], text_pair=[p[2] for p in pairs])


VERBS = {"explain": (add_explain, run_explain)}
