"""What the kernels of a trained language model do, head by head: how near and how few the keys are that a row weighs, and how much cancels.

A causal head that finds the last few tokens predicts characters well; a kernel of few features is a blunt one, so its rows spread over
all keys. `near` and `keys` say how much; `negative` is what signed features take back, `rank` how many directions the features use. What
counts of pairs of tokens are worth is what a model can do whose attention brings nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attention.activations import log_softmax_rows, visible
from attention.inspection import Heads, attention_maps, effective_rank, heads_of

if TYPE_CHECKING:
    from attention.model import Transformer
    from experiments.data import Dataset
    from experiments.units import Scores

NEAR = 8  # keys, the query's own token among them
PSEUDO = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # counts that single tokens weigh
BLOCKS = 16  # of the test text that are looked at
ARRAYS = dict.fromkeys(("near", "keys", "negative", "rank"), ("layer", "head"))


def looked(model: Transformer, data: Dataset) -> Scores:
    """Of the second half of some test blocks' queries, where the most keys are visible.

    Returns
    -------
    dict of arrays (layer, head): near, share of the absolute weights on the last `NEAR` keys; keys, exp of the rows' mean entropy, the
    effective number of keys; negative, share of the absolute weights that are negative; rank, effective rank of keys' features, NaN for
    softmax. pairs: see `pairs_loss`.
    """
    batch = next(iter(data.test.batches(BLOCKS)))
    layers = [_of_heads(heads_of(model, batch, layer)) for layer in range(len(model.blocks))]
    return {name: np.array([layer[name] for layer in layers]) for name in ARRAYS} | {"pairs": pairs_loss(data)}


def pairs_loss(data: Dataset) -> float:
    """Test loss [nats a token] of the next token given the last one alone: counts of the training part, mixed with the frequencies of
    single tokens, with the weight in `PSEUDO` that is best on the validation part."""
    n, train = data.vocab_size or 0, data.train.tokens
    pairs = np.zeros((n, n))
    np.add.at(pairs, (train[:, :-1].ravel(), train[:, 1:].ravel()), 1.0)
    single = (pairs.sum(0) + 1) / (pairs.sum() + n)

    def loss(tokens: np.ndarray, weight: float) -> float:
        last, wanted = tokens[:, :-1].ravel(), tokens[:, 1:].ravel()
        return float(-np.log((pairs[last, wanted] + weight * single[wanted]) / (pairs.sum(1)[last] + weight)).mean())

    return loss(data.test.tokens, min(PSEUDO, key=lambda weight: loss(data.validation.tokens, weight)))


def _of_heads(heads: Heads) -> dict[str, np.ndarray]:
    """The numbers of one layer, each (head,)."""
    weights = _weights(heads)
    n = weights.shape[-1]
    shares, late = np.abs(weights), slice(n // 2, None)
    age = np.arange(n)[:, None] - np.arange(n)
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(-1)
    rank = np.full(weights.shape[1], np.nan) if heads.kernel is None else effective_rank(heads)["key"].values
    return {
        "near": np.where(age < NEAR, shares, 0.0).sum(-1)[..., late].mean((0, 2)),
        "keys": np.exp(entropy[..., late].mean((0, 2))),
        "negative": np.where(weights < 0, shares, 0.0).sum(-1)[..., late].mean((0, 2)),
        "rank": rank,
    }


def _weights(heads: Heads) -> np.ndarray:
    """(sequence, head, query, key), divided by the sum of a row's absolute values; 0 where a key is not visible."""
    if heads.kernel is None:
        return log_softmax_rows(heads.seen.q, heads.seen.k, None, visible(heads.seen)).exp().numpy()
    return np.nan_to_num(attention_maps(heads)["kernel"].values)
