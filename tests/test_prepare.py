"""What a scenario fixes before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fdsim.prepare import prepare
from fdsim.scenario import parse_scenario

TABLES: dict[str, Any] = {
    "name": "weights",
    "rounds": 1,
    "data": {"kind": "synthetic", "train_samples": 120, "partition": {"kind": "quantity_skew", "alpha": 0.5}},
    "net": {"kind": "mlp"},
    "participation": {"kind": "bernoulli", "clients": 6, "active_prob": 0.5},
    "strategies": [{"kind": "dropout"}],
}


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_clients_weigh_alike_or_by_their_samples(weighting: str) -> None:
    training = {"local_steps": 1, "weighting": weighting}
    prepared = prepare(parse_scenario({**TABLES, "training": training}))
    counts = np.array([len(rows) for rows in prepared.indices])
    assert len(set(counts.tolist())) > 1
    expected = counts / counts.sum() if weighting == "samples" else np.full(6, 1 / 6)
    np.testing.assert_allclose(prepared.client_weight, expected)
