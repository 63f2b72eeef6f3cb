"""A loaded version of a model, which answers until it is drained: `Version`."""

from __future__ import annotations

import threading

from bert_keras.errors import received
from bert_keras.inference.predictor import load_predictor
from bert_keras.serving.batcher import AnswersFuture, Batcher, Seen
from bert_keras.serving.config import ServeConfig
from bert_keras.serving.errors import RequestError
from bert_keras.serving.example import card_example
from bert_keras.serving.signatures import (
    Parts,
    Signature,
    TensorInfo,
    signatures_of,
)

# Texts with these numbers of words are computed before the first request, since a
# graph is optimized at its first call.
_WARM_UP_WORDS = (1, 60)
DEFAULT = "serving_default"


class Version:
    """A model in memory, with the threads that compute it.

    Args:
        path: a model folder, a SavedModel, or an export for an engine.
        number: the version number.
        config: the limits of a batch.
        seen: see `Batcher`.

    Raises:
        CheckpointError: the model is missing or broken.
    """

    def __init__(
        self, path: str, number: int, *, config: ServeConfig, seen: Seen
    ) -> None:
        model = load_predictor(path, engine=config.engine).model
        self.number = number
        self.preprocessor = model.preprocessor
        self.pooling = str(getattr(model.task, "pooling", ""))
        self.task = model.task.name
        self.classes: tuple[str, ...] = tuple(getattr(model.task, "classes", ()))
        self.example = card_example(path)
        self.signatures: dict[str, Signature] = signatures_of(model)
        self._in_use = 0
        self._changed = threading.Condition()
        self._is_draining = False
        self._batcher = Batcher(
            max_batch_tokens=config.max_batch_tokens,
            timeout_ms=config.batch_timeout_ms,
            seen=seen,
        )
        try:
            self._warm_up()
        except BaseException:
            self._batcher.close()
            raise

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
        self._batcher.close()

    def _warm_up(self) -> None:
        futures = [
            self.submit(signature, [_example(each, words) for each in signature.inputs])
            for signature in self.signatures.values()
            if signature.longest_row is None
            for words in _WARM_UP_WORDS
        ]
        for future in futures:
            future.result()


def _example(info: TensorInfo, words: int) -> list[bytes | list[bytes]]:
    """Return one value of an input: a text, or a list of two."""
    text = b" ".join([b"a"] * words)
    return [text if len(info.shape) == 1 else [text, text]]
