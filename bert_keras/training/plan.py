"""The plan of a run: everything that is decided before training, by `make_plan`.

A plan is a value. Making it reads the rows and the folder of the encoder, and may fit
heads on vectors of the rows. It writes nothing; `plan_of` turns what it says into
notes. `train` shows the table of the plan and follows it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from bert_keras.config import BertConfig
from bert_keras.data.collection import JudgedCollection
from bert_keras.data.columns import Columns
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import ConfigError, counted
from bert_keras.files.atomic import check_output_place, check_path, check_replaceable
from bert_keras.model.encoder import set_dropout
from bert_keras.model.lora import add_lora, freeze_layers
from bert_keras.models.folder import Folder
from bert_keras.models.loading import encoder_to_train, new_model
from bert_keras.models.new_tokens import TABLE
from bert_keras.models.pretrained_model import max_length_of
from bert_keras.models.task_model import TaskModel
from bert_keras.retrieval.evaluation import check_ranks
from bert_keras.runs.notes import collected, say
from bert_keras.settings import ALL_LAYERS
from bert_keras.tasks import check_settings, named_or_given
from bert_keras.tasks.base import Task, default_learning_rate, replaced
from bert_keras.tasks.protocols import training_examples
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.training.choices import (
    GIVEN,
    Choice,
    ComparedLayers,
    Decided,
    Facts,
    TrainRequest,
)
from bert_keras.training.config import TrainConfig, unused_by
from bert_keras.training.data import (
    UNLABELED,
    check_without_dev,
    choose_split,
    fitted_task,
    new_unlabeled_rows,
    read_rows,
    row_notes,
    with_compared_rows,
)
from bert_keras.training.distillation import check_vectors, student_encoder
from bert_keras.training.head_fit import compare_layers, score_vectors
from bert_keras.training.lengths import (
    TextLengths,
    check_truncation,
    choose_length,
    choose_windows,
    in_parts,
    inherited_windows,
    measure_lengths,
    truncation_notes,
    without_own_lengths,
)
from bert_keras.training.methods import (
    check_method,
    check_unlabeled,
    choose_method,
    choose_pair_encoder,
    choose_pooling,
    tries_layers,
)
from bert_keras.training.opens_in import with_open_head
from bert_keras.training.tracking import check_tracking


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Plan(Decided):
    """All that a run follows; it depends on request, rows, encoder and devices.

    With a teacher, `Distillation` changes task and rows afterwards.

    Args:
        request: what was asked for.
        task: with all of its settings.
        config: with numbers in place of `None`, and a method.
        rows: by name: `train`, `dev`, the tests, and `unlabeled`.
        lengths: the lengths of their texts in tokens, by the same names.
        collections: tests of search, by name.
        encoder: where the encoder is.
        tokenizer: the encoder's, with added tokens.
        tries_layers: whether cross-validation compares heads on all layers, embeddings
            included, the upper ones with more weight or all alike, and on the last one.
        vectors: of all layers of the training rows, float32 [N, D], if the choice of
            the method has computed them as the run would; it need not do so again.
        seconds: that deciding took, a part of the run's time.
    """

    request: TrainRequest
    task: Task
    config: TrainConfig
    rows: Mapping[str, Columns]
    lengths: Mapping[str, TextLengths]
    collections: Mapping[str, JudgedCollection]
    encoder: str | os.PathLike[str]
    tokenizer: WordPieceTokenizer
    tries_layers: bool
    vectors: np.ndarray | None = None
    seconds: float = 0.0

    @property
    def output(self) -> Path:
        """The model folder."""
        return Path(self.request.output)

    def changed(self, **settings: Any) -> Plan:
        """Return the plan with other settings of the config, given by the user.

        Nothing else is decided again.
        """
        config = dataclasses.replace(self.config, **settings)
        chosen = {
            each.name: dataclasses.replace(each, value=settings[name], reason=GIVEN)
            for each in self.choices
            if (name := each.name.replace(" ", "_")) in settings
        }
        return dataclasses.replace(self, config=config, choices=self._with(chosen))

    def of_rows(self, numbers: Sequence[int]) -> Plan:
        """Return the plan for some of the training rows.

        Only the number of updates is decided again.
        """
        if len(numbers) == len(self.rows["train"]):
            return self
        given, config = self.request.config, self.config
        rows = {**self.rows, "train": self.rows["train"].take(numbers)}
        lengths = {**self.lengths, "train": self.lengths["train"].take(numbers)}
        if config.linear_probe == given.linear_probe:  # it has numbers of its own
            names = ("epochs", "batch_size", "patience")
            open_ones = {name: getattr(given, name) for name in names}
            config = dataclasses.replace(config, **open_ones)
        sizes = encoder_to_train(Folder.open(self.encoder), config)[1]
        config, updates = _updates(given, config, self.task, rows, sizes.hidden_size)
        return dataclasses.replace(
            self,
            config=config,
            rows=rows,
            lengths=lengths,
            vectors=None if self.vectors is None else self.vectors[list(numbers)],
            choices=self._with({each.name: each for each in updates}),
        )

    def with_choice(self, choice: Choice) -> Plan:
        """Return the plan with a choice replaced by another of the same name."""
        return dataclasses.replace(self, choices=self._with({choice.name: choice}))

    def _with(self, chosen: Mapping[str, Choice]) -> tuple[Choice, ...]:
        """Return the choices; some replace choices of the same name."""
        return tuple(chosen.get(each.name, each) for each in self.choices)


def make_plan(request: TrainRequest, *, devices: Devices) -> Plan:
    """Decide everything about a run; write nothing.

    Args:
        request: the arguments of `train`.
        devices: where the run computes.

    Raises:
        BertKerasError: an argument is wrong, or does not go with another.
    """
    facts, rows, collections = _facts(request, devices)
    facts, costs = with_open_head(facts)
    named = facts.task

    # The method, and the vector that its head reads.
    compared: list[ComparedLayers] = []

    def lower_layers_help(task: Task) -> bool:
        compared.append(compare_layers(task, facts, devices=devices))
        return compared[-1].lower_help

    score = functools.partial(score_vectors, devices=devices)
    facts, pairs = choose_pair_encoder(facts, score_vectors=score)
    method = choose_method(facts, lower_layers_help=lower_layers_help)
    facts = with_compared_rows(facts)
    config = dataclasses.replace(facts.config, method=method.value)
    check_method(named, config, facts.given)
    if facts.has_unlabeled:
        check_unlabeled(named, config)
    chosen, pooling = choose_pooling(facts, method)
    chosen, notes = without_own_lengths(chosen, config)
    notes = [*costs, *notes]
    settings = {**facts.given, **chosen} if isinstance(named, type) else chosen

    # The rows, and the task that follows from them.
    own = settings if isinstance(named, type) else named.get_config()
    rows["train"], dev, split = choose_split(facts, config.method, own)
    if dev is not None:
        rows = {"train": rows["train"], "dev": dev, **rows}
    if request.slices and len(rows) == 1 and config.method == "finetune":
        raise ConfigError(
            "`slices` has no effect: no rows are scored (give --dev, --test or "
            f"--validation-split); received {', '.join(map(str, request.slices))}"
        )
    task = fitted_task(named, rows, settings, held_out=0 if dev is None else len(dev))
    check_vectors(task, config, rows["train"])
    held_out = {request.fold} if dev is None else {request.fold, "dev"}
    notes += row_notes(task, rows, held_out=held_out)
    if collections:
        check_ranks(task)
    if facts.has_unlabeled:
        rows[UNLABELED], more = new_unlabeled_rows(request, task, rows.values())
        notes += more

    reading = _reading(facts, task, config, rows)
    task, config = reading.task, reading.config

    # The updates.
    if facts.one_replica and not devices.has_gpu:
        examples = training_examples(task, rows["train"])
        lengths = reading.lengths["train"]
        config = in_parts(task, config, reading.sizes, lengths, examples)
    without_dev: Sequence[str] = ()
    if "dev" not in rows and config.method == "finetune":
        without_dev = check_without_dev(task, request.config)
    width = reading.sizes.hidden_size
    config, updates = _updates(request.config, config, task, rows, width)
    _check_devices(task, config, devices)
    count = len(rows["train"]) + len(rows.get(UNLABELED, ()))
    tries = facts.settings is not None and tries_layers(
        task, config.method, count, facts.given
    )
    layers = _layers(facts, tries)
    choices = [method, pairs, pooling, layers, *reading.choices, split, *updates]
    return Plan(
        request=request,
        task=replaced(task, layers=ALL_LAYERS) if tries else task,
        config=config,
        rows=rows,
        lengths=reading.lengths,
        collections=collections,
        encoder=facts.encoder,
        tokenizer=reading.tokenizer,
        tries_layers=tries,
        vectors=_vectors_to_keep(compared, facts, rows["train"], reading),
        choices=tuple(each for each in choices if each is not None),
        notes=(*notes, *reading.notes, *without_dev),
    )


def _vectors_to_keep(
    compared: Sequence[ComparedLayers], facts: Facts, rows: Columns, reading: _Reading
) -> np.ndarray | None:
    """Return the vectors of compared layers, if the run reads the same of the rows."""
    found = next(iter(compared), None)
    if found is None or rows is not facts.rows:
        return None
    longest = int(reading.lengths["train"].whole.max())
    is_whole = longest <= min(found.max_length, cast(int, reading.config.max_length))
    return found.vectors if is_whole else None


class _Reading(NamedTuple):
    """How long texts are read: task and config with it, the choices, and notes.

    Attributes:
        lengths: of the texts in tokens, by the name of the rows.
        tokenizer: the encoder's, with added tokens.
        sizes: of the encoder.
    """

    task: Task
    config: TrainConfig
    choices: tuple[Choice | None, Choice]
    notes: list[str]
    lengths: Mapping[str, TextLengths]
    tokenizer: WordPieceTokenizer
    sizes: BertConfig


def _reading(
    facts: Facts, task: Task, config: TrainConfig, rows: Mapping[str, Columns]
) -> _Reading:
    """Choose how long texts are read, by the lengths of all rows."""
    given, windows = config.max_length, None
    if facts.settings is not None:
        task, config, windows = choose_windows(facts, task, config, rows["train"])
        if windows is None:
            config, windows = inherited_windows(facts, task, config)
    check_truncation(task, config)
    folder, sizes = encoder_to_train(facts.folder, config)
    default = max_length_of(task, folder.checkpoint, config.max_length)
    preprocessor = Preprocessor(
        folder.tokenizer,
        max_length=default,
        truncation=config.truncation,
        layout=config.layout,
    )
    limit = sizes.max_position_embeddings
    lengths, length = choose_length(
        task,
        measure_lengths(task, preprocessor, rows, limit=limit),
        default,
        sizes,
        given=given,
        is_fixed=facts.is_fixed,
    )
    config = dataclasses.replace(config, max_length=length.value)
    preprocessor = preprocessor.replace(max_length=length.value)
    notes = truncation_notes(task, preprocessor, rows, lengths, method=config.method)
    choices = (windows, length)
    return _Reading(task, config, choices, notes, lengths, folder.tokenizer, sizes)


def _facts(
    request: TrainRequest, devices: Devices
) -> tuple[Facts, dict[str, Columns], dict[str, JudgedCollection]]:
    """Return what the decisions are made from, the rows, and the tests of search.

    Raises:
        BertKerasError: a place, a setting or the data is wrong.
    """
    encoder, config = student_encoder(request.encoder, request.config), request.config
    check_path("encoder", encoder)
    places = {"encoder": encoder, "teacher": config.teacher}
    places = {name: place for name, place in places.items() if place is not None}
    if request.writes:
        check_output_place("output", request.output, places)
        check_replaceable(request.output)
    check_tracking(config, Path(request.output))
    task, settings = named_or_given(request.task), request.task_settings or {}
    if isinstance(task, Task) and settings:
        raise ConfigError(
            "`task_settings` must be empty for a task instance, which has its own; "
            f"received {', '.join(settings)}"
        )
    check_settings(task, settings)
    rows, collections = read_rows(request, task)
    facts = Facts(
        task=task,
        settings=None if isinstance(task, Task) else settings,
        rows=rows["train"],
        config=config,
        encoder=encoder,
        folder=Folder.open(encoder),
        has_dev="dev" in rows,
        has_unlabeled=request.unlabeled is not None,
        is_compared=request.is_compared,
        tries_methods=request.tries_methods,
        one_replica=devices.replicas == 1 and not devices.has_static_shapes,
        is_fixed=devices.has_static_shapes,
    )
    return facts, rows, collections


def model_of(plan: Plan, devices: Devices) -> TaskModel:
    """Return the model that a plan trains, with its frozen layers and LoRA matrices."""
    config = plan.config
    with collected(shown=False) as notes:
        model = new_model(
            plan.task, plan.encoder, config, devices=devices, tokenizer=plan.tokenizer
        )
    # Of several processes, each would compute other weights, by rounding.
    is_new = not model.has_pretrained_head and devices.workers == 1
    started: list[str] = []
    if is_new:
        with devices.strategy.scope():
            started = model.task.start_from(model, plan.rows["train"])
    layers = {line.partition(":")[0] for line in started}
    for line in (*notes, *started):
        # How the rows start a layer is said in place of its random weights.
        if line in started or line.partition(":")[0] not in layers:
            say(line)
    with devices.strategy.scope():
        freeze_layers(model.backbone, config.freeze_layers)
        if config.lora_rank:
            add_lora(
                model.backbone,
                config.lora_rank,
                seed=config.seed,
                frozen=model.task.frozen(model.backbone),
            )
    if config.dropout is not None:
        set_dropout(model, config.dropout)
    trained = {weight.path for weight in model.trainable_weights}
    if config.add_tokens and TABLE not in trained:
        say(
            "the embeddings are not trained: the embeddings of the added tokens stay "
            "the mean of their pieces"
        )
    return model


def _check_devices(task: Task, config: TrainConfig, devices: Devices) -> None:
    """Raise ConfigError if the devices cannot make the updates."""
    batch_size = cast(int, config.batch_size)
    devices.check_batch_size(batch_size, config.accumulation)
    # The loss of a batch is then not the sum of the losses of its parts.
    if devices.replicas > 1 and config.accumulation > 1 and task.compares:
        raise ConfigError(
            f"`accumulation` must be 1 for {task.name} on several replicas, since its "
            f"loss compares the rows of a batch; received {config.accumulation}"
        )
    if config.linear_probe and (devices.replicas > 1 or devices.has_static_shapes):
        raise ConfigError(
            "`linear_probe` needs a strategy of one replica, not a TPU's; received "
            f"{devices.name}, {devices.replicas} replicas"
        )


def _layers(facts: Facts, tries: bool) -> Choice | None:
    """Return the choice of the layers that a head on vectors reads."""
    option = "--set layers"
    if "layers" in facts.given:
        return Choice("layers", facts.given["layers"], GIVEN, option)
    if not tries:
        return None
    return Choice("layers", "all or last", "cross-validation compares them", option)


def _updates(
    given: TrainConfig,
    config: TrainConfig,
    task: Task,
    rows: Mapping[str, Columns],
    hidden_size: int,
) -> tuple[TrainConfig, list[Choice]]:
    """Return the config with numbers in place of `None`, and the choices of them.

    Args:
        given: the config as given.
        config: with what was chosen before.
        task: of the run.
        rows: by name.
        hidden_size: of the encoder.
    """
    examples = training_examples(task, rows["train"])
    if config.teacher is not None:
        examples += len(rows.get(UNLABELED, ())) + config.augment * len(rows["train"])
    if "dev" not in rows:
        config = dataclasses.replace(config, validation_split=0.0)
        if config.method == "finetune":  # of others, patience has no effect
            config = dataclasses.replace(config, patience=0)
    config = config.with_split().finalized(task, examples, hidden_size)
    batch_size = cast(int, config.batch_size)
    steps = math.ceil(examples / batch_size)
    epochs = f"{counted(steps, 'updates')} an epoch"
    rate = f"for a hidden size of {hidden_size}"
    if config.linear_probe and not given.linear_probe:
        epochs = rate = "few and slow, since the head is fitted first"
    elif config.lora_rank:
        rate += ", of the encoder's matrices (LoRA)"
    elif (config.learning_rate or 0) > default_learning_rate(task, hidden_size):
        rate += f", higher for {counted(steps * cast(int, config.epochs), 'updates')}"
    reasons: dict[str, tuple[Any, str]] = {
        "linear_probe": (
            "yes" if config.linear_probe else "no",
            "the head is fitted on the encoder's vectors before training",
        ),
        "epochs": (config.epochs, epochs),
        "batch_size": (batch_size, f"for {examples:,} training rows"),
        "accumulation": (config.accumulation, "parts of an update, to save memory"),
        "patience": (config.patience, "epochs without a better dev score end training"),
        "learning_rate": (f"{config.learning_rate or 0:.2g}", rate),
        "new_learning_rate": (
            f"{config.new_learning_rate or 0:.2g}",
            "of the other weights",
        ),
    }
    if config.dropout is not None:
        why = "a student of vectors learns more without it"
        reasons["dropout"] = (f"{config.dropout:g}", why)
    unused, usual = unused_by(config.method), TrainConfig()
    found = []
    for name, (value, reason) in reasons.items():
        is_off = name != "dropout" and getattr(config, name) == 0
        if name in unused or is_off or getattr(config, name) == getattr(usual, name):
            continue
        is_given = getattr(given, name) == getattr(config, name)
        option = f"--{name.replace('_', '-')}"
        reason = GIVEN if is_given else reason
        found.append(Choice(name.replace("_", " "), value, reason, option))
    return config, found
