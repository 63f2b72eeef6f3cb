"""BLEU and chrF of translations by `sacrebleu`, with its signatures. No TensorFlow.

Sources: Papineni et al. 2002 for BLEU; Popović 2015 for chrF; Post 2018
(arXiv:1804.08771) for signatures, without which scores cannot be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bert_keras.errors import needs


def translation_scores(
    references: Sequence[str], translations: Sequence[str]
) -> dict[str, Any]:
    """Return BLEU and chrF of a corpus, from 0 to 100, and their signatures.

    `bleu_lowercase` ignores case: the score for an uncased vocabulary.

    Raises:
        ConfigError: sacrebleu is not installed.

    Example:
        >>> translation_scores(["a red house"], ["a red house"])["chrf"]
        100.0
    """
    with needs("BLEU", extra="generation"):
        from sacrebleu.metrics import BLEU, CHRF
    metrics = {"bleu": BLEU(), "bleu_lowercase": BLEU(lowercase=True), "chrf": CHRF()}
    texts = list(translations), [list(references)]
    scores = {name: m.corpus_score(*texts).score for name, m in metrics.items()}
    signatures = {name: str(each.get_signature()) for name, each in metrics.items()}
    return {**scores, "signatures": signatures}
