"""The command line `bert-keras`: one verb, one library call.

Everything heavy is imported by the verb that needs it, so that `--help` is quick. What
a command answers goes to stdout, what it says of its progress to stderr. A mistake of
the user's is one line and exit code 2.
"""

from __future__ import annotations

import argparse
import functools
import io
import os
import select
import shlex
import sys
from typing import TYPE_CHECKING, Any

from bert_keras.cli.arguments import (
    check_free,
    chosen_columns,
    model_sizes,
    named_tests,
    parse,
)
from bert_keras.cli.given_texts import Lines, batches, given_texts, words
from bert_keras.cli.options import config_of
from bert_keras.errors import BertKerasError, ConfigError, WorkerLostError, reason_of
from bert_keras.files.atomic import check_output_place
from bert_keras.files.json_file import json_text
from bert_keras.pretraining.config import PretrainConfig, PretrainingDataConfig
from bert_keras.runs.environment import (
    computes_bfloat16,
    environment,
    load_tensorflow,
    processor_features,
)
from bert_keras.runs.progress import report, say, set_quiet
from bert_keras.runs.stop_signal import EXIT_CODE, RunStopped
from bert_keras.serving.config import ServeConfig
from bert_keras.tasks import TASKS, find_task, parse_settings
from bert_keras.text.tokenizer_files import read_folder
from bert_keras.training.config import TrainConfig

if TYPE_CHECKING:
    from pathlib import Path

    from bert_keras.corpus.documents import CorpusReport
    from bert_keras.inference.served_model import ServedModel
    from bert_keras.tasks.base import Task
    from bert_keras.tasks.task_model import TaskModel
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


def run_process() -> int:
    """Run the command of this process, which ends after it; returns the exit code."""
    code = main()
    try:
        sys.stdout.flush()
    except OSError:
        # A closed pipe or a full disk: Python's exit would try again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code.

    The process's standard output is left as it is, so that a notebook may call this.

    Returns:
        0; 2 for a mistake of the user's; 69 where another worker has ended; 75 for a
        run that was stopped and is saved.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        options = parse(arguments)
        options.command_line = shlex.join(["bert-keras", *arguments])
        if ":" in (getattr(options, "task", None) or ""):
            sys.path.append(os.getcwd())  # a task of the user's own may lie there
        set_quiet(options.quiet)
        _VERBS[options.verb](options)
        sys.stdout.flush()
    except BertKerasError as error:
        return _mistake(str(error))
    except RunStopped as stopped:
        print(f"bert-keras: {stopped}: run it again to go on", file=sys.stderr)
        return EXIT_CODE
    except WorkerLostError as lost:
        print(f"bert-keras: {lost}", file=sys.stderr)
        return os.EX_UNAVAILABLE
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            return 0  # the reader of our answers has seen enough
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return _mistake(f"{place}{reason_of(error)}")
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        # Named, since TensorFlow is not imported here.
        memory = ("MemoryError", "ResourceExhaustedError")
        if type(error).__name__ not in memory:
            raise
        return _mistake("not enough memory; a smaller --batch-size may help")
    return 0


def _mistake(message: str) -> int:
    """Print the one line that tells a user what is wrong; returns the exit code."""
    print(f"bert-keras: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _reader_is_gone() -> bool:
    """Say whether standard output is a pipe that nobody reads any more."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return any(e & (select.POLLERR | select.POLLHUP) for _, e in poll.poll(0))
    except (OSError, ValueError, AttributeError):  # no file, as in a notebook
        return False


def _score_table(scores: dict[str, Any]) -> str:
    """Return scores as aligned text; the report's templates load when there are any."""
    from bert_keras.report.report import score_table

    return score_table(scores)


def _train(options: argparse.Namespace) -> None:
    load_tensorflow()
    from bert_keras.training import finetune as training
    from bert_keras.training import several_runs

    task = find_task(options.task)
    config = config_of(options, TrainConfig)
    train: Any = training.train
    if options.seeds > 1:
        train = functools.partial(several_runs.train_seeds, seeds=options.seeds)
    elif options.search:
        check_free(options)
        train = functools.partial(several_runs.search_settings, grid=options.search)
    result = train(
        task,
        encoder=options.encoder,
        train=_pairs(options.train, options.target_file),
        dev=_pairs(options.dev, options.dev_target_file),
        test=dict(named_tests(options.test)),
        columns=chosen_columns(options),
        header=options.header,
        output=options.output,
        config=config,
        task_settings={
            **parse_settings(task, options.settings),
            **_decoder_settings(task, options),
        },
        command=options.command_line,
        resume=options.resume,
    )
    for name, scores in result.scores.items():
        print(f"{name}:")
        print(_score_table(scores))
    print(f"model folder: {result.folder}")
    print(f"report:       {result.folder / 'report.html'}")
    _tell_of_bfloat16(options, "trains 1.2 times as many examples a second")


def _pairs(source: str | None, target: str | None) -> Any:
    """Return a file of rows, or with that of the targets its pairs of lines."""
    if target is None:
        return source
    if source is None:
        raise ConfigError("`--dev-target-file` needs `--dev`; received none")
    from bert_keras.data.parallel import read_parallel

    return read_parallel(source, target)


def _decoder_settings(task: type[Task], options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a task with a decoder that have options of their own.

    Raises:
        ConfigError: the task has no decoder.
    """
    given = {"decoder": options.decoder, "target_vocab": options.target_vocab}
    found = {name: value for name, value in given.items() if value is not None}
    for name, value in found.items():
        if not hasattr(task, name):
            raise ConfigError(
                f"`--{name.replace('_', '-')}` is for tasks that write; "
                f"received {value} for {task.name}"
            )
    return found


def _evaluate(options: argparse.Namespace) -> None:
    load_tensorflow()
    from bert_keras.inference.predictor import load
    from bert_keras.training.finetune import evaluate

    predictor = load(options.model, task=options.task, precision=options.precision)
    _with_settings(predictor.model, options)
    scores = evaluate(
        predictor,
        _pairs(options.file, options.target_file),
        columns=chosen_columns(options),
        header=options.header,
        batch_size=options.batch_size,
        max_batch_tokens=options.max_batch_tokens,
    )
    print(json_text(scores) if options.json else _score_table(scores))


def _predict(options: argparse.Namespace) -> None:
    load_tensorflow()
    from bert_keras.inference.predictor import load
    from bert_keras.inference.served_model import ServedModel

    predictor = load(options.model, task=options.task, precision=options.precision)
    task = _with_settings(predictor.model, options)
    _answer_in_utf8()
    names = [spec.name for spec in task.signatures()["serving_default"]]
    piped = Lines(getattr(sys.stdin, "buffer", io.BytesIO()))
    given = given_texts(options, task, chosen_columns(options), piped)
    wait = bool if options.texts or options.input else piped.wait
    for batch in batches(given, 32 * options.batch_size, wait):
        items = [item for _, item in batch]
        answers = predictor.predict(
            items,
            batch_size=options.batch_size,
            max_batch_tokens=options.max_batch_tokens,
        )
        for (name, item), answer in zip(batch, answers, strict=True):
            texts = (item,) if len(names) == 1 else item
            # A text that is answered by a `text` has the name of its role.
            shown = task.roles if set(names) & set(answer) else names
            asked: dict[str, Any] = dict(zip(shown, texts, strict=True))
            if name is not None:  # that the file gives to the row: it stands for both
                asked = {"id": name}
            row = {**asked, **answer}
            print(json_text(row), flush=True)
    if not isinstance(predictor.model, ServedModel):
        _tell_of_bfloat16(options, "answers 1.7 times as many texts a second")


def _features(options: argparse.Namespace) -> None:
    load_tensorflow()
    from bert_keras.inference.features import write_features

    count = write_features(
        options.model,
        options.file,
        options.output,
        level=options.level,
        column=options.text,
        header=options.header,
        batch_size=options.batch_size,
        combine=options.combine,
        pooling=options.pooling,
        **_embedder_settings(options),
    )
    print(f"{options.output}: {count:,} texts")


def _search(options: argparse.Namespace) -> None:
    load_tensorflow()
    from bert_keras.data.table import read_columns
    from bert_keras.inference.search import Search

    columns = read_columns(options.file, {"text": options.text}, header=options.header)
    search = Search.of(
        options.model,
        columns["text"],
        lines=columns.lines,
        engine=options.engine,
        index=options.index,
        batch_size=options.batch_size,
        **_embedder_settings(options),
    )
    _answer_in_utf8()
    piped = Lines(getattr(sys.stdin, "buffer", io.BytesIO()))
    queries = words(options.texts) or piped
    for batch in batches(queries, 32, bool if options.texts else piped.wait):
        for query, found in zip(batch, search(batch, top=options.top), strict=True):
            for row in found:
                row = {"query": query, **row}
                print(json_text(row), flush=True)


def _embedder_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return what `features` and `search` have in common."""
    normalize = {None: None, "yes": True, "no": False}
    return {
        "layers": getattr(options, "layers", None),
        "normalize": normalize[getattr(options, "normalize", None)],
        "max_length": options.max_length,
        "precision": options.precision,
    }


def _export(options: argparse.Namespace) -> None:
    load_tensorflow()
    from bert_keras.inference.export import export_model
    from bert_keras.inference.model_folder import load_model

    places = {"model": options.model}
    check_output_place("output", options.output, places, around=True)
    model = load_model(options.model, task=options.task, dtype=options.precision)
    _with_settings(model, options)
    folder = export_model(model, options.output)
    if options.precision != "float32":
        _compare_to_float32(folder, model, options)
    print(folder)


def _compare_to_float32(
    folder: Path, model: TaskModel, options: argparse.Namespace
) -> None:
    """Say what an export in 16 bits changes: its size and, with --dev, its scores."""
    from bert_keras.inference.predictor import Predictor, load
    from bert_keras.training.finetune import evaluate

    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    weights = 4 * model.count_params()
    say(
        f"{options.precision}: {size / 1e6:,.1f} MB; the weights alone take "
        f"{weights / 1e6:,.1f} MB in float32"
    )
    if options.dev is None:
        return
    exact = load(options.model, task=options.task)
    _with_settings(exact.model, options)
    for name, predictor in (
        (options.precision, Predictor(model)),
        ("float32", exact),
    ):
        say(f"{name}, {options.dev}:")
        say(_score_table(evaluate(predictor, options.dev)))


def _tell_of_bfloat16(options: argparse.Namespace, gain: str) -> None:
    """Report what float32 leaves unused of this processor; docs/speed.md measures it.

    Silent where a GPU computes.
    """
    import tensorflow as tf

    is_float32 = getattr(options, "precision", "float32") == "float32"
    if (
        is_float32
        and computes_bfloat16()
        and not tf.config.list_physical_devices("GPU")
    ):
        report(
            "this processor computes in bfloat16: --precision mixed_bfloat16 "
            f"{gain} (MiniLM, docs/speed.md)"
        )


def _serve(options: argparse.Namespace) -> None:
    config = config_of(options, ServeConfig)
    load_tensorflow()
    from bert_keras.serving.server import serve

    serve(options.paths, config=config, is_quiet=options.quiet)


def _deploy(options: argparse.Namespace) -> None:
    load_tensorflow()
    from bert_keras.serving.deployment import write_deployment

    print(
        write_deployment(
            options.folder,
            options.models,
            image=options.image,
            storage=options.storage,
        )
    )


def _with_settings(model: TaskModel | ServedModel, options: argparse.Namespace) -> Task:
    """Give a trained model the settings that the user chose; return its task."""
    settings = parse_settings(model.task, options.settings)
    model.task = model.task.changed(**settings)
    return model.task


def _convert(options: argparse.Namespace) -> None:
    load_tensorflow()
    from bert_keras.inference.convert import convert

    for note in convert(options.source, options.target, to=options.to):
        print(note, file=sys.stderr)
    print(options.target)


def _info(options: argparse.Namespace) -> None:
    if options.machine == (options.path is not None):
        raise ConfigError("`info` takes either a PATH or --machine")
    if options.machine:
        features = {
            name: "yes" if there else "no"
            for name, there in processor_features().items()
        }
        facts: dict[str, Any] = {**environment(), **features}
    else:
        from bert_keras.inference.info import describe

        facts = describe(options.path)
    if options.json:
        print(json_text(facts, ensure_ascii=True))
        return
    width = max(len(key) for key in facts)
    for key, value in facts.items():
        print(f"{key:<{width}}  {value}")


def _tasks(options: argparse.Namespace) -> None:
    width = max(len(name) for name in TASKS)
    for name, (_, summary) in TASKS.items():
        print(f"{name:<{width}}  {summary}")


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
    config = config_of(options, PretrainingDataConfig)
    load_tensorflow()
    from bert_keras.pretraining.data import write_pretraining_data
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
    print(_score_table({k: v for k, v in manifest.items() if k in _COUNTED}))
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
    config = config_of(options, PretrainConfig)
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
        print(_score_table(result.scores))
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


def _answer_in_utf8() -> None:
    """Let standard output be UTF-8, as JSON is, whatever the terminal."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")


_VERBS = {
    "train": _train,
    "evaluate": _evaluate,
    "predict": _predict,
    "features": _features,
    "search": _search,
    "export": _export,
    "serve": _serve,
    "deploy": _deploy,
    "convert": _convert,
    "info": _info,
    "tasks": _tasks,
    "vocab": _vocab,
    "pretraining-data": _pretraining_data,
    "pretrain": _pretrain,
}
