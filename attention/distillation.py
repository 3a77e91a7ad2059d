"""What a kernel learns from its softmax teacher: attention rows layer by layer, outputs layer by layer, then the whole model end to end.

The loss matters more than the feature family: fitted by the divergence of normalised rows every positive map comes close (Hedgehog,
arXiv 2402.04347, has this loss). Each layer is fitted on the teacher's own activations, all heads at once, and only its kernel moves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor, nn

from attention.activations import Activations, changed, collect, log_softmax_rows, on_device, recorded, visible
from attention.batches import check_batches
from attention.end_to_end import WEIGHT_LR, end_to_end
from attention.huggingface import chosen_layers, layer_kernels
from attention.layer_kernel import LayerKernel
from attention.rows import divergence, kernel_rows, log_rows
from attention.schedule import BETAS, Saved, bar, order, rate, step
from attention.seeds import derived_seed, seed_from
from particles.arrays import count, flag, positive

OBJECTIVES = ("rows", "outputs", "end-to-end")
LR = {"rows": 0.1, "outputs": 0.03, "end-to-end": 1e-2}  # of the kernels
_LEAST = 0.2  # a signed kernel's denominators are kept above this share of sum |K|
_SAME = 1e-2  # largest relative difference of the student's exact outputs from the teacher's


def distil(
    student: nn.Module,
    teacher: nn.Module,
    batches: Iterable[Mapping[str, Tensor]],
    *,
    objective: str = "rows",
    n_steps: int = 150,
    lr: float | None = None,
    weight_lr: float = WEIGHT_LR,
    layers: Iterable[int] | None = None,
    checkpoint: str | os.PathLike | None = None,
    progress: bool = False,
    rng: int | np.random.Generator | torch.Generator,
) -> xr.Dataset:
    """Train a converted model on its teacher, in place. Stages follow each other in calls of their own.

    Adam with betas (.9, .99), 20 steps of warm-up (at most a quarter of all), cosine decay and gradients clipped at norm 10; one of
    `batches` a step, in a new order on every pass. Both models stay in evaluation mode.

    Parameters
    ----------
    student : a model with kernels (`attention.convert`)
    teacher : the model that it was converted from
    batches : re-iterable, model(**batch), no labels. About 1,000 sequences of the lengths that will be used, similar lengths together.
    objective : "rows"
            For each layer, KL(softmax rows || kernel rows); for signed kernels, whose logarithms do not exist and give no gradient where
            they are clamped, the squared difference of the rows plus a penalty on denominators below .2 sum |K|.
        "outputs"
            For each layer, the squared relative error of its attention outputs. Adds little after "rows".
        "end-to-end"
            1 - cosine of the mean last hidden states, plus the squared relative error of all hidden states. All weights move.
    n_steps : for each layer, or end to end.
    lr : of the kernels' parameters; default .1, .03, .01 in the order of the objectives.
    weight_lr : of the other weights, for "end-to-end" only.
    layers : those that are fitted, all with a kernel by default; not for "end-to-end".
    checkpoint : file, written after each layer, or every 25 steps end to end; a later call with the same arguments goes on from it and
        ends with the same bits (on the CPU).

    Returns
    -------
    Dataset of the losses before each step: loss (layer, step) [nat for rows of positive kernels], summed over heads; or loss, cosine and
    hidden_error (step).

    Raises
    ------
    ValueError
        For a student without kernels, an unknown objective, arguments that it does not have, or a student whose exact attention does not
        give the teacher's outputs to 1 % (layer by layer it would be fitted to something else).
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {OBJECTIVES}, got {objective!r}")
    kernels, n_steps, lr = layer_kernels(student), count(n_steps, "n_steps"), positive(LR[objective] if lr is None else lr, "lr")  # type: ignore[arg-type]
    if not kernels:
        raise ValueError(f"student must have kernels (attention.convert), got a {type(student).__name__} without")
    check_batches(batches, "batches", again=False)
    every, seed = [on_device(batch, student) for batch in batches], seed_from(rng)
    settings = {"objective": objective, "n_steps": n_steps, "lr": lr, "weight_lr": weight_lr, "seed": seed, "n_batches": len(every)}
    if objective == "end-to-end":
        if layers is not None:
            raise ValueError(f"layers must be None end to end, got {layers!r}")
        run = end_to_end(student, teacher, every, Saved(checkpoint, settings), flag(progress, "progress"))
        return run.assign_attrs(schema=1, **settings)
    chosen = chosen_layers(layers, kernels)
    if weight_lr != WEIGHT_LR:
        raise ValueError(f"weight_lr belongs to 'end-to-end', got {weight_lr} for {objective!r}")
    _check_teacher(student, teacher, every[0])
    saved = Saved(checkpoint, settings | {"layers": chosen})
    losses = _layer_by_layer({layer: kernels[layer] for layer in chosen}, collect(student, every), saved, flag(progress, "progress"))
    dataset = xr.Dataset({"loss": (("layer", "step"), losses)}, {"layer": chosen, "step": np.arange(n_steps)})
    return dataset.assign_attrs(schema=1, **settings)


def _layer_by_layer(
    kernels: Mapping[int, LayerKernel], layers: list[list[Activations]], saved: Saved, progress: bool
) -> Float[np.ndarray, "layer step"]:
    """Fit each kernel to its layer; those that the file holds already are taken from there."""
    state = saved.load() or {"kernels": {}, "losses": {}}
    how = {name: saved.settings[name] for name in ("objective", "n_steps", "lr")}
    for layer in bar(kernels, progress):
        if layer in state["kernels"]:
            kernels[layer].load_state_dict(state["kernels"][layer])
            continue
        state["losses"][layer] = fit_kernel(kernels[layer], layers[layer], rng=derived_seed(saved.settings["seed"], layer), **how)
        state["kernels"][layer] = kernels[layer].state_dict()
        saved.save(state)
    return torch.stack([state["losses"][layer] for layer in kernels]).cpu().numpy()


def fit_kernel(
    kernel: LayerKernel, layer: list[Activations], *, objective: str = "rows", n_steps: int = 150, lr: float | None = None, rng: int
) -> Tensor:
    """Fit one layer's kernel, in place, to its activations; returns the losses before each step, (step,). See `distil`.

    Raises
    ------
    ValueError
        Without a batch, for an objective that is none of a layer's, or a kernel in which nothing can be learned.
    """
    if objective not in OBJECTIVES[:2] or not layer:
        raise ValueError(f"objective must be one of {OBJECTIVES[:2]} and layer hold a batch, got {objective!r} and {len(layer)} batches")
    learned = [p for p in kernel.parameters() if p.requires_grad]
    if not learned:
        raise ValueError(f"kernel must have a parameter to learn, got {kernel!r}")
    loss_of = {"rows": rows_loss, "outputs": outputs_loss}[objective]
    optimiser = torch.optim.Adam(learned, lr=LR[objective] if lr is None else lr, betas=BETAS)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate(n_steps))
    losses = []
    for number in order(len(layer), range(n_steps), rng):
        loss = loss_of(kernel, layer[number])
        losses.append(loss.detach())
        step(optimiser, schedule, loss)
    return torch.stack(losses)


def rows_loss(kernel: LayerKernel, seen: Activations) -> Tensor:
    """Mean over queries, summed over heads: KL(softmax || kernel), or for signed kernels the squared error and the penalty."""
    if not kernel.feature_map.signed:
        log_p, target = log_rows(kernel, seen)
        return _mean(divergence(target, log_p, visible(seen)), seen)
    rows = kernel_rows(kernel, seen)
    safe = rows.weights * (rows.share / rows.share.clamp(min=_LEAST))[..., None]  # divided by max(sum K, .2 sum |K|): bounded by 5
    short = (1 - rows.share / _LEAST).clamp(min=0)
    return _mean((safe - rows.softmax.exp()).square().sum(-1) + short.square(), seen)


def outputs_loss(kernel: LayerKernel, seen: Activations) -> Tensor:
    """||(P' - P) V||^2 / ||P V||^2 over a batch, summed over heads."""
    q, k, values, log_weight = changed(seen, kernel.preprocess)
    target = log_softmax_rows(q, k, log_weight, visible(seen)).exp() @ values
    rows = kernel_rows(kernel, seen).weights @ values
    queries = seen.key_mask[:, None, -seen.q.shape[2] :, None]
    error, norm = ((x.square() * queries).sum((0, 2, 3)) for x in (rows - target, target))
    return (error / norm.clamp(min=torch.finfo(norm.dtype).tiny)).sum()


def _mean(per_query: Tensor, seen: Activations) -> Tensor:
    queries = seen.key_mask[:, None, -seen.q.shape[2] :]
    return per_query.where(queries, 0).sum() / queries.sum()


def _check_teacher(student: nn.Module, teacher: nn.Module, batch: Mapping[str, Tensor]) -> None:
    """ValueError unless the student with exact attention computes what the teacher does."""
    outputs = []
    for model in (student, teacher):
        with recorded(model), torch.no_grad():
            outputs.append(model(**batch)[0])
    difference = float((outputs[0] - outputs[1]).norm() / outputs[1].norm())
    if not difference < _SAME:
        raise ValueError(
            "teacher must be the model that student was converted from, before weights other than its kernels' were trained ('end-to-end' "
            f"comes last): with exact attention their outputs are {difference:.3g} apart"
        )
