"""The data sets of a training run: rows set aside for dev, and test sets by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from bert_keras.errors import ConfigError, DataError
from bert_keras.progress import say
from bert_keras.table import Columns
from bert_keras.train_config import TrainConfig

_TAKEN = {"train", "dev", "runs", "diverged"}  # names of scores


def named_tests(test: Columns | Mapping[str, Columns] | None) -> dict[str, Columns]:
    """Return the test sets by name; a single one is called `test`."""
    if test is None:
        return {}
    tests = {"test": test} if isinstance(test, Columns) else dict(test)
    taken = sorted(_TAKEN & set(tests))
    if taken:
        raise ConfigError(
            f"`test` must have other names than {', '.join(sorted(_TAKEN))}; "
            f"received {taken[0]}"
        )
    return tests


def with_dev(
    train: Columns,
    dev: Columns | None,
    config: TrainConfig,
    *,
    tell: Callable[[str], object] = say,
) -> tuple[Columns, Columns]:
    """Return training and dev rows; sets rows aside where there is no dev."""
    if dev is not None:
        return train, dev
    count = max(1, round(len(train) * config.dev_share))
    if count >= len(train):
        raise DataError(
            f"has too few rows to set some aside for dev ({len(train)}): give dev rows",
            path=train.path,
        )
    order = np.random.default_rng(config.seed).permutation(len(train))
    tell(
        f"no dev rows given: {count:,} of {len(train):,} training rows are set aside "
        f"(seed {config.seed})"
    )
    return train.take(sorted(order[count:])), train.take(sorted(order[:count]))
