"""The measures of one learning curve: the accuracies of one strategy in one run.

A *curve* is a rounds table of one run and one strategy. Everything here looks at a single curve;
`fdsim.comparison.compare` compares them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.integrate import trapezoid

_JOULES_PER_KJ = 1000.0
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Measure:
    """A number per curve: its column name, its title, the decimals shown, and between which values it can be."""

    name: str
    title: str
    digits: int = 3
    lowest: float = 0.0
    highest: float = float("inf")


#: Known for every finished curve.
QUALITIES = (
    Measure("final_accuracy", "final accuracy", highest=1.0),
    Measure("best_accuracy", "best accuracy", highest=1.0),
    Measure("mean_accuracy", "mean accuracy (area under the curve)", highest=1.0),
    Measure("fluctuation", "fluctuation", 4),
    Measure("worst_accuracy", "worst accuracy after a third of the rounds", highest=1.0),
)
#: Known where the run has a curve without dropouts to stand beside.
BESIDE_FULL = (
    Measure("gap_to_full", "mean gap to full", lowest=-1.0, highest=1.0),
    Measure("hours_below_full", "simulated hours below 90 % of full", 1),
)
#: Below this fraction of Full's accuracy a model counts as not serving its users.
BELOW_FRAC = 0.9
#: What it took to reach the target accuracy; a curve that never did is *censored*: it would have taken longer than observed.
COSTS = (
    Measure("rounds", "rounds to target", 0),
    Measure("sim_hours", "simulated hours to target", 1),
    Measure("energy_kj", "kJ to target", 1),
)


@dataclass(frozen=True)
class Cost:
    """What a curve took to reach a target or, where `reached` is false, what it had taken when last observed."""

    value: float
    reached: bool


@dataclass(frozen=True)
class Curve:
    """The evaluated rounds of one strategy in one run. Arrays are [E], E evaluations."""

    rounds: np.ndarray
    """Rounds done by each evaluation: 1 after the first round."""
    accuracy: np.ndarray
    sim_hours: np.ndarray
    energy_kj: np.ndarray
    """Energy spent by the devices up to each evaluation."""
    complete: bool
    """False when the strategy stopped before the run's last round."""

    def qualities(self) -> dict[str, float]:
        """Return the `QUALITIES` of the curve; NaN for an unfinished curve."""
        if not self.complete or not len(self.accuracy):
            return {measure.name: float("nan") for measure in QUALITIES}
        return {
            "final_accuracy": float(self.accuracy[-1]),
            "best_accuracy": float(self.accuracy.max()),
            "mean_accuracy": mean_accuracy(self.rounds, self.accuracy),
            "fluctuation": fluctuation(self.accuracy),
            "worst_accuracy": self.worst_accuracy(),
        }

    def worst_accuracy(self) -> float:
        """Return the lowest accuracy after the first third of the rounds, when a model should have become useful."""
        late = self.accuracy[self.rounds > self.rounds[-1] / 3] if len(self.rounds) else self.accuracy
        return float(late.min()) if len(late) else float("nan")

    def beside(self, full: Curve) -> dict[str, float]:
        """Return the `BESIDE_FULL` of the curve: how far it is behind a curve without dropouts, and for how long.

        A model is in force from its evaluation to the next. Only rounds that both curves evaluated count.
        """
        _, mine, theirs = np.intersect1d(self.rounds, full.rounds, return_indices=True)
        if not len(mine):
            return {measure.name: float("nan") for measure in BESIDE_FULL}
        below = self.accuracy[mine] < BELOW_FRAC * full.accuracy[theirs]
        in_force_h = np.diff(self.sim_hours[mine])
        return {
            "gap_to_full": float((full.accuracy[theirs] - self.accuracy[mine]).mean()),
            "hours_below_full": float(in_force_h[below[:-1]].sum()),
        }

    def cost(self, name: str, target: float) -> Cost:
        """Return the cost of reaching a test accuracy for the first time."""
        watched = self.watched(name)
        reached = np.flatnonzero(self.accuracy >= target)
        if len(reached) and not np.isnan(watched):
            return Cost(float(getattr(self, name)[reached[0]]), reached=True)
        return Cost(watched, reached=False)

    def watched(self, name: str) -> float:
        """Return a cost at the last evaluation; NaN where it was not recorded, such as energy without devices."""
        taken: np.ndarray = getattr(self, name)
        return float(taken[-1]) if len(taken) and taken[-1] > 0 else float("nan")


def mean_accuracy(rounds: np.ndarray, accuracy: np.ndarray) -> float:
    """Return the area under accuracy over rounds, divided by the rounds it spans: 1 is perfect throughout."""
    if len(accuracy) == 1:
        return float(accuracy[0])
    return float(trapezoid(accuracy, rounds) / (rounds[-1] - rounds[0]))


def fluctuation(accuracy: np.ndarray) -> float:
    """Return the standard deviation of the change in accuracy from one evaluation to the next.

    A curve that rises evenly has 0, whatever its slope. This tests the claim that friend substitution gives smoother
    curves.
    """
    if len(accuracy) < 3:
        return float("nan")
    return float(np.std(np.diff(accuracy), ddof=1))


def curve_of(rounds: pd.DataFrame, planned_rounds: int | None = None) -> Curve:
    """Make a curve of one strategy's rows of a rounds table; `planned_rounds` tells whether it is complete."""
    rows = rounds.sort_values("round")
    energy_kj = rows["energy_j"].astype(float).cumsum().to_numpy() / _JOULES_PER_KJ
    evaluated = rows["test_accuracy"].notna().to_numpy()
    done = rows["round"].to_numpy(dtype=np.int64) + 1
    last = int(done[-1]) if len(done) else 0
    return Curve(
        rounds=done[evaluated],
        accuracy=rows["test_accuracy"].to_numpy(dtype=np.float64)[evaluated],
        sim_hours=rows["sim_time_s"].to_numpy(dtype=np.float64)[evaluated] / _SECONDS_PER_HOUR,
        energy_kj=energy_kj[evaluated],
        complete=planned_rounds is None or last >= planned_rounds,
    )
