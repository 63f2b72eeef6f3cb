"""What a folder holds, decided once: `Folder`.

`info` prints it; `load`, `load_model`, `TaskModel.from_pretrained`, `train`, `embed`,
`export` and `convert` use it. It knows the files of this package, of transformers and
of sentence-transformers.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.checkpoints import (
    Checkpoint,
    LazyArrays,
    check_encoder,
    head_config,
    named_outputs,
    read_checkpoint,
)
from bert_keras.checkpoints.checkpoint import as_checkpoint_error, listed
from bert_keras.checkpoints.huggingface import is_encoder_decoder
from bert_keras.checkpoints.model_types import their_architecture
from bert_keras.checkpoints.names import tied_names
from bert_keras.checkpoints.sentence_files import (
    MODULES,
    dense_tensors,
    head_tensors,
    pair_activation,
    pair_scores,
    read_sentence_files,
    text_length,
    unused_prompts,
    unused_similarity,
)
from bert_keras.checkpoints.unread_files import unread_beside
from bert_keras.config import KEY, BertConfig
from bert_keras.data.class_names import (
    class_entries,
    class_names,
    differing_numbers,
    renamed,
)
from bert_keras.errors import (
    BertKerasError,
    CheckpointError,
    ConfigError,
    one_line,
    shown,
)
from bert_keras.exports.answers_file import check_same_task, named_task
from bert_keras.files.json_file import read_json
from bert_keras.generation.settings import from_transformers
from bert_keras.lazy_names import deferred
from bert_keras.runs.notes import say_once
from bert_keras.settings import OF_VECTORS, OWN_LENGTHS, check_whole_number
from bert_keras.tasks import TASKS, find_task, name_of, named_or_given
from bert_keras.tasks.base import Task
from bert_keras.tasks.hugging_face import ENCODER_ALONE, from_model_config

if TYPE_CHECKING:
    from bert_keras.text import new_tokens
    from bert_keras.text import tokenizer as wordpiece
    from bert_keras.text.tokenizer import WordPieceTokenizer
else:
    new_tokens, wordpiece = deferred(
        "bert_keras.text.new_tokens", "bert_keras.text.tokenizer"
    )

GENERATION = "generation_config.json"
_CRF = re.compile(r"(^|\.)crf[._]")
_RECURRENT = ("weight_ih_l", "weight_hh_l")
_READ = ", read from "  # in a note that repeats what a file says


@dataclasses.dataclass(frozen=True, eq=False)
class Folder:
    """An opened checkpoint with all that its folder says of the model.

    Args:
        checkpoint: its weights and its config.
        config: the whole config: head sizes from the weights are filled in, and our
            entry holds `sentence`, what `read_sentence_files` returns, or `error`, its
            error; `cross_encoder`, what `pair_activation` returns; and of a decoder
            `generation` and `unused`, what `from_transformers` returns; `head_error`,
            if the head cannot be used.
    """

    checkpoint: Checkpoint
    config: Mapping[str, Any]

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | Checkpoint,
        *,
        classes: str | Sequence[str] | None = None,
    ) -> Folder:
        """Return the description of what `read_checkpoint` reads.

        Args:
            path: as there.
            classes: names of the outputs, used where the folder's cannot be.

        Raises:
            CheckpointError: it is no checkpoint, or its config is broken.
        """
        checkpoint = read_checkpoint(path)
        raw, entry = checkpoint.raw_config, dict(checkpoint.own_entry)
        home = checkpoint.home or checkpoint.path
        task = _task_of(entry)
        head = 0 if task is None else task.head_codec.modules(task).get("head", 0)
        sentence = _sentence_of(home, entry, head)
        if sentence.get("head"):
            try:
                checkpoint = _with_head(checkpoint, home)
            except CheckpointError as error:
                sentence = {"error": str(error)}
        contradiction = _contradiction(task, entry, raw, sentence)
        if contradiction and checkpoint.origin == "huggingface":
            raw, entry = {name: raw[name] for name in raw if name != KEY}, {}
            sentence = _sentence_of(home, entry) if head else sentence
            note = (
                f"the entry `{KEY}` of config.json is not used, since another tool has "
                f"changed the model: {contradiction}"
            )
            notes = (*checkpoint.notes, note)
            checkpoint = dataclasses.replace(checkpoint, raw_config=raw, notes=notes)
        if is_encoder_decoder(raw):
            path = checkpoint.path / GENERATION
            given = read_json(path) if path.is_file() else raw
            entry["generation"], entry["unused"] = from_transformers(given)
        if sentence:
            entry["sentence"] = sentence
        head = {"architectures": raw.get("architectures") or ["BertModel"]}
        place = f"{checkpoint.path}: config.json"
        try:
            if not sentence:
                entry["cross_encoder"] = pair_activation(home, raw)
            with as_checkpoint_error(place, ConfigError):
                head = _head(raw, checkpoint.shapes, classes)
        except CheckpointError as error:  # only its head cannot be used
            entry["head_error"] = str(error)
        return cls(checkpoint, {**raw, **head, KEY: entry})

    @property
    def path(self) -> Path:
        """The folder of encoder and tokenizer."""
        return self.checkpoint.path

    @property
    def home(self) -> Path:
        """The folder that was opened; the encoder may be in a folder in it."""
        return self.checkpoint.home or self.path

    @property
    def sentence(self) -> dict[str, Any]:
        """What `read_sentence_files` returns, or its `error`."""
        found: dict[str, Any] = self.config[KEY].get("sentence", {})
        return found

    @functools.cached_property
    def tokenizer(self) -> WordPieceTokenizer:
        """The tokenizer.

        Raises:
            CheckpointError: the vocabulary is larger than the embedding table. A
                smaller one is accepted, since tables are often padded for speed.
        """
        found = wordpiece.WordPieceTokenizer.from_folder(
            self.path, **self.checkpoint.tokenizer
        )
        if marks := self.sentence.get("marks"):
            found = new_tokens.with_marks(found, marks)
        rows = self.checkpoint.config.vocab_size
        if found.vocab_size > rows:
            raise CheckpointError(
                f"{self.path}: the vocabulary must have at most `vocab_size` tokens; "
                f"received {found.vocab_size:,} and {rows:,}"
            )
        return found

    @property
    def preprocessing(self) -> dict[str, Any]:
        """The preprocessor's settings: ours, or the maximum length that fits."""
        stored: dict[str, Any] = self.checkpoint.own_entry.get("preprocessing") or {}
        if stored:
            return stored
        longest = self.checkpoint.config.max_position_embeddings
        stated = None
        if self.sentence or pair_scores(self.config) is not None:
            stated = text_length(self.home)
        return {"max_length": min(stated or longest, longest)}

    # The task.

    def task(self, task: str | type[Task] | Task | None = None) -> Task:
        """Return the task with the folder's settings; `task` as in `load_model`.

        Raises:
            CheckpointError: the folder contains no such task.
        """
        if isinstance(task, Task):
            return task
        self.check_config()
        ours = self.checkpoint.own_entry
        task_class: Any = None if task is None else named_or_given(task)
        place = f"{self.path}: config.json"
        with as_checkpoint_error(place, TypeError, ConfigError):
            if task_class is None:
                task_class = self._task_class()
            if "settings" in ours:
                check_same_task(self.path, str(ours.get("task")), task_class)
                found: Task = task_class.from_config(ours["settings"])
            else:
                found = from_model_config(task_class, self.config)
        return found

    def check_config(self) -> None:
        """Raise if the config does not describe the head of the weights."""
        if "head_error" in self.config[KEY]:
            raise CheckpointError(self.config[KEY]["head_error"])

    def held(self, task_class: type[Task]) -> Task | None:
        """Return the folder's task if it is of a class; `None` if it is of another.

        A folder whose head is a module of sentence-transformers is also of the class
        `Embedding`, by the modules before it.

        Raises:
            CheckpointError: the folder's task or its settings are broken.
        """
        ours = self.checkpoint.own_entry
        if "settings" in ours:
            stored, given = str(ours.get("task")), name_of(task_class)
            has_moved = not {stored, given} & set(TASKS)
            is_same = stored == given or has_moved
            if not is_same and "head" in self.sentence:
                # The steps before the head give vectors of texts.
                if task_class.head_codec.reads(self.config):
                    return from_model_config(task_class, self.config)
                return None
        else:
            with as_checkpoint_error(f"{self.path}: config.json", ConfigError):
                try:
                    is_same = task_class.head_codec.reads(self.config)
                except ConfigError:
                    self.check_config()
                    raise
        return self.task(task_class) if is_same else None

    def embedding(self, *, plain: bool = False) -> Any:
        """Return the task of the vectors for which the encoder was trained.

        Of an encoder that was trained for none `None`, or the default one with `plain`.
        """
        task_class = find_task("embedding")
        held = self.held(task_class)
        return from_model_config(task_class, {}) if plain and held is None else held

    def _task_class(self) -> type[Task]:
        """Return the task that the folder names, or that its architecture implies."""
        name = self.checkpoint.own_entry.get("task")
        if name is not None:
            return named_task(self.path, name)
        for name in TASKS:
            task_class = find_task(name)
            if task_class.head_codec.reads(self.config):
                return task_class
        named = one_line(self.config["architectures"][0])
        named = their_architecture(self.checkpoint.config, named)
        if kind := self.config.get("problem_type"):
            named += f" with `problem_type` {shown(kind)}"
        raise CheckpointError(
            f"{self.path}: contains no task head (architecture {named}): train a model "
            "from it first"
        )

    # The weights.

    def weights_for(self, task: Task) -> Checkpoint:
        """Return the checkpoint, with the layers on a text's vector of an embedding."""
        if not getattr(task, "dense", ()) or not self.sentence.get("dense"):
            return self.checkpoint
        dense = LazyArrays.of(dense_tensors(self.home), place=str(self.home))
        merged = self.checkpoint.arrays.with_others(dense)
        return dataclasses.replace(self.checkpoint, arrays=merged)

    @property
    def unread(self) -> list[str]:
        """Names of the weights that have no place in a BERT, as in the file."""
        tied = tied_names(self.checkpoint.config.model_type)
        return [name for name in self.checkpoint.unrecognized if name not in tied]

    def check_head(self) -> None:
        """Raise if the folder's head reads the outputs of a layer that is not known."""
        hidden, shapes = self.checkpoint.config.hidden_size, self.checkpoint.unread
        between = [
            name
            for name in self.unread
            if _feeds_head(name, shapes.get(name, ()), hidden)
        ]
        if between:
            raise CheckpointError(
                f"{self.path}: has weights between the encoder and its head, which is "
                f"not a head of BERT, so its answers would differ: {listed(between)}: "
                "train a new head on its encoder with `train --encoder`"
            )

    # What the user has to know.

    def notes(self) -> list[str]:
        """Return lines on what was chosen, changed or left out."""
        found = [*self.checkpoint.notes, *self.tokenizer.notes]
        crf = [name for name in self.unread if _CRF.search(name)]
        if crf:
            found.append(
                f"the CRF is not used ({listed(crf)}): each word gets its most "
                "probable tag"
            )
        if "settings" not in self.checkpoint.own_entry:
            unused = self.config[KEY].get("unused", {})
            found += [
                f"the setting of generation {key} is not used; received {shown(value)}"
                for key, value in unused.items()
            ]
        found += unread_beside(self.home, self.checkpoint.raw_config)
        found += self.sentence.get("unused", ())
        measure = unused_similarity(self.home, self.sentence)
        if measure is not None:
            ours = "dot product" if self.sentence.get("kind") else "cosine"
            found.append(
                f"the folder's similarity {measure} is not used: vectors are compared "
                f"by their {ours}"
            )
        prompts = unused_prompts(self.home)
        if prompts:
            found.append(
                f"the folder's prompts are not used ({listed(prompts)}): no prompt is "
                "put before the texts of a cross-encoder"
            )
        raw = self.checkpoint.raw_config
        if named_outputs(raw, self.checkpoint.shapes) is not None:
            found += differing_numbers(raw)
        others = [name for name in self.unread if name not in crf]
        if others:
            found.append(f"weights that are not used: {listed(others)}")
        return found

    def tell(self, *, facts: bool = False) -> None:
        """Say the notes; with `facts` also notes that repeat what a file says."""
        for note in self.notes():
            if facts or _READ not in note:
                say_once(f"{self.path}: {note}")

    def facts(self) -> dict[str, Any]:
        """Return task, settings and notes as plain values, for `info`."""
        facts: dict[str, Any] = {}
        try:
            check_encoder(self.checkpoint)
            task = self.task()
            # A number, a text or a list that is unset says nothing.
            facts = {"task": name_of(type(task))} | {
                name: value
                for name, value in task.get_config().items()
                if value
                or isinstance(value, bool | None)
                or getattr(type(task), name, None) not in (0, "", ())
            }
            if "pairs" in facts and facts["pairs"] is None:  # the folder does not say
                facts["pairs"] = "single texts or pairs"
            self.check_head()
        except BertKerasError as error:
            facts["answers"] = f"none: {error}"
        facts |= self.preprocessing
        try:
            notes = self.notes()
        except BertKerasError as error:
            facts["no tokenizer"] = str(error)
            notes = list(self.checkpoint.notes)
        return {**facts, **{f"note {i}": note for i, note in enumerate(notes, 1)}}


def _task_of(entry: Mapping[str, Any]) -> Any:
    """Return the task of our entry; `None` if it has none of ours, or a broken one."""
    name = str(entry.get("task"))
    if name not in TASKS or "settings" not in entry:
        return None
    try:
        return find_task(name).from_config(entry["settings"])
    except (TypeError, ConfigError):  # told where it is read
        return None


def _sentence_of(home: Path, entry: Mapping[str, Any], head: int = 0) -> dict[str, Any]:
    """Return what `read_sentence_files` returns, or what our entry says of it, or its
    `error`.
    """
    try:
        return read_sentence_files(home, head=head) or entry.get("sentence") or {}
    except CheckpointError as error:  # only its vectors cannot be computed
        return {"error": str(error)}


def _with_head(checkpoint: Checkpoint, home: Path) -> Checkpoint:
    """Return a checkpoint with the head of its last `Dense`, if it has none.

    sentence-transformers writes no other. A note says that the two differ.
    """
    found, arrays = head_tensors(home), checkpoint.arrays
    head = LazyArrays.of(found, place=str(home))
    if any(name not in arrays for name in head):
        return dataclasses.replace(checkpoint, arrays=arrays.with_others(head))
    if all(np.array_equal(arrays[name], head[name]) for name in head):
        return checkpoint
    place = next(iter(found.values())).file.parent.name
    note = (
        f"the head in {place}, which sentence-transformers reads, is not used: it "
        "differs from the head in the folder's model.safetensors"
    )
    return dataclasses.replace(checkpoint, notes=(*checkpoint.notes, note))


def _contradiction(
    task: Any,
    entry: Mapping[str, Any],
    raw: Mapping[str, Any],
    sentence: Mapping[str, Any],
) -> str:
    """Return what a folder says other than our entry; empty if they agree.

    Other tools keep the entry when they change a model and write it.

    Args:
        task: of our entry in the config, if it can be read.
        entry: our entry.
        raw: the whole config.
        sentence: what `read_sentence_files` returns, or its `error`.
    """
    if task is None or is_encoder_decoder(raw):
        return ""
    codec = task.head_codec
    facts: list[tuple[str, Any, Any]] = []
    try:
        own, ours = codec.architecture_of(task), codec.entries(task)
        if own == ENCODER_ALONE or not codec.reads(raw):  # a task may read several
            named = raw.get("architectures")
            first = named[0] if isinstance(named, list) and named else None
            facts.append(("architecture", own, first))
        facts += [("problem_type", ours.get("problem_type"), raw.get("problem_type"))]
        if "id2label" in ours and raw.get("id2label") is not None:
            facts += [("classes", class_names(ours), class_names(raw))]
    except (TypeError, ConfigError):
        return ""  # told where it is read
    modules = codec.modules(task)
    if sentence and task.name != "embedding" and not modules:
        return f"{MODULES} describes a model of vectors, not of the task {task.name}"
    if sentence:
        vectors = find_task("embedding")
        try:
            stated = from_model_config(vectors, {**raw, KEY: {"sentence": sentence}})
        except CheckpointError as error:
            return str(error)
        if modules:
            task = from_model_config(vectors, {KEY: {"sentence": modules}})
        facts += [(n, getattr(task, n), getattr(stated, n)) for n in OF_VECTORS]
        length = entry.get("preprocessing", {}).get("max_length")
        length = task.default_length or length
        facts += [("max_length", length, sentence.get("max_length"))]
    for what, one, other in facts:
        if None not in (one, other) and one != other:
            return f"{what} {shown(other)}, not {shown(one)}"
    return ""


def _head(
    raw: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    classes: str | Sequence[str] | None,
) -> dict[str, Any]:
    """Return `head_config`, with `classes` where the names in `raw` cannot be used."""
    count = named_outputs(raw, shapes)
    try:
        head = head_config(raw, shapes)
        if count is not None and KEY not in raw:
            class_names({**raw, **head})
        return head
    except ConfigError as error:
        if count is None:
            raise
        if classes is None:
            raise ConfigError(
                f"{error}: name the {count:,} outputs by `classes` (--set classes=A,B… "
                "of predict, evaluate, explain and export)"
            ) from None
    names = class_entries(renamed(classes, count))
    return {**names, **head_config({**raw, **names}, shapes)}


def _feeds_head(name: str, shape: tuple[int, ...], hidden: int) -> bool:
    """Return whether a weight can be of a layer between the encoder and its head.

    Such a layer gives vectors of the width that the head reads, as its first axis in
    torch; a recurrent one is known by its name.
    """
    if name.split(".")[-1].startswith(_RECURRENT):
        return True
    return bool(shape) and shape[0] == hidden and not _CRF.search(name)


def check_lengths(task: Task, config: BertConfig) -> None:
    """Raise unless the encoder has a position for each token of queries, and so on."""
    for name in (*OWN_LENGTHS, "default_length"):
        if length := getattr(task, name, 0):
            check_max_length(length, config, name=name)


def check_max_length(
    max_length: int, config: BertConfig, *, name: str = "max_length"
) -> None:
    """Raise unless the encoder has a position for each token of the longest text."""
    check_whole_number(name, max_length, least=3)
    longest = config.max_position_embeddings
    if max_length > longest:
        raise ConfigError(
            f"`{name}` must be at most the encoder's {longest}; received {max_length}"
        )
