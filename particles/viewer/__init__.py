"""A run in a notebook, to play, turn and look into: `view` of a trajectory, `live_view` of a run that goes on. Needs the extra `notebook`.

>>> from particles.viewer import live_view, view
>>> domain, sampler = Ball(1.0, 3), Langevin(0.01, 50.0)
>>> run = simulate(domain.sample(500, 0), Riesz(1, 1.0), domain, sampler, n_steps=400, save_every=2, rng=0, callback=live_view())
>>> view(run, colours={"trap": Quadratic(1.0)}, theory={"radial": (radius, density)})

The package's JavaScript is all there is to load: nothing comes from the network. The output also holds a picture of the frame shown, for
pages where no kernel runs. Nothing of this module is loaded before it is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {"LiveViewer": "live", "Viewer": "widget", "live_view": "live", "view": "widget"}

__all__ = ["LiveViewer", "Viewer", "live_view", "view"]


def __getattr__(name: str) -> Any:
    """The public names, imported when first asked for because they need anywidget."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
