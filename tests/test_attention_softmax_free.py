"""Softmax-free attention against its definition, and Newton's pseudo-inverse against its law and against torch.linalg.pinv."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from attention import newton, softmax_free
from attention.landmarks import FirstLandmarks, PooledLandmarks
from attention.naive_softmax_free import naive_matrix, naive_softmax_free_attention
from attention.softmax_free import gaussian, newton_pinv, softmax_free_attention
from theory.spectral.low_rank import newton_iterations, newton_residual, nystrom_error

F64 = torch.float64
NORMALISE = [False, True, "tokens"]


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _symmetric(eigenvalues: Tensor, generator: torch.Generator) -> Tensor:
    q, _ = torch.linalg.qr(torch.randn(len(eigenvalues), len(eigenvalues), dtype=F64, generator=generator))
    a = (q * eigenvalues) @ q.mT
    return (a + a.mT) / 2


def _tokens(generator: torch.Generator, time: int, n_landmarks: int, dim: int = 4, dtype: torch.dtype = F64) -> tuple[Tensor, ...]:
    """q, v, landmarks of 2 sequences and 3 heads."""
    return tuple(torch.randn(2, 3, n, d, dtype=dtype, generator=generator) for n, d in ((time, dim), (time, 5), (n_landmarks, dim)))


def _relative(x: Tensor, y: Tensor) -> float:
    return float((x.double() - y).norm() / y.norm())


def _spectral(a: Tensor, x: Tensor) -> float:
    a, x = a.double(), x.double()
    return float(torch.linalg.matrix_norm(a @ x @ a - a, 2) / torch.linalg.matrix_norm(a, 2))


# Newton's iteration


@pytest.mark.parametrize("n_iter", [0, 1, 5, 10, 15, 18])
def test_residual_follows_the_law_of_newtons_iteration(n_iter: int, generator: torch.Generator) -> None:
    eigenvalues = torch.logspace(0, -2.2, 20, dtype=F64)
    a = _symmetric(eigenvalues, generator)
    start = 1.8 / float(a.abs().sum(0).max()) ** 2
    x, _ = newton_pinv(a, n_iter=n_iter)
    left = torch.linalg.matrix_norm(torch.eye(20, dtype=F64) - a @ x, 2)
    assert float(left) == pytest.approx(newton_residual(eigenvalues, start, n_iter), rel=1e-6)


def test_iterations_that_the_law_asks_for_are_enough_and_one_less_is_not(generator: torch.Generator) -> None:
    eigenvalues = torch.logspace(0, -2, 12, dtype=F64)
    a = _symmetric(eigenvalues, generator)
    n_iter = newton_iterations(eigenvalues, 1.8 / float(a.abs().sum(0).max()) ** 2, 1e-6)
    left = [torch.linalg.matrix_norm(torch.eye(12, dtype=F64) - a @ newton_pinv(a, n_iter=n)[0], 2) for n in (n_iter - 1, n_iter)]
    assert left[0] > 1e-6 >= left[1]


def test_condition_160_is_inverted_to_rounding_by_20_steps(generator: torch.Generator) -> None:
    eigenvalues = torch.logspace(0, -math.log10(161), 20, dtype=F64)
    a = _symmetric(eigenvalues, generator)
    x, residual = newton_pinv(a, n_iter=20)
    law = newton_residual(eigenvalues, 1.8 / float(a.abs().sum(0).max()) ** 2, 20)
    assert residual < 1e-12
    assert _relative(x, torch.linalg.inv(a)) < law + 1e-12 < 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize(("n_iter", "tol"), [(20, None), (60, None), (60, 1e-6)])
@pytest.mark.parametrize("condition", [1.0, 10.0, 1e2, 1e3, 1e4, 1e5, 1e6])
def test_residual_tells_the_truth_at_every_condition(
    dtype: torch.dtype, n_iter: int, tol: float | None, condition: float, generator: torch.Generator
) -> None:
    a = _symmetric(torch.logspace(0, -math.log10(condition), 49, dtype=F64), generator).to(dtype)
    x, residual = newton_pinv(a, n_iter=n_iter, tol=tol)
    truth = _spectral(a, x)
    assert truth <= float(residual) * (1 + 1e-5) <= 8 * truth + 1e-6 * torch.finfo(dtype).eps  # |.|_F <= 7 |.|_2 for 49 x 49
    pinv = torch.linalg.pinv(a.double())
    wrong = float(torch.linalg.matrix_norm(x.double() - pinv, 2) / torch.linalg.matrix_norm(pinv, 2))
    assert wrong <= condition * float(residual) + 1e-5 * (dtype == torch.float32) + 1e-12  # |x - a^-1| <= |a^-1|^2 |a x a - a|


def test_more_steps_than_the_papers_reach_condition_1e6(generator: torch.Generator) -> None:
    a = _symmetric(torch.logspace(0, -6, 49, dtype=F64), generator)
    x, residual = newton_pinv(a, n_iter=60)
    assert residual < 1e-9
    assert _relative(x, torch.linalg.inv(a)) < 1e-8


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("n_iter", [20, 60, 200])
@pytest.mark.parametrize("rank", [1, 10])
def test_rank_deficient_matrices_stay_finite_and_stop_before_rounding_errors_grow(
    dtype: torch.dtype, n_iter: int, rank: int, generator: torch.Generator
) -> None:
    b = torch.ones(49, 1, dtype=F64) if rank == 1 else torch.randn(49, rank, dtype=F64, generator=generator)
    a = (b @ b.mT).to(dtype)
    x, residual = newton_pinv(a, n_iter=n_iter)
    assert x.isfinite().all()
    assert _spectral(a, x) <= float(residual) * (1 + 1e-5) < 1e-5
    assert _relative(x, torch.linalg.pinv(b @ b.mT, hermitian=True, rtol=1e-8)) < (1e-2 if dtype == torch.float32 else 1e-9)


def test_rank_deficient_matrix_with_a_tolerance_is_the_pseudo_inverse_in_float32(generator: torch.Generator) -> None:
    b = torch.randn(49, 10, dtype=F64, generator=generator)
    x, residual = newton_pinv((b @ b.mT).float(), n_iter=40, tol=1e-6)
    assert residual <= 1e-6
    assert _relative(x, torch.linalg.pinv(b @ b.mT, hermitian=True, rtol=1e-8)) < 1e-4


def test_nonsymmetric_rectangular_and_zero_matrices(generator: torch.Generator) -> None:
    a = torch.randn(2, 3, 7, 4, dtype=F64, generator=generator)
    a[0, 0] = 0
    x, residual = newton_pinv(a, n_iter=30)
    assert x.shape == (2, 3, 4, 7)
    assert residual.shape == (2, 3)
    torch.testing.assert_close(x, torch.linalg.pinv(a), rtol=1e-8, atol=1e-10)
    assert residual[0, 0] == 0
    assert (residual < 1e-12).all()
    assert newton_pinv(torch.zeros(0, 4, 4), n_iter=3)[0].shape == (0, 4, 4)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("tol", [None, 1e-3])
def test_scale_of_the_matrix_does_not_matter(scale: float, tol: float | None, generator: torch.Generator) -> None:
    a = _symmetric(torch.linspace(1, 5, 6, dtype=F64), generator)
    x, residual = newton_pinv((scale * a).float(), n_iter=12)
    assert residual < 1e-5
    assert _relative(x * scale, torch.linalg.inv(a)) < 1e-5
    for n_iter in (1, 4):
        _, early = newton_pinv((scale * a).float(), n_iter=n_iter, tol=tol)
        torch.testing.assert_close(early, newton_pinv(a.float(), n_iter=n_iter, tol=tol)[1], rtol=1e-4, atol=0)


@pytest.mark.parametrize("n_iter", [0, 3, 8, 15])
def test_residual_bounds_the_truth_for_any_matrices(n_iter: int, generator: torch.Generator) -> None:
    a = torch.randn(300, 6, 8, dtype=F64, generator=generator)
    a[100:200] = a[100:200, :, :2] @ torch.randn(100, 2, 8, dtype=F64, generator=generator)
    a[200:] = a[200:].sign()
    x, residual = newton_pinv(a, n_iter=n_iter)
    truth = torch.linalg.matrix_norm(a @ x @ a - a, 2) / torch.linalg.matrix_norm(a, 2)
    assert (truth <= residual * (1 + 1e-9)).all()
    assert (residual <= 6**0.5 * 1.1 * truth + 1e-13).all()


def test_tolerance_stops_each_matrix_at_its_own_step_and_no_neighbour_changes_that(generator: torch.Generator) -> None:
    easy, hard = (_symmetric(torch.logspace(0, -c, 9, dtype=F64), generator) for c in (0.5, 4))
    tol = 1e-3
    both, residual = newton_pinv(torch.stack((easy, hard)), n_iter=60, tol=tol)
    assert (residual <= tol).all()
    assert (residual > 1e-8).all()
    for one, x in zip((easy, hard), both):
        torch.testing.assert_close(newton_pinv(one, n_iter=60, tol=tol)[0], x, rtol=1e-9, atol=1e-12)
    _, cut = newton_pinv(hard, n_iter=5, tol=1e-9)
    assert cut > 1e-3  # what was not reached is said


def test_ridge_is_added_to_the_diagonal(generator: torch.Generator) -> None:
    a = torch.ones(6, 6, dtype=F64)
    x, residual = newton_pinv(a, n_iter=20, ridge=0.1)
    torch.testing.assert_close(x, torch.linalg.inv(a + 0.1 * torch.eye(6, dtype=F64)))
    assert residual < 1e-12


# its gradient


def _inverse(n_iter: int, tol: float | None = None, ridge: float = 0.0):
    return lambda a: newton_pinv(a, n_iter=n_iter, tol=tol, ridge=ridge)[0]


@pytest.mark.parametrize(("n_iter", "tol", "ridge"), [(20, None, 0.0), (20, None, 0.3), (0, None, 0.0), (1, None, 0.0), (4, None, 0.0)])
def test_gradcheck_of_an_inverse_and_of_unresolved_iterates(
    n_iter: int, tol: float | None, ridge: float, generator: torch.Generator
) -> None:
    a = 2 * torch.eye(4, dtype=F64) + 0.3 * torch.randn(2, 4, 4, dtype=F64, generator=generator)
    assert gradcheck(_inverse(n_iter, tol, ridge), a.requires_grad_())


def test_gradcheck_of_a_batch_that_mixes_resolved_and_unresolved_matrices(generator: torch.Generator) -> None:
    easy = 2 * torch.eye(4, dtype=F64) + 0.1 * torch.randn(4, 4, dtype=F64, generator=generator)
    a = torch.stack((easy, easy @ torch.diag(torch.tensor([1, 0.5, 0.1, 0.03], dtype=F64))))
    _, residual = newton_pinv(a, n_iter=9)
    assert residual[0] < 1e-12 < 1e-3 < residual[1]
    assert gradcheck(_inverse(9), a.requires_grad_())
    assert gradcheck(_inverse(30, 1e-2), a.detach().requires_grad_())


def test_second_derivatives(generator: torch.Generator) -> None:
    a = 2 * torch.eye(3, dtype=F64) + 0.3 * torch.randn(3, 3, dtype=F64, generator=generator)
    assert gradgradcheck(_inverse(20), a.requires_grad_())
    assert gradgradcheck(_inverse(3), a.detach().requires_grad_())


@pytest.mark.parametrize(("size", "rank"), [(5, 3), (30, 1)])
def test_gradient_of_rank_deficient_matrices_along_changes_that_keep_the_rank(size: int, rank: int, generator: torch.Generator) -> None:
    b, c = (torch.randn(*shape, dtype=F64, generator=generator).requires_grad_() for shape in ((size, rank), (rank, size)))
    assert gradcheck(lambda b, c: newton_pinv(b @ c, n_iter=40, tol=1e-12)[0].sum(-1), (b, c))
    weight = torch.randn(size, size, dtype=F64, generator=generator)
    x, _ = newton_pinv(b @ c, n_iter=40, tol=1e-12)
    (x * weight).sum().backward()
    g, xt = weight, x.detach().mT
    one_shot = -xt @ g @ xt  # right for inverses only: the reason for the other terms
    assert _relative(one_shot @ c.detach().mT, b.grad) > 0.1  # type: ignore[arg-type]


def test_gradient_is_that_of_torchs_pseudo_inverse_where_singular_values_repeat(generator: torch.Generator) -> None:
    q, _ = torch.linalg.qr(torch.randn(6, 6, dtype=F64, generator=generator))
    a = q[:, :4] @ q[:, :4].mT * 2  # singular values 2, 2, 2, 2, 0, 0
    weight = torch.randn(6, 6, dtype=F64, generator=generator)
    grads = []
    for inverse in (lambda a: newton_pinv(a, n_iter=15)[0], lambda a: torch.linalg.pinv(a, rtol=1e-8)):
        a = a.detach().requires_grad_()
        grads.append(torch.autograd.grad((inverse(a) * weight).sum(), a)[0])
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)


# attention


@pytest.mark.parametrize("normalise", NORMALISE)
@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize(("time", "n_landmarks"), [(1, 1), (53, 7), (64, 16), (101, 13)])
def test_output_and_gradients_equal_the_definition(
    normalise: bool | str, ridge: float, time: int, n_landmarks: int, generator: torch.Generator
) -> None:
    inputs = [t.requires_grad_() for t in _tokens(generator, time, n_landmarks, dim=8)]
    weight = torch.randn(2, 3, time, 5, dtype=F64, generator=generator)
    found = []
    for attend, options in ((softmax_free_attention, {"n_iter": 40}), (naive_softmax_free_attention, {})):
        q, v, landmarks = inputs
        out = attend(q, v, landmarks, normalise=normalise, ridge=ridge, **options)
        found.append((out, *torch.autograd.grad((out * weight).sum(), inputs)))
    for fast, slow in zip(*found):
        torch.testing.assert_close(fast, slow, rtol=1e-8, atol=1e-8 * float(slow.detach().abs().max()))


@pytest.mark.parametrize("normalise", [False, "tokens", True])
def test_landmarks_that_are_the_tokens_make_it_exact(normalise: bool | str, generator: torch.Generator) -> None:
    q, v, _ = _tokens(generator, 31, 1, dim=8)
    out, residual = softmax_free_attention(q, v, q, normalise=normalise, n_iter=30, return_residual=True)
    assert (residual < 1e-10).all()
    x = q * 8**-0.25
    full = (-0.5 * torch.cdist(x, x).square()).exp()
    if normalise:  # both normalisations are then D^-1/2 on both sides of A^+, not of S
        weight = full.sum(-1).rsqrt()
        full = full @ (weight[..., None] * torch.linalg.inv(full) * weight[..., None, :]) @ full
    torch.testing.assert_close(out, full @ v, rtol=1e-9, atol=1e-9)
    if not normalise:
        torch.testing.assert_close(naive_softmax_free_attention(q, v), full @ v)


def _matrix(q: Tensor, landmarks: Tensor, **options) -> Tensor:
    eye = torch.eye(q.shape[2], dtype=q.dtype).expand(*q.shape[:2], -1, -1)
    return softmax_free_attention(q, eye, landmarks, normalise=False, **options)


def test_what_is_left_out_is_positive_semidefinite_and_zero_on_sampled_rows(generator: torch.Generator) -> None:
    q, _, other = _tokens(generator, 40, 10, dim=6)
    chosen = torch.randperm(40, generator=generator)[:10]
    x = q * 6**-0.25
    full = (-0.5 * torch.cdist(x, x).square()).exp()
    left = full - _matrix(q, q[:, :, chosen], n_iter=40)
    assert left[:, :, chosen].abs().max() < 1e-9
    assert torch.linalg.eigvalsh(left).min() > -1e-9
    for head in left.flatten(0, 1):
        torch.testing.assert_close(head, torch.from_numpy(nystrom_error(full.flatten(0, 1)[0].numpy(), chosen.numpy())), rtol=0, atol=1e-9)
        break
    assert torch.linalg.eigvalsh(full - _matrix(q, other, n_iter=40)).min() > -1e-9  # landmarks that are no tokens


def test_unresolved_eigenvalues_only_make_the_approximation_smaller(generator: torch.Generator) -> None:
    """X <= A^-1 in the sense of forms at every step, so that the rest stays positive semi-definite."""
    q, _, _ = _tokens(generator, 30, 1)
    left = _matrix(q, q[:, :, :12] * 0.3, n_iter=40) - _matrix(q, q[:, :, :12] * 0.3, n_iter=8)
    assert torch.linalg.eigvalsh(left).min() > -1e-7
    assert left.abs().max() > 1e-3


def test_256_landmarks_with_the_last_3_masked_equal_253_tokens(generator: torch.Generator) -> None:
    q, v, _ = _tokens(generator, 256, 1, dim=32)
    mask = torch.arange(256) < 253
    mask = mask.expand(2, -1)
    landmarks, landmark_mask = FirstLandmarks(256)(q, key_mask=mask)
    q2, v2, l2 = q.clone(), v.clone(), landmarks.clone()
    q2[:, :, 253:], v2[:, :, 253:], l2[:, :, 253:] = math.nan, math.inf, math.nan
    inputs = [t.requires_grad_() for t in (q2, v2, l2)]
    out, residual = softmax_free_attention(*inputs, key_mask=mask, landmark_mask=landmark_mask, return_residual=True)
    short, residual_short = softmax_free_attention(q[:, :, :253], v[:, :, :253], q[:, :, :253], return_residual=True)
    torch.testing.assert_close(out[:, :, :253], short, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(residual, residual_short, rtol=1e-3, atol=1e-14)
    assert (out[:, :, 253:] == 0).all()
    for grad in torch.autograd.grad(out.square().sum(), inputs):
        assert grad.isfinite().all()
        assert (grad[:, :, 253:] == 0).all()


@pytest.mark.parametrize("normalise", NORMALISE)
@pytest.mark.parametrize("ridge", [0.0, 0.05])
def test_masks_equal_the_definition_on_the_kept_tokens(normalise: bool | str, ridge: float, generator: torch.Generator) -> None:
    q, v, landmarks = _tokens(generator, 23, 6)
    key_mask = torch.rand(2, 23, generator=generator) > 0.4
    landmark_mask = torch.tensor([[1, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]], dtype=torch.bool)
    options = {"normalise": normalise, "ridge": ridge, "key_mask": key_mask, "landmark_mask": landmark_mask}
    slow = naive_softmax_free_attention(q, v, landmarks, **options)
    torch.testing.assert_close(softmax_free_attention(q, v, landmarks, n_iter=40, **options), slow, rtol=1e-7, atol=1e-7)


def test_left_padding_of_one_sequence_changes_nothing(generator: torch.Generator) -> None:
    q, v, landmarks = (t[:1] for t in _tokens(generator, 12, 4))
    pad = torch.full((1, 3, 3, 1), math.nan, dtype=F64)
    longer = softmax_free_attention(
        torch.cat((pad.expand(-1, -1, -1, 4), q), 2),
        torch.cat((pad.expand(-1, -1, -1, 5), v), 2),
        landmarks,
        key_mask=torch.arange(15)[None] >= 3,
    )
    torch.testing.assert_close(longer[:, :, 3:], softmax_free_attention(q, v, landmarks))


def test_sequence_or_landmarks_wholly_masked_give_zero(generator: torch.Generator) -> None:
    q, v, landmarks = (t.requires_grad_() for t in _tokens(generator, 8, 3))
    for options in ({"key_mask": torch.tensor([[True] * 8, [False] * 8])}, {"landmark_mask": torch.tensor([[True] * 3, [False] * 3])}):
        for normalise in NORMALISE:
            out = softmax_free_attention(q, v, landmarks, normalise=normalise, **options)
            assert (out[1] == 0).all()
            assert (out[0] != 0).any()
            assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), (q, v, landmarks)))


@pytest.mark.parametrize("normalise", NORMALISE)
def test_tokens_permute_with_the_output_and_landmarks_do_not_matter_in_order(normalise: bool | str, generator: torch.Generator) -> None:
    q, v, landmarks = _tokens(generator, 29, 6)
    out = softmax_free_attention(q, v, landmarks, normalise=normalise)
    order, turned = torch.randperm(29, generator=generator), torch.randperm(6, generator=generator)
    moved = softmax_free_attention(q[:, :, order], v[:, :, order], landmarks[:, :, turned], normalise=normalise)
    torch.testing.assert_close(moved, out[:, :, order], rtol=1e-7, atol=1e-7)


def test_sequences_of_a_batch_do_not_meet(generator: torch.Generator) -> None:
    q, v, landmarks = _tokens(generator, 16, 5)
    both = softmax_free_attention(q, v, landmarks, tol=1e-4)
    for b in range(2):
        one = softmax_free_attention(q[b : b + 1], v[b : b + 1], landmarks[b : b + 1], tol=1e-4)
        torch.testing.assert_close(one[0], both[b], rtol=1e-10, atol=1e-12)


def test_all_shifted_by_one_vector_is_the_same_and_far_tokens_keep_their_digits(generator: torch.Generator) -> None:
    q, v, landmarks = _tokens(generator, 16, 5)
    out = softmax_free_attention(q, v, landmarks)
    torch.testing.assert_close(softmax_free_attention(q + 3, v, landmarks + 3), out, rtol=1e-7, atol=1e-7)
    far = gaussian((q + 1000).float(), (q + 1000).float())
    near = gaussian((q + 1000).float().double(), (q + 1000).float().double())
    assert (far <= 1).all()
    assert (far.diagonal(dim1=-2, dim2=-1) == 1).all()
    assert _relative(far, near) < 1e-6
    moved = [(t + offset).float() for t, offset in ((q, 1000), (v, 0), (landmarks, 1000))]
    assert _relative(softmax_free_attention(*moved), softmax_free_attention(*(t.double() for t in moved))) < 1e-5


@pytest.mark.parametrize("scale", [1e-2, 1.0, 10.0])
def test_float32_and_half_precision_at_every_input_scale(scale: float, generator: torch.Generator) -> None:
    q, v, _ = _tokens(generator, 100, 1, dim=32)
    q = scale * q
    for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 1e-2)):
        x, y = q.to(dtype), v.to(dtype)
        landmarks, _ = (PooledLandmarks(10) if scale < 10 else FirstLandmarks(10))(x)  # at scale 10 all kernels of pooled ones underflow
        out = softmax_free_attention(x, y, landmarks, ridge=0.1)
        assert out.dtype == dtype
        exact = naive_softmax_free_attention(x, y, landmarks, ridge=0.1)
        assert _relative(out, exact) < bound


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, F64])
def test_types_are_kept_with_autocast_or_without(dtype: torch.dtype, generator: torch.Generator) -> None:
    inputs = [t.to(dtype).requires_grad_() for t in _tokens(generator, 13, 4)]
    plain = softmax_free_attention(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        cast, residual = softmax_free_attention(*inputs, return_residual=True)
        grads = torch.autograd.grad(cast.sum(), inputs)
    assert torch.equal(cast, plain)
    assert cast.dtype == dtype
    assert residual.dtype in (torch.float32, F64)
    assert all(g.dtype == dtype and g.isfinite().all() for g in grads)


def test_4096_tokens_of_large_fp16_values_do_not_overflow(generator: torch.Generator) -> None:
    q = 4 * torch.ones(1, 1, 4096, 8, dtype=torch.float16)
    v = torch.randn(1, 1, 4096, 4, generator=generator).half()
    out = softmax_free_attention(q, v, q[:, :, :3], normalise="tokens")
    assert out.isfinite().all()
    assert _relative(out[0, 0, 0], naive_softmax_free_attention(q, v, q[:, :, :3], normalise="tokens")[0, 0, 0]) < 1e-2


@pytest.mark.parametrize(("spread", "same"), [(0.05, False), (0.0, True)])
def test_close_and_coincident_landmarks_are_finite_and_flagged(spread: float, same: bool, generator: torch.Generator) -> None:
    q, v, _ = _tokens(generator, 100, 1, dim=32, dtype=torch.float32)
    landmarks = 1 + spread * torch.randn(2, 3, 49, 32, generator=generator)
    landmarks.requires_grad_()
    out, residual = softmax_free_attention(q, v, landmarks, normalise=False, return_residual=True)
    grad = torch.autograd.grad(out.square().sum(), landmarks)[0]
    assert out.isfinite().all()
    assert grad.isfinite().all()
    x = landmarks.detach().double() * 32**-0.25
    inverse = newton_pinv(gaussian(x, x).float(), n_iter=20)[0].double()
    if same:  # rank 1, solved: as with one landmark
        assert (residual < 1e-5).all()
        torch.testing.assert_close(out, softmax_free_attention(q, v, landmarks[:, :, :1], normalise=False), rtol=1e-5, atol=1e-5)
    else:  # unresolved: the identity is far, and the residual is not rounding
        assert (gaussian(x, x) @ inverse - torch.eye(49)).abs().max() > 0.1
        assert (residual > 1e-4).all()


def test_coincident_landmarks_have_the_gradient_of_the_definition(generator: torch.Generator) -> None:
    """The rank of a Gram matrix changes to second order only: moving both of a pair, or anything else, is differentiable."""
    q, v, landmarks = _tokens(generator, 9, 4)
    weight = torch.randn(2, 3, 9, 5, dtype=F64, generator=generator)

    def pair(half: Tensor) -> Tensor:
        return (softmax_free_attention(q, v, torch.cat((half, half[:, :, :1]), 2), tol=1e-13, n_iter=40) * weight).sum((1, 2, 3))

    half = landmarks[:, :, :3].clone().requires_grad_()
    (grad,) = torch.autograd.grad(pair(half).sum(), half)
    (alone,) = torch.autograd.grad((softmax_free_attention(q, v, half, normalise=False, n_iter=40) * weight).sum(), half)
    again = (softmax_free_attention(q, v, torch.cat((half, half[:, :, :1]), 2), normalise=False, tol=1e-13, n_iter=40) * weight).sum()
    torch.testing.assert_close(torch.autograd.grad(again, half)[0], alone, rtol=1e-4, atol=1e-5)
    step = 1e-5 * torch.randn(half.shape, dtype=F64, generator=generator)
    with torch.no_grad():
        difference = pair(half + step) - pair(half - step)
    torch.testing.assert_close(2 * (grad * step).sum((1, 2, 3)), difference, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ridge": 0.1},
        {"n_iter": 3},
        {"normalise": False},
        {"normalise": "tokens"},
        {"tol": 1e-3},
        {"key_mask": torch.tensor([[True] * 4 + [False, True]]), "landmark_mask": torch.tensor([[True, False, True]])},
    ],
    ids=str,
)
def test_gradcheck_of_every_path(options: dict, generator: torch.Generator) -> None:
    q, v, landmarks = (torch.randn(1, 1, n, 3, dtype=F64, generator=generator).requires_grad_() for n in (6, 6, 3))
    assert gradcheck(lambda *inputs: softmax_free_attention(*inputs, **options), (q, v, landmarks))


def test_noncontiguous_and_empty_inputs(generator: torch.Generator) -> None:
    q, v, landmarks = _tokens(generator, 10, 4)
    strided = [t.permute(3, 2, 0, 1).contiguous().permute(2, 3, 1, 0) for t in (q, v, landmarks)]
    torch.testing.assert_close(softmax_free_attention(*strided), softmax_free_attention(q, v, landmarks))
    for normalise in NORMALISE:
        assert softmax_free_attention(q[:, :, :0], v[:, :, :0], landmarks, normalise=normalise).shape == (2, 3, 0, 5)
        assert softmax_free_attention(q[:0], v[:0], landmarks[:0], normalise=normalise, tol=1e-3).shape == (0, 3, 10, 5)


@pytest.mark.parametrize("far", [10.0, 12.0, 13.9, 20.0])  # P of 2e-22, 1e-32, 1e-42 (subnormal) and 0 in float32
@pytest.mark.parametrize("normalise", NORMALISE)
def test_landmarks_far_from_all_tokens_have_finite_outputs_and_gradients(
    normalise: bool | str, far: float, generator: torch.Generator
) -> None:
    q, v, landmarks = (0.3 * t for t in _tokens(generator, 6, 3))
    landmarks[:, :, 0, 0] += far
    wide = [t.requires_grad_() for t in (q, v, landmarks)]
    narrow = [t.detach().float().requires_grad_() for t in wide]
    slow = naive_softmax_free_attention(*wide, scale=1.0, normalise=normalise)
    out = softmax_free_attention(*narrow, scale=1.0, normalise=normalise)
    assert _relative(out.detach(), slow.detach()) < 1e-5
    weight = torch.randn(out.shape, dtype=F64, generator=generator)
    expected = torch.autograd.grad((weight * slow).sum(), wide)
    for grad, true in zip(torch.autograd.grad((weight * out.double()).sum(), narrow), expected):
        assert _relative(grad, true) < 1e-4


def test_normalisation_over_tokens_keeps_its_bound_at_every_length(generator: torch.Generator) -> None:
    for time in (16, 64, 256, 1024):
        q = torch.randn(time, 8, dtype=F64, generator=generator)
        landmarks = q[:16]
        norms = [float(torch.linalg.matrix_norm(naive_matrix(q, landmarks, normalise=n), 2)) for n in ("tokens", True)]
        x = landmarks * 8**-0.25
        least = torch.linalg.eigvalsh((-0.5 * torch.cdist(x, x).square()).exp())[0]
        assert norms[0] <= 16 / float(least)
        if time == 16:
            assert norms[0] == pytest.approx(norms[1])
            first = norms
    assert norms[0] < first[0]
    assert norms[1] > 10 * first[1]


@pytest.mark.slow
def test_compiled_is_eager(generator: torch.Generator) -> None:
    compiled = torch.compile(softmax_free_attention, backend="aot_eager")
    inputs = [t.requires_grad_() for t in _tokens(generator, 12, 4)]
    for attend in (compiled, softmax_free_attention):
        out = attend(*inputs)
        grads = torch.autograd.grad(out.square().sum(), inputs)
        if attend is compiled:
            expected = (out, *grads)
    for one, other in zip((out, *grads), expected):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
def test_compiled_steps_are_undone_as_eager_ones_are(generator: torch.Generator) -> None:
    a = torch.randn(3, 6, 4, generator=generator)
    a = (a @ a.mT).requires_grad_()  # of rank 4: 60 steps leave the null space at 1e28 unless they are watched
    found = []
    for pinv in (newton_pinv, torch.compile(newton_pinv, backend="aot_eager")):
        inverse, residual = pinv(a, n_iter=60)
        assert (residual < 1e-5).all()
        found.append((inverse, *torch.autograd.grad(inverse.square().sum(), a)))
    for one, other in zip(*found):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"is_causal": True}, "is_causal must be False, got True"),
        ({"normalise": "rows"}, "normalise must be one of .* got 'rows'"),
        ({"normalise": 2}, "normalise must be one of .* got 2"),
        ({"scale": 0.0}, "scale must be positive, got 0.0"),
        ({"ridge": -1.0}, "ridge must be at least 0, got -1.0"),
        ({"n_iter": -1}, "n_iter must be an integer of at least 0, got -1"),
        ({"tol": -1.0}, "tol must be at least 0, got -1.0"),
        ({"key_mask": torch.ones(2, 9)}, "key_mask must be bool"),
        ({"key_mask": torch.ones(2, 9, 9, dtype=torch.bool)}, "key_mask must be bool"),
        ({"landmark_mask": torch.ones(2, 5, dtype=torch.bool)}, "landmark_mask must be bool"),
        ({"landmarks": torch.ones(2, 3, 0, 4)}, "landmarks must have .* at least one"),
        ({"landmarks": torch.ones(2, 1, 4, 4)}, "landmarks must have"),
        ({"v": torch.ones(2, 3, 8, 5)}, "v must have q's batch, head and time"),
        ({"q": torch.ones(9, 4)}, "q must be float"),
        ({"q": torch.ones(2, 3, 9, 4, dtype=torch.int64)}, "q must be float"),
        ({"return_residual": 1}, "return_residual must be True or False"),
    ],
)
def test_bad_input_is_named(change: dict, message: str, generator: torch.Generator) -> None:
    q, v, landmarks = _tokens(generator, 9, 4)
    with pytest.raises(ValueError, match=message):
        softmax_free_attention(**({"q": q, "v": v, "landmarks": landmarks} | change))


def test_bad_matrices_are_named() -> None:
    for a, options, message in (
        (torch.ones(3), {}, "a must be float32 or float64"),
        (torch.ones(3, 3, dtype=torch.float16), {}, "a must be float32 or float64"),
        (torch.ones(0, 3), {}, "a must be float32 or float64"),
        (torch.ones(2, 3), {"ridge": 0.1}, "ridge needs square matrices"),
    ):
        with pytest.raises(ValueError, match=message):
            newton_pinv(a, n_iter=3, **options)


@pytest.mark.parametrize(("dtype", "bound"), [(F64, 1e-5), (torch.float32, 5e-3)])
@pytest.mark.parametrize("spread", [1.0, 0.3, 0.05, 0.01, 1e-3, 1e-4, 0.0])
def test_gradient_is_that_of_the_steps_wherever_landmarks_lie(
    dtype: torch.dtype, bound: float, spread: float, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an inverse through unresolved eigenvalues to coincident landmarks: the closed form takes over where it may."""
    q, v, _ = _tokens(generator, 60, 1, dim=16, dtype=dtype)
    landmarks = 0.3 * torch.randn(2, 3, 1, 16, dtype=dtype, generator=generator)
    landmarks = (landmarks + spread * torch.randn(2, 3, 16, 16, dtype=dtype, generator=generator)).requires_grad_()
    weight = torch.randn(2, 3, 60, 5, dtype=dtype, generator=generator)

    def gradient() -> Tensor:
        return torch.autograd.grad((softmax_free_attention(q, v, landmarks, normalise=False) * weight).sum(), landmarks)[0]

    closed = gradient()
    monkeypatch.setattr(softmax_free, "pinv", lambda a, n_iter, tol, ridge: (a, newton._steps(a.flatten(0, -3), n_iter)))
    assert _relative(closed, gradient().double()) < bound
