"""The attentions that Flexformer's tables compare, and learned kernels with their controls: the rows of long-range tasks and of language.

| row                        | attention                                                                                       |
|----------------------------|-------------------------------------------------------------------------------------------------|
| softmax                    | scaled dot products                                                                             |
| linear                     | 1 + elu (Katharopoulos et al. 2020)                                                             |
| performer                  | FAVOR+ features, orthogonal particles that stay                                                 |
| rfa                        | cos and sin of random frequencies that stay, under Flexformer's recipe (below)                  |
| cosformer, hedgehog, polaformer | as in their papers, see `attention.feature_map`                                            |
| soft                       | SOFT's Gaussian kernel through means of windows; bidirectional only                             |
| flexformer(-nonstationary) | learned frequencies under the recipe that trains: unit-norm queries and keys, no denominator, RMS norm |
| ..., literal               | as printed: no norm, divided by the sum of the kernel, which may vanish                         |
| softmaxfeat, x             | softmax over particles: fixed; learned end to end, also from a narrow start; align: Phase A, then frozen; |
|                            | align, unfreeze: then trained; shuffled, unfreeze: the same with permuted labels                |
| flexformer, x              | the same of its frequencies; fast: they learn at 40 times the rate of other particles; mean: divided by |
|                            | the number of keys, with no norm of the output, which gives noise the size of a signal          |
| exponential                | learned positive features, queries and keys apart, with a learned bias of keys                  |
| ..., window                | keys less than 16 tokens away have softmax's weights, the others the kernel's                   |

A state holds `n_features` x head_dim numbers in all rows but linear and cosformer (1 and 2 features for each dimension of a head, as in
their papers) and polaformer (2); softmax keeps every key and value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.comparisons import best_row

if TYPE_CHECKING:
    import xarray as xr

    from attention.model import ModelConfig, Transformer


class Row(NamedTuple):
    """What is different in a row: the attention, what happens to its particles (a name of `training.PARTICLES`), the first particles' width
    in units of the map's draw, the normaliser, whether queries and keys have unit norm (None: where the map is signed), how near keys are
    that have softmax's weights, and the particles' learning rate in units of the experiment's."""

    attention: str
    particles: str = "fixed"
    width: float = 1.0
    normalise: str | None = "default"
    unit_norm: bool | None = None
    window: int | None = None
    speed: float = 1.0

    @property
    def family(self) -> str:
        """Rows that share a learning rate."""
        return self.attention + (", literal" if self.normalise == "sum" else "")


_LITERAL: dict[str, Any] = {"particles": "learned", "normalise": "sum", "unit_norm": False}
ROWS = {
    "softmax": Row("softmax"),
    "linear": Row("linear"),
    "performer": Row("favor"),
    "rfa": Row("rfa"),
    "cosformer": Row("cosformer"),
    "hedgehog": Row("hedgehog", "learned"),
    "polaformer": Row("polaformer"),
    "soft": Row("soft"),
    "flexformer": Row("flexformer", "learned"),
    "flexformer-nonstationary": Row("flexformer-nonstationary", "learned"),
    "flexformer, literal": Row("flexformer", **_LITERAL),
    "flexformer-nonstationary, literal": Row("flexformer-nonstationary", **_LITERAL),
    "flexformer, align, unfreeze": Row("flexformer", "align, unfreeze"),
    "flexformer, shuffled, unfreeze": Row("flexformer", "shuffled, unfreeze"),
    "flexformer, narrow start": Row("flexformer", "learned", width=0.5),
    "flexformer, fast": Row("flexformer", "learned", speed=40.0),
    "flexformer, mean": Row("flexformer", "learned", normalise="count"),
    "softmaxfeat, fixed": Row("softmaxfeat"),
    "softmaxfeat, learned": Row("softmaxfeat", "learned"),
    "softmaxfeat, narrow start": Row("softmaxfeat", "learned", width=0.5),
    "softmaxfeat, align": Row("softmaxfeat", "align"),
    "softmaxfeat, align, unfreeze": Row("softmaxfeat", "align, unfreeze"),
    "softmaxfeat, shuffled, unfreeze": Row("softmaxfeat", "shuffled, unfreeze"),
    "exponential": Row("exponential", "learned"),
    "linear, window": Row("linear", window=16),
    "hedgehog, window": Row("hedgehog", "learned", window=16),
    "softmaxfeat, learned, window": Row("softmaxfeat", "learned", window=16),
    "exponential, window": Row("exponential", "learned", window=16),
}
FAMILIES = {row.family: name for name, row in reversed(ROWS.items())}  # family: its first row
PER_DIM = {"linear": 1, "cosformer": 2, "polaformer": 2}  # features for each dimension of a head
LINEAR = ("linear", "performer", "rfa", "cosformer", "hedgehog", "polaformer")  # the linear baselines of the paper's tables
OURS = tuple(  # kernels that learn
    name
    for name, row in ROWS.items()
    if name.startswith(("flexformer", "softmaxfeat", "exponential"))
    and row.window is None
    and row.particles not in ("fixed", "shuffled, unfreeze")
)
LINEAR_NEAR = ("linear, window", "hedgehog, window")  # the same with softmax's weights for near keys
OURS_NEAR = ("softmaxfeat, learned, window", "exponential, window")


def model_config(row: Row, *, n_features: int, max_length: int, **sizes: Any) -> ModelConfig:
    """The ModelConfig of a row; `sizes` are its other fields. SOFT's landmarks are as many as features."""
    from attention.model import ModelConfig

    options: dict[str, Any] = {}
    if row.attention != "softmax":
        options["n_features"] = PER_DIM[row.attention] * (sizes["dim"] // sizes["heads"]) if row.attention in PER_DIM else n_features
    if row.attention not in ("softmax", "soft"):
        options |= {"normalise": row.normalise, "unit_norm": row.unit_norm, "window": row.window}
    if row.attention == "cosformer":
        options["feature_options"] = {"horizon": max_length}
    return ModelConfig(attention=row.attention, max_length=max_length, **options, **sizes)


def built(row: Row, seed: int, **sizes: Any) -> Transformer:
    """The untrained model of a row: the same weights in all rows of one seed as far as they have the same parameters."""
    from attention.model import Transformer

    model = Transformer(model_config(row, **sizes), rng=seed)
    for feature_map in model.feature_maps if row.width != 1 else []:
        feature_map.load_omega(feature_map.omega.detach() * row.width)
    return model


# ---- which rows are compared ----------------------------------------------------------------------------------------------------------

PAIRS = (
    ("flexformer", "softmax"),
    ("flexformer-nonstationary", "softmax"),
    ("flexformer-nonstationary", "flexformer"),
    ("flexformer", "flexformer, literal"),
    ("flexformer, fast", "flexformer"),
    ("flexformer, mean", "flexformer"),
    ("flexformer, align, unfreeze", "flexformer"),
    ("flexformer, align, unfreeze", "flexformer, shuffled, unfreeze"),
    ("flexformer, align, unfreeze", "flexformer, narrow start"),
    ("softmaxfeat, learned", "softmaxfeat, fixed"),
    ("softmaxfeat, align", "softmaxfeat, fixed"),
    ("softmaxfeat, align, unfreeze", "softmaxfeat, learned"),
    ("softmaxfeat, align, unfreeze", "softmaxfeat, shuffled, unfreeze"),
    ("softmaxfeat, align, unfreeze", "softmaxfeat, narrow start"),
    ("softmaxfeat, learned, window", "softmaxfeat, learned"),
    ("softmaxfeat, learned, window", "softmax"),
    ("softmaxfeat, learned, window", "linear, window"),
    ("softmaxfeat, learned, window", "hedgehog, window"),
    ("exponential, window", "softmax"),
)


def leading_pairs(ds: xr.Dataset, score: str) -> list[tuple[str, str]]:
    """Our best row on one task against softmax and the best linear baseline, those that ran.

    The best ones have the largest validation `score`, which no test saw.
    """
    ours, rivals = best_row(ds, OURS, score), (best_row(ds, names, score) for names in (("softmax",), LINEAR))
    return [(ours, rival) for rival in rivals if ours is not None and rival is not None]


def pairs_of(ds: xr.Dataset, score: str) -> list[tuple[str, str]]:
    """The pairs that are compared on one task: the leading ones, then `PAIRS` as far as they ran."""
    ran = {str(name) for name in ds["row"].values if bool(ds[score].sel(row=name).notnull().any())}
    return [pair for pair in dict.fromkeys([*leading_pairs(ds, score), *PAIRS]) if ran.issuperset(pair)]
