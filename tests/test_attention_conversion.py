"""Invariances, recorded activations, closed-form starts, Nystrom features with a floor, and `convert` as a whole."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from attention.activations import Activations, collect, exact, log_softmax_rows, visible
from attention.base import Particles
from attention.conversion import best_invariance, conversion_report, convert, fold_into, keep_softmax, layer_kernel
from attention.converted import load_converted, save_converted
from attention.feature_map import feature_map
from attention.floored import FlooredKernel
from attention.huggingface import attach, layer_kernels
from attention.invariance import Invariance, balance, moments
from attention.layer_kernel import LayerKernel
from attention.nystrom import Nystrom
from attention.recurrent_cache import RecurrentCache
from attention.rows import attention_errors, divergence, kernel_rows
from attention.starts import attended, centres, changed_moments, proposal, union
from tests.conversion_inputs import rows, seen, tiny

# ---- invariances -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["iso", "sent"])
def test_softmax_rows_do_not_change(mode):
    layer = [seen(0), seen(1)]
    preprocess = best_invariance(layer, mode)
    for part in layer:
        torch.testing.assert_close(rows(part, preprocess), rows(part), atol=1e-12, rtol=1e-10)


def test_causal_rows_do_not_change_and_see_no_later_key():
    part = seen(2, causal=True, padded=0)
    preprocess = best_invariance([part], "iso")
    torch.testing.assert_close(rows(part, preprocess), rows(part), atol=1e-12, rtol=1e-10)
    later = part._replace(k=torch.cat((part.k[:, :, :5], 4 * part.k[:, :, 5:]), 2))
    assert torch.equal(rows(later, preprocess)[:, :, :5], rows(part, preprocess)[:, :, :5])


def test_covariances_are_equal_afterwards_and_no_other_matrix_does_better():
    layer = [seen(3), seen(4)]
    preprocess = best_invariance(layer, "iso")
    after = changed_moments(layer, preprocess)
    torch.testing.assert_close(after.query_covariance, after.key_covariance, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(after.query_mean, torch.zeros_like(after.query_mean), atol=1e-10, rtol=0)
    torch.testing.assert_close(after.key_mean, torch.zeros_like(after.key_mean), atol=1e-10, rtol=0)
    before = moments((part.q, part.k, part.key_mask) for part in layer)
    least = size(before, preprocess.query_matrix)
    assert least < size(before, torch.eye(4, dtype=torch.float64).expand(2, 4, 4))
    g = torch.Generator().manual_seed(5)
    for step in (1e-3, 1e-2, 0.1):
        turned = preprocess.query_matrix + step * torch.randn(2, 4, 4, generator=g, dtype=torch.float64)
        assert size(before, turned) > least - 1e-5


def size(found, matrix):
    """E|A q|^2 + E|A^-T k|^2 of centred queries and keys, summed over heads."""
    inverse = torch.linalg.inv(matrix)
    return float(((matrix @ found.query_covariance) * matrix).sum() + ((inverse.mT @ found.key_covariance) * inverse.mT).sum())


def test_balance_is_the_geometric_mean():
    g = torch.Generator().manual_seed(6)
    roots = torch.randn(2, 3, 5, 5, generator=g, dtype=torch.float64)
    query, key = roots @ roots.mT + 0.1 * torch.eye(5)
    matrix = balance(query, key)
    metric = matrix.mT @ matrix
    torch.testing.assert_close(metric @ query @ metric, key, atol=1e-3, rtol=1e-3)


def test_a_head_of_low_rank_or_without_any_variance_is_balanced_too():
    part = seen(7)
    flat = part._replace(q=part.q * torch.tensor([1.0, 0, 0, 0]), k=part.k * torch.tensor([[[1.0]], [[0.0]]]))
    preprocess = best_invariance([flat], "iso")
    torch.testing.assert_close(rows(flat, preprocess), rows(flat), atol=1e-8, rtol=1e-6)


def test_centring_one_side_only_can_be_worse_than_none():
    """The reason why both sides are centred: with opposite means q + k is smaller before than after centring the keys alone."""
    part = seen(8, dtype=torch.float64)
    mean = torch.full((4,), 2.0, dtype=torch.float64)
    part = part._replace(q=part.q - part.q.mean((0, 2), keepdim=True) + mean, k=part.k - part.k.mean((0, 2), keepdim=True) - mean)
    total = lambda q, k: float((q[:, :, :, None] + k[:, :, None]).square().sum(-1).mean())  # noqa: E731
    neither, one = total(part.q, part.k), total(part.q, part.k + mean)
    assert one > neither
    assert total(part.q - mean, part.k + mean) == pytest.approx(neither)


def test_masked_keys_are_forgotten_even_nan():
    part = seen(9)
    spoilt = part._replace(k=part.k.where(part.key_mask[:, None, :, None], math.nan))
    for mode in ("iso", "sent"):
        preprocess = best_invariance([part], mode)
        shown = part.key_mask[:, None, :, None]
        for clean, dirty in zip(preprocess(*part[:2], part.key_mask), preprocess(*spoilt[:2], part.key_mask)):
            keep = shown if clean.ndim == 4 else shown[..., 0]
            assert torch.equal(clean.where(keep, 0), dirty.where(keep, 0))
            assert bool(dirty.where(keep, 0).isfinite().all())


def test_fewer_key_heads_are_repeated():
    part = seen(10, heads=4)
    part = part._replace(k=part.k[:, :2], v=part.v[:, :2])
    preprocess = best_invariance([part], "iso")
    assert preprocess(part.q, part.k)[1].shape == part.q.shape
    torch.testing.assert_close(exact(part, preprocess), exact(part), atol=1e-12, rtol=1e-10)


def test_blank_takes_a_state_dict():
    preprocess = best_invariance([seen(11)], "sent").float()
    again = Invariance.blank(**preprocess.describe())
    again.load_state_dict(preprocess.state_dict())
    part = seen(12, dtype=torch.float32)
    for first, second in zip(preprocess(*part[:2], part.key_mask), again(*part[:2], part.key_mask)):
        assert torch.equal(first, second)
    folded = Invariance.blank(2, 4, folded=True, centre_keys=False)
    assert torch.equal(folded(*part[:2])[0], part.q)
    assert set(folded.state_dict()) == {"key_log"}


@pytest.mark.parametrize("folded", [False, True])
def test_log_weights_are_computed_in_float32_under_autocast_and_in_half_precision_models(folded):
    """They are exponents: with means of a few units, bfloat16 would round weights by ten percent and more."""
    part = seen(14, dtype=torch.float32)
    preprocess = best_invariance([part._replace(q=part.q + 5, k=part.k + 5)], "iso").float()
    if folded:
        preprocess = Invariance(None, None, None, None, preprocess.key_log)
    expected = preprocess(part.q, part.k)
    with torch.autocast("cpu", torch.bfloat16):
        for got, right in zip(preprocess(part.q, part.k), expected):
            assert torch.equal(got, right)
    half = preprocess.to(torch.bfloat16)
    for got in half(part.q.bfloat16(), part.k.bfloat16()):
        assert got.dtype == torch.float32


def test_moments_raise_on_too_little():
    part = seen(13)
    with pytest.raises(ValueError, match="at least two visible tokens, got 0"):
        moments([(part.q, part.k, torch.zeros_like(part.key_mask))])
    with pytest.raises(ValueError, match="finite"):
        moments([(part.q * math.nan, part.k, part.key_mask)])


# ---- activations -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_recorded_activations_give_the_models_own_attention(kind):
    model, batches = tiny(kind, attn_implementation="eager")
    layers = collect(model, batches[:1])
    with torch.no_grad():
        expected = model(**batches[0], output_attentions=True).attentions
    assert len(layers) == len(expected) == 2
    for layer, weights in zip(layers, expected):
        part = layer[0]
        k = part.k.repeat_interleave(part.q.shape[1] // part.k.shape[1], 1)
        found = log_softmax_rows(part.q, k, None, visible(part)).exp()
        torch.testing.assert_close(found, weights, atol=2e-6, rtol=1e-5)
        assert part.is_causal == (kind != "bert")


def test_recording_leaves_the_model_as_it_was():
    model, batches = tiny()
    model.train()
    before = model.config._attn_implementation
    with pytest.raises(ValueError, match="batches must hold a batch"):
        collect(model, [])
    assert model.training
    assert model.config._attn_implementation == before
    with pytest.raises(ValueError, match="attention can be exchanged, got Linear"):
        collect(torch.nn.Linear(2, 2), batches)


@pytest.mark.parametrize("folded", [False, True])
def test_activations_of_a_converted_model_are_its_teachers(folded):
    model, batches = tiny()
    student, _ = convert(copy.deepcopy(model), batches, n_features=8, invariance="sent", folded=folded, rng=0)
    for number, (mine, theirs) in enumerate(zip(collect(student, batches[:1]), collect(model, batches[:1]))):
        preprocess = layer_kernels(student)[number].preprocess
        torch.testing.assert_close(exact(mine[0], preprocess), exact(theirs[0]), atol=1e-5, rtol=1e-4)


# ---- rows and errors ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exponential", "favor", "softmaxfeat", "hedgehog", "flexformer", "cosformer", "nystrom"])
@pytest.mark.parametrize("causal", [False, True])
def test_rows_are_those_of_the_layers_kernel(name, causal):
    layer = [seen(20, causal=causal), seen(21, causal=causal)]
    if name == "nystrom":
        kernel = layer_kernel(layer, fit="nystrom", n_features=6, rng=0)
    else:
        kernel = layer_kernel(layer, feature_map=name, fit=None, n_features=8, rng=0)
    part = layer[0]
    out = kernel(part.q, part.k, part.v, key_mask=part.key_mask, is_causal=causal, scale=1.0)
    found = kernel_rows(kernel, part)
    torch.testing.assert_close(found.weights @ found.values, out, atol=1e-8, rtol=1e-6)


def test_errors_vanish_for_the_kernel_that_is_softmax_and_tell_a_uniform_one():
    """Two keys in one dimension: exp(q.k) = cosh + sinh is not finite-dimensional, but constant logits are: uniform attention."""
    part = seen(22)
    flat = part._replace(q=torch.zeros_like(part.q))
    uniform = LayerKernel(feature_map("exponential", dim=4, heads=2, n_features=4, omega=torch.zeros(4, 4), key_norm=0.0), normalise="sum")
    for value in attention_errors(uniform, [flat]).values():
        torch.testing.assert_close(value, torch.zeros_like(value), atol=1e-7, rtol=0)
    found = attention_errors(uniform, [part])
    weights = rows(part)
    n = visible(part).sum(-1, keepdim=True)
    kl = (weights * (weights * n).clamp(min=1e-300).log()).sum(-1)
    queries = part.key_mask[:, None]
    torch.testing.assert_close(found["kl"], kl.where(queries, 0).sum((0, 2)) / queries.sum(), atol=1e-6, rtol=1e-6)
    assert bool((found["total_variation"] > 0.05).all())


def test_divergence_counts_visible_entries_only():
    p = torch.tensor([[[[0.5, 0.5, 0.0]]]])
    q = torch.tensor([[[[0.25, 0.75, 0.0]]]])
    allowed = torch.tensor([[[[True, True, False]]]])
    expected = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert float(divergence(p.log(), q.log(), allowed)) == pytest.approx(expected)


# ---- starts ------------------------------------------------------------------------------------------------------------------------------


def test_proposal_has_the_stated_covariance_and_its_weights_integrate_to_the_kernel():
    """Means over 200,000 particles: relative standard errors are about .5 %, so 3 % fails less than once in 1e8 runs."""
    part = seen(23, scale=0.4)
    preprocess = best_invariance([part], "iso")
    found = changed_moments([part], preprocess)
    omega, log_weight = proposal(found, 200_000, torch.Generator().manual_seed(0))
    second = found.query_covariance + found.key_covariance
    covariance = omega.mT @ omega / omega.shape[1]
    torch.testing.assert_close(
        covariance, torch.eye(4, dtype=torch.float64) + 2 * second, atol=0.03 * float(covariance.abs().max()), rtol=0
    )
    s = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    estimate = (s @ omega.mT + log_weight[:, None]).logsumexp(-1) - math.log(omega.shape[1])
    torch.testing.assert_close(estimate, s.square().sum(-1) / 2, atol=0.03, rtol=0)
    plain = (s @ omega.mT).logsumexp(-1) - math.log(omega.shape[1])  # control: without the weights it is another kernel
    assert float((plain - s.square().sum(-1) / 2).abs().max()) > 0.3


def test_proposal_has_the_least_mean_relative_second_moment():
    """Closed form along one axis: proposal N(0, t), s ~ N(0, S), E over s of E_t[(p/q)^2 e^(2ws)] e^(-s^2); least at t = 1 + 2 S."""

    def second_moment(t, size):
        w = np.linspace(-60, 60, 20001)
        exponent = -(w**2) + w**2 / (2 * t) + 2 * w**2 * size / (1 + 2 * size)  # the last: E_s exp(2 w s - s^2), but for its factor
        return np.trapezoid(np.exp(exponent), w) * math.sqrt(t / (2 * math.pi * (1 + 2 * size)))

    for size in (0.2, 0.45, 2.0):
        best = 1 + 2 * size
        assert second_moment(best, size) < min(second_moment(0.9 * best, size), second_moment(1.1 * best, size))
        assert second_moment(best, size) == pytest.approx(math.sqrt(1 + 2 * size), rel=1e-6)
    assert second_moment(1.0, 0.45) == pytest.approx((1 - 2 * 0.45) ** -0.5, rel=1e-3)  # plain sampling


def test_centres_find_separated_groups_and_refuse_too_few_points():
    g = torch.Generator().manual_seed(2)
    true = torch.tensor([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])
    points = (true[torch.arange(300) % 3] + torch.randn(300, 2, generator=g)).expand(2, -1, -1)
    found = centres(points, 30, g)
    assert float(torch.cdist(points, found).amin(-1).mean()) < 0.6
    assert bool((torch.cdist(true.expand(2, -1, -1), found).amin(-1) < 1.5).all())
    with pytest.raises(ValueError, match="at least 301"):
        centres(points, 301, g)


def test_attended_pairs_follow_softmax():
    """One query, keys with weights e^0 : e^2: the share of the second is .881 +- .0065 (2,500 draws); 5 deviations."""
    k = torch.tensor([[0.0], [2.0]]).expand(2500, 1, 2, 1)
    part = Activations(torch.ones(2500, 1, 2, 1), k, k, torch.ones(2500, 2, dtype=torch.bool), False)
    sums = attended([part], None, torch.Generator().manual_seed(3), 2500)
    share = float((sums > 2).float().mean())
    assert abs(share - 1 / (1 + math.exp(-2))) < 0.0325
    assert union([part], None, torch.Generator().manual_seed(3), 100).shape == (1, 100, 1)


# ---- Nystrom and its floor ---------------------------------------------------------------------------------------------------------------


def test_nystrom_is_exact_where_the_landmarks_are_the_tokens():
    part = seen(24, batch=1, heads=2, time=6, dim=3, padded=0)
    tokens = torch.cat((part.q, part.k), 2)[0]
    kernel = FlooredKernel(Nystrom("nystrom", Particles(tokens), ridge=1e-12), normalise="sum")
    torch.testing.assert_close(kernel_rows(kernel, part).weights, rows(part), atol=1e-6, rtol=1e-5)


def test_nystrom_of_huge_queries_neither_overflows_nor_gives_nan():
    part = seen(25, scale=12.0, dtype=torch.float32)
    kernel = layer_kernel([part], fit="nystrom", n_features=8, rng=0)
    out = kernel(part.q, part.k, part.v, key_mask=part.key_mask, scale=1.0)
    assert bool(out.isfinite().all())
    found = kernel_rows(kernel, part)
    torch.testing.assert_close((found.weights @ found.values)[0, :, :7], out[0, :, :7], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_jensens_floor_is_below_the_true_denominator_and_tight_for_equal_keys(causal):
    part = seen(26, causal=causal)
    kernel = layer_kernel([part], fit="nystrom", n_features=6, rng=0)
    q, k, weight = kernel.preprocess(part.q, part.k, part.key_mask)
    logits = (q @ k.mT + weight[:, :, None]).masked_fill(~visible(part), -math.inf)
    floor = kernel.log_floor(q, k, weight, part.key_mask, causal)
    assert bool((floor <= logits.logsumexp(-1) + 1e-9).all())
    same = torch.ones_like(k) / 2
    equal = (q @ same.mT).masked_fill(~visible(part), -math.inf).logsumexp(-1)
    torch.testing.assert_close(kernel.log_floor(q, same, torch.zeros_like(weight), part.key_mask, causal), equal)


def test_denominators_below_the_floor_are_raised_to_it():
    """Two landmarks far from all keys: the estimate of every denominator is next to nothing."""
    part = seen(27)
    far = FlooredKernel(Nystrom("nystrom", Particles(torch.full((2, 2, 4), 30.0, dtype=torch.float64))), normalise="sum")
    found = kernel_rows(far, part)
    assert bool(found.floored[1].all())
    assert float(found.weights[1].abs().sum(-1).max()) < 1e-6
    out = far(part.q, part.k, part.v, key_mask=part.key_mask, scale=1.0)
    torch.testing.assert_close(found.weights @ found.values, out, atol=1e-9, rtol=1e-6)


def test_a_floored_kernel_has_no_state_and_no_dropout():
    part = seen(28)
    kernel = layer_kernel([part], fit="nystrom", n_features=6, rng=0)
    for how in ({"return_state": True}, {"dropout": 0.1}):
        with pytest.raises(ValueError, match="no dropout and has no state"):
            kernel(part.q, part.k, part.v, scale=1.0, **how)


def test_each_head_has_the_better_of_nystrom_and_positive_features():
    """Head 0 attends to single tokens: its Gaussian kernel is the identity, far from anything that a few landmarks span."""
    part = seen(29, batch=8, heads=2, time=12, dim=4, padded=1)
    g = torch.Generator().manual_seed(4)
    own = torch.nn.functional.normalize(torch.randn(8, 12, 4, generator=g, dtype=torch.float64), dim=-1) * 9
    part = part._replace(q=torch.stack((own, part.q[:, 1]), 1), k=torch.stack((own, part.k[:, 1]), 1))
    chosen = layer_kernel([part], fit="nystrom", n_features=6, rng=0)
    landmarks = centres(union([part], chosen.preprocess, torch.Generator().manual_seed(0)), 6, torch.Generator().manual_seed(0))
    alone = FlooredKernel(Nystrom("nystrom", Particles(landmarks)), normalise="sum", preprocess=chosen.preprocess)
    errors = [attention_errors(kernel, [part])["output_error"] for kernel in (chosen, alone)]
    positive = chosen.feature_map.key_norm < 0
    assert bool(torch.equal(chosen.feature_map.mixing[positive], torch.eye(6, dtype=torch.float64).expand(int(positive.sum()), 6, 6)))
    assert bool(positive.any())
    assert float(errors[0].sum()) < float(errors[1].sum())


def test_positive_heads_are_the_exponential_map():
    part = seen(30)
    found = changed_moments([part], None)
    omega, weight = proposal(found, 6, torch.Generator().manual_seed(5))
    every = torch.ones(2, dtype=torch.bool)
    mixed = FlooredKernel(Nystrom("nystrom", Particles(omega)).with_positive(every, omega, weight), normalise="sum")
    made = feature_map("exponential", dim=4, heads=2, n_features=6, omega=omega, shared=True, dtype=torch.float64)
    with torch.no_grad():
        made.bias.copy_(weight / 2)
    expected, got = (kernel_rows(kernel, part) for kernel in (LayerKernel(made, normalise="sum"), mixed))
    shown = ~got.floored[..., None]
    torch.testing.assert_close(got.weights.where(shown, 0), expected.weights.where(shown, 0))


# ---- the whole of it ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "mode", "folds"), [("bert", "sent", True), ("bert", "iso", True), ("gpt2", "iso", True), ("llama", "iso", False)]
)
def test_folding_changes_nothing_and_happens_where_it_can(kind, mode, folds):
    model, batches = tiny(kind)
    kept, _ = convert(copy.deepcopy(model), batches, n_features=8, invariance=mode, folded=False, rng=1)
    folded, _ = convert(copy.deepcopy(model), batches, n_features=8, invariance=mode, rng=1)
    assert all(kernel.preprocess.describe()["folded"] == folds for kernel in layer_kernels(folded).values())
    with torch.no_grad():
        first, second = (model(**batches[0]).last_hidden_state for model in (kept, folded))
    torch.testing.assert_close(first, second, atol=2e-4, rtol=1e-3)
    assert fold_into(folded) == []
    assert fold_into(kept) == ([0, 1] if folds else [])


def test_more_features_come_closer_to_the_teacher():
    model, batches = tiny()
    with torch.no_grad():
        target = model(**batches[0]).last_hidden_state
    errors = []
    for n in (4, 512):
        student, report = convert(copy.deepcopy(model), batches, n_features=n, rng=2)
        with torch.no_grad():
            errors.append(float((student(**batches[0]).last_hidden_state - target).norm() / target.norm()))
    assert errors[1] < 0.5 * errors[0]
    assert set(report.dims) == {"layer", "head"}
    assert float(report.kl.mean()) < 0.2


def test_the_report_holds_the_second_moments_before_and_after():
    model, batches = tiny()
    _, report = convert(model, batches, n_features=8, rng=0, held_out=batches)
    total = report.query_second_moment + report.key_second_moment
    assert bool((total < report.query_second_moment_raw + report.key_second_moment_raw).all())
    np.testing.assert_allclose(report.query_second_moment, report.key_second_moment, rtol=1e-3)
    assert not report.softmax.any()


def test_heads_over_the_threshold_stay_softmax_and_are_exact():
    model, batches = tiny()
    student, report = convert(copy.deepcopy(model), batches, n_features=8, error_threshold=1e-9, rng=0)
    assert bool(report.softmax.all())
    with torch.no_grad():
        first, second = (one(**batches[0]).last_hidden_state for one in (student, model))
    real = batches[0]["attention_mask"].bool()
    torch.testing.assert_close(first[real], second[real], atol=1e-4, rtol=1e-4)
    kernels = layer_kernels(student)
    layers = collect(model, batches)
    with pytest.raises(ValueError, match="must not be folded"):
        keep_softmax(kernels, conversion_report(kernels, layers), 0.1)


def test_one_head_that_stays_softmax_is_exact_beside_folded_ones():
    model, batches = tiny()
    layers = collect(model, batches)
    kernels = {layer: layer_kernel(layers[layer], n_features=8, rng=layer) for layer in range(2)}
    for kernel in kernels.values():
        kernel.softmax_heads = torch.tensor([True, False])
    student = attach(copy.deepcopy(model), kernels)
    part = layers[0][0]
    with torch.no_grad():
        before = student(**batches[0]).last_hidden_state
        fold_into(student)
        torch.testing.assert_close(student(**batches[0]).last_hidden_state, before, atol=2e-5, rtol=1e-4)
    out = kernels[0](part.q, part.k, part.v, key_mask=part.key_mask, scale=1.0)
    torch.testing.assert_close(out[:, :1], exact(part)[:, :1], atol=1e-5, rtol=1e-4)


def test_the_best_of_several_draws_is_better_on_average():
    """The fit data pick the draw: on those it can only win, and on one layer's held-out batches it wins by far more than noise."""
    layer = [seen(number, batch=8, time=12, scale=0.7) for number in (0,) * 8]
    plain = np.mean([float(attention_errors(layer_kernel(layer, n_features=8, rng=seed), layer)["kl"].mean()) for seed in range(8)])
    best = float(attention_errors(layer_kernel(layer, n_features=8, n_draws=8, rng=0), layer)["kl"].mean())
    assert best < plain


def test_the_same_seed_gives_the_same_model():
    model, batches = tiny()
    first, second, other = (convert(copy.deepcopy(model), batches, n_features=8, rng=seed)[0].state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_only_some_layers_then_the_others():
    model, batches = tiny()
    student, report = convert(model, batches, n_features=8, layers=[1], rng=0)
    assert list(report.layer) == [1]
    assert list(layer_kernels(student)) == [1]
    student, report = convert(student, batches, fit="nystrom", n_features=8, layers=[0], rng=0)
    assert list(layer_kernels(student)) == [0, 1]
    assert isinstance(layer_kernels(student)[0], FlooredKernel)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit": "magic"}, "fit must be .*'magic'"),
        ({"fit": "proposal", "feature_map": "hedgehog"}, "fit must be .*'hedgehog'"),
        ({"fit": "nystrom", "feature_map": "favor"}, "own feature_map"),
        ({"fit": "kmeans", "n_draws": 2}, "n_draws belongs"),
        ({"invariance": "both"}, "invariance must be one of"),
        ({"layers": [2]}, r"layers must be a list of numbers among \[0, 1\], got \[2\]"),
        ({"layers": 1}, "layers must be a list of numbers .*got 1"),
        ({"error_threshold": 0.0}, "threshold"),
        ({"n_features": 0}, "n_features"),
    ],
)
def test_bad_arguments_raise_and_name_themselves(options, message):
    model, batches = tiny()
    with pytest.raises(ValueError, match=message):
        convert(model, batches, **{"n_features": 8, "rng": 0} | options)


def test_sentence_means_are_refused_for_causal_models_and_too_few_batches_named():
    model, batches = tiny("gpt2")
    with pytest.raises(ValueError, match="causal model, got 'sent'"):
        convert(model, batches, n_features=8, invariance="sent", rng=0)
    with pytest.raises(ValueError, match="at least 4"):
        convert(model, batches[:3], n_features=8, rng=0)


@pytest.mark.parametrize(
    ("kind", "options"), [("bert", {"invariance": "sent"}), ("bert", {"fit": "nystrom"}), ("gpt2", {}), ("llama", {"error_threshold": 0.3})]
)
def test_converted_models_are_saved_and_loaded(kind, options, tmp_path):
    model, batches = tiny(kind)
    student, _ = convert(model, batches, n_features=8, rng=0, **options)
    save_converted(student, tmp_path)
    again = load_converted(tmp_path)
    with torch.no_grad():
        first, second = (one(**batches[0]).last_hidden_state for one in (student, again))
    assert torch.equal(first, second)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_converted_models_generate_from_a_state(kind):
    model, batches = tiny(kind, head=True)
    student, _ = convert(model, batches, n_features=8, rng=0)
    prompt = {name: value[1:] for name, value in batches[0].items()}
    how = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    expected = student.generate(**prompt, use_cache=False, **how)
    assert torch.equal(student.generate(**prompt, cache=RecurrentCache(student), **how), expected)


def test_batches_that_are_no_dicts_of_tensors_are_named():
    model, batches = tiny()
    with pytest.raises(ValueError, match="batches must be an iterable of batches, got a dict"):
        convert(model, batches[0], n_features=8, rng=0)
    with pytest.raises(ValueError, match=r"batches must hold dicts of tensors.*got a str"):
        convert(model, ["a sentence"] * 4, n_features=8, rng=0)
    with pytest.raises(ValueError, match=r"return_tensors='pt'.*got input_ids: a list"):
        convert(model, [{"input_ids": [[1, 2]]}] * 4, n_features=8, rng=0)


def test_the_report_says_how_it_was_made():
    model, batches = tiny()
    _, report = convert(model, batches, n_features=8, folded=False, rng=3)
    settings = json.loads(report.attrs["settings"])
    assert (settings["feature_map"], settings["n_features"], settings["folded"], settings["seed"]) == ("exponential", 8, False, 3)
