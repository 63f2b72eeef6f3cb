"""A signature of a served model: how its texts are measured and computed.

`Signature.rows_of` tokenizes or measures the texts of a request, `Signature.compute`
answers the rows of several requests at once. `TokenSignature` tokenizes once and
computes ids; `TextSignature` passes texts to the graph, which tokenizes them itself;
`IdsSignature` takes ids.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_keras.answering.answering import Answering
from bert_keras.answering.backend import Backend
from bert_keras.config import WINDOW_STARTS
from bert_keras.errors import DataError, shown
from bert_keras.lazy_names import deferred
from bert_keras.serving.batch_choice import (
    group_by_length,
    of_one_shape,
    pack_first_fit,
    pack_or_group,
    rows_of,
)
from bert_keras.serving.errors import RequestError
from bert_keras.tasks.base import Task, roles_with
from bert_keras.tasks.protocols import input_specs, lengths_of, text_specs

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_keras.exports import saved_model
    from bert_keras.inference import served_model
    from bert_keras.model import encoder
    from bert_keras.models import task_model
    from bert_keras.text import preprocessor as text_preprocessor
    from bert_keras.text.preprocessor import Preprocessor
else:
    tf, encoder, text_preprocessor = deferred(
        "tensorflow", "bert_keras.model.encoder", "bert_keras.text.preprocessor"
    )
    served_model, saved_model, task_model = deferred(
        "bert_keras.inference.served_model",
        "bert_keras.exports.saved_model",
        "bert_keras.models.task_model",
    )

# Names of a dtype in TF Serving's API and in the Open Inference Protocol.
DTYPES = {
    "string": ("DT_STRING", "BYTES"),
    "int32": ("DT_INT32", "INT32"),
    "int64": ("DT_INT64", "INT64"),
    "float32": ("DT_FLOAT", "FP32"),
    "float64": ("DT_DOUBLE", "FP64"),
    "bool": ("DT_BOOL", "BOOL"),
}
DEFAULT, SEARCH = "serving_default", "search"  # names of signatures
_IDS = ("token_ids", "segment_ids", "padding_mask")
_LONGEST_IDS = 512  # tokens of a row of ids, or the model's `max_length`
# oneDNN prepares, and keeps, each operation for each shape, so these are rounded up.
_TEXTS_STEP = 8  # texts of a batch
_TOKENS_STEP = 4  # tokens of a row
# Name of the tokens of each text that the model does not read, where there are any.
TRUNCATED = "truncated_tokens"
Answers = dict[str, np.ndarray]  # [B, …] each, by name
Parts = Sequence[Sequence[Any]]  # N values for each input


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """Name, dtype and shape of an input or output; `None` for any size."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    @property
    def sizes(self) -> list[int]:
        """The shape, with -1 for any size."""
        return [-1 if size is None else size for size in self.shape]

    @classmethod
    def of(cls, name: str, spec: Any) -> TensorInfo:
        """Return the facts of a `tf.TensorSpec`, or of a `Spec`."""
        dtype = "string" if spec.dtype == object else spec.dtype.name
        return cls(name, dtype, tuple(spec.shape))

    def described(self, name: str) -> dict[str, Any]:
        """Return them as TF Serving's JSON; `name` is the tensor's in the graph."""
        return {
            "dtype": DTYPES[self.dtype][0],
            "tensor_shape": {
                "dim": [{"size": str(size), "name": ""} for size in self.sizes],
                "unknown_rank": False,
            },
            "name": name,
        }


@dataclasses.dataclass
class Row:
    """A text of a request, or a row of its ids.

    Args:
        length: tokens that are computed for it.
        values: the input of `compute`.
        group: rows of another group are not computed together with it.
        lost: tokens that the model does not read, since the text is too long.
    """

    length: int
    values: Any
    group: Hashable = None
    lost: int = 0


class Signature:
    """Inputs and outputs of a function of a model.

    Args:
        name: such as `serving_default`.
        inputs: in the order of the texts; the first dimension is the batch.
        outputs: the answers; the first dimension is the batch.
        function: takes a tensor for each input by its name and returns the answers.

    Attributes:
        longest_row: maximum values of an input in a row; `None` for texts.
        others: the names of the inputs of the model's other signatures, by name.
        may_be_empty: the names of inputs whose texts may be empty.
        search: how it searches an index, as plain values, of which `top` is the largest
            number of texts of an answer; `None` if it does not.
        choose: returns the indices of rows to compute with the first one, from their
            lengths and the maximum tokens of a batch, see `batch_choice`.
    """

    choose: Callable[[Sequence[int], int], list[int]] = staticmethod(group_by_length)
    longest_row: int | None = None
    may_be_empty: frozenset[str] = frozenset()
    search: Mapping[str, Any] | None = None

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        function: Callable[..., Mapping[str, Any]],
    ) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.function = function
        self.others: dict[str, set[str]] = {}

    def elsewhere(self, names: Iterable[str]) -> str:
        """Return `: the signature … has the inputs …`, or an empty string.

        It is a signature with these inputs, or with as many.
        """
        given = set(names)
        found = [name for name, inputs in self.others.items() if inputs == given]
        if not found and len(given) != len(self.inputs):
            counts = {name: len(inputs) for name, inputs in self.others.items()}
            found = [name for name, count in counts.items() if count == len(given)]
        if not found:
            return ""
        inputs = ", ".join(sorted(self.others[found[0]]))
        return f": the signature `{found[0]}` has the inputs {inputs}"

    def with_top(self, top: Any) -> Signature:
        """Return the signature whose first `top` texts answer a request.

        Raises:
            RequestError: it does not search an index, or `top` is out of range.
        """
        if self.search is None:
            raise RequestError(
                f"`top` must be left out for `{self.name}`, which does not search an "
                f"index; received {shown(top)}"
            )
        most = self.search["top"]
        if type(top) is not int or not 1 <= top <= most:
            raise RequestError(
                f"`top` must be a whole number from 1 to {most}; received {shown(top)}"
            )
        return self

    def rows_of(self, parts: Parts) -> list[Row]:
        """Return the rows of N texts, given as a list of N values for each input."""
        raise NotImplementedError

    def compute(self, rows: Sequence[Row]) -> tuple[Answers, int]:
        """Return the answers of rows, [B, …] each, and the tokens, padding included."""
        raise NotImplementedError

    def trimmed(self, answers: Answers, parts: Parts) -> Answers:
        """Return the answers of a request, trimmed to the width that its texts need.

        Other requests in the same batch may have been wider.
        """
        return answers

    def warm_up(self, parts: Parts) -> None:
        """Compute N texts, so that the graphs are traced and optimized.

        Other threads may compute meanwhile.
        """
        self.compute(self.rows_of(parts))

    def definition(self) -> dict[str, Any]:
        """Return the signature as TF Serving describes it in JSON."""
        inputs, outputs = self.inputs, enumerate(self.outputs)
        return {
            "inputs": {x.name: x.described(f"{self.name}_{x.name}:0") for x in inputs},
            "outputs": {
                x.name: x.described(f"StatefulPartitionedCall:{place}")
                for place, x in outputs
            },
            "method_name": "tensorflow/serving/predict",
            "defaults": {},
        }

    def _call(self, tensors: Sequence[Any]) -> Answers:
        names = [each.name for each in self.inputs]
        return _arrays(self.function(**dict(zip(names, tensors, strict=True))))


class TextSignature(Signature):
    """Texts that the graph tokenizes; they are also tokenized earlier, for lengths.

    Args:
        lengths: returns how many tokens of each text are read, and how many truncated,
            int32 [B] each.
        packs: whether the graph packs several texts into a row.
    """

    def __init__(self, *given: Any, lengths: Callable[..., Any], packs: bool) -> None:
        super().__init__(*given)
        self._lengths = lengths
        self._packs = packs
        if packs:
            self.choose = pack_first_fit
        self._wide = [each.name for each in self.outputs if None in each.shape[1:]]
        ranks = [len(each.shape) for each in self.inputs]
        self._listed = ranks.index(2) if 2 in ranks else None

    def rows_of(self, parts: Parts) -> list[Row]:
        measured = self._lengths(*_tensors(parts))
        lengths, lost = (each.numpy().tolist() for each in measured)
        rows = [
            Row(size, values, lost=missing)
            for size, missing, *values in zip(lengths, lost, *parts, strict=True)
        ]
        return self._with_choices(rows, parts)

    def _with_choices(self, rows: list[Row], parts: Parts) -> list[Row]:
        """Return rows whose lengths count each choice, computed with its context."""
        if self._listed is not None and len(parts) > 1:
            for row, choices in zip(rows, parts[self._listed], strict=True):
                row.length *= len(choices)
        return rows

    def compute(self, rows: Sequence[Row]) -> tuple[Answers, int]:
        parts = list(zip(*(row.values for row in rows), strict=True))
        lengths = [row.length for row in rows]
        size = sum(lengths) if self._packs else len(lengths) * max(lengths)
        return self._call(_tensors(parts)), size

    def trimmed(self, answers: Answers, parts: Parts) -> Answers:
        if not self._wide:
            return answers
        if self._listed is not None:  # one answer per word or per choice
            width = max(len(row) for row in parts[self._listed])
        else:
            found = [answers[name] for name in self._wide]
            texts = [a for a in found if a.dtype.kind in "Oi"]
            width = max(map(_filled_width, texts or found))
        return {
            name: values[:, :width] if name in self._wide else values
            for name, values in answers.items()
        }


class DirectSignature(TextSignature):
    """Texts that an engine answers without a graph of TensorFlow.

    Args:
        answering: tokenizes each text once, and answers.
        readings: how often a text is read, whose row has no list.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        answering: Answering,
        readings: int,
    ) -> None:
        given = (name, inputs, outputs, _no_function)
        super().__init__(*given, lengths=answering.measure, packs=False)
        self._answering = answering
        self._readings = 1 if self._listed is not None else readings

    def rows_of(self, parts: Parts) -> list[Row]:
        try:
            found = self._answering.measure(tuple(map(_decoded, parts)))
        except DataError as error:
            raise RequestError(str(error)) from None
        sizes = zip(found.read.tolist(), found.lost.tolist(), strict=True)
        tokens = zip(*found.texts, strict=True)
        rows = [
            Row(size * self._readings, values, lost=lost)
            for (size, lost), values in zip(sizes, tokens, strict=True)
        ]
        return self._with_choices(rows, parts)

    def compute(self, rows: Sequence[Row]) -> tuple[Answers, int]:
        parts = tuple(zip(*(row.values for row in rows), strict=True))
        size = len(rows) * max(row.length for row in rows)
        return self._answering.answer(parts), size


def _decoded(values: Sequence[Any]) -> list[Any]:
    """Return bytes, or lists of bytes, as strings."""
    return [
        each.decode("utf-8", "replace") if isinstance(each, bytes) else _decoded(each)
        for each in values
    ]


def _no_function(**given: Any) -> Mapping[str, Any]:
    raise RequestError("the model has no graph of this signature")


class TokenSignature(Signature):
    """Texts that are tokenized once; batches are packed rows of their ids.

    Args:
        tokenize: returns ids and segments of all texts, int32 [N], and how many
            tokens of each text are read and how many truncated, int [B] each. It is
            computed op by op until the warm-up has traced its graph.
        specs: of the texts that it takes.
        packed: returns the answers to a batch dict of packed rows.
        pad_id: fills the rows.
        multiple: row lengths are rounded up to a multiple of it.

    `function` computes the signature `ids`, for a single text.
    """

    choose = staticmethod(pack_or_group)

    def __init__(
        self,
        *given: Any,
        tokenize: Callable[..., Any],
        specs: Sequence[tf.TensorSpec],
        packed: Callable[[dict[str, Any]], Mapping[str, Any]],
        pad_id: int,
        multiple: int,
    ) -> None:
        super().__init__(*given)
        self._tokenize = tokenize
        self._graph = tf.function(tokenize, input_signature=specs, autograph=False)
        self._packed = packed
        self._pad_id = pad_id
        self._multiple = multiple

    def warm_up(self, parts: Parts) -> None:
        traced = self._graph.get_concrete_function()
        traced(*_tensors(parts))  # which optimizes it
        self._tokenize = traced
        super().warm_up(parts)

    def rows_of(self, parts: Parts) -> list[Row]:
        found = (tensor.numpy() for tensor in self._tokenize(*_tensors(parts)))
        ids, segments, lengths, lost = found
        rows = []
        for size, end, missing in zip(lengths, np.cumsum(lengths), lost, strict=True):
            values = ids[end - size : end], segments[end - size : end]
            rows.append(Row(int(size), values, lost=int(missing)))
        return rows

    def compute(self, rows: Sequence[Row]) -> tuple[Answers, int]:
        lines, columns, longest = rows_of([row.length for row in rows])
        width = -(-longest // self._multiple) * self._multiple
        shape = (max(lines) + 1, width)
        ids = np.full(shape, self._pad_id, np.int32)
        segments, positions, texts = (np.zeros(shape, np.int32) for _ in range(3))
        starts = np.zeros(len(rows), np.int32)
        for place, (row, line, column) in enumerate(
            zip(rows, lines, columns, strict=True)
        ):
            span = (line, slice(column, column + row.length))
            ids[span], segments[span] = row.values
            positions[span] = np.arange(row.length)
            texts[span] = place + 1  # any number that differs within a row
            starts[place] = line * width + column
        batch = {
            "token_ids": ids,
            "segment_ids": segments,
            "padding_mask": (texts > 0).astype(np.int32),
        }
        if len(rows) > 1:
            batch["position_ids"], batch["sequence_ids"] = positions, texts
            # Positions of other tokens, whose answers are dropped; all different, since
            # a task such as `embedding` relies on that.
            others = np.setdiff1d(np.arange(ids.size, dtype=np.int32), starts)
            others = others[: -len(rows) % _TEXTS_STEP]
            batch["cls_positions"] = np.concatenate([starts, others])
        tensors = {name: tf.constant(values) for name, values in batch.items()}
        found = self._packed(tensors) if len(rows) > 1 else self.function(**tensors)
        answers = {name: each[: len(rows)] for name, each in _arrays(found).items()}
        return answers, ids.size


class IdsSignature(Signature):
    """Rows of ids; only rows of the same shape are computed together.

    Args:
        longest_row: see `Signature`.
    """

    choose = staticmethod(of_one_shape)

    def __init__(self, *given: Any, longest_row: int) -> None:
        super().__init__(*given)
        self.longest_row = longest_row
        names = [each.name for each in self.inputs]
        self._places = [names.index(name) for name in _IDS if name in names]

    def rows_of(self, parts: Parts) -> list[Row]:
        rows = []
        for values in zip(*parts, strict=True):
            arrays = tuple(np.asarray(value, np.int32) for value in values)
            shapes = tuple(array.shape for array in arrays)
            of_ids = [shapes[place] for place in self._places]
            if len(set(of_ids)) > 1:
                raise RequestError(
                    f"{', '.join(_IDS)} must have rows of one shape; received "
                    f"{', '.join(map(str, of_ids))}"
                )
            rows.append(Row(max(array.size for array in arrays), arrays, shapes))
        return rows

    def compute(self, rows: Sequence[Row]) -> tuple[Answers, int]:
        parts = zip(*(row.values for row in rows), strict=True)
        size = sum(row.length for row in rows)
        return self._call([tf.constant(np.stack(part)) for part in parts]), size


class _Function(NamedTuple):
    """A function of a model, with the specs of its inputs and outputs by name.

    Its outputs are known once it is traced, which takes a second.
    """

    inputs: Mapping[str, tf.TensorSpec]
    outputs: Callable[[], Mapping[str, tf.TensorSpec]]
    call: Callable[..., Mapping[str, Any]]


def signatures_of(model: Backend) -> dict[str, Signature]:
    """Return the signatures of a model: `serving_default`, the task's others, `ids`.

    A model folder tokenizes each text once if its task needs only ids. A SavedModel is
    queried only through its signatures. A model in an engine has no `ids`, nor has a
    model of windows, whose rows would be counted as texts and batched apart.
    """
    task = model.task
    if direct := _direct_signatures(model):
        return _completed(task, direct)
    padded = model.graph_preprocessor.replace(layout="padded")
    multiple = padded.length_multiple
    if multiple == 1:  # a divisor of the maximum length, which no row exceeds then
        multiple = math.gcd(padded.max_length, _TOKENS_STEP)
    packed, of_windows = None, {WINDOW_STARTS, encoder.MEMORY_PLACES}
    if isinstance(model, served_model.ServedModel):
        functions = {k: _of_saved(each) for k, each in model.functions().items()}
    elif isinstance(model, task_model.TaskModel):
        model.preprocessor = padded  # attention costs least with one text per row
        found_here = saved_model.signature_functions(model)
        functions = {k: _of_graph(each) for k, each in found_here.items()}
        if task.is_plain and set(task.needs.keras_inputs()) == {
            *_IDS,
            *encoder.PACKED_INPUTS,
        }:
            packed = _packed(model)
    else:
        found_here = saved_model.text_functions(model)
        functions = {k: _of_graph(each) for k, each in found_here.items()}
    found: dict[str, Signature] = {}
    for name, function in functions.items():
        if not of_windows.isdisjoint(function.inputs):
            continue
        specs = input_specs(task).get(name)
        answering = task.of_signature(name)
        # The order of the texts is the task's.
        names = [s.name for s in specs] if specs else sorted(function.inputs)
        inputs = [TensorInfo.of(each, function.inputs[each]) for each in names]
        plain = answering.is_plain and all(len(each.shape) == 1 for each in inputs)
        # `ids` gives the same answers.
        traced = functions["ids"] if packed and plain else function
        outputs = [TensorInfo.of(*each) for each in sorted(traced.outputs().items())]
        given = (name, inputs, outputs)
        if specs is None:
            longest = max(padded.max_length, _LONGEST_IDS)
            found[name] = IdsSignature(*given, function.call, longest_row=longest)
        elif packed and plain:
            found[name] = TokenSignature(
                *given,
                functions["ids"].call,
                tokenize=functools.partial(_tokenized, padded),
                specs=specs,
                packed=packed,
                pad_id=padded.tokenizer.pad_id,
                multiple=multiple,
            )
        else:
            found[name] = TextSignature(
                *given,
                function.call,
                lengths=_graph(functools.partial(_measured, answering, padded), specs),
                packs=model.graph_preprocessor.layout == "packed",
            )
    return _completed(task, found)


def _completed(task: Task, found: dict[str, Signature]) -> dict[str, Signature]:
    """Return signatures that know each other, and which texts may be empty."""
    inputs_by_name = {k: {i.name for i in each.inputs} for k, each in found.items()}
    may_be_empty = roles_with(task.columns, "empty")
    for name, each in found.items():
        each.may_be_empty = frozenset(
            info.name
            for role, info in zip(task.roles, each.inputs, strict=False)
            if role in may_be_empty
        )
        each.others = {k: v for k, v in inputs_by_name.items() if k != name}
    return found


def _direct_signatures(model: Backend) -> dict[str, Signature]:
    """Return the signatures of a model that answers without a graph, or none.

    They are of one string for each role; with a prompt, of their own. Or of lists, if
    the task's rows are made of lists.
    """
    task = model.task
    takes_lists = task.row_reader.takes_lists
    found: dict[str, Signature] = {}
    for name, inputs in text_specs(task).items():
        answering_task = task.of_signature(name)
        is_listed = any(each.rank > 1 for each in inputs)
        if not takes_lists and (is_listed or len(inputs) != len(task.roles)):
            continue  # in another form, such as a list of documents
        other: Any = model
        if answering_task is not task:
            other = other.with_task(answering_task)
        answering = other.answering()
        if not answering.is_direct:
            return {}
        outputs = sorted(answering.outputs(name).items())
        found[name] = DirectSignature(
            name,
            [TensorInfo(x.name, "string", (None,) * x.rank) for x in inputs],
            [TensorInfo.of(*each) for each in outputs],
            answering,
            task.needs.readings,
        )
    return found


def _of_graph(function: Any) -> _Function:
    """Return a tf.function as one that takes its arguments by name."""
    specs = {spec.name: spec for spec in function.input_signature}
    traced = functools.cache(function.get_concrete_function)
    return _Function(
        specs,
        lambda: traced().structured_outputs,
        lambda **given: traced()(*(given[name] for name in specs)),
    )


def _of_saved(function: Any) -> _Function:
    inputs = function.structured_input_signature[1]
    return _Function(inputs, lambda: function.structured_outputs, function)


def _tokenized(preprocessor: Preprocessor, *texts: Any) -> tuple[Any, ...]:
    pieces = preprocessor.pieces(text_preprocessor.one_or_all(texts))
    ids, segments = preprocessor.join_pieces(*pieces)
    return ids.values, segments.values, *preprocessor.lengths_of(*pieces)


def _measured(task: Task, preprocessor: Preprocessor, *texts: Any) -> tuple[Any, Any]:
    read, lost = lengths_of(task, preprocessor, text_preprocessor.one_or_all(texts))
    # A list of a request counts each of its members, see `TextSignature.rows_of`.
    listed = any(each.shape.rank == 2 for each in texts)
    return read if listed else read * task.needs.readings, tf.cast(lost, tf.int32)


def _packed(model: task_model.TaskModel) -> Callable[[dict[str, Any]], Any]:
    """Return a function of packed rows, see `pack_rows`."""

    def answer(batch: dict[str, Any]) -> dict[str, tf.Tensor]:
        return model.task.answer(model(batch, training=False), batch)

    specs = {
        name: tf.TensorSpec(each.shape, each.dtype, name=name)
        for name, each in model.task.needs.keras_inputs().items()
    }
    return _graph(answer, [specs])


def _graph(function: Callable[..., Any], specs: Sequence[Any]) -> Callable[..., Any]:
    """Return a function that is traced at its first call.

    A concrete function is called in less time than the `tf.function` that looks it up.
    """
    graph = tf.function(function, input_signature=specs, autograph=False)
    traced = functools.cache(graph.get_concrete_function)
    return lambda *tensors: traced()(*tensors)


def _tensors(parts: Parts) -> list[tf.Tensor]:
    """Return bytes [N], or lists of bytes [N, M] padded with b"", as tf.string."""
    found = []
    for part in parts:
        if not isinstance(part[0], bytes):
            width = max(map(len, part))
            part = [[*row, *[b""] * (width - len(row))] for row in part]
        found.append(tf.constant(part, tf.string))
    return found


def _arrays(answers: Mapping[str, Any]) -> Answers:
    return {name: value.numpy() for name, value in answers.items()}


def _filled_width(values: np.ndarray) -> int:
    """Return the columns of [B, M, …] up to the last one that is filled in any row.

    Others are empty strings, -1 or, of numbers with a fraction, 0.
    """
    if not values.size:
        return 0
    empty = {"O": b"", "f": 0}.get(values.dtype.kind, -1)
    filled = values != empty
    columns = filled.reshape(*filled.shape[:2], -1).any(axis=(0, 2))
    return int(columns.nonzero()[0].max(initial=-1)) + 1
