"""The model card of a folder: `README.md` in the form of the Hugging Face Hub.

A card has a block of metadata, from which the hub shows task and scores, and a text for
people: how to load the model, its training data, its scores and its limits. It is built
from the files of the folder and, after training, from the content of the report; after
a conversion it names the source.

Source: Mitchell et al. 2019, "Model Cards for Model Reporting" (arXiv:1810.03993).
"""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_keras.checkpoints.checkpoint import KEY
from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError, ConfigError
from bert_keras.files.json_file import read_json
from bert_keras.scoring.intervals import wilson_interval
from bert_keras.tasks import TASKS, find_task

CARD = "README.md"
_HUB = "hf://"
_LIBRARY = "bert_keras"
_MOST_CLASSES = 50  # that a card lists

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
    "epochs",
    "best_epoch",
    "batch_size",
    "learning_rate",
    "optimizer",
    "weight_decay",
    "warmup_share",
    "seed",
    "precision",
    "freeze_layers",
    "lora_rank",
    "training_seconds",
)
_VERSIONS = ("python", "bert_keras", "tensorflow", "keras")
_FORMATS = {
    "google": "google-research/bert, TensorFlow 1",
    "huggingface": "Hugging Face",
    "keras-hub": "KerasHub",
    "model-garden": "TF Model Garden",
    "tf-hub": "TF-Hub",
}


class Source(NamedTuple):
    """What a model folder was converted from.

    Attributes:
        name: path or hub name, as the user gave it.
        origin: its format, see `Checkpoint`.
    """

    name: str
    origin: str


def write_card(
    folder: str | os.PathLike[str],
    *,
    name: str,
    report: Mapping[str, Any] | None = None,
    source: Source | None = None,
) -> None:
    """Write the card of a model folder that has its config and tokenizer already.

    Args:
        folder: the model folder.
        name: name of the model.
        report: `TrainResult.report`; without it, the card has no data and no scores.
        source: what the folder was converted from, if it was.
    """
    text = model_card(folder, name=name, report=report, source=source)
    (Path(folder) / CARD).write_text(text, encoding="utf-8")


def keep_readme(old: str | os.PathLike[str], new: Path) -> bool:
    """Copy a folder's README.md that is not one of our cards; return if there is one.

    Args:
        old: a folder that `new` is about to replace; need not exist.
        new: gets the copy.
    """
    readme = Path(old) / CARD
    if not readme.is_file() or _is_ours(readme):
        return False
    shutil.copyfile(readme, new / CARD)
    return True


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
    """Return the text of a card; arguments as for `write_card`."""
    card = _Card(Path(folder), name, report or {}, source)
    parts = [
        f"---\n{card.metadata()}\n---",
        f"# {_plain(name)}",
        *card.introduction(),
        *card.usage(),
        *card.model(),
        *card.data(),
        *card.scores(),
        *card.training(),
        *card.limits(),
    ]
    return "\n\n".join(parts) + "\n"


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
            f"predictor = bert_keras.load({place!r}{own})\n"
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
        if task.reads(config):
            try:
                return name, task.from_model_config(config).settings()
            except (CheckpointError, ConfigError):
                break
    return "", {}


def _input_of(task: str, settings: Mapping[str, Any]) -> str:
    """Return an input of `predict` for a task, as Python."""
    return _PAIR if settings.get("pairs") else _INPUTS.get(task, '"A text."')


def _sizes(config: BertConfig) -> str:
    return (
        f"{config.num_hidden_layers} layers, hidden size {config.hidden_size}, "
        f"{config.num_attention_heads} attention heads"
    )


class _Card:
    """The parts of a card."""

    def __init__(
        self, folder: Path, name: str, report: Mapping[str, Any], source: Source | None
    ) -> None:
        config = read_json(folder / "config.json")
        tokenizer = folder / "tokenizer_config.json"
        self.name = name
        self.report = report
        self.source = source
        weights = folder / "model.safetensors"
        self.bytes = weights.stat().st_size if weights.is_file() else 0
        # A model that writes holds those of its two halves.
        self.config = BertConfig.from_dict(config.get("encoder", config))
        decoder = config.get("decoder")
        self.decoder = None if decoder is None else BertConfig.from_dict(decoder)
        self.lowercase = read_json(tokenizer).get("do_lower_case", True)
        self.labels = [str(label) for label in config.get("id2label", {}).values()]
        self.architecture = str(config["architectures"][0])
        own = config.get(KEY, {})
        self.has_sentence_files = (folder / "modules.json").is_file()
        self.task, self.settings = _task_of(config, self.has_sentence_files)
        self.max_length = own.get("preprocessing", {}).get("max_length")
        encoder = str(report.get("settings", {}).get("encoder", ""))
        if source is not None:
            encoder = source.name
        self.is_on_hub = encoder.startswith(_HUB)
        # Of a local path only the last part: a card is published.
        self.encoder = encoder.removeprefix(_HUB)
        if not self.is_on_hub:
            self.encoder = (
                os.path.basename(os.path.normpath(encoder)) if encoder else ""
            )

    def metadata(self) -> str:
        """Return the block that the hub reads, as YAML."""
        from huggingface_hub import EvalResult, ModelCardData

        pipeline = _PIPELINES.get(self.task) if self.task else _FEATURES
        task = [self.task.replace(":", "-")] if self.task else []
        results = [
            EvalResult(
                task_type=pipeline or "other",
                dataset_type=split,
                dataset_name=split,
                metric_type=key,
                metric_value=value,
            )
            for split, scores in self._splits().items()
            for key, value in _numbers(scores)
        ]
        return ModelCardData(
            base_model=self.encoder.partition("@")[0] if self.is_on_hub else None,
            eval_results=results or None,
            library_name=_LIBRARY,
            model_name=self.name,
            pipeline_tag=pipeline,
            tags=["bert", "keras", *task],
        ).to_yaml()

    def introduction(self) -> Iterable[str]:
        trained = f", fine-tuned from {_code(self.encoder)}" if self.encoder else ""
        origin = ""
        if self.source is not None:
            trained, format = "", _FORMATS.get(self.source.origin, self.source.origin)
            origin = (
                f" Converted from {_code(self.encoder)} (format: {format}); the "
                "weights are those of the source."
            )
        if not self.task:
            yield f"A BERT encoder without a head.{origin}"
            return
        what = TASKS[self.task][1] if self.task in TASKS else "a task of its own"
        yield f"A BERT model for {_code(self.task)}{trained}: {what}.{origin}"

    def usage(self) -> Iterable[str]:
        text = _input_of(self.task, self.settings)
        yield "## How to use it"
        yield "`FOLDER` is this folder, or `hf://owner/name` on the hub."
        if self.task:
            own = "" if self.task in TASKS else f', task="{self.task}"'
            yield _python(
                "import bert_keras\n\n"
                f'predictor = bert_keras.load("FOLDER"{own})\n'
                f"predictor.predict([{text}])"
            )
        else:
            yield _python(
                "import bert_keras\n\n"
                'encoder = bert_keras.BertEncoder.from_pretrained("FOLDER")\n'
                f'vectors = bert_keras.embed("FOLDER", [{text}])'
            )
            yield (
                "`bert-keras train TASK --encoder FOLDER` puts the head of a task on "
                "it."
            )
        if self.has_sentence_files:
            yield "In sentence-transformers:"
            yield _python(
                "from sentence_transformers import SentenceTransformer\n\n"
                'model = SentenceTransformer("FOLDER")\n'
                f"model.encode([{text}])"
            )
            return
        yield "In transformers:"
        yield _python(
            f"from transformers import AutoTokenizer, {self.architecture}\n\n"
            'tokenizer = AutoTokenizer.from_pretrained("FOLDER")\n'
            f'model = {self.architecture}.from_pretrained("FOLDER")'
        )
        if self.task and self.architecture == "BertModel":
            yield (
                "transformers reads the encoder only: it has no class for this head, "
                "which bert_keras reads."
            )

    def model(self) -> Iterable[str]:
        config = self.config
        case = "uncased" if self.lowercase else "cased"
        rows = [
            ("encoder", f"{_sizes(config)}, {config.parameter_count():,} parameters"),
            ("vocabulary", f"{config.vocab_size:,} tokens, {case}"),
        ]
        if self.decoder is not None:
            text = f"{_sizes(self.decoder)}, {self.decoder.vocab_size:,} tokens"
            rows.append(("decoder", text))
        longest = self.max_length or config.max_position_embeddings
        rows.append(("longest input", f"{longest} tokens"))
        if self.source is not None and self.bytes:
            rows.append(("weights", f"float32, {self.bytes / 1e6:,.1f} MB"))
        if self.labels and self.task != "regression":
            rows.append(("classes", _several(map(_code, self.labels))))
        yield "## Model"
        yield _table(("", ""), rows)

    def data(self) -> Iterable[str]:
        data: Mapping[str, Any] = self.report.get("data", {})
        if not data:
            return
        yield "## Data"
        yield _table(
            ("set", "rows", "mean tokens", "longest", "truncated"),
            [
                (
                    _plain(name),
                    f"{facts['rows']:,}",
                    f"{facts['mean_tokens']:,}",
                    f"{facts['longest_tokens']:,}",
                    f"{facts['truncated']:,}",
                )
                for name, facts in data.items()
            ],
        )
        classes: Mapping[str, int] = data.get("train", {}).get("classes", {})
        if classes:
            counts = [f"{_code(name)} {count:,}" for name, count in classes.items()]
            yield f"Training rows of each class: {_several(counts)}."

    def scores(self) -> Iterable[str]:
        splits = self._splits()
        if not splits:
            return
        best = self.report["best_score"]
        rows = []
        for key in dict.fromkeys(
            k for each in splits.values() for k, _ in _numbers(each)
        ):
            text = [self._score_text(name, each, key) for name, each in splits.items()]
            rows.append((f"**{key}**" if key == best else key, *text))
        yield "## Scores"
        yield _table(("score", *map(_plain, splits)), rows)
        notes = [f"**{best}** on dev chose the epoch."]
        if self._runs():
            notes.append(
                f"± is the standard deviation of {len(self._runs()['per_run'])} runs; "
                "this model is the best of them on dev."
            )
        if any("(" in cell for row in rows for cell in row[1:]):
            notes.append("In parentheses: the 95% interval for so many rows (Wilson).")
        yield " ".join(notes)

    def training(self) -> Iterable[str]:
        settings: Mapping[str, Any] = self.report.get("settings", {})
        environment: Mapping[str, Any] = self.report.get("environment", {})
        rows = [
            (key, str(settings[key]))
            for key in _SETTINGS
            if settings.get(key) not in (None, 0)
        ]
        rows += [(key, environment[key]) for key in _VERSIONS if key in environment]
        if rows:
            yield "## Training"
            yield _table(("setting", "value"), rows)

    def limits(self) -> Iterable[str]:
        lines = []
        if self.max_length and self.task not in ("question-answering", "summarization"):
            lines.append(f"Longer inputs are truncated to {self.max_length} tokens.")
        if self.lowercase:
            lines.append("Text is lower-cased and accents are dropped.")
        if self.labels and self.task in ("classification", "multi-label"):
            lines.append("It knows only the classes above.")
        if self.settings.get("calibration") == "none":
            lines.append(
                "Its probabilities are not calibrated: a score of 0.9 need not be "
                "right nine times out of ten."
            )
        if self._splits():
            lines.append("The scores hold for texts like those of the data above.")
        elif self.source is not None:
            lines.append(
                "Its training data and scores are not known here: see the source."
            )
        else:
            lines.append("Its scores are not known.")
        lines.append(
            "A pretrained encoder has learned the biases of its texts. Test the model "
            "on the people and texts that it is meant for."
        )
        of = "those of the encoder and of the data apply"
        if self.source is not None:
            of = "that of the source applies"
        lines.append(f"This card names no licence: {of}.")
        yield "## Limits"
        yield "\n".join(f"- {line}" for line in lines)

    def _splits(self) -> dict[str, Mapping[str, Any]]:
        scores: Mapping[str, Any] = self.report.get("scores", {})
        return {k: v for k, v in scores.items() if k not in ("runs", "diverged")}

    def _runs(self) -> Mapping[str, Any]:
        return self.report.get("scores", {}).get("runs", {})

    def _score_text(self, split: str, scores: Mapping[str, Any], key: str) -> str:
        """Return a score with its interval, or with its deviation over several runs."""
        value = scores.get(key)
        if value is None:
            return ""
        text = f"{value:.4g}" if isinstance(value, float) else f"{value:,}"
        deviation = self._runs().get("standard_deviation", {}).get(split, {}).get(key)
        if deviation is not None:
            mean = self._runs()["mean"][split][key]
            return f"{text}; of all runs {mean:.4g} ± {deviation:.2g}"
        count = self.report.get("data", {}).get(split, {}).get("rows")
        whole = _SHARES.get(self.task, {}).get(key)
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


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _several(items: Iterable[str]) -> str:
    """Return items with commas between, or the first and the number of the others."""
    listed = list(items)
    more = len(listed) - _MOST_CLASSES
    text = ", ".join(listed[:_MOST_CLASSES])
    return f"{text} and {more:,} more" if more > 0 else text


def _python(code: str) -> str:
    return f"```python\n{code}\n```"


def _plain(text: str) -> str:
    """Return text that has no meaning in Markdown."""
    text = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in text)


def _code(text: str) -> str:
    """Return text as code in a table."""
    return f"`{' '.join(text.split()).replace('`', '´').replace('|', '¦')}`"
