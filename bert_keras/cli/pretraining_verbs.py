"""The verbs that make a new BERT: `vocab`, `pretraining-data` and `pretrain`."""

from __future__ import annotations

import argparse
import functools
import os
import shlex
from typing import TYPE_CHECKING, Any

from bert_keras.cli.corpus_arguments import pretraining_data_config
from bert_keras.cli.pretrain_arguments import model_sizes, pretrain_config
from bert_keras.errors import ConfigError
from bert_keras.files.places import check_output_place
from bert_keras.report.score_table import score_table
from bert_keras.runs.environment import load_tensorflow
from bert_keras.text.tokenizer_files import read_folder

if TYPE_CHECKING:
    from bert_keras.corpus.documents import CorpusReport
    from bert_keras.pretraining.data_config import PretrainingDataConfig
    from bert_keras.text.tokenizer import WordPieceTokenizer

# Of the manifest of pretraining data, what people want to know.
_COUNTED = (
    "documents",
    "sentences",
    "tokens",
    "instances",
    "real_token_share",
    "unknown_token_share",
    "not_next_share",
)


def _vocab(options: argparse.Namespace) -> None:
    load_tensorflow()
    from bert_keras.corpus.vocabulary_learning import learn_vocabulary, write_vocabulary
    from bert_keras.runs.progress import every_few_seconds, say

    documents, to_sentences, report = _corpus(options)
    place = os.path.join(options.output, "vocab.txt")
    check_output_place("output", place, {"corpus": options.corpus})
    told = every_few_seconds(documents, lambda: report.lines()[0])
    vocabulary = learn_vocabulary(
        told,
        to_sentences=to_sentences,
        folder=options.output,
        size=options.size,
        lowercase=not options.cased,
        min_count=options.min_count,
        reserved=options.reserved,
        max_words=options.max_words,
        learner=options.learner,
        say=say,
    )
    for line in report.lines():
        say(line)
    write_vocabulary(options.output, vocabulary, lowercase=not options.cased)
    print(options.output)


def _pretraining_data(options: argparse.Namespace) -> None:
    config = pretraining_data_config(options)
    load_tensorflow()
    from bert_keras.pretraining.data import write_pretraining_data
    from bert_keras.runs.progress import say
    from bert_keras.text.tokenizer import WordPieceTokenizer

    check_output_place("output", options.output, {"vocab": options.vocab})
    tokenizer = WordPieceTokenizer.from_folder(options.vocab)
    for note in tokenizer.notes:
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
            say=say,
        )
    for line in report.lines():
        say(line)
    print(score_table({k: v for k, v in manifest.items() if k in _COUNTED}))
    print(options.output)


def _on_beam(
    options: argparse.Namespace,
    tokenizer: WordPieceTokenizer,
    config: PretrainingDataConfig,
) -> tuple[dict[str, Any], CorpusReport]:
    """Return the manifest, and what is told of the documents."""
    from bert_keras.corpus.documents import CorpusReport
    from bert_keras.pretraining.beam import run_beam_pretraining_data

    if options.workers != 1:
        raise ConfigError(
            "`--workers` is for one machine: Beam has flags of its own, such as "
            f"--direct_num_workers; received {options.workers} with --beam"
        )
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


def _pretrain(options: argparse.Namespace) -> None:
    config = pretrain_config(options)
    load_tensorflow()
    from bert_keras.pretraining.pretrain import pretrain

    encoder = options.encoder
    if encoder is None:
        if options.vocab is None:
            raise ConfigError("`--vocab` must be given for a new model; received none")
        # A tokenizer computes, and a strategy of several machines must be made before.
        vocabulary = read_folder(options.vocab)[0]["vocabulary"]
        encoder = model_sizes(options, len(vocabulary))
    elif options.settings:
        raise ConfigError(
            f"`--set` is for a new model; received {options.settings[0]} with --encoder"
        )
    result = pretrain(
        encoder,
        options.data,
        options.output,
        vocab=options.vocab,
        held_out=options.held_out,
        config=config,
        command=options.command_line,
    )
    if result.scores:
        print("held out:")
        print(score_table(result.scores))
    print(f"model folder: {result.folder}")
    print(f"report:       {result.folder.with_name('report.html')}")


def _corpus(options: argparse.Namespace) -> tuple[Any, Any, CorpusReport]:
    """Return the documents, the function that splits one, and what is told of them."""
    from bert_keras.corpus.documents import CorpusReport, raw_documents, sentences_of

    # A vocabulary or shards inside the corpus would be read as text the next time.
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
    to_sentences = functools.partial(sentences_of, language=options.language)
    return documents, to_sentences, report


PRETRAINING_VERBS = {
    "vocab": _vocab,
    "pretraining-data": _pretraining_data,
    "pretrain": _pretrain,
}
