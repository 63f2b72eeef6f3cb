"""Confidence intervals of scores.

Source: Wilson 1927, "Probable inference, the law of succession, and statistical
inference" (the score interval, which never leaves 0 to 1).
"""

from __future__ import annotations

import math
import statistics

from bert_keras.errors import BertKerasError


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """Return the 95% interval of a share, such as an accuracy, of a number of rows.

    Raises:
        BertKerasError: a value is out of its range.

    Example:
        >>> low, high = wilson_interval(0.9, 100)
        >>> round(low, 3), round(high, 3)
        (0.826, 0.945)
    """
    if not 0 <= share <= 1 or count < 1:
        raise BertKerasError(
            "a share must be from 0 to 1, of at least one row; received "
            f"{share} and {count}"
        )
    z = statistics.NormalDist().inv_cdf(0.975)
    scale = 1 + z * z / count
    middle = (share + z * z / (2 * count)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    return max(0.0, middle - half), min(1.0, middle + half)
