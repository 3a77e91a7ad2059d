"""The backward pass of linear attention: right for any map, with its features kept or computed again, and small."""

from __future__ import annotations

import gc
import math
import warnings
import weakref

import pytest
import torch
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from attention import feature_map, kernel_attention, running_sums
from attention.blocks import Call, lower, pairwise
from attention.naive import naive_attention
from attention.tape import ExponentialTape, Tape

DOUBLE = torch.float64
HEADS, DIM, VALUE = 2, 5, 3
CHUNK, BLOCK = 8, 32
LENGTHS = [1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100]  # around the chunk and the block


class Bent(torch.nn.Module):
    """A map of no family: a network whose parameters all need gradients, a gate that only keys have, and a log scale of its own."""

    signed, feature_dim = False, 4

    def __init__(self, dim: int = DIM) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.omega = torch.nn.Parameter(torch.randn(1, 4, dim, generator=generator, dtype=DOUBLE))
        self.gate = torch.nn.Parameter(torch.randn(dim, generator=generator, dtype=DOUBLE))
        self.register_buffer("shift", torch.full((4,), 0.1, dtype=DOUBLE))

    def forward(self, x, *, role):
        log_scale = torch.tanh(x @ self.gate) if role == "key" else x.new_zeros(x.shape[:-1])
        return log_scale, torch.nn.functional.softplus(x @ self.omega.mT + self.shift)


def a_map(name: str, dtype: torch.dtype = DOUBLE, **options):
    if name == "bent":
        return Bent().to(dtype)
    generator = torch.Generator().manual_seed(1)
    return feature_map(name, dim=DIM, n_features=6, heads=HEADS, generator=generator, **options).to(dtype)


def inputs(n_queries: int, n_keys: int | None = None, *, batch: int = 2, seed: int = 0, dtype: torch.dtype = DOUBLE):
    generator = torch.Generator().manual_seed(seed)
    n_keys = n_queries if n_keys is None else n_keys
    shapes = ((n_queries, DIM), (n_keys, DIM), (n_keys, VALUE))
    return [torch.randn(batch, HEADS, *shape, generator=generator, dtype=DOUBLE).to(dtype).requires_grad_() for shape in shapes]


def attend(x, fm, **options):
    return kernel_attention(*x, fm, form="linear", chunk_size=CHUNK, **options)


def gradients(out, wanted):
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=DOUBLE).to(out.dtype)
    return torch.autograd.grad(out, wanted, cotangent, allow_unused=True, retain_graph=True)


def assert_same(fast, slow, wanted, rtol=1e-9):
    for a, b in zip((fast, *gradients(fast, wanted)), (slow, *gradients(slow, wanted)), strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol * max(float(b.detach().abs().max()), 1e-3))


@pytest.fixture(autouse=True, params=["kept", "computed again"])
def small_blocks(request, monkeypatch):
    """Blocks of a few chunks; every test with features that are kept and with features that are computed again."""
    monkeypatch.setattr(running_sums, "_BLOCK", BLOCK)
    monkeypatch.setattr(running_sums, "_KEPT", 10**9 if request.param == "kept" else 0)
    return request.param


@pytest.mark.parametrize("name", ["favor", "softplus", "fourier", "bent"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_outputs_and_every_gradient_are_those_of_the_definition(name, is_causal):
    fm = a_map(name)
    for n in LENGTHS:
        x = inputs(n)
        mask = torch.rand(2, n, generator=torch.Generator().manual_seed(n)) > 0.3
        for key_mask in (None, mask):
            options = {"is_causal": is_causal, "key_mask": key_mask, "normalise": "count" if name == "fourier" else "sum"}
            assert_same(attend(x, fm, **options), naive_attention(*x, fm, **options), [*x, *fm.parameters()])


@pytest.mark.parametrize("normalise", ["sum", "rms", "count", None])
@pytest.mark.parametrize("name", ["favor", "bent"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_every_normaliser_with_more_keys_than_queries(normalise, name, is_causal):
    fm, x = a_map(name), inputs(40, 77)
    options = {"is_causal": is_causal, "normalise": normalise}
    assert_same(attend(x, fm, **options), naive_attention(*x, fm, **options), [*x, *fm.parameters()])


@pytest.mark.parametrize("name", ["favor", "bent"])
def test_gradients_pass_through_the_state_and_reach_all_of_it(name):
    """Two calls are one, and a state that is a leaf is differentiated like any input (against finite differences)."""
    fm, x = a_map(name), inputs(70)
    first, state = attend([t[:, :, :33] for t in x], fm, is_causal=True, return_state=True)
    second = attend([t[:, :, 33:] for t in x], fm, is_causal=True, state=state)
    assert_same(torch.cat((first, second), 2), naive_attention(*x, fm, is_causal=True), [*x, *fm.parameters()])
    leaves = [field.detach().clone().requires_grad_() for field in state[:3]]
    part = [t[:1, :, 33:44].detach() for t in x]

    def continued(*fields):
        return attend(part, fm, is_causal=True, state=state._replace(**dict(zip(state._fields, fields))).index_select(torch.tensor([0])))

    assert torch.autograd.gradcheck(continued, leaves)


@pytest.mark.parametrize("is_causal", [False, True])
def test_by_hand_and_by_autograd_are_the_same(monkeypatch, is_causal):
    fm, x = a_map("favor"), inputs(70)
    assert ExponentialTape.suits(Call(fm, 1.0, DOUBLE, "sum", CHUNK), DIM)
    by_hand = attend(x, fm, is_causal=is_causal)
    expected = gradients(by_hand, [*x, fm.omega])
    monkeypatch.setattr(ExponentialTape, "suits", staticmethod(lambda call, dim: False))
    general = attend(x, fm, is_causal=is_causal)
    for a, b in zip((general, *gradients(general, [*x, fm.omega])), (by_hand, *expected)):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)


def test_what_only_looks_like_the_exponential_map_goes_by_autograd():
    call = Call(a_map("favor"), 1.0, DOUBLE, "sum", CHUNK)
    assert not ExponentialTape.suits(call, DIM + 1)
    weights = torch.tensor([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    weighted = a_map("favor", omega=torch.ones(6, DIM), weights=weights)
    assert not ExponentialTape.suits(call._replace(feature_map=weighted), DIM)
    hooked = a_map("favor")
    hooked.register_forward_hook(lambda *_: None)
    assert not ExponentialTape.suits(call._replace(feature_map=hooked), DIM)
    assert not ExponentialTape.suits(call._replace(feature_map=a_map("softplus")), DIM)


@pytest.mark.parametrize("name", ["favor", "bent"])
@pytest.mark.parametrize("wanted", [[0], [1], [2], [3], [0, 3]])
def test_only_what_is_wanted_is_differentiated(name, wanted):
    fm, x = a_map(name), inputs(45)
    every = [*x, fm.omega]
    expected = gradients(naive_attention(*x, fm, is_causal=True), every)
    for i, tensor in enumerate(every):
        tensor.requires_grad_(i in wanted)
    out = attend(x, fm, is_causal=True)
    for got, i in zip(gradients(out, [every[i] for i in wanted]), wanted):
        torch.testing.assert_close(got, expected[i], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["favor", "bent"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_second_derivatives_are_right(monkeypatch, name, is_causal):
    monkeypatch.setattr(running_sums, "_BLOCK", 4)
    x = [t.detach()[:, :1, :, :2].requires_grad_() for t in inputs(5, batch=1)]
    fm = feature_map("favor", dim=2, n_features=3, generator=torch.Generator().manual_seed(1), dtype=DOUBLE) if name == "favor" else Bent(2)
    fm.requires_grad_(False)
    assert torch.autograd.gradgradcheck(lambda *x: kernel_attention(*x, fm, form="linear", is_causal=is_causal, chunk_size=2), x)


DEPENDENT = {
    "one tensor thrice": lambda x, fm, attend: attend((x, x, x), fm),
    "keys from queries": lambda x, fm, attend: attend((x, x.sin(), x.cos()), fm),
    "layers of one map": lambda x, fm, attend: attend((attend((x, x, x), fm), x, x), fm),
}


@pytest.mark.parametrize("how", DEPENDENT)
@pytest.mark.parametrize("name", ["favor", "bent"])
def test_gradients_with_a_history_of_inputs_that_depend_on_each_other(name, how):
    """Each must be a partial derivative: what leads from one input to another is for the engine to add."""
    fm, x = a_map(name), inputs(9)[0]
    every = [x, *fm.parameters()]

    def first_and_second(attend):
        first = torch.autograd.grad(DEPENDENT[how](x, fm, attend).sin().sum(), every, create_graph=True)
        return *first, *torch.autograd.grad(sum(g.square().sum() for g in first), every)

    for got, right in zip(first_and_second(attend), first_and_second(lambda x, fm: naive_attention(*x, fm))):
        torch.testing.assert_close(got, right, rtol=1e-9, atol=1e-9 * float(right.abs().max()))


@pytest.mark.parametrize("name", ["favor", "bent"])
def test_gradients_with_a_history_pass_through_a_state(name):
    fm, x = a_map(name), inputs(12)
    every = [*x, *fm.parameters()]

    def split():
        first, state = attend([t[:, :, :5] for t in x], fm, is_causal=True, return_state=True)
        return torch.cat((first, attend([t[:, :, 5:] for t in x], fm, is_causal=True, state=state)), 2)

    pair = []
    for out in (split(), naive_attention(*x, fm, is_causal=True)):
        first = torch.autograd.grad(out.sin().sum(), every, create_graph=True)
        pair.append((*first, *torch.autograd.grad(sum(g.square().sum() for g in first), every)))
    for got, right in zip(*pair, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-9, atol=1e-9 * float(right.abs().max()))


def test_a_gradient_penalty_trains_the_map():
    """d |dout/dq|^2 / d omega, against the same through the definition."""
    fm, x = a_map("favor"), inputs(20)

    def penalty(out):
        (slope,) = torch.autograd.grad(out.square().sum(), x[0], create_graph=True)
        return torch.autograd.grad(slope.square().sum(), fm.omega)[0]

    fast, slow = penalty(attend(x, fm, is_causal=True)), penalty(naive_attention(*x, fm, is_causal=True))
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-11)


def test_the_graph_can_be_used_twice_and_notices_parameters_that_have_moved():
    fm, x = a_map("favor"), inputs(50)
    out = attend(x, fm)
    for a, b in zip(gradients(out, [*x, fm.omega]), gradients(out, [*x, fm.omega])):
        assert torch.equal(a, b)
    with torch.no_grad():
        fm.omega.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradients(out, x)


def test_hooks_of_parameters_run_once():
    fm, x, calls = a_map("softplus"), inputs(100), []
    fm.omega.register_hook(lambda grad: calls.append(grad))
    attend(x, fm).sum().backward()
    assert len(calls) == 1
    assert torch.equal(calls[0], fm.omega.grad)


@pytest.mark.parametrize("name", ["favor", "bent"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_transformations_of_torch_func_and_forward_derivatives_work(name, is_causal):
    fm, x = a_map(name), inputs(20)
    direction = torch.randn(x[0].shape, generator=torch.Generator().manual_seed(8), dtype=DOUBLE)

    def loss(q):
        return attend([q, *(t.detach() for t in x[1:])], fm, is_causal=is_causal).square().sum()

    (expected,) = torch.autograd.grad(loss(x[0]), x[0])
    torch.testing.assert_close(torch.func.grad(loss)(x[0].detach()), expected, rtol=1e-9, atol=1e-11)
    stacked = torch.stack([t.detach() for t in inputs(20, seed=4)[:1] + x[:1]])
    mapped = torch.func.vmap(loss)(stacked)
    torch.testing.assert_close(mapped, torch.stack([loss(q) for q in stacked]), rtol=1e-9, atol=1e-11)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(loss(forward_ad.make_dual(x[0].detach(), direction))).tangent
    torch.testing.assert_close(tangent, (expected * direction).sum(), rtol=1e-9, atol=1e-11)


def test_parameters_given_by_functional_call_are_differentiated():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.map = a_map("favor")

        def forward(self, *x):
            return attend(x, self.map)

    layer, x = Layer(), inputs(40)
    other = (0.5 * layer.map.omega.detach()).requires_grad_()
    out = torch.func.functional_call(layer, {"map.omega": other}, tuple(x))
    fm = a_map("favor", omega=other.detach())
    torch.testing.assert_close(gradients(out, [other])[0], gradients(attend(x, fm), [fm.omega])[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("is_causal", [False, True])
def test_no_anomaly_and_no_warning(is_causal):
    fm, x = a_map("favor", torch.float32), inputs(70, dtype=torch.float32)
    mask = torch.arange(70).expand(2, 70) >= 40  # rows without keys
    with torch.autograd.detect_anomaly(check_nan=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        out = attend(x, fm, is_causal=is_causal, key_mask=mask)
        out.square().sum().backward()
    assert all(torch.isfinite(t.grad).all() for t in (*x, fm.omega))


class Held:
    """A tensor in the place where autograd keeps it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def saved(n: int, is_causal: bool, fm) -> int:
    """Numbers that a call keeps for its backward pass, beyond inputs and output."""
    x, held = inputs(n, batch=1), weakref.WeakSet()

    def pack(tensor):
        place = Held(tensor.detach())  # an operation that keeps its own output would be part of a cycle
        held.add(place)
        return place

    with saved_tensors_hooks(pack, lambda place: place.tensor):
        out = attend(x, fm, is_causal=is_causal)
    gc.collect()
    sizes = {place.tensor.untyped_storage().data_ptr(): place.tensor.untyped_storage().nbytes() // 8 for place in held}
    for known in (*x, out):
        sizes.pop(known.untyped_storage().data_ptr(), None)
    return sum(sizes.values())


@pytest.mark.parametrize("name", ["favor", "softplus", "bent"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_computing_features_again_saves_a_factor_a_row_and_the_sums_of_each_block(small_blocks, monkeypatch, name, is_causal):
    monkeypatch.setattr(running_sums, "_is_saved_elsewhere", lambda: False)  # as it is where nobody counts
    fm = a_map(name)
    few, many = saved(4 * BLOCK, is_causal, fm), saved(8 * BLOCK, is_causal, fm)
    sums = HEADS * (fm.feature_dim * (VALUE + 1) + 1 + CHUNK)  # the last are views of a few numbers for each chunk
    if small_blocks == "computed again":
        assert many - few <= 4 * (HEADS * BLOCK + (sums if is_causal else 0))
    elif name != "favor":  # control: the bar can tell; what "favor" keeps is not autograd's
        assert many - few > 2 * 4 * BLOCK * HEADS * fm.feature_dim


def test_kept_features_are_few_and_none_without_gradients(monkeypatch):
    tapes, made = [], ExponentialTape.__init__

    def remembered(self, *args, **kwargs):
        tapes.append(self)
        made(self, *args, **kwargs)

    monkeypatch.setattr(ExponentialTape, "__init__", remembered)
    fm = a_map("favor")
    for limit, kept in ((10**9, 2 * 4), (2 * HEADS * 2 * 4 * BLOCK * 6 - 1, 0)):
        monkeypatch.setattr(running_sums, "_KEPT", limit)
        attend(inputs(4 * BLOCK), fm)
        assert len(tapes[-1].kept) == kept
    monkeypatch.setattr(running_sums, "_KEPT", 10**9)
    with torch.no_grad():
        attend(inputs(4 * BLOCK), fm)
    assert not tapes[-1].kept


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("name", ["favor", "softplus"])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_change_no_gradient_and_keep_no_features(monkeypatch, use_reentrant, name, is_causal):
    tapes, made = [], Tape.__init__

    def remembered(self, *args, **kwargs):
        tapes.append(self)
        made(self, *args, **kwargs)

    monkeypatch.setattr(Tape, "__init__", remembered)
    fm, x = a_map(name), inputs(3 * BLOCK)
    expected = gradients(attend(x, fm, is_causal=is_causal), [*x, fm.omega])
    out = checkpoint(lambda *x: attend(x, fm, is_causal=is_causal), *x, use_reentrant=use_reentrant)
    assert not tapes[-1].kept
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=DOUBLE))
    for got, right in zip((*x, fm.omega), expected, strict=True):
        torch.testing.assert_close(got.grad, right, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("is_causal", [False, True])
def test_half_precision_gradients_come_from_float32_sums(is_causal):
    fm, x = a_map("favor", torch.float32), inputs(100, dtype=torch.bfloat16)
    out = attend(x, fm, is_causal=is_causal)
    exact = [t.detach().double().requires_grad_() for t in x]
    double = a_map("favor")
    slow = naive_attention(*exact, double, is_causal=is_causal)
    for a, b in zip(gradients(out, [*x, fm.omega]), gradients(slow, [*exact, double.omega])):
        assert (a.double() - b).norm() < 1e-2 * b.norm()


def test_the_state_of_decoding_has_a_constant_size():
    """And 300 steps of one token are the causal call."""
    fm, x = a_map("favor"), [t.detach() for t in inputs(300, batch=1)]
    state, rows, sizes = None, [], set()
    with torch.no_grad():
        for token in zip(*(t.split(1, 2) for t in x)):
            out, state = kernel_attention(*token, fm, is_causal=True, state=state, return_state=True)
            rows.append(out)
            sizes.add(sum(field.untyped_storage().nbytes() for field in state))
    assert len(sizes) == 1
    assert state.position.tolist() == [300]
    torch.testing.assert_close(torch.cat(rows, 2), attend(x, fm, is_causal=True), rtol=1e-10, atol=1e-12)


def test_weights_below_the_diagonal_never_see_what_is_above_it():
    log, top = torch.tensor([0.0, -3.0, 900.0, math.nan]), torch.tensor([0.0, 0.0, 900.0, 900.0])
    weights = lower(torch.ones(4, 4), pairwise(log, top, 0.0))
    expected = torch.tensor([[1.0, 0, 0], [1.0, math.exp(-3.0), 0], [0, 0, 1.0]])
    torch.testing.assert_close(weights[:3, :3], expected)
    assert weights[:3, 3].eq(0).all()
