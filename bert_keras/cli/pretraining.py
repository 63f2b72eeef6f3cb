"""The verbs `vocab`, `pretraining-data` and `pretrain`: a new BERT from a corpus."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING, Any

from bert_keras.cli.arguments import (
    add_beam,
    add_planned_output,
    add_settings,
    check_needed,
    check_planned_output,
    load_backend,
    print_plan,
)
from bert_keras.cli.options import (
    add_count,
    add_options,
    add_path,
    add_switch,
    add_word,
    config_of,
    lines_of_file,
    path,
)
from bert_keras.config import PRESETS
from bert_keras.errors import ConfigError
from bert_keras.pretraining.config import PretrainConfig, PretrainingDataConfig
from bert_keras.runs.environment import load_tensorflow
from bert_keras.runs.notes import say
from bert_keras.runs.progress import every_few_seconds
from bert_keras.settings import CORPUS_FORMS, LEARNERS, REPLACED_TOKEN
from bert_keras.tasks import setting_value

if TYPE_CHECKING:
    from bert_keras.corpus.documents import CorpusReport
    from bert_keras.text.tokenizer import WordPieceTokenizer

_FORMS_WITH_FIELDS = ("auto", "jsonl", "parquet")
# The entries of the manifest of pretraining data that are printed, and their names.
_COUNTED = {
    "documents": "documents",
    "sentences": "sentences",
    "tokens": "tokens",
    "instances": "examples",
    "real_token_share": "real_token_share",
    "unknown_token_share": "unknown_token_share",
}
# `not_next_share` of the manifest, by the kind of pairs.
_PAIRS = {"next": "share of random second texts", "order": "share of swapped pairs"}


def add_vocab(parser: argparse.ArgumentParser) -> None:
    _add_corpus(parser)
    add_path(
        parser,
        "output",
        "DIR",
        "folder for vocab.txt; with --extend, for the encoder",
        required=True,
    )
    add_path(
        parser,
        "extend",
        "ENCODER",
        "extend the vocabulary of this encoder by the words of the corpus that it "
        "splits into the most pieces, and write the encoder with their embeddings",
    )
    add_count(
        parser,
        "size",
        None,
        "number of tokens in the vocabulary",
        unit="tokens",
        unset="30522; with --extend, 1,000 more than the encoder has",
    )
    add_switch(parser, "cased", "keep case and accents")
    add_count(
        parser,
        "min_count",
        None,
        "minimum count, in the corpus, of a character or of a pair of pieces; with "
        "--extend, of a new word",
        unset="2, or 1 per ten million characters; with --extend, 5",
    )
    parser.add_argument(
        "--reserved",
        action="append",
        default=[],
        metavar="TOKEN",
        help="an additional token to include; may be repeated",
    )
    add_count(
        parser,
        "max_words",
        2_000_000,
        "maximum number of distinct words kept in memory",
        unit="words",
    )
    add_word(
        parser,
        "learner",
        LEARNERS,
        "merges takes seconds and gives exactly --size tokens; tf-text is the trainer "
        "of TensorFlow Text: takes minutes and usually gives a few percent fewer",
    )
    add_count(parser, "workers", 1, "number of processes that count words")


def run_vocab(options: argparse.Namespace) -> None:
    if options.extend is not None:
        load_backend(checkpoints=[options.extend])
    elif options.learner != LEARNERS[0]:
        load_tensorflow()  # for nothing else
    from bert_keras.corpus.documents import texts_of
    from bert_keras.corpus.vocabulary_learning import (
        VOCABULARY_SIZE,
        learn_vocabulary,
        write_vocabulary_files,
    )
    from bert_keras.files.atomic import check_output_place

    if options.language != "en":
        say("`--language` is not used: words do not depend on sentences")
    if options.extend is not None:
        _extend(options)
        return
    documents, _, report = _corpus(options)
    place = os.path.join(options.output, "vocab.txt")
    check_output_place("output", place, {"corpus": options.corpus})
    reported = every_few_seconds(documents, lambda: report.lines()[0])
    vocabulary = learn_vocabulary(
        reported,
        to_sentences=texts_of,
        folder=options.output,
        size=options.size or VOCABULARY_SIZE,
        lowercase=not options.cased,
        min_count=options.min_count,
        reserved=options.reserved,
        max_words=options.max_words,
        learner=options.learner,
        workers=options.workers,
        say=say,
    )
    for line in report.lines():
        say(line)
    write_vocabulary_files(options.output, vocabulary, lowercase=not options.cased)
    print(options.output)


def _extend(options: argparse.Namespace) -> None:
    """Write an encoder with the words of a corpus in its vocabulary."""
    from bert_keras.corpus.documents import texts_of
    from bert_keras.corpus.domain_words import MIN_COUNT, learn_words
    from bert_keras.files.atomic import check_output_place, check_replaceable
    from bert_keras.models.convert import extend
    from bert_keras.models.folder import Folder

    for name, given in (
        ("cased", options.cased),
        ("reserved", options.reserved),
        ("learner", options.learner != LEARNERS[0]),
    ):
        if given:
            raise ConfigError(
                f"`--{name}` is for a new vocabulary; received it with --extend"
            )
    check_output_place("output", options.output, {"extend": options.extend})
    check_replaceable(options.output)
    folder = Folder.open(options.extend)
    documents, _, report = _corpus(options)
    words = learn_words(
        every_few_seconds(documents, lambda: report.lines()[0]),
        folder.tokenizer,
        to_sentences=texts_of,
        size=options.size,
        min_count=options.min_count or MIN_COUNT,
        max_words=options.max_words,
        workers=options.workers,
        say=say,
    )
    for line in report.lines():
        say(line)
    for note in extend(options.extend, words, options.output):
        say(note)
    print(options.output)


def add_pretraining_data(parser: argparse.ArgumentParser) -> None:
    _add_corpus(parser)
    add_path(
        parser,
        "vocab",
        "DIR",
        "folder with vocab.txt, from `bert-keras vocab` or from any BERT",
        required=True,
    )
    add_path(
        parser,
        "add_tokens",
        "FILE",
        "words that the tokenizer gets as added tokens, one per line; `pretrain` needs "
        "the same",
    )
    add_path(
        parser,
        "output",
        "DIR",
        "folder for the shards; an interrupted run resumes there",
        required=True,
    )
    add_count(parser, "workers", 1, "number of processes")
    add_beam(parser)
    group = parser.add_argument_group("settings of the data")
    add_options(group, PretrainingDataConfig)


def run_pretraining_data(options: argparse.Namespace) -> None:
    config = config_of(options, PretrainingDataConfig)
    load_tensorflow()
    from bert_keras.files.atomic import check_output_place
    from bert_keras.pretraining.data import write_pretraining_data
    from bert_keras.report.terminal import score_table
    from bert_keras.text.new_tokens import with_new_tokens
    from bert_keras.text.tokenizer import WordPieceTokenizer

    check_output_place("output", options.output, {"vocab": options.vocab})
    tokenizer = WordPieceTokenizer.from_folder(options.vocab)
    notes = [*tokenizer.notes]
    if options.add_tokens is not None:
        tokens = lines_of_file(options.add_tokens)
        tokenizer, added = with_new_tokens(tokenizer, tokens)
        notes += added
    for note in notes:
        say(note)
    if options.beam is not None:
        manifest, report = _on_beam(options, tokenizer, config)
    else:
        documents, to_sentences, report = _corpus(options)
        manifest = write_pretraining_data(
            documents,
            options.output,
            to_sentences=to_sentences,
            tokenizer=tokenizer,
            config=config,
            workers=options.workers,
        )
    for line in report.lines():
        say(line)
    counted = {name: manifest[key] for key, name in _COUNTED.items()}
    if (kind := manifest["settings"]["next_sentence"]) in _PAIRS:
        counted[_PAIRS[kind]] = manifest["not_next_share"]
    print(score_table(counted))
    print(options.output)


def _on_beam(
    options: argparse.Namespace,
    tokenizer: WordPieceTokenizer,
    config: PretrainingDataConfig,
) -> tuple[dict[str, Any], CorpusReport]:
    """Write the data with Apache Beam; return the manifest and the corpus report."""
    from bert_keras.corpus.documents import CorpusReport
    from bert_keras.pretraining.beam import run_beam_pretraining_data

    if options.workers != 1:
        raise ConfigError(
            "`--workers` is for one machine: Beam has its own flags, such as "
            f"--direct_num_workers; received {options.workers} with --beam"
        )
    _check_text_field(options)
    report = CorpusReport()
    manifest = run_beam_pretraining_data(
        options.corpus,
        options.output,
        tokenizer=tokenizer,
        config=config,
        form=options.form,
        text_field=options.text_field,
        errors=options.errors,
        language=options.language,
        pipeline_args=shlex.split(options.beam),
        report=report,
    )
    return manifest, report


def add_pretrain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        action="append",
        required=True,
        metavar="DIR",
        type=path,
        help="folder written by `pretraining-data`; repeat it for several phases, such "
        "as rows of 512 tokens after rows of 128",
    )
    add_planned_output(
        parser, "RUN", "folder of the run; an interrupted run resumes there"
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--size",
        metavar="SIZE",
        help=f"a new model: {', '.join(PRESETS)}, or L/H/A such as 4/256/4",
    )
    add_path(
        start,
        "encoder",
        "PATH_OR_NAME",
        "continue from this checkpoint, including its heads",
    )
    add_path(
        parser,
        "vocab",
        "DIR",
        "folder with vocab.txt, for a new model; with a teacher, by default its own",
    )
    add_settings(
        parser,
        "a key of bert_config.json for a new model, such as hidden_dropout_prob=0",
    )
    add_path(parser, "held_out", "DIR", "data to score during training")
    add_options(parser.add_argument_group("settings of the training"), PretrainConfig)


def run_pretrain(options: argparse.Namespace) -> None:
    check_planned_output(options)
    config = config_of(options, PretrainConfig)
    check_needed(options, "held_out", "evaluate_every", "held_out_examples")
    encoder = options.encoder
    if options.size is not None:
        vocab = options.vocab or config.teacher
        if vocab is None:
            raise ConfigError("`--vocab` must be given for a new model; received none")
        # No tokenizer: it runs ops, and a multi-worker strategy must exist before any.
        from bert_keras.text.tokenizer_files import read_folder

        vocabulary = read_folder(vocab)[0]["vocabulary"]
        is_electra = config.objective == REPLACED_TOKEN
        kind = {"model_type": "electra"} if is_electra else {}
        kind |= _given_settings(options)
        encoder = config.new_sizes(options.size, len(vocabulary), **kind)
    elif options.settings:
        raise ConfigError(
            f"`--set` is for a new model, of --size; received {options.settings[0]}"
        )
    load_backend(checkpoints=[options.encoder, config.teacher])
    from bert_keras.pretraining.pretrain import plan_pretraining, pretrain
    from bert_keras.report.terminal import score_table

    given = (encoder, options.data, options.output)
    settings: dict[str, Any] = {
        "vocab": options.vocab,
        "held_out": options.held_out,
        "config": config,
    }
    if options.plan:
        print_plan(plan_pretraining(*given, **settings))
        return
    result = pretrain(*given, **settings, command=options.command_line)
    if result.scores:
        print("held out:")
        print(score_table(result.scores))
    print(f"model folder: {result.folder}")
    print(f"report:       {result.folder.with_name('report.html')}")


def _given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of the new model's config that `--set` gives.

    Raises:
        ConfigError: one has no value, or two.
    """
    found = {}
    for given in options.settings:
        name, equals, value = given.partition("=")
        if not equals:
            raise ConfigError(f"`--set` must be NAME=VALUE; received {given!r}")
        if name in found:
            raise ConfigError(f"`--set` must give {name} once; received {given!r} too")
        found[name] = setting_value(value)
    return found


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "corpus",
        nargs="+",
        metavar="CORPUS",
        type=path,
        help="files, folders or globs, compressed or not, local or remote (s3://…)",
    )
    add_word(
        parser,
        "form",
        ("auto", *CORPUS_FORMS),
        "format of the files; auto recognizes it from their start",
    )
    parser.add_argument(
        "--text-field",
        default="text",
        metavar="NAME",
        help="field of JSONL, or column of Parquet, with the text; default: text",
    )
    add_word(
        parser,
        "errors",
        ("strict", "replace"),
        "reject bytes that are not UTF-8, or replace them",
    )
    parser.add_argument(
        "--language",
        default="en",
        metavar="CODE",
        help="language for sentence splitting, such as en or zh; default: en",
    )


def _corpus(options: argparse.Namespace) -> tuple[Any, Any, CorpusReport]:
    """Return the documents, the function that splits one, and the corpus report."""
    from bert_keras.corpus.documents import CorpusReport, raw_documents, sentences_by
    from bert_keras.files.atomic import check_output_place

    _check_text_field(options)
    # A vocabulary or shards inside the corpus would be read as text by the next run.
    places = {"corpus": options.corpus}
    check_output_place("output", options.output, places, around=True, inside=True)
    report = CorpusReport()
    documents = raw_documents(
        options.corpus,
        form=options.form,
        text_field=options.text_field,
        errors=options.errors,
        report=report,
    )
    return documents, sentences_by(options.language), report


def _check_text_field(options: argparse.Namespace) -> None:
    """Raise ConfigError for the name of a field if the files have no fields."""
    if options.text_field != "text" and options.form not in _FORMS_WITH_FIELDS:
        raise ConfigError(
            f"`--text-field` is for --form {', '.join(_FORMS_WITH_FIELDS)}; received "
            f"{options.text_field} and {options.form}"
        )


VERBS = {
    "vocab": (add_vocab, run_vocab),
    "pretraining-data": (add_pretraining_data, run_pretraining_data),
    "pretrain": (add_pretrain, run_pretrain),
}
