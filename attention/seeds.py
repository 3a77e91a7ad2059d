"""Seeds: one integer out of whatever a caller gave, and torch's default generators under it for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral

import numpy as np
import torch

from particles.arrays import count


def seed_from(rng: int | np.random.Generator | torch.Generator) -> int:
    """One integer seed: `rng` itself if it is an integer of at least 0, else one draw of 62 bits from the generator."""
    if isinstance(rng, torch.Generator):
        return int(torch.randint(2**62, (), generator=rng, device=rng.device))
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**62))
    if isinstance(rng, bool) or not isinstance(rng, Integral):
        raise ValueError(f"rng must be an integer of at least 0, a NumPy or a torch generator, got {rng!r}")
    return count(rng, "rng", least=0)


def derived_seed(*numbers: int) -> int:
    """A seed of 62 bits, a function of the integers: a step that has its own depends on no generator's state, so a run can be cut there."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(2))


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Inside the block torch's default generators start from `seed`; afterwards they are exactly as they were before."""
    cuda = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(cuda):
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed(seed)
        yield
