"""The paper's dropout process: a fixed fraction of the clients is missing from every round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import Field

from fdsim.errors import ScenarioError
from fdsim.participation.base import MaskedParticipation, ParticipationSetting


class FixedRatio(MaskedParticipation):
    """Exactly (1−α)K clients are active, at least one of each cluster; in round 0 all are.

    How many of each cluster are active is drawn uniformly among all ways to split the total, as in the paper:
    unbalanced rounds are much more frequent than if clients were drawn one by one.
    """

    alpha: float = Field(ge=0, lt=1, description="fraction of the clients that drop out of a round")

    def masks(self, setting: ParticipationSetting, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Draw how many of each cluster, then which; without known clusters all clients form one."""
        active_count = max(1, round((1.0 - self.alpha) * self.clients))
        clusters = self._clusters(setting, active_count)
        splits = Splits([len(members) for members in clusters], active_count)
        yield np.ones(self.clients, dtype=bool)
        while True:
            mask = np.zeros(self.clients, dtype=bool)
            for members, count in zip(clusters, splits.draw(rng), strict=True):
                mask[rng.choice(members, size=count, replace=False)] = True
            yield mask

    def _clusters(self, setting: ParticipationSetting, active_count: int) -> list[np.ndarray]:
        if setting.true_cluster is None:
            return [np.arange(self.clients)]
        clusters = [np.flatnonzero(setting.true_cluster == c) for c in np.unique(setting.true_cluster)]
        if len(clusters) > active_count:
            raise ScenarioError(
                "participation.alpha",
                f"{self.alpha} leaves {active_count} clients active, and there are {len(clusters)} clusters",
                f"at least one client of each cluster stays: alpha ≤ {1 - len(clusters) / self.clients:.3g}",
            )
        return clusters


class Splits:
    """All ways to split a total into one count per cluster, from 1 to the cluster's size, to draw from uniformly."""

    def __init__(self, sizes: Sequence[int], total: int) -> None:
        self._sizes, self._total = sizes, total
        # _log_ways[c][r] is the logarithm of the number of ways in which clusters c, c+1, … add up to r;
        # logarithms, since hundreds of clusters have more ways than a float can hold.
        ways = np.full(total + 1, -np.inf)
        ways[0] = 0.0
        self._log_ways = [ways]
        for size in reversed(sizes):
            below, ways = ways, np.full(total + 1, -np.inf)
            for count in range(1, min(size, total) + 1):
                ways[count:] = np.logaddexp(ways[count:], below[: total + 1 - count])
            self._log_ways.insert(0, ways)

    def draw(self, rng: np.random.Generator) -> list[int]:
        """Return the number of active clients of each cluster."""
        split, rest = [], self._total
        for size, ways in zip(self._sizes, self._log_ways[1:], strict=True):
            counts = np.arange(1, min(size, rest) + 1)
            logs = ways[rest - counts]
            chance = np.exp(logs - logs.max())
            split.append(int(rng.choice(counts, p=chance / chance.sum())))
            rest -= split[-1]
        return split
