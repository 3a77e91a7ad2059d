"""The spectral norm of attention matrices against the number of tokens: where attention without row sums grows, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attention.feature_map import described
from attention.landmarks import RandomLandmarks
from attention.softmax_free import softmax_free_attention
from particles.arrays import count
from particles.plots.panels import COLOURS, DASHES, axes_of, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

Attend = Callable[[Tensor, Tensor], Tensor]  # (tokens (batch, head, time, dim), values (batch, head, time, 1)) -> the values' shape


def spectral_norm(
    attend: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    n_steps: int = 30,
) -> Float[Tensor, "batch head"]:
    """Largest singular value of each matrix M of v -> attend(v) = M v, by power iteration on M^T M; no matrix is formed.

    M^T is the derivative of attend, so anything linear in v that torch can differentiate will do. The estimate is a lower bound that grows
    with n_steps. `start` is the first vector, usually random.

    Raises
    ------
    ValueError
        On a start that is not float (batch, head, time, 1), or an `attend` that returns another shape.
    """
    if not isinstance(start, Tensor) or start.ndim != 4 or start.shape[3] != 1 or not start.is_floating_point():
        raise ValueError(f"start must be float (batch, head, time, 1), got {described(start)}")
    v = torch.nn.functional.normalize(start.detach(), dim=2)
    norm = v.new_zeros(v.shape[:2])
    for _ in range(count(n_steps, "n_steps")):
        with torch.enable_grad():
            out = attend(v.requires_grad_())
            if out.shape != v.shape:
                raise ValueError(f"attend must return the shape {tuple(v.shape)} of its values, got {described(out)}")
            back = torch.autograd.grad(out, v, out.detach())[0]
        norm, v = out.detach().norm(dim=2)[..., 0], torch.nn.functional.normalize(back, dim=2)
    return norm


def attentions(n_landmarks: int, *, generator: torch.Generator) -> dict[str, Attend]:
    """Softmax, and softmax-free attention plain, as SOFT++ and normalised over tokens, with random tokens as landmarks: what
    `spectral_norms` compares."""
    pick = RandomLandmarks(n_landmarks, generator=generator).eval()  # the same landmarks at every step

    def free(normalise: bool | str) -> Attend:
        return lambda q, v: softmax_free_attention(q, v, pick(q)[0], normalise=normalise)

    return {
        "softmax": lambda q, v: torch.nn.functional.scaled_dot_product_attention(q, q, v),
        "plain": free(False),
        "SOFT++": free(True),
        "over tokens": free("tokens"),
    }


def spectral_norms(
    lengths: Sequence[int],
    attends: Mapping[str, Attend],
    *,
    dim: int = 32,
    n_repeats: int = 4,
    n_steps: int = 30,
    generator: torch.Generator,
) -> dict[str, Float[Tensor, "length repeat"]]:
    """`spectral_norm` of each attention on N(0, 1) tokens, (length, repeat) float32.

    Parameters
    ----------
    lengths : numbers of tokens.
    attends : by name, as from `attentions`; all meet the same tokens.
    dim, n_repeats : of the tokens; draws at each length.
    n_steps : of the power iteration.
    generator : source of tokens and first vectors.

    ValueError on sizes out of range, or no length or attention.
    """
    if not len(lengths) or not attends:
        raise ValueError(f"lengths and attends must not be empty, got {lengths!r} and {sorted(attends)}")
    norms: dict[str, list[Tensor]] = {name: [] for name in attends}
    for length in lengths:
        shape = (count(n_repeats, "n_repeats"), 1, count(length, "lengths"))
        q, start = (torch.randn(*shape, size, generator=generator, device=generator.device) for size in (count(dim, "dim"), 1))
        for name, attend in attends.items():
            norms[name].append(spectral_norm(lambda v: attend(q, v), start, n_steps=n_steps)[:, 0])  # noqa: B023
    return {name: torch.stack(rows) for name, rows in norms.items()}


def plot_spectral_norms(lengths: Sequence[int], norms: Mapping[str, Tensor], *, ax: Axes | None = None) -> dict[str, Line2D]:
    """One line of means an attention, on logarithmic axes, with a band from the least to the largest repeat, and a dotted slope of 1.

    lengths : numbers of tokens, at least one. norms : by name, each (length, repeat), as of `spectral_norms`; NaN is a gap.
    Returns the lines by name; `ax` is new if None.

    ValueError if a length is no count, there are no norms, or not one row of them for each length, or none that is finite.
    """
    x = [count(length, "lengths") for length in lengths]
    rows = {name: _rows(name, values, len(x)) for name, values in norms.items()}
    largest = [values[np.isfinite(values)].max(initial=0.0) for values in rows.values()]
    if not max(largest, default=0.0) > 0:
        raise ValueError(f"norms must hold a finite positive number at one length at least, got {list(norms)} at {x}")
    axes = axes_of(ax)
    lines = {}
    for k, (name, values) in enumerate(rows.items()):
        style = {"color": COLOURS[k % 6], "marker": "osD^vP"[k % 6]}
        (lines[name],) = axes.plot(x, values.mean(1), ls=DASHES[k % 6], markersize=4.5, label=name, **style)
        axes.fill_between(x, values.min(1), values.max(1), color=style["color"], alpha=0.2, linewidth=0)
    axes.plot(x, [max(largest) * n / max(x) for n in x], ":", color="gray", label="proportional to tokens")
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="spectral norm of the attention matrix")
    axes.set_xticks(x, [str(n) for n in x])
    axes.set_xticks([], minor=True)  # their labels would run into each other
    legend(axes)
    return lines


def _rows(name: str, values: Tensor, n_lengths: int) -> np.ndarray:
    """An attention's norms as doubles (length, repeat)."""
    if not isinstance(values, Tensor) or values.ndim != 2 or len(values) != n_lengths or not values.numel():
        raise ValueError(f"norms must be ({n_lengths} lengths, repeat), got {name!r}: {described(values)}")
    return values.detach().double().cpu().numpy()
