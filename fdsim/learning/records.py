"""From a round to its rows of the run's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fdsim.learning.friends import FriendFigures
from fdsim.telemetry.schema import ClientRows, RoundRow, SimilaritySnapshot, Substitute

if TYPE_CHECKING:
    from fdsim.learning.round import Round


def round_row(done: Round, friends: FriendFigures, report: dict[str, float]) -> RoundRow:
    """Make a round's row of the rounds table."""
    trace_round, pairs, error = done.trace_round, done.pair_scores, done.substitution_error
    selected, evaluation, watch = trace_round.selected, done.evaluation, done.watch
    return RoundRow(
        round=trace_round.round,
        sim_time_s=trace_round.round_end_s,
        clients_selected=len(selected),
        clients_active=len(trace_round.completed),
        clients_dropped=len(trace_round.dropped),
        clients_partial=len(done.cohort.partial),
        test_accuracy=None if evaluation is None else float(evaluation.accuracy),
        test_loss=None if evaluation is None else float(evaluation.loss),
        train_loss=float(done.losses.mean()) if len(done.losses) else None,
        update_norm=done.update_norm,
        substitution_error=None if error is None else error.aggregate,
        **vars(friends),
        pairs_computed=0 if pairs is None else int(np.isfinite(pairs.scores).sum()) // 2,
        pairs_multiplied=done.pairs_multiplied,
        pairs_eliminated=int(report.get("pairs_eliminated", 0)),
        candidates_frac=report.get("candidates_frac"),
        theta=report.get("theta"),
        energy_j=float(np.nansum(trace_round.energy_j[selected], dtype=np.float64)),
        bytes_down=int(trace_round.bytes_down[selected].sum()),
        bytes_up=int(trace_round.bytes_up[selected].sum()),
        wall_train_s=watch.spent_s["train"],
        wall_blend_s=watch.spent_s["blend"],
        wall_evaluate_s=watch.spent_s["evaluate"],
        wall_analytics_s=watch.spent_s["analytics"],
        wall_s=watch.total_s,
    )


def client_rows(done: Round) -> ClientRows:
    """Make a round's rows of the clients table, one per client that the trace lists."""
    trace_round, cohort, blend = done.trace_round, done.cohort, done.blend
    evaluation, true_cluster = done.evaluation, done.task.federation.true_cluster
    listed = trace_round.listed
    clients = len(listed)
    active, missing = np.searchsorted(listed, cohort.active), np.searchsorted(listed, cohort.missing)
    stand_in, substitute = np.full(clients, -1), np.full(clients, -1)
    stood_in_for, weight = np.zeros(clients, dtype=np.int64), np.zeros(clients)
    similarity, train_loss, test_accuracy, error, cosine, predicted = np.full((6, clients), np.nan)
    if blend is not None:
        single = blend.stand_in >= 0
        stand_in[missing[single]] = blend.stand_in[single]
        # Codes below zero in a blend are the words of `Substitute`, counted from its second.
        substitute[missing] = np.where(single, Substitute.client, -blend.stand_in)
        stood_in_for += np.bincount(np.searchsorted(listed, blend.stand_in[single]), minlength=clients)
        similarity[missing] = blend.similarity
        if blend.predicted_error is not None:
            predicted[missing] = blend.predicted_error
        weight[active] = blend.weights
        train_loss[active] = done.losses
    if done.substitution_error is not None:
        measured = np.searchsorted(listed, done.substitution_error.clients)
        error[measured] = done.substitution_error.squared
        cosine[measured] = done.substitution_error.cosine
    return ClientRows(
        round=trace_round.round,
        client=listed,
        outcome=trace_round.outcome[listed],
        cause=trace_round.cause[listed],
        stand_in=stand_in,
        substitute=substitute,
        similarity=similarity,
        stood_in_for=stood_in_for,
        weight=weight,
        test_accuracy=test_accuracy if evaluation is None else evaluation.of_clients(listed),
        train_loss=train_loss,
        substitution_error=error,
        substitution_cosine=cosine,
        predicted_error=predicted,
        true_cluster=np.full(clients, -1) if true_cluster is None else true_cluster[listed],
    )


def snapshot_of(
    round_index: int, friendship: tuple[np.ndarray, np.ndarray] | None, distance: np.ndarray | None
) -> SimilaritySnapshot | None:
    """List the pairs that have been compared; None for strategies that keep no R."""
    if friendship is None:
        return None
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
