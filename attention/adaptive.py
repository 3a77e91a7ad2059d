"""A language model's vocabulary in bands of falling width: adaptive inputs (Baevski and Auli 2019) and softmax (Grave et al. 2017).

Words are numbered by falling frequency and cut into bands. The words of band i have vectors of dim / 4^i numbers and one matrix
(width, dim) that carries them to the model's width; input and output share both. The output is a softmax over the first band and one
entry for each other band, times the softmax within a band, so that the loss of a token costs what its band costs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention.batches import IGNORED
from attention.config import BAND_FACTOR, check_cutoffs


class AdaptiveEmbedding(nn.Module):
    """Token numbers -> vectors (..., dim), and the layer's own softmax.

    Parameters
    ----------
    vocab_size, dim : tokens, and the width of a vector.
    cutoffs : the first token of each band but the first, rising; the last band ends at `vocab_size`.

    Raises
    ------
    ValueError
        If the cutoffs do not rise from 1 to below `vocab_size`, or a band would have vectors without a number.
    """

    def __init__(self, vocab_size: int, dim: int, cutoffs: tuple[int, ...]) -> None:
        super().__init__()
        check_cutoffs(cutoffs, vocab_size, dim)
        self.edges = (0, *cutoffs, vocab_size)
        widths = [dim // BAND_FACTOR**band for band in range(len(self.edges) - 1)]
        self.words = nn.ParameterList(
            nn.Parameter(torch.randn(end - start, width) * width**-0.5) for start, end, width in zip(self.edges, self.edges[1:], widths)
        )
        self.carry = nn.ParameterList(nn.Parameter(torch.randn(width, dim) * dim**-0.5) for width in widths[1:])
        self.bands = nn.Parameter(torch.zeros(len(cutoffs), dim))

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (...) of integers -> (..., dim)."""
        out = self.words[0].new_zeros(*tokens.shape, self.bands.shape[1])
        for band, (start, end) in enumerate(zip(self.edges, self.edges[1:])):
            here = (tokens >= start) & (tokens < end)
            vectors = self.words[band][tokens[here] - start]
            out[here] = (vectors if band == 0 else vectors @ self.carry[band - 1]).to(out.dtype)
        return out

    def summed_loss(self, hidden: Tensor, wanted: Tensor) -> Tensor:
        """Sum of -log p(wanted) over the places (...) whose target is not IGNORED; hidden (..., dim)."""
        hidden, wanted = hidden[wanted != IGNORED], wanted[wanted != IGNORED]
        first = self._head(hidden).float().log_softmax(-1)
        band = torch.bucketize(wanted, wanted.new_tensor(self.edges[1:-1]), right=True)
        total = -first.gather(1, torch.where(band == 0, wanted, self.edges[1] + band - 1)[:, None]).sum()
        for number in range(1, len(self.edges) - 1):
            here = band == number
            logits = self._tail(hidden[here], number).float()
            total = total + F.cross_entropy(logits, wanted[here] - self.edges[number], reduction="sum")
        return total

    def log_probabilities(self, hidden: Tensor) -> Tensor:
        """log p of every token, (..., vocab_size)."""
        first = self._head(hidden).log_softmax(-1)
        size = self.edges[1]
        tails = [self._tail(hidden, band).log_softmax(-1) + first[..., size + band - 1, None] for band in range(1, len(self.edges) - 1)]
        return torch.cat([first[..., :size], *tails], -1)

    def _head(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, torch.cat((self.words[0], self.bands)))

    def _tail(self, hidden: Tensor, band: int) -> Tensor:
        return hidden @ self.carry[band - 1].mT @ self.words[band].mT
