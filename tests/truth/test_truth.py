"""Each route alone against cases done by hand, SciPy, finite differences and wider floats."""

import math
import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from lab import truth as oracle
from lab.errors import UserError
from lab.truth import direct, online
from lab.truth.problems import POLICIES, AttentionProblem, Shape, attention_problem, poison

ROUTES = pytest.mark.parametrize("route", [direct, online], ids=["direct", "online"])


def inputs(problem: AttentionProblem) -> tuple[tuple[Any, Any, Any], dict[str, Any]]:
    how = {"causal": problem.causal, "key_mask": problem.key_mask, "scale": problem.scale}
    return (problem.q, problem.k, problem.v), how


@ROUTES
def test_a_case_done_by_hand(route: ModuleType) -> None:
    # Two queries, three keys, causal: query 0 sees keys 0 and 1, query 1 sees all three.
    # Logits 0, ln 2 | 0, ln 2, ln 5, so the weights are 1/3, 2/3 | 1/8, 2/8, 5/8.
    q = np.ones((1, 1, 2, 1))
    k = np.log([1.0, 2.0, 5.0]).reshape(1, 1, 3, 1)
    v = np.array([3.0, 6.0, 24.0]).reshape(1, 1, 3, 1)
    result = route.forward(q, k, v, causal=True)
    np.testing.assert_allclose(result.out.ravel(), [5.0, 135 / 8], rtol=1e-14)
    np.testing.assert_allclose(result.lse.ravel(), np.log([3.0, 8.0]), rtol=1e-14)

    # Cotangent 9 | 64: dP = 27, 54 | 192, 384, 1536; rowsum(P dP) = 45 | 1080;
    # so dS is -6, 6 in row 0 and -111, -174, 285 in row 1.
    grads = route.backward(q, k, v, np.array([9.0, 64.0]).reshape(1, 1, 2, 1), causal=True)
    np.testing.assert_allclose(grads.dv.ravel(), [3 + 8, 6 + 16, 40], rtol=1e-13)
    np.testing.assert_allclose(grads.dk.ravel(), [-117, -168, 285], rtol=1e-13)
    expected = [6 * math.log(2), -174 * math.log(2) + 285 * math.log(5)]
    np.testing.assert_allclose(grads.dq.ravel(), expected, rtol=1e-13)


@ROUTES
def test_every_query_head_reads_the_key_head_of_its_group(route: ModuleType) -> None:
    v = np.arange(3.0).reshape(1, 3, 1, 1)
    ones = np.ones((1, 6, 2, 1))
    result = route.forward(ones, v, v, causal=False)
    assert result.out[0, :, 0, 0].tolist() == [0, 0, 1, 1, 2, 2]
    grads = route.backward(ones, v, v, ones, causal=False)
    assert grads.dv.ravel().tolist() == [4, 4, 4]  # two query heads of two rows each


@ROUTES
def test_scipy_agrees_where_nothing_is_hidden(route: ModuleType) -> None:
    shape = Shape(2, 4, 2, 7, 11, 5, causal=False, padding="none")
    problem = attention_problem(shape, POLICIES["f32"], scale=0.7)
    q, k, v = (np.asarray(x, np.float64) for x in (problem.q, problem.k, problem.v))
    logits = 0.7 * np.einsum("bhtd,bhsd->bhts", q, k[:, [0, 0, 1, 1]])
    expected = np.einsum("bhts,bhsd->bhtd", softmax(logits, axis=-1), v[:, [0, 0, 1, 1]])
    result = route.forward(*inputs(problem)[0], causal=False, scale=0.7)
    np.testing.assert_allclose(result.out, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(result.lse, logsumexp(logits, axis=-1), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(
        route.softmax_forward(logits, np.ones((7, 11), bool)), softmax(logits, axis=-1), rtol=1e-12
    )


@ROUTES
@pytest.mark.parametrize("lengths", [(6, 9), (9, 6)], ids=["cached", "query longer"])
@pytest.mark.parametrize("padding", ["none", "random", "empty"])
def test_gradients_are_the_slopes_of_the_forward(
    route: ModuleType, lengths: tuple[int, int], padding: str
) -> None:
    shape = Shape(2, 6, 2, *lengths, 4, causal=True, padding=padding)
    problem = attention_problem(shape, POLICIES["f32"], seed=1, scale=0.8)
    arrays, how = inputs(problem)
    arrays = tuple(x.astype(np.float64) for x in arrays)
    cotangent = problem.cotangent.astype(np.float64)
    grads = route.backward(*arrays, cotangent, **how)
    rng = np.random.default_rng(2)
    step = 1e-4
    for i, gradient in enumerate((grads.dq, grads.dk, grads.dv)):
        for _ in range(4):
            direction = rng.standard_normal(gradient.shape)

            def loss(distance: float, i: int = i, direction: Any = direction) -> float:
                moved = [x + distance * direction if j == i else x for j, x in enumerate(arrays)]
                return float((cotangent * route.forward(*moved, **how).out).sum())

            # Fourth-order central difference: its error is of order step**4.
            slope = 8 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))
            assert (gradient * direction).sum() == pytest.approx(slope / (12 * step), abs=1e-9)


@ROUTES
def test_softmax_gradient_is_the_slope_of_the_forward(route: ModuleType) -> None:
    rng = np.random.default_rng(3)
    logits, cotangent, direction = rng.standard_normal((3, 2, 3, 5, 6))
    mask = rng.uniform(size=(2, 1, 5, 6)) < 0.6
    mask[1, 0, 2] = False
    gradient = route.softmax_backward(logits, mask, cotangent)
    assert (gradient[1, :, 2] == 0).all()
    assert (gradient[~np.broadcast_to(mask, gradient.shape)] == 0).all()
    step = 1e-5
    up, down = (route.softmax_forward(logits + d * direction, mask) for d in (step, -step))
    slope = (cotangent * (up - down)).sum() / (2 * step)
    assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-8)


@ROUTES
@pytest.mark.parametrize("padding", ["tail", "head", "hole", "random", "mixed", "empty"])
@pytest.mark.parametrize("causal", [True, False])
def test_nothing_in_a_hidden_key_changes_a_bit(
    route: ModuleType, padding: str, causal: bool
) -> None:
    shape = Shape(2, 4, 2, 7, 9, 3, causal=causal, padding=padding)
    clean = attention_problem(shape, POLICIES["bf16"])
    poisoned = poison(clean)
    assert clean.key_mask is not None
    hidden = np.broadcast_to(~clean.key_mask[:, None, :], clean.k.shape[:3])
    before, after = (route.forward(*inputs(p)[0], **inputs(p)[1]) for p in (clean, poisoned))
    assert before.out.tobytes() == after.out.tobytes()
    assert before.lse.tobytes() == after.lse.tobytes()
    grads = [route.backward(*inputs(p)[0], p.cotangent, **inputs(p)[1]) for p in (clean, poisoned)]
    for name in ("dq", "dk", "dv"):
        assert getattr(grads[0], name).tobytes() == getattr(grads[1], name).tobytes()
    assert (grads[1].dk[hidden] == 0).all()
    assert (grads[1].dv[hidden] == 0).all()
    assert (grads[1].dv[~hidden] != 0).any()


@ROUTES
def test_rows_that_see_no_key_give_exactly_zero(route: ModuleType) -> None:
    # Four queries more than keys: the first four rows of each head see nothing.
    shape = Shape(2, 4, 2, 9, 5, 3, causal=True, padding="none")
    problem = attention_problem(shape, POLICIES["bf16"])
    arrays, how = inputs(problem)
    result = route.forward(*arrays, **how)
    assert (result.out[:, :, :4] == 0).all()
    assert np.isneginf(result.lse[:, :, :4]).all()
    assert np.isfinite(result.lse[:, :, 4:]).all()
    grads = route.backward(*arrays, problem.cotangent, **how)
    assert (grads.dq[:, :, :4] == 0).all()
    assert (grads.dq[:, :, 5:] != 0).all()  # row 4 sees one key, so its weight cannot move


@ROUTES
def test_a_softmax_hides_nan_and_empty_rows(route: ModuleType) -> None:
    logits = np.array([[[[1.0, np.nan, 1.0], [np.inf, np.nan, -np.inf]]]])
    mask = np.array([[True, False, True], [False, False, False]])
    assert route.softmax_forward(logits, mask).tolist() == [[[[0.5, 0, 0.5], [0, 0, 0]]]]
    gradient = route.softmax_backward(logits, mask, np.full(logits.shape, 3.0) * [1, 2, 3])
    assert gradient.tolist() == [[[[-1.5, 0, 1.5], [0, 0, 0]]]]


@ROUTES
@pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="needs a long double wider than 64 bits"
)
def test_weights_keep_their_digits_at_extreme_logits(route: ModuleType) -> None:
    shape = Shape(1, 1, 1, 4, 40, 7, causal=False, padding="none")
    problem = attention_problem(shape, POLICIES["bf16"], regime="below_sentinel")
    q, k, v = (x[0, 0].astype(np.longdouble) for x in (problem.q, problem.k, problem.v))
    logits = q @ k.T / np.sqrt(np.longdouble(7))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected = weights @ v / weights.sum(axis=1, keepdims=True)
    out = route.forward(*inputs(problem)[0], causal=False).out[0, 0]
    np.testing.assert_allclose(out, expected.astype(np.float64), rtol=0, atol=1e-13)


@ROUTES
def test_bfloat16_is_read_exactly(route: ModuleType) -> None:
    shape = Shape(1, 2, 1, 5, 6, 4, causal=True, padding="none")
    problem = attention_problem(shape, POLICIES["bf16"])
    arrays, how = inputs(problem)
    widened = [x.astype(np.float64) for x in arrays]
    assert (
        route.forward(*arrays, **how).out.tobytes() == route.forward(*widened, **how).out.tobytes()
    )
    assert route.forward(*arrays, **how).out.dtype == np.float64


@ROUTES
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
def test_a_scale_that_is_not_above_zero_is_refused(route: ModuleType, scale: float) -> None:
    x = np.ones((1, 1, 2, 2))
    with pytest.raises(UserError, match="give a number above 0, or None"):
        route.forward(x, x, x, causal=False, scale=scale)


def test_the_package_speaks_for_the_direct_route() -> None:
    assert oracle.forward is direct.forward
    assert oracle.backward is direct.backward
    assert oracle.softmax_forward is direct.softmax_forward
    assert oracle.softmax_backward is direct.softmax_backward


def test_problems_and_oracle_import_no_jax() -> None:
    code = (
        "import sys, lab.truth.problems, lab.truth.direct, lab.truth.online;"
        "found = [m for m in sys.modules if m.split('.')[0] in ('jax', 'jaxlib')];"
        "sys.exit(', '.join(found) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
