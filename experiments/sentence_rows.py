"""The rows of `sentence_classification`: eighteen of the Coulomb paper's table, and variations of K-x named after what is different."""

from __future__ import annotations

from typing import Any, NamedTuple

MAPS = ("favor", "elu", "softplus", "sigmoid2", "softmaxfeat", "cos2", "porf-softplus")
ABLATED = ("softmaxfeat", "favor", "softplus")


class Row(NamedTuple):
    """What is different in a row."""

    attention: str
    particles: str = "fixed"  # a name of `training.PARTICLES`
    projections: str = "input"
    recipe: dict[str, Any] = {}  # noqa: RUF012  # fields of `training.Recipe` in the place of the Config's
    n_features: int | None = None  # None: the Config's
    width: float = 1.0  # of the first particles, in units of the map's draw
    noise: float = 0.0  # share of the training labels that are replaced by random other ones


_MAIN = {
    "softmax": Row("softmax", projections="separate"),
    "favor-WqWk": Row("favor", projections="separate"),
    "Performer": Row("favor", "redrawn", "separate"),
    "Linformer": Row("linformer", projections="separate"),
    **{f"{kind}-{name}": Row(name, particles) for name in MAPS for kind, particles in (("V", "fixed"), ("K", "align"))},
}
OURS = tuple(f"K-{name}" for name in MAPS)  # kernels that learn
LINEAR = ("favor-WqWk", "Performer", "Linformer")  # the paper's linear baselines
CONTROLS: dict[str, dict[str, Any]] = {  # in the place of "K-x: Phase A, then frozen"
    "shuffled": {"particles": "shuffled"},
    "half width": {"particles": "fixed", "width": 0.5},
    "unfreeze": {"particles": "align, unfreeze"},
    "joint": {"particles": "learned"},
}
_PAPER = {"lam": 5e-4, "beta": 50.0, "step_size": 2e-3, "radius": 1.5}  # lambda of W is twice lam
ABLATIONS: dict[str, dict[str, dict[str, Any]]] = {  # panel: {what is different: how}
    "repulsion": {"lam 0.0": {"recipe": {"lam": 0.0}}, "lam 0.1": {"recipe": {"lam": 0.1}}, "s 1.0": {"recipe": {"s": 1.0}}},
    "temperature": {"beta 50": {"recipe": {"beta": 50.0}}},
    "length of Phase A": {f"{n} steps": {"recipe": {"n_align": n}} for n in (20, 300)},
    "the paper's constants": {"paper": {"recipe": _PAPER}},
    "particles": {f"{n} particles": {"n_features": n} for n in (16, 256)},
    "label noise": {"noise 0.2": {"noise": 0.2}},
}
WITH_VANILLA = ("particles", "label noise")  # V-x changes too
OF_EVERY_MAP = ("shuffled", "half width")
OF_TWO_MAPS = (
    "lam 0.1",
    "s 1.0",
    "beta 50",
    "20 steps",
    "300 steps",
    "paper",
    "16 particles",
    "noise 0.2",
)  # not of the last


def _ablations() -> dict[str, Row]:
    rows = {}
    for panel, changes in {"controls": CONTROLS, **ABLATIONS}.items():
        for what, change in changes.items():
            names = MAPS if what in OF_EVERY_MAP else ABLATED[:2] if what in OF_TWO_MAPS else ABLATED
            for name in names:
                for kind in ("V", "K") if panel in WITH_VANILLA else ("K",):
                    rows[f"{kind}-{name} {what}"] = _MAIN[f"{kind}-{name}"]._replace(**change)
    return rows


PARTS = {"main": _MAIN, "ablations": _ablations()}
ROWS = PARTS["main"] | PARTS["ablations"]
