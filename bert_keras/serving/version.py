"""A loaded version of a model, which answers until it is drained: `Version`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.errors import ConfigError, received
from bert_keras.inference.predictor import load_predictor
from bert_keras.lazy_names import deferred
from bert_keras.serving.batcher import THREADS, AnswersFuture, Batcher, Seen
from bert_keras.serving.config import ServeConfig
from bert_keras.serving.errors import RequestError
from bert_keras.serving.example import card_example
from bert_keras.serving.logs import log_error
from bert_keras.serving.signatures import (
    DEFAULT,
    SEARCH,
    Answers,
    Parts,
    Signature,
    TensorInfo,
    signatures_of,
)
from bert_keras.tasks.base import changed
from bert_keras.tasks.long_texts import most_tokens
from bert_keras.tasks.protocols import (
    Redacting,
    check_scores_pairs,
    pair_answers,
    redaction_of,
)
from bert_keras.tasks.redaction import Redaction

if TYPE_CHECKING:
    from bert_keras.serving import searching
else:
    (searching,) = deferred("bert_keras.serving.searching")

# Words of the texts of each warm-up: a graph is optimized at its first call, and one
# text has another graph than several.
_WARM_UPS: tuple[tuple[int, ...], ...] = ((1,), (60,), (1, 60))


class Version:
    """A model in memory, with the threads that compute it.

    It answers at once. Its graphs are traced and optimized in the background, for one
    to two seconds, in which requests take longer.

    Args:
        path: a model folder, a SavedModel, or an export for an engine.
        number: the version number.
        config: the limits of a batch.
        seen: see `Batcher`.
        index: a file of texts that the model then searches.
        positive_class: the class by whose probability the model ranks documents; with
            an index, the model that reranks them.

    Raises:
        CheckpointError: the model is missing or broken.
        ConfigError, DataError: it cannot search the index, see `search_signature`, or
            is no classifier of pairs with this class.
    """

    def __init__(
        self,
        path: str,
        number: int,
        *,
        config: ServeConfig,
        seen: Seen,
        index: str | None = None,
        positive_class: str | None = None,
    ) -> None:
        model = load_predictor(path, engine=config.engine, at_once=THREADS).model
        if positive_class is not None and index is None:
            model.task = changed(model.task, positive_class=positive_class)
            check_scores_pairs(model.task)
        self.number = number
        self.preprocessor = model.preprocessor
        self.pooling = str(getattr(model.task, "pooling", ""))
        self.task = model.task.name
        self.scores_pairs = model.task.scores_pairs
        # Whether its scores of pairs are not from 0 to 1.
        self.is_linear = getattr(model.task, "activation", "") == "linear"
        self.redacts = isinstance(model.task, Redacting)
        self.reads_windows = model.task.reads_windows
        self._task = model.task
        self.platform = model.platform
        self.max_tokens = most_tokens(model.task, model.preprocessor.max_length)
        self.classes: tuple[str, ...] = tuple(getattr(model.task, "classes", ()))
        self._path = path
        self.signatures: dict[str, Signature] = signatures_of(model)
        if hasattr(model.task, "documents"):
            searching.describe_search(model.task, self.signatures)
        if index is not None:
            self.signatures[SEARCH] = searching.search_signature(
                model, self.signatures, index, config, positive_class=positive_class
            )
        self._in_use = 0
        self._changed = threading.Condition()
        self._is_draining = False
        self._batcher = Batcher(
            max_batch_tokens=config.max_batch_tokens,
            timeout_ms=config.batch_timeout_ms,
            seen=seen,
        )
        self._failure: Exception | None = None
        self._warming = threading.Thread(target=self._warm_up, name="warm-up")
        self._warming.start()

    @functools.cached_property
    def example(self) -> dict[str, str]:
        """The example of the model's card, see `card_example`."""
        return card_example(self._path)

    def wait_for_warm_up(self) -> None:
        """Return when all graphs are optimized; raise the error of one that fails."""
        self._warming.join()
        if self._failure is not None:
            raise self._failure

    def signature(self, name: str) -> Signature:
        """Return a signature; an empty name means the default one.

        Raises:
            RequestError: no signature has this name.
        """
        found = self.signatures.get(name or DEFAULT)
        if found is None:
            names = ", ".join(self.signatures)
            raise RequestError(
                f"`signature_name` must be one of {names}; {received(name)}"
            )
        return found

    def pair_scores(self, answers: Answers) -> np.ndarray:
        """Return the scores by which pairs are ranked, float32 [B]."""
        scores: np.ndarray = pair_answers(self._task, answers)["score"]
        return scores

    def redaction(self, signature: Signature, types: Any) -> Redaction | None:
        """Return what redacts the texts of a request; `None` if it does not ask for it.

        Args:
            signature: takes the texts.
            types: of the entities to replace, a list or a string with commas; `True`:
                all. `None` or `False`: the texts are not redacted.

        Raises:
            RequestError: the signature takes no texts, or the model finds no entities
                of these types.
        """
        if types is None or types is False:
            return None
        if signature.longest_row is not None:
            raise RequestError(
                f"`redact` must be left out for `{signature.name}`, which takes no "
                f"texts; {received(types)}"
            )
        names = types if isinstance(types, list) else [types]
        if types is not True and not all(isinstance(name, str) for name in names):
            raise RequestError(
                f"`redact` must be true, or types of entities; {received(types)}"
            )
        chosen = None if types is True else types
        try:
            return redaction_of(self._task, self.preprocessor, chosen)
        except ConfigError as error:
            raise RequestError(f"`redact`: {error}") from None

    def submit(self, signature: Signature, parts: Parts) -> AnswersFuture:
        """Return the answers to a request, see `Batcher.submit`."""
        return self._batcher.submit(signature, parts)

    @property
    def queued(self) -> int:
        """Number of waiting rows."""
        return self._batcher.queued

    def enter(self) -> bool:
        """Count a request that uses the version; `False` if it is being drained."""
        with self._changed:
            self._in_use += not self._is_draining
            return not self._is_draining

    def leave(self) -> None:
        """Count a request as answered."""
        with self._changed:
            self._in_use -= 1
            self._changed.notify_all()

    def drain(self) -> None:
        """Accept no more requests, answer the accepted ones, and end the threads."""
        with self._changed:
            self._is_draining = True
            self._changed.wait_for(lambda: not self._in_use)
        self._warming.join()
        self._batcher.close()

    def _warm_up(self) -> None:
        try:
            for words in _WARM_UPS:
                for each in self.signatures.values():
                    if each.longest_row is None and not self._is_draining:
                        each.warm_up([_examples(info, words) for info in each.inputs])
        except Exception as error:  # requests fail then, each with its own error
            self._failure = error
            log_error("the warm-up failed", error)


def _examples(info: TensorInfo, words: Sequence[int]) -> list[bytes | list[bytes]]:
    """Return values of an input: texts of some words, or lists of two that differ."""
    texts = [b" ".join([b"a"] * count) for count in words]
    return [text if len(info.shape) == 1 else [text, b"b " + text] for text in texts]
