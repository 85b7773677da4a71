"""The paper's dropout process: a fixed share of the clients is missing in every round."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from fdsim.errors import ScenarioError
from fdsim.participation.base import MaskedParticipation, ParticipationSetting


class FixedRatio(MaskedParticipation):
    """Exactly (1−α)K clients are active, at least one of each cluster; in round 0 everybody is."""

    alpha: float = Field(ge=0, lt=1, description="share of the clients that drop out of a round")

    def masks(self, setting: ParticipationSetting, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """One of each cluster first (when the clusters are known), the rest at random."""
        active_count = max(1, round((1.0 - self.alpha) * self.clients))
        clusters = self._clusters(setting, active_count)
        yield np.ones(self.clients, dtype=bool)
        while True:
            mask = np.zeros(self.clients, dtype=bool)
            for members in clusters:
                mask[rng.choice(members)] = True
            rest = np.flatnonzero(~mask)
            mask[rng.choice(rest, size=active_count - int(mask.sum()), replace=False)] = True
            yield mask

    def _clusters(self, setting: ParticipationSetting, active_count: int) -> list[np.ndarray]:
        if setting.true_cluster is None:
            return []
        clusters = [np.flatnonzero(setting.true_cluster == c) for c in np.unique(setting.true_cluster)]
        if len(clusters) > active_count:
            raise ScenarioError(
                "participation.alpha",
                f"{self.alpha} leaves {active_count} clients active, and there are {len(clusters)} clusters",
                f"at least one client of each cluster stays: alpha ≤ {1 - len(clusters) / self.clients:.3g}",
            )
        return clusters
