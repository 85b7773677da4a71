"""The kernel's mixtures are those of strategies/mixtures.py."""

from __future__ import annotations

import numpy as np
import pytest

from fdsim.kernels.mixtures import kernel
from fdsim.strategies.mixtures import Sources, substitutes

needs_kernel = pytest.mark.skipif(kernel() is None, reason="there is no C compiler")


def sources(rng, missing, active, *, unknown):
    """Clients at random places, whose distances are known with noise, or not at all."""
    count = missing + active
    places = rng.normal(size=(count, 3))
    apart = np.square(places[:, None] - places[None]).sum(axis=2) * rng.uniform(0.7, 1.3, (count, count))
    apart = np.where(rng.random(apart.shape) < unknown, np.nan, apart) * 10.0 ** rng.integers(-6, 4)
    apart = np.triu(apart, 1) + np.triu(apart, 1).T
    remembered = np.where(
        rng.random(missing) < 0.3, np.nan, rng.random(missing) * np.nanmax(apart, initial=1.0)
    )
    mean = rng.random(active)
    return Sources(apart[:missing, missing:], apart[missing:, missing:], remembered, mean / mean.sum())


@needs_kernel
@pytest.mark.parametrize("rule", ["least", "blend", "best"])
@pytest.mark.parametrize("unknown", [0.0, 0.3, 0.9, 1.0])
def test_mixtures_are_those_of_the_plain_code(rule, unknown):
    rng = np.random.default_rng(5)
    for missing, active in [(0, 3), (1, 2), (4, 7), (9, 8), (30, 90)] * 8:
        given = sources(rng, missing, active, unknown=unknown)
        plain, ours = substitutes(given, rule), substitutes(given, rule, direct=True)
        assert ours.main.tolist() == plain.main.tolist()
        for name in ("parts", "error", "main_error"):
            np.testing.assert_allclose(getattr(ours, name), getattr(plain, name), rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(ours.parts.sum(axis=1), 1.0, atol=1e-9)


@needs_kernel
@pytest.mark.parametrize("direct", [False, True])
def test_estimates_that_contradict_each_other_leave_the_nearest(direct):
    """Two friends that are near the missing client and far from each other: no mixture of theirs could be as far off."""
    far = np.array([[0.0, 100.0], [100.0, 0.0]])
    given = Sources(np.array([[1.0, 1.5]]), far, np.array([np.nan]), np.array([0.9, 0.1]))
    found = substitutes(given, "best", direct=direct)
    assert found.parts.sum() == pytest.approx(1.0)
    assert found.parts.min() >= 0
