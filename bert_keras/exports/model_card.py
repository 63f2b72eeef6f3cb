"""The model card of a folder: `README.md` in the form of the Hugging Face Hub.

A card has a block of metadata, from which the hub shows task and scores, and a text for
people: how to load the model, its training data, its scores and its limits, as
`templates/card.md.jinja` has them. It is built from the files of the folder and, after
training, from the content of the report; after a conversion it names the source.

Source: Mitchell et al. 2019, "Model Cards for Model Reporting" (arXiv:1810.03993).
"""

from __future__ import annotations

import ast
import functools
import json
import math
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import jinja2

from bert_keras.checkpoints import read_checkpoint
from bert_keras.checkpoints.formats import HUB
from bert_keras.checkpoints.model_types import their_architecture, title_of, to_ours
from bert_keras.checkpoints.sentence_files import (
    pair_activation,
    pair_scores,
    text_length,
)
from bert_keras.config import KEY, BertConfig
from bert_keras.errors import CheckpointError, ConfigError, counted, first_of
from bert_keras.files.atomic import CARD
from bert_keras.files.json_file import read_json
from bert_keras.scoring.intervals import wilson_interval
from bert_keras.tasks import TASKS, find_task
from bert_keras.tasks.hugging_face import MULTI_LABEL, SINGLE_LABEL, from_model_config

VALIDATION = "cross-validation"  # the first word of such scores
_LIBRARY = "bert_keras"
_several = functools.partial(first_of, most=50)  # the classes that a card lists

# Task to the hub's name of it, and to what `predict` takes.
_PIPELINES = {
    "abstractive-summarization": "summarization",
    "classification": "text-classification",
    "embedding": "sentence-similarity",
    "feature-tagging": "token-classification",
    "masked-lm": "fill-mask",
    "multi-label": "text-classification",
    "multiple-choice": "multiple-choice",
    "next-sentence": "text-classification",
    "question-answering": "question-answering",
    "regression": "text-classification",
    "reranking": "text-ranking",
    "summarization": "summarization",
    "token-classification": "token-classification",
    "translation": "translation",
}
_FEATURES = "feature-extraction"  # of an encoder
_PAIR = '("A man sleeps.", "Somebody rests.")'
_INPUTS = {
    "embedding": '"How do I reset my password?"',
    "feature-tagging": '"Anna Weber lives in Vienna."',
    "masked-lm": '"The cat sat on the [MASK]."',
    "multiple-choice": '("She opened her umbrella because", ["it rained.", "it ran."])',
    "next-sentence": _PAIR,
    "question-answering": '("When was it built?", "The tower was built in 1889.")',
    "reranking": '("reset password", "“Forgot password” is on the sign-in page.")',
    "summarization": '"A long document. It has many sentences."',
    "token-classification": '"Anna Weber lives in Vienna."',
}
# Scores that are a share of the rows, with the share of one row.
_SHARES = {
    "classification": {"accuracy": 1},
    "multi-label": {"exact_match": 1},
    "multiple-choice": {"accuracy": 1},
    "next-sentence": {"accuracy": 1},
    "question-answering": {"exact": 100},
}
_SETTINGS = (
    "method",
    "epochs",
    "best_epoch",
    "batch_size",
    "learning_rate",
    "optimizer",
    "weight_decay",
    "warmup_ratio",
    "seed",
    "keep_layers",
    "student",
    "temperature",
    "distill_weight",
    "aligned_to",
    "augment",
    "precision",
    "freeze_layers",
    "lora_rank",
    "unlabeled",
    "training_seconds",
)
_VERSIONS = ("python", "bert_keras", "tensorflow", "keras")
_FORMATS = {
    "google": "google-research/{model_type}, TensorFlow 1",
    "huggingface": "Hugging Face",
    "keras-hub": "KerasHub",
    "model-garden": "TF Model Garden",
    "tf-hub": "TF-Hub",
}


# Tasks that read all of a long text, without the setting `long`.
_IN_WINDOWS = (
    "feature-tagging",
    "question-answering",
    "summarization",
    "token-classification",
)


class Source(NamedTuple):
    """What a model folder was converted from.

    Attributes:
        name: path or hub name, as the user gave it.
        origin: its format, see `Checkpoint`.
        new_tokens: number of tokens that it was extended by.
        layers: numbers of the layers that were kept; empty: all.
    """

    name: str
    origin: str
    new_tokens: int = 0
    layers: tuple[int, ...] = ()


def write_readme(
    old: str | os.PathLike[str],
    new: Path,
    *,
    name: str | None = None,
    card: bool = True,
    report: Mapping[str, Any] | None = None,
    source: Source | None = None,
) -> bool:
    """Write the README.md of a model folder, its card; another README.md is kept.

    Args:
        old: the folder that `new` is about to replace; need not exist. Its README.md is
            copied if it is not one of our cards.
        new: the new folder, which has its config and tokenizer already.
        name: name of the model; by default the name of `old`.
        card: whether to write a card.
        report: `TrainResult.report`; without it, the card has no data and no scores.
        source: what the folder was converted from, if it was.

    Returns:
        Whether the README.md of `old` is kept.
    """
    readme = Path(old) / CARD
    if readme.is_file() and not _is_ours(readme):
        shutil.copyfile(readme, new / CARD)
        return True
    if card:
        name = name or Path(os.path.realpath(old)).name
        text = model_card(new, name=name, report=report, source=source)
        (new / CARD).write_text(text, encoding="utf-8")
    return False


def _is_ours(readme: Path) -> bool:
    """Return whether the metadata of a README.md names this library."""
    text = readme.read_text(encoding="utf-8", errors="replace")
    start, _, rest = text.partition("---\n")
    lines = rest.partition("\n---")[0].splitlines()
    return not start.strip() and f"library_name: {_LIBRARY}" in lines


def model_card(
    folder: str | os.PathLike[str],
    *,
    name: str,
    report: Mapping[str, Any] | None = None,
    source: Source | None = None,
) -> str:
    """Return the text of the card of a folder; see `write_readme`."""
    report, folder = report or {}, Path(folder)
    encoder, is_on_hub = _encoder(report, source)
    facts = {
        **_facts_of_folder(folder, has_source=source is not None),
        **_facts_of_report(report),
        "name": name,
        "encoder": encoder,
        "source": source,
        "new_tokens": f"{source.new_tokens:,}" if source and source.new_tokens else "",
    }
    if source:
        form = _FORMATS.get(source.origin, source.origin)
        facts["source_format"] = form.format(**facts)
    facts["scores"] = rows = _score_rows(report, facts["task"])
    facts["has_intervals"] = any("(" in cell for row in rows[1:] for cell in row[1:])
    facts["metadata"] = _metadata(facts, encoder if is_on_hub else "")
    return _template().render(facts)


@functools.cache
def _template() -> jinja2.Template:
    import jinja2  # not for a model that is only read

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bert_keras.exports"),
        autoescape=False,  # noqa: S701  # Markdown: `plain` and `code` escape
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"plain": _plain, "code": _code, "several": _several}
    return environment.get_template("card.md.jinja")


def usage_of(
    folder: str | os.PathLike[str],
    *,
    task: str,
    settings: Mapping[str, Any],
    inputs: Sequence[str],
) -> dict[str, str]:
    """Return code that loads a model folder, and commands that serve it, by heading.

    Args:
        folder: the model folder, as the user named it.
        task: name of the task.
        settings: its settings.
        inputs: names of the inputs of the model's default signature.
    """
    place, text = os.fspath(folder), _input_of(task, settings)
    name = os.path.basename(os.path.normpath(place))
    parts = ast.literal_eval(text)
    if not isinstance(parts, str):
        parts = dict(zip(inputs, parts, strict=False))
    request = shlex.quote(json.dumps({"instances": [parts]}))
    url = shlex.quote(f"localhost:8501/v1/models/{name}:predict")
    served = shlex.quote(place)
    exported = shlex.quote(os.path.join("saved_models", name))
    own, export = "", f"bert-keras export {served} {exported}"
    if task not in TASKS:  # which only an export serves without its code
        own, export = f", task={task!r}", f"{export} --task {shlex.quote(task)}"
        served = exported
    return {
        "In Python": (
            "import bert_keras\n\n"
            f"predictor = bert_keras.load_predictor({place!r}{own})\n"
            f"print(predictor.predict([{text}]))"
        ),
        "As a SavedModel": export,
        "As a server": f"bert-keras serve {served}\ncurl -d {request} {url}",
    }


def _task_of(
    config: Mapping[str, Any], has_sentence_files: bool
) -> tuple[str, Mapping[str, Any]]:
    """Return the name of a model folder's task and its settings.

    The name is empty for an encoder, which `load` does not open.
    """
    own = config.get(KEY, {})
    if "task" in own:
        return str(own["task"]), own.get("settings", {})
    if has_sentence_files:
        return "embedding", {}
    for name in TASKS:
        task = find_task(name)
        if task.head_codec.reads(config):
            try:
                return name, from_model_config(task, config).get_config()
            except (CheckpointError, ConfigError):
                break
    return "", {}


def _input_of(task: str, settings: Mapping[str, Any]) -> str:
    """Return an input of `predict` for a task, as Python."""
    return _PAIR if settings.get("pairs") else _INPUTS.get(task, '"A text."')


def _longer(settings: Mapping[str, Any]) -> str:
    """Return what is done with texts longer than a row."""
    if settings.get("long") == "head-tail":
        return (
            "; the first quarter and the end of longer texts. Other tools read their "
            "start alone"
        )
    if settings.get("long") != "windows":
        return ""
    found = "; longer texts in windows of that length"
    if settings.get("stride"):
        found += f", which start every {settings['stride']} tokens"
    if settings.get("max_windows"):
        found += f", at most {settings['max_windows']} of a text"
    if settings.get("combine"):
        found += f", combined by {settings['combine']}"
    return f"{found}. Other tools truncate them"


def _sizes(config: BertConfig) -> str:
    return (
        f"{counted(config.num_hidden_layers, 'layers')}, hidden size "
        f"{config.hidden_size}, {config.num_attention_heads} attention heads"
    )


def _parameters(folder: Path, encoder: BertConfig) -> str:
    """Return the number of parameters of the encoder, and of the model if it has more.

    A folder without weights that can be read, as for an engine, tells the sizes alone.
    """
    try:
        shapes = read_checkpoint(folder).shapes
    except CheckpointError:
        return f"{encoder.parameter_count():,} parameters with a pooler"
    counts = {name: math.prod(shape) for name, shape in shapes.items()}
    own = sum(n for name, n in counts.items() if name.startswith("bert/"))
    whole = sum(counts.values())
    if not own:
        return f"{whole:,} parameters in the whole model"
    text = f"{own:,} parameters"
    return text if own == whole else f"{text}; {whole:,} in the whole model"


def _facts_of_folder(folder: Path, *, has_source: bool) -> dict[str, Any]:
    """Return the facts about a model in the files of its folder."""
    config = to_ours(read_json(folder / "config.json"))
    own = {"cross_encoder": pair_activation(folder, config), **config.get(KEY, {})}
    config = {**config, KEY: own}
    has_sentence_files = (folder / "modules.json").is_file()
    task, settings = _task_of(config, has_sentence_files)
    outputs = [str(label) for label in config.get("id2label", {}).values()]
    entailment = settings.get("entailment", ())
    labels = settings["classes"] if entailment else outputs
    lowercase = read_json(folder / "tokenizer_config.json").get("do_lower_case", True)
    # A model that writes holds the configs of its two halves.
    encoder = BertConfig.from_dict(config.get("encoder", config))
    max_length = own.get("preprocessing", {}).get("max_length")
    if max_length is None and pair_scores(config) is not None:
        max_length = text_length(folder)
    case = "uncased" if lowercase else "cased"
    rows = [
        ("", ""),
        ("encoder", f"{_sizes(encoder)}, {_parameters(folder, encoder)}"),
        ("vocabulary", f"{encoder.vocab_size:,} tokens, {case}"),
    ]
    if "decoder" in config:
        decoder = BertConfig.from_dict(config["decoder"])
        rows.append(("decoder", f"{_sizes(decoder)}, {decoder.vocab_size:,} tokens"))
    if settings.get("pooling") and task != "embedding":
        length = ", normalized to length 1" if settings.get("normalize") else ""
        which = " of each layer" if settings.get("layers") == "all" else ""
        pooled = f"{settings['pooling']} of the tokens' vectors{which}{length}"
        rows.append(("the head reads", pooled))
    answers = folder / "answers.json"  # of a folder for an engine
    engine = read_json(answers) if answers.is_file() else {}
    if engine:
        rows.append(("weights", f"in {engine['precision']}, `{engine['model']}`"))
    longest = max_length or encoder.max_position_embeddings
    rows.append(("longest input", f"{longest} tokens{_longer(settings)}"))
    weights = folder / "model.safetensors"
    if has_source and weights.is_file():
        rows.append(("weights", f"float32, {weights.stat().st_size / 1e6:,.1f} MB"))
    if labels and task not in ("regression", "reranking"):
        rows.append(("classes", _several([_code(label) for label in labels])))
    if entailment:
        rows.append(("outputs", _several([_code(label) for label in outputs])))
    return {
        "task": task,
        "settings": settings,
        "is_own_task": task not in TASKS,
        "summary": TASKS[task].summary if task in TASKS else "a task of its own",
        "example": _input_of(task, settings),
        "architecture": their_architecture(encoder, str(config["architectures"][0])),
        "model_type": encoder.model_type,
        "title": title_of(encoder),
        "has_sentence_files": has_sentence_files,
        "from_logits": _from_logits(task, settings) if has_sentence_files else [],
        "engine": engine.get("engine", ""),
        "labels": labels,
        "entailment": entailment,
        "lowercase": lowercase,
        "max_length": max_length,
        "is_truncated": not _longer(settings) and task not in _IN_WINDOWS,
        "model": rows,
    }


def _from_logits(task: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the code that makes a head's answers of its logits; empty for vectors."""
    if task not in TASKS or task == "embedding":
        return []
    kind = find_task(task).head_codec.problem_type
    temperature = settings.get("temperature", 1.0)
    found = [] if temperature == 1 else [f"logits /= {temperature!r}"]
    if kind == SINGLE_LABEL:
        found += [
            "p = np.exp(logits - logits.max(axis=1, keepdims=True))",
            "p /= p.sum(axis=1, keepdims=True)  # softmax: a column for each class",
        ]
    elif kind == MULTI_LABEL:
        found.append(
            "p = 1 / (1 + np.exp(-logits))  # sigmoid: a column for each class"
        )
    elif settings.get("activation") == "sigmoid":
        found.append("scores = 1 / (1 + np.exp(-logits[:, 0]))")
    else:
        found.append("scores = logits[:, 0]")
    return found


def _facts_of_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about data and training in a report."""
    data: Mapping[str, Any] = report.get("data", {})
    rows: list[tuple[str, ...]]
    rows = [("set", "rows", "mean tokens", "longest", "truncated")]
    columns = ("rows", "mean_tokens", "longest_tokens", "truncated")
    for name, facts in data.items():
        if isinstance(facts, Mapping):
            cells = [f"{facts[column]:,}" for column in columns]
            rows.append((_plain(name), *cells))
    classes: Mapping[str, int] = data.get("train", {}).get("classes", {})
    settings: Mapping[str, Any] = report.get("settings", {})
    environment: Mapping[str, Any] = report.get("environment", {})
    splits = _splits(report)
    validation = next((s for s in splits if s.startswith(VALIDATION)), "")
    training = [("setting", "value")]
    choices: Sequence[Mapping[str, str]] = report.get("choices", ())
    chosen = {row["name"].replace(" ", "_") for row in choices}
    for key in _SETTINGS:
        if settings.get(key) not in (None, 0, "") and key not in chosen:
            training.append((key, str(settings[key])))
    training += [(key, environment[key]) for key in _VERSIONS if key in environment]
    return {
        "data": rows if data else [],
        "notes": [facts for facts in data.values() if isinstance(facts, str)],
        "calibrated": settings.get("calibrated", ""),
        "is_trained": bool(settings),
        "has_dev": "dev" in report.get("scores", {}) and "best_epoch" in settings,
        "validation": validation,
        "trained_on": splits.get(validation, {}).get("trained_on", ""),
        "classes": [f"{_code(name)} {count:,}" for name, count in classes.items()],
        "splits": splits,
        "best_score": report.get("best_score"),
        "runs": len(_runs(report).get("per_run", ())),
        "students": _student_rows(report),
        "max_drop": settings.get("max_drop"),
        "teacher": _last_part(settings.get("teacher") or ""),
        "training": training if len(training) > 1 else [],
        "choices": _choice_rows(choices) if choices else [],
    }


def _choice_rows(choices: Sequence[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """Return the table of what a run decided, and why."""
    cells = [(row["name"], row["value"], _plain(row["reason"])) for row in choices]
    return [("choice", "value", "reason"), *cells]


def _student_rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the table of teacher and student."""
    rows: Sequence[Mapping[str, Any]] = report.get("students", ())
    if not rows:
        return []
    names = {"milliseconds": "milliseconds for 1,000 rows"}
    names["width"] = "numbers in a vector"
    cells = [tuple(map(_short, row.values())) for row in rows]
    return [tuple(names.get(key, key) for key in rows[0]), *cells]


def _short(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _encoder(report: Mapping[str, Any], source: Source | None) -> tuple[str, bool]:
    """Return the encoder's name, and whether it is on the hub.

    Of a local path it is the last part: a card is published.
    """
    name = str(report.get("settings", {}).get("encoder", ""))
    if source is not None:
        name = source.name
    if name.startswith(HUB):
        return name.removeprefix(HUB), True
    return _last_part(name), False


def _last_part(path: str) -> str:
    """Return the name of a folder without its place."""
    return os.path.basename(os.path.normpath(path)) if path else ""


def _metadata(facts: Mapping[str, Any], hub_encoder: str) -> str:
    """Return the block that the hub reads, as YAML."""
    from huggingface_hub import EvalResult, ModelCardData

    task: str = facts["task"]
    pipeline = _PIPELINES.get(task) if task else _FEATURES
    results = [
        EvalResult(
            task_type=pipeline or "other",
            dataset_type=split,
            dataset_name=split,
            metric_type=key,
            metric_value=value,
        )
        for split, scores in facts["splits"].items()
        for key, value in _numbers(scores)
    ]
    return ModelCardData(
        base_model=hub_encoder.partition("@")[0] or None,
        eval_results=results or None,
        library_name=_LIBRARY,
        model_name=facts["name"],
        pipeline_tag=pipeline,
        tags=[
            facts["model_type"],
            "keras",
            *([task.replace(":", "-")] if task else []),
        ],
    ).to_yaml()


def _splits(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    scores: Mapping[str, Any] = report.get("scores", {})
    return {k: v for k, v in scores.items() if k not in ("runs", "diverged")}


def _runs(report: Mapping[str, Any]) -> Mapping[str, Any]:
    return report.get("scores", {}).get("runs", {})


def _score_rows(report: Mapping[str, Any], task: str) -> list[tuple[str, ...]]:
    """Return the table of the scores: a column for each split."""
    splits = _splits(report)
    keys = dict.fromkeys(key for each in splits.values() for key, _ in _numbers(each))
    rows = [("score", *map(_plain, splits))]
    for key in keys:
        name = f"**{key}**" if key == report["best_score"] else key
        rows.append(
            (name, *(_score_text(report, task, split, key) for split in splits))
        )
    return rows


def _score_text(report: Mapping[str, Any], task: str, split: str, key: str) -> str:
    """Return a score with its interval, or with its deviation over several runs."""
    value, runs = report["scores"][split].get(key), _runs(report)
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else f"{value:,}"
    deviation = runs.get("standard_deviation", {}).get(split, {}).get(key)
    if deviation is not None:
        return f"{text}; of all runs {runs['mean'][split][key]:.4g} ± {deviation:.2g}"
    interval = report["scores"][split].get("intervals", {}).get(key)
    if interval is not None:  # over queries
        return f"{text} ({interval['low']:.3g} to {interval['high']:.3g})"
    facts = report.get("data", {}).get(split, {})
    count = facts.get("rows") if isinstance(facts, Mapping) else None
    whole = _SHARES.get(task, {}).get(key)
    if whole and count:
        low, high = wilson_interval(min(value / whole, 1.0), count)
        text += f" ({low * whole:.3g} to {high * whole:.3g})"
    return text


def _numbers(scores: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the scores that are single numbers."""
    return [
        (key, value)
        for key, value in scores.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and key != "num_examples"  # the table of the data has it
    ]


def _plain(text: str) -> str:
    """Return text in one line, with the characters of Markdown escaped."""
    text = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in text)


def _code(text: str) -> str:
    """Return text as code in a table."""
    return f"`{' '.join(text.split()).replace('`', '´').replace('|', '¦')}`"
