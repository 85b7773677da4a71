"""From what happened in a round to the rows of the run's tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fdsim.learning.attendance import Attendance
from fdsim.learning.friends import FriendFigures
from fdsim.learning.round import Played
from fdsim.learning.stopwatch import Stopwatch
from fdsim.learning.trainer import Evaluation
from fdsim.telemetry.schema import ClientRows, RoundRow, SimilaritySnapshot, Substitute
from fdsim.trace import TraceRound


@dataclass(frozen=True)
class Account:
    """Everything there is to say about a round."""

    trace_round: TraceRound
    attendance: Attendance
    played: Played
    figures: FriendFigures
    report: dict[str, float]
    evaluation: Evaluation | None
    cluster_agreement: float | None


def round_row(account: Account, watch: Stopwatch) -> RoundRow:
    """Write a round's row."""
    trace_round, played, figures = account.trace_round, account.played, account.figures
    selected = trace_round.selected
    evaluation = account.evaluation
    return RoundRow(
        round=trace_round.round,
        sim_time_s=trace_round.round_end_s,
        clients_selected=len(selected),
        clients_active=len(trace_round.completed),
        clients_dropped=len(trace_round.dropped),
        clients_partial=len(account.attendance.partial),
        test_accuracy=None if evaluation is None else float(evaluation.accuracy),
        test_loss=None if evaluation is None else float(evaluation.loss),
        train_loss=float(played.losses.mean()) if len(played.losses) else None,
        update_norm=played.update_norm,
        substitution_error=played.error,
        friend_present_frac=figures.present_frac,
        friend_hit_frac=figures.hit_frac,
        fallback_frac=figures.fallback_frac,
        friend_stable_frac=figures.stable_frac,
        stand_ins_max=figures.stand_ins_max,
        effective_updates=figures.effective_updates,
        cluster_agreement=account.cluster_agreement,
        pairs_computed=played.pairs_computed,
        pairs_multiplied=played.pairs_multiplied,
        pairs_eliminated=int(account.report.get("pairs_eliminated", 0)),
        candidates_frac=account.report.get("candidates_frac"),
        theta=account.report.get("theta"),
        energy_j=float(np.nansum(trace_round.energy_j[selected], dtype=np.float64)),
        bytes_down=int(trace_round.bytes_down[selected].sum()),
        bytes_up=int(trace_round.bytes_up[selected].sum()),
        wall_train_s=watch.spent_s["train"],
        wall_blend_s=watch.spent_s["blend"],
        wall_evaluate_s=watch.spent_s["evaluate"],
        wall_analytics_s=watch.spent_s["analytics"],
        wall_s=watch.total_s,
    )


def client_rows(account: Account, true_cluster: np.ndarray | None) -> ClientRows:
    """Write a round's rows of the clients table, one per client."""
    trace_round, played, cohort = account.trace_round, account.played, account.attendance.cohort
    clients = trace_round.clients

    def blank() -> np.ndarray:
        return np.full(clients, np.nan)

    stand_in, substitute = np.full(clients, -1), np.full(clients, -1)
    stood_in_for = np.zeros(clients, dtype=np.int64)
    similarity, train_loss, weight = blank(), blank(), np.zeros(clients)
    if played.blend is not None:
        single = played.blend.stand_in >= 0
        stand_in[cohort.missing[single]] = played.blend.stand_in[single]
        # Codes below zero in a blend are the words of `Substitute`, counted from its second.
        substitute[cohort.missing] = np.where(single, Substitute.client, -played.blend.stand_in)
        stood_in_for += np.bincount(played.blend.stand_in[single], minlength=clients)
        similarity[cohort.missing] = played.blend.similarity
        weight[cohort.active] = played.blend.weights
        train_loss[cohort.active] = played.losses
    error, cosine = blank(), blank()
    error[played.error_clients] = played.error_squared
    cosine[played.error_clients] = played.error_cosine
    return ClientRows(
        round=trace_round.round,
        outcome=trace_round.outcome,
        cause=trace_round.cause,
        stand_in=stand_in,
        substitute=substitute,
        similarity=similarity,
        stood_in_for=stood_in_for,
        weight=weight,
        test_accuracy=blank() if account.evaluation is None else account.evaluation.per_client,
        train_loss=train_loss,
        substitution_error=error,
        substitution_cosine=cosine,
        true_cluster=np.full(clients, -1) if true_cluster is None else true_cluster,
    )


def snapshot_of(
    round_index: int, friendship: tuple[np.ndarray, np.ndarray], distance: np.ndarray | None
) -> SimilaritySnapshot:
    """List the pairs that have been compared."""
    similarity, meetings = friendship
    first, second = np.nonzero(np.triu(meetings, 1))
    return SimilaritySnapshot(
        round=round_index,
        first=first,
        second=second,
        similarity=similarity[first, second],
        meetings=meetings[first, second],
        distance=np.full(len(first), np.nan) if distance is None else distance[first, second],
    )
