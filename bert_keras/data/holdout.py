"""Rows held out for validation, in the proportions of the classes.

Sources: Kohavi 1995 (IJCAI) for stratified holdout; Sechidis et al. 2011 (ECML PKDD)
for several labels per row: the rarest label is drawn first.
"""

from __future__ import annotations

import array
import collections
import heapq
from collections.abc import Collection, Hashable, Mapping, Sequence

import numpy as np

from bert_keras.data.class_names import listed

Strata = Sequence[Collection[str | int]]  # class names, or numbers of quantiles
_Name = str | int | None  # `None` stands for no class
_QUANTILES = 10
_LARGEST_GROUP = 1 / 4  # of the rows to hold out; larger groups stay in training
_LEAST_HELD_OUT = 0.8  # of these rows; if groups leave fewer, rows are drawn alone


def stratified_holdout(
    strata: Strata,
    count: int,
    *,
    seed: int,
    groups: Sequence[Hashable] | None = None,
    whole: bool = False,
) -> list[int]:
    """Return `count` random rows to hold out, in order, with the shares of the classes.

    Each class keeps a row in training. If `count` is at least the number of classes
    with two rows or more, each of these has a held-out row too. Fewer than `count` rows
    are returned if too many are the only one of their class.

    Args:
        strata: the classes of each row: none, one or several.
        count: number of rows to hold out.
        seed: seed of the random choice.
        groups: what each row shares with others, such as the first text of a pair.
            Rows of a group stay together, unless this would leave a class or a fifth of
            the rows out.
        whole: whether groups are never divided, whatever `count` and the classes are,
            unless there is a single one.

    Example:
        >>> rows = stratified_holdout([["ham"], ["spam"], ["ham"], ["spam"]], 2, seed=0)
        >>> len(rows), rows[0] % 2 != rows[1] % 2
        (2, True)
    """
    alone = _hold_out(None, strata, count, seed)
    if groups is None:
        return alone
    rows_of: dict[Hashable, list[int]] = collections.defaultdict(list)
    for row, group in enumerate(groups):
        rows_of[group].append(row)
    if whole and len(rows_of) > 1:
        return _whole_groups(list(rows_of.values()), count, seed)
    units = [rows for rows in rows_of.values() if len(rows) <= count * _LARGEST_GROUP]
    together = _hold_out(units, strata, count, seed)
    lost = classes_of(strata, alone) - classes_of(strata, together)
    few = len(together) < _LEAST_HELD_OUT * len(alone)
    return alone if lost or few else together


def _whole_groups(groups: Sequence[list[int]], count: int, seed: int) -> list[int]:
    """Return at most `count` rows of random groups, in order, of one group at least."""
    held_out: list[int] = []
    for place in np.random.default_rng(seed).permutation(len(groups))[1:].tolist():
        if len(held_out) + len(groups[place]) <= count:
            held_out += groups[place]
    if not held_out:
        held_out = min(groups, key=len)
    return sorted(held_out)


def classes_of(strata: Strata, rows: Collection[int] | None = None) -> set[str]:
    """Return the classes of some rows, by default of all, without quantiles."""
    chosen = strata if rows is None else [strata[row] for row in rows]
    return {name for names in chosen for name in names if isinstance(name, str)}


def class_sizes(strata: Strata) -> collections.Counter[str]:
    """Return the number of rows of each class, without quantiles."""
    return collections.Counter(
        name for names in strata for name in set(names) if isinstance(name, str)
    )


def uncovered_classes(strata: Strata, rows: Collection[int], *, option: str) -> str:
    """Return a note about classes without a held-out row; empty if there are none.

    `option` is the user's name of the held-out share.
    """
    sizes = class_sizes(strata)
    missing = sorted(classes_of(strata) - classes_of(strata, rows))
    if not missing:
        return ""
    alone = all(sizes[name] == 1 for name in missing)
    total = len(classes_of(strata))
    why = ", which have one row each" if alone else f": a larger {option} covers more"
    return f"no row for {len(missing):,} of {total:,} classes ({listed(missing)}){why}"


def quantiles(values: np.ndarray) -> list[tuple[int]]:
    """Return the quantile of each number, float [N], as strata; there are up to ten."""
    parts = max(1, min(_QUANTILES, len(values) // 2))
    edges = np.quantile(values, np.arange(1, parts) / parts)
    return [(int(place),) for place in np.searchsorted(edges, values, side="right")]


def _hold_out(
    units: Sequence[Sequence[int]] | None, strata: Strata, count: int, seed: int
) -> list[int]:
    """Return at most `count` rows, in order; the rows of a unit stay together.

    Without units each row is alone. Of millions of rows, only numbers are kept.
    """
    random = np.random.default_rng(seed)

    def names(row: int) -> Collection[_Name]:
        return set(strata[row]) or (None,)

    every = range(len(strata))
    left = collections.Counter(name for row in every for name in names(row))
    wanted = _allocation(left, count / max(len(strata), 1), random)
    order = random.permutation(len(strata if units is None else units))

    def rows_of(unit: int) -> Sequence[int]:
        place = int(order[unit])
        return (place,) if units is None else units[place]

    units_of: dict[_Name, array.array[int]]
    units_of = collections.defaultdict(lambda: array.array("q"))
    for unit in range(len(order)):
        for name in dict.fromkeys(n for row in rows_of(unit) for n in names(row)):
            units_of[name].append(unit)
    found: dict[int, list[int]] = {}  # the rows of each chosen unit
    room = count

    def take(unit: int, exact: bool) -> None:
        """Add a unit if it fits; if `exact`, only if no class gets more than wanted."""
        nonlocal room
        rows = rows_of(unit)
        if unit in found or len(rows) > room:
            return
        size = collections.Counter(name for row in rows for name in names(row))
        is_last = any(isinstance(n, str) and left[n] <= size[n] for n in size)
        if is_last or exact and any(wanted[n] < size[n] for n in size):
            return
        found[unit] = list(rows)
        room -= len(rows)
        left.subtract(size)
        for name in size:
            wanted[name] -= size[name]

    for exact in (True, False):
        for name in sorted(wanted, key=lambda name: (left[name], str(name))):
            for unit in units_of[name]:
                if wanted[name] <= 0:
                    break
                take(unit, exact)
    for unit in range(len(order)):
        if not room:
            break
        take(unit, False)
    return sorted(row for rows in found.values() for row in rows)


def _allocation(
    sizes: Mapping[_Name, int], share: float, random: np.random.Generator
) -> dict[_Name, int]:
    """Return how many rows of each stratum to hold out: its share, rounded.

    Their sum is the share of the sum of the sizes. One is left of each stratum, and one
    taken of each that has two or more if the sum allows it.
    """
    total = round(share * sum(sizes.values()))
    least = int(total >= sum(size > 1 for size in sizes.values()))
    wanted = {
        name: min(max(int(share * size), least), size - 1)
        for name, size in sizes.items()
    }
    missing = total - sum(wanted.values())
    step = 1 if missing > 0 else -1
    order = random.permutation(len(sizes)).tolist()  # of equal remainders
    heap = [
        (step * (wanted[name] - share * sizes[name]), tie, name)
        for tie, name in zip(order, sizes, strict=True)
    ]
    heapq.heapify(heap)
    while missing and heap:
        _, tie, name = heapq.heappop(heap)
        if not least <= wanted[name] + step < sizes[name]:
            continue
        wanted[name] += step
        missing -= step
        heapq.heappush(heap, (step * (wanted[name] - share * sizes[name]), tie, name))
    return wanted
