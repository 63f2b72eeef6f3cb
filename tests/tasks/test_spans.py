"""The best spans of windows and texts against all spans tried in turn."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.tasks.question_answering.spans import (
    NEVER,
    Spans,
    text_spans,
    window_spans,
)
from bert_keras.text.windows import Cut, cut_windows


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_tokens", [1, 4, 30])
def test_best_spans_are_those_of_all_spans(seed: int, max_tokens: int) -> None:
    rng = np.random.default_rng(seed)
    sizes, n_best = [0, 1, 5, 23, 40], 3
    windows = cut_windows(
        tf.ragged.constant([list(range(n)) for n in (3, 0, 2, 3, 1)], tf.int32),
        tf.ragged.constant([list(range(n)) for n in sizes], tf.int32),
        Cut(16, stride=4, overlap=0.5),
        cls_id=1,
        sep_id=2,
    )
    count = windows.ids.nrows()
    logits = rng.normal(0, 3, (count, 16, 2)).astype("float32")
    spans = window_spans(
        logits,
        windows,
        max_tokens=max_tokens,
        n_best=n_best,
        temperatures=(1.0, 2.0),
    )
    found = text_spans(spans, windows.text, texts=len(sizes))
    arrays = Spans(*(part.numpy() for part in spans))
    for text in range(len(sizes)):
        merged = arrays.take(windows.text.numpy() == text).merged(n_best)
        for part, of_all in zip(merged, found, strict=True):
            np.testing.assert_allclose(part, of_all[text].numpy(), rtol=1e-6)
    fields = [part.numpy() for part in windows[2:]]
    for text in range(len(sizes)):
        scores, null = {}, []
        for row, (of, first, size, place, own, own_end) in enumerate(
            zip(*fields, strict=True)
        ):
            if of != text:
                continue
            null.append(logits[row, 0].sum())
            for start in range(own, own_end):
                for end in range(start, min(start + max_tokens, first + size)):
                    pair = logits[row, place - first + np.array([start, end]), [0, 1]]
                    assert (start, end) not in scores
                    scores[start, end] = pair.sum()
        best = sorted(scores, key=lambda span: -scores[span])[:n_best]
        ends = found.ends[text].numpy()
        pairs = list(zip(found.starts[text].numpy(), ends, strict=True))
        assert pairs[: len(best)] == best
        wanted = [scores[span] for span in best]
        np.testing.assert_allclose(found.scores[text][: len(best)], wanted, rtol=1e-5)
        assert (found.scores[text][len(best) :].numpy() == NEVER).all()
        assert float(found.null[text]) == pytest.approx(min(null))
        if scores:
            total = np.log(np.sum(np.exp(list(scores.values()))))
            assert float(found.totals[text, 0]) == pytest.approx(total, rel=1e-5)
            total = np.log(np.sum(np.exp(np.array(list(scores.values())) / 2)))
            assert float(found.totals[text, 1]) == pytest.approx(total, rel=1e-5)


def test_no_texts() -> None:
    none = Spans.none(3, temperatures=2)
    found = text_spans(none, tf.zeros([0], tf.int32), texts=0)
    assert found.scores.shape == (0, 3)
    assert found.null.shape == (0,)
