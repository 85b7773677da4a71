"""The paper's theory beside a run: its constants estimated, its bounds next to what was measured.

    panel = fdsim.inspect.theory.theory_of(fdsim.open_run("runs/x"))
    panel.constants, panel.rounds, panel.errors

Needs a strategy that keeps R (fdms) with snapshots of it (`[telemetry] similarity_every`); measured
substitution errors need `counterfactual = true`. All errors and distances are in the paper's units, Δ = (w_k
− w_t)/η_L. The bounds Ψ̄ and Ψ* are given as bounds on Σ‖e_t‖²: the paper multiplies both, and the measured
sum, by the same factor (1 + 3ηη_L·L·E)/(c·E²·T), whose smoothness L cannot be estimated from a run.

Friends with memory (fdms_memory) put the least of three predicted errors in the place of σ_F²: with ε_k what is expected
of a friend's update, of the client's own memory or of the mean, whichever is least, and α_t the fraction missing,
E‖e_t‖² = E‖(1/K) Σ_k e_t^k‖² ≤ α_t²·(mean of ε_k over the missing), since a mean's square is at most the mean square.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fdsim.errors import RunFolderError
from fdsim.learning.friends import clusters_in
from fdsim.strategies.reduction import Reduction, ThetaInputs
from fdsim.trace import open_trace

if TYPE_CHECKING:
    import pandas as pd

    from fdsim.telemetry.reader import Run


@dataclass(frozen=True)
class Constants:
    """The constants of the paper's bounds, estimated from a run."""

    clients: int
    rounds: int
    sigma_p2: float
    """σ_P²: the largest mean ‖Δᵢ − Δⱼ‖² of any pair."""
    sigma_f2: float
    """σ_F²: the largest one among friends."""
    beta: float
    """β: the smallest fraction of rounds in which a pair was active together."""
    delta_min: float
    """δ_min: the smallest margin of a client's worst friend over its best non-friend, in mean similarity."""
    delta_f: float
    """δ_f: the largest spread of mean similarity among one client's friends."""
    b_max: int
    """B_max: the largest number of friends of a client."""

    @property
    def decay(self) -> float:
        """β·δ_min²/2, the rate at which misselection dies out; 0 when friends cannot be told from others."""
        return self.beta * max(self.delta_min, 0.0) ** 2 / 2.0

    def misselection(self, rounds_seen: np.ndarray) -> np.ndarray:
        """Return the Lemma's bound on the chance of a non-friend after t rounds, 2K·exp(−β·δ_min²·t/2), 1 at most."""
        return np.minimum(1.0, 2.0 * self.clients * np.exp(-self.decay * rounds_seen))

    def psi_fdms(self, psi_bar: float, psi_star: float) -> float:
        """Return the Theorem's bound: Ψ* + 2K·Ψ̄·(1 − exp(−aT))/(T·(1 − exp(−a))), a = β·δ_min²/2."""
        rate = self.decay
        mean = 1.0 if rate == 0 else -math.expm1(-rate * self.rounds) / (self.rounds * -math.expm1(-rate))
        return psi_star + 2.0 * self.clients * psi_bar * mean


@dataclass(frozen=True)
class Theory:
    """Constants, a table by round, and a table of substitution errors by strategy."""

    strategy: str
    friends: str
    """Who counts as a friend: clients of the same true cluster, or of the same cluster found in R."""
    constants: Constants
    rounds: pd.DataFrame
    """round, missing_frac (α_t), misselection_bound, misselection (measured), theta (Θ_t at p = 0.1)."""
    errors: pd.DataFrame
    """strategy, error_sum (measured Σ‖e_t‖²), psi_bar, psi_star, psi_fdms (bounds on it), psi_predicted (the bound
    from predicted errors, of strategies that predict them)."""


def theory_of(run: Run, strategy: str | None = None) -> Theory:
    """Estimate the constants from the last snapshot of R of a strategy, by default the first that has one."""
    import pandas as pd

    label, snapshot = _snapshot(run, strategy)
    trace = open_trace(run.path / "trace.parquet")
    active, selected = [], []
    for trace_round in trace:
        active.append(np.isin(np.arange(trace.clients), trace_round.completed))
        selected.append(len(trace_round.selected))
    similarity, meetings, distance = _matrices(snapshot, trace.clients)
    cluster, friends = _clusters(trace.true_cluster, similarity, meetings)
    was_active = np.array(active)
    constants = constants_of(similarity, distance, cluster, was_active)
    missing_frac = 1.0 - was_active.sum(axis=1) / np.maximum(selected, 1)
    table = run.rounds
    mine = table[table["strategy"].astype(str) == label].sort_values("round")
    seen = np.arange(len(missing_frac))
    theta = Reduction(p=0.1).theta(
        ThetaInputs(constants.clients, constants.rounds, constants.b_max, constants.delta_f),
        constants.beta * seen,
    )
    rounds = pd.DataFrame(
        {
            "round": seen,
            "missing_frac": missing_frac,
            "misselection_bound": constants.misselection(seen),
            "theta": theta,
        }
    )
    found = mine["friend_present_frac"] - mine["friend_hit_frac"]
    measured = pd.DataFrame({"round": mine["round"], "misselection": found / mine["friend_present_frac"]})
    rounds = rounds.merge(measured, on="round", how="left")
    errors = _errors(table, run.strategies, constants, missing_frac)
    errors["psi_predicted"] = [
        _psi_predicted(run, name, constants.sigma_p2, missing_frac) for name in run.strategies
    ]
    return Theory(label, friends, constants, rounds, errors)


def constants_of(
    similarity: np.ndarray, distance: np.ndarray, cluster: np.ndarray, active: np.ndarray
) -> Constants:
    """Estimate the constants from μ [K, K] and σ² [K, K] (NaN where unknown), clusters [K] and who was active [T, K]."""
    rounds, clients = active.shape
    pairs = ~np.eye(clients, dtype=bool)
    friendly = (cluster[:, None] == cluster) & pairs
    together = active.astype(np.int64).T @ active.astype(np.int64)
    worst, best = (_by_row(np.where(friendly, similarity, np.nan), f) for f in (np.nanmin, np.nanmax))
    strangers = _by_row(np.where(pairs & ~friendly, similarity, np.nan), np.nanmax)
    return Constants(
        clients=clients,
        rounds=rounds,
        sigma_p2=_largest(distance[pairs]),
        sigma_f2=_largest(distance[friendly]),
        beta=float(together[pairs].min(initial=rounds) / rounds),
        delta_min=_smallest(worst - strangers),
        delta_f=_largest(best - worst),
        b_max=max(1, int(friendly.sum(axis=1).max())),
    )


def _by_row(values: np.ndarray, reduce: Callable[..., np.ndarray]) -> np.ndarray:
    reduced = np.full(len(values), np.nan)
    known = np.isfinite(values).any(axis=1)
    reduced[known] = reduce(values[known], axis=1)
    return reduced


def _largest(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else math.nan


def _smallest(values: np.ndarray) -> float:
    return -_largest(-values)


def _snapshot(run: Run, strategy: str | None) -> tuple[str, pd.DataFrame]:
    """Return a strategy that keeps R, and its last snapshot."""
    frame = run.similarity()
    there = [label for label in run.strategies if (frame["strategy"].astype(str) == label).any()]
    if not there:
        raise RunFolderError(
            str(run.path),
            "it has no snapshot of R to estimate from",
            "run a scenario with the strategy fdms and similarity_every above 0 in [telemetry]",
        )
    if strategy is not None and strategy not in there:
        raise RunFolderError(
            str(run.path), f"no snapshot of R for '{strategy}'", f"one of: {', '.join(there)}"
        )
    label = strategy or there[0]
    return label, frame[frame["strategy"].astype(str) == label]


def _matrices(snapshot: pd.DataFrame, clients: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Turn the long form into symmetric R, N and mean squared distances [K, K]."""
    first, second = snapshot["first"].to_numpy(), snapshot["second"].to_numpy()
    made = []
    for column, blank in (("similarity", np.nan), ("meetings", 0), ("distance", np.nan)):
        matrix = np.full((clients, clients), blank, dtype=np.float64)
        matrix[first, second] = matrix[second, first] = snapshot[column].to_numpy(
            dtype=np.float64, na_value=np.nan
        )
        made.append(matrix)
    return made[0], made[1], made[2]


def _clusters(
    true_cluster: np.ndarray | None, similarity: np.ndarray, meetings: np.ndarray
) -> tuple[np.ndarray, str]:
    if true_cluster is not None:
        return true_cluster, "clients of the same true cluster"
    count = _cluster_count(similarity)
    return clusters_in(similarity, meetings, count), f"the {count} clusters found in R"


def _cluster_count(similarity: np.ndarray) -> int:
    """Guess the number of clusters from how many friends each client has above its row's largest gap."""
    circles = []
    for row in similarity:
        scores = np.sort(row[np.isfinite(row)])[::-1]
        if len(scores) > 1:
            circles.append(int(np.argmax(scores[:-1] - scores[1:])) + 2)
    return max(1, round(len(similarity) / float(np.median(circles)))) if circles else 1


def _errors(
    table: pd.DataFrame, strategies: list[str], constants: Constants, missing_frac: np.ndarray
) -> pd.DataFrame:
    """Put the measured Σ‖e_t‖² of each strategy beside the bounds over the same rounds."""
    import pandas as pd

    rows = []
    for label in strategies:
        mine = table[table["strategy"].astype(str) == label].dropna(subset=["substitution_error"])
        rounds = mine["round"].to_numpy(dtype=np.int64) if len(mine) else np.arange(len(missing_frac))
        squares = float((missing_frac[rounds] ** 2).sum())
        psi_bar, psi_star = squares * constants.sigma_p2, squares * constants.sigma_f2
        rows.append(
            {
                "strategy": label,
                "error_sum": float(mine["substitution_error"].sum()) if len(mine) else math.nan,
                "psi_bar": psi_bar,
                "psi_star": psi_star,
                "psi_fdms": constants.psi_fdms(psi_bar, psi_star),
            }
        )
    return pd.DataFrame(rows)


def _psi_predicted(run: Run, label: str, sigma_p2: float, missing_frac: np.ndarray) -> float:
    """Return Σ α_t²·(mean predicted error of the missing); NaN for a strategy that predicts nothing.

    Where nothing was predicted of a client, which was then never seen, anything may represent it: σ_P².
    """
    rows = run.read("clients", columns=["round", "substitute", "predicted_error"], strategy=label)
    missing = rows[rows["substitute"].notna()]
    if not missing["predicted_error"].notna().any():
        return math.nan
    expected = missing["predicted_error"].fillna(sigma_p2).groupby(missing["round"]).mean()
    alpha = missing_frac[expected.index.to_numpy(dtype=np.int64)]
    return float((alpha**2 * expected.to_numpy(dtype=np.float64)).sum())
