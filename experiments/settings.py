"""Checks that the Configs of several experiments share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from particles.arrays import count


def chosen(names: Sequence[str], known: Iterable[str], argument: str) -> None:
    """ValueError unless `names` are some of the known ones, each at most once."""
    valid = isinstance(names, Sequence) and not isinstance(names, str) and len(names) > 0
    if not valid or len(set(names)) < len(names) or set(names) - set(known):
        raise ValueError(f"{argument} must be some of {list(known)}, each once, got {names!r}")


def epochs_after(n_warm: int, n_epochs: int) -> None:
    """ValueError unless epochs are left after the `n_warm` ones before Phase A."""
    if count(n_epochs, "n_epochs") <= n_warm:
        raise ValueError(f"n_epochs must be more than n_warm, of which there are {n_warm}, got {n_epochs}")
