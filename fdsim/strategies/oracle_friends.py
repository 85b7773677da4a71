"""Friendship known in advance: the baseline behind the paper's Ψ*."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fdsim.errors import InputError
from fdsim.strategies.base import MEAN, Blend, Cohort, Federation, State, Strategy, substituted


class OracleFriends(Strategy):
    """Lets an active client of the same true cluster stand in for a missing one.

    The missing clients of a cluster are assigned to its active ones in turn, lowest index first, so that
    none stands in for more of them than needed. Where a cluster has no active client its missing ones are left to
    Dropout's rule.
    """

    befriends: ClassVar[bool] = True
    fallback: ClassVar[int | None] = MEAN

    def check(self, federation: Federation) -> None:
        if federation.true_cluster is None:
            raise InputError(
                self.label,
                "the oracle needs true clusters, and this partition of the data has none",
                "use a partition with clusters, such as clustered, or fdms, which finds friends itself",
            )

    def start(self, federation: Federation) -> State:
        return {"true_cluster": np.array(federation.true_cluster)}

    def blend(self, state: State, cohort: Cohort) -> Blend:
        cluster = state["true_cluster"]
        stand_in = np.full(len(cohort.missing), MEAN)
        for label in np.unique(cluster[cohort.missing]):
            friends = cohort.active[cluster[cohort.active] == label]
            places = np.flatnonzero(cluster[cohort.missing] == label)
            if len(friends):
                stand_in[places] = friends[np.arange(len(places)) % len(friends)]
        return substituted(cohort, stand_in, np.full(len(stand_in), np.nan))
