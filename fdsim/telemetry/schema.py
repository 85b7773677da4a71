"""The tables of a run: each column once, with its meaning, and the records whose fields have the same names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa

from fdsim.trace import Cause, Outcome

#: Incremented whenever a column is renamed, retyped or added after a release; upgrade.py reads older files.
SCHEMA_VERSION = 4
_WORDS = pa.dictionary(pa.int8(), pa.string())


class Substitute(IntEnum):
    """What represented a missing client in the global update."""

    client = 0
    mean = 1
    zero = 2
    stored = 3
    left_out = 4
    stored_on_mean = 5


@dataclass(frozen=True)
class Column:
    """One column: its name, Arrow type and meaning (with the unit)."""

    name: str
    type: pa.DataType
    meaning: str
    since: int = 1
    """The schema version that added the column; files of older versions have null there."""
    nullable: bool = False
    """Whether an integer may be null in files of this version: pandas then gets an Int32 or Int64, not a float."""

    @property
    def is_wall_time(self) -> bool:
        """Whether it holds real time, which differs from run to run and is outside the determinism contract."""
        return self.name.startswith("wall_")


ROUND_COLUMNS = (
    Column("round", pa.int32(), "round, from 0"),
    Column("sim_time_s", pa.float64(), "simulated time at the round's end, s"),
    Column("clients_selected", pa.int32(), "clients selected to take part"),
    Column("clients_active", pa.int32(), "selected clients that completed the round in the trace"),
    Column("clients_dropped", pa.int32(), "selected clients that dropped out"),
    Column(
        "clients_partial",
        pa.int32(),
        "dropped clients whose partial work the strategy used anyway",
        since=2,
    ),
    Column(
        "test_accuracy",
        pa.float64(),
        "fraction of the test set classified correctly after the round; null when not evaluated",
    ),
    Column("test_loss", pa.float64(), "mean cross-entropy on the test set; null when not evaluated"),
    Column(
        "train_loss",
        pa.float64(),
        "mean training loss of the clients whose update was used, equally weighted",
    ),
    Column("update_norm", pa.float64(), "Euclidean norm of the global update"),
    Column(
        "substitution_error",
        pa.float64(),
        "‖e_t‖² in the paper's Δ units; null unless the counterfactual is on",
    ),
    Column(
        "friend_present_frac",
        pa.float64(),
        "fraction of the missing clients with an active client of the same true cluster",
    ),
    Column(
        "friend_hit_frac",
        pa.float64(),
        "fraction of the missing clients whose stand-in is of the same true cluster",
    ),
    Column("fallback_frac", pa.float64(), "fraction of the missing clients without a stand-in"),
    Column(
        "friend_stable_frac",
        pa.float64(),
        "fraction that kept its last stand-in, of the missing clients whose last stand-in is active",
        since=2,
    ),
    Column(
        "stand_ins_max",
        pa.int32(),
        "largest number of missing clients that one client stood in for; null when no single client stands in",
        nullable=True,
        since=2,
    ),
    Column(
        "effective_updates",
        pa.float64(),
        "effective number of distinct updates in the blend, (Σw)²/Σw²",
        since=2,
    ),
    Column(
        "cluster_agreement",
        pa.float64(),
        "adjusted Rand index of the clusters in R and the true ones, 1 when identical; "
        "null when not evaluated, without R or above 2000 clients",
        since=2,
    ),
    Column("pairs_computed", pa.int64(), "pairs of clients whose similarity was needed and computed"),
    Column(
        "pairs_multiplied",
        pa.int64(),
        "pairs inside the matrix products; all other pairs were skipped",
        since=2,
    ),
    Column(
        "pairs_eliminated",
        pa.int64(),
        "ordered pairs eliminated from the candidate sets after this round",
        since=2,
    ),
    Column(
        "candidates_frac",
        pa.float64(),
        "fraction of the ordered pairs that are still candidates; null without reduction",
        since=2,
    ),
    Column(
        "theta",
        pa.float64(),
        "scale·Θ_t, the gap in R that eliminates a candidate; null without reduction or while infinite",
        since=2,
    ),
    Column("energy_j", pa.float64(), "energy the selected devices spent on the round, J"),
    Column("bytes_down", pa.int64(), "bytes downloaded by the selected devices"),
    Column("bytes_up", pa.int64(), "bytes uploaded by the selected devices"),
    Column("wall_train_s", pa.float64(), "real time spent in local training, s"),
    Column("wall_blend_s", pa.float64(), "real time spent in similarity, friend search and blending, s"),
    Column("wall_evaluate_s", pa.float64(), "real time spent in evaluation, s"),
    Column(
        "wall_analytics_s",
        pa.float64(),
        "real time spent in the counterfactual, cluster recovery and snapshots, s",
        since=2,
    ),
    Column("wall_s", pa.float64(), "real time of the whole round, s"),
)

CLIENT_COLUMNS = (
    Column("round", pa.int32(), "round, from 0"),
    Column("client", pa.int32(), "client, from 0; above 100 000 clients one without a row was not selected"),
    Column("outcome", _WORDS, "completed, dropped or not_selected, from the trace"),
    Column("cause", _WORDS, "why it dropped out; null unless dropped"),
    Column(
        "stand_in",
        pa.int32(),
        "client whose update stood in, or had the largest part; null where no client did",
        nullable=True,
    ),
    Column(
        "substitute",
        _WORDS,
        "what represented a missing client, of a mixture the largest part; null unless it was missing",
        since=2,
    ),
    Column("similarity", pa.float32(), "score by which the stand-in was chosen"),
    Column("stood_in_for", pa.int32(), "missing clients this client stood in for", since=2),
    Column(
        "weight",
        pa.float32(),
        "weight of this client's update in the global update; 0 when it was not used",
    ),
    Column(
        "test_accuracy",
        pa.float32(),
        "accuracy on test data with the label mix of the client's own samples; null when not evaluated",
        since=3,
    ),
    Column("train_loss", pa.float32(), "mean loss over the client's local steps; null when not trained"),
    Column(
        "substitution_error", pa.float32(), "‖Δ̃−Δ‖² of a missing client; null unless the counterfactual is on"
    ),
    Column(
        "substitution_cosine",
        pa.float32(),
        "cosine of Δ̃ and Δ of a missing client; null unless the counterfactual is on",
        since=2,
    ),
    Column(
        "predicted_error",
        pa.float32(),
        "‖Δ̃−Δ‖² that the strategy expected of a missing client's substitute; null where it cannot tell",
        since=4,
    ),
    Column(
        "true_cluster",
        pa.int32(),
        "cluster of the client's data; null when the partition has none",
        nullable=True,
    ),
)

SIMILARITY_COLUMNS = (
    Column("round", pa.int32(), "round after which the snapshot was taken, from 0"),
    Column("first", pa.int32(), "client, the smaller number of the pair"),
    Column("second", pa.int32(), "client, the larger number of the pair"),
    Column("similarity", pa.float32(), "similarity score R of the pair"),
    Column("meetings", pa.int32(), "rounds N in which both were active, so that R could be measured"),
    Column(
        "distance",
        pa.float32(),
        "mean ‖Δᵢ−Δⱼ‖² of the pair in the paper's units; null when not tracked",
        since=2,
    ),
)

EVENT_COLUMNS = (
    Column("t_s", pa.float64(), "simulated time of the event, s"),
    Column(
        "client",
        pa.int32(),
        "client, from 0; null for events of the server or the whole fleet",
        nullable=True,
    ),
    Column("what", pa.dictionary(pa.int16(), pa.string()), "what happened"),
    Column("value", pa.float64(), "the number that belongs to it; null when there is none"),
)

#: table → its columns, in order. trace.parquet is described in fdsim.trace.
TABLES: dict[str, tuple[Column, ...]] = {
    "rounds": ROUND_COLUMNS,
    "clients": CLIENT_COLUMNS,
    "similarity": SIMILARITY_COLUMNS,
    "events": EVENT_COLUMNS,
}

#: Columns that travel as codes in the records and as words on disk.
WORDS: dict[str, type[IntEnum]] = {"outcome": Outcome, "cause": Cause, "substitute": Substitute}


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the Arrow schema of a table's columns."""
    return pa.schema([(column.name, column.type) for column in columns])


def file_schema(table: str, *, scenario_hash: str, strategy: str | None = None) -> pa.Schema:
    """Return a table's Arrow schema with the metadata that its files carry."""
    metadata = {
        "fdsim_table": table,
        "fdsim_schema_version": str(SCHEMA_VERSION),
        "fdsim_scenario_hash": scenario_hash,
    }
    if strategy is not None:
        metadata["fdsim_strategy"] = strategy
    return arrow_schema(TABLES[table]).with_metadata(metadata)


@dataclass(frozen=True)
class RoundRow:
    """One row of the rounds table; None is null."""

    round: int
    sim_time_s: float
    clients_selected: int
    clients_active: int
    clients_dropped: int
    clients_partial: int
    test_accuracy: float | None
    test_loss: float | None
    train_loss: float | None
    update_norm: float
    substitution_error: float | None
    friend_present_frac: float | None
    friend_hit_frac: float | None
    fallback_frac: float | None
    friend_stable_frac: float | None
    stand_ins_max: int | None
    effective_updates: float | None
    cluster_agreement: float | None
    pairs_computed: int
    pairs_multiplied: int
    pairs_eliminated: int
    candidates_frac: float | None
    theta: float | None
    energy_j: float
    bytes_down: int
    bytes_up: int
    wall_train_s: float
    wall_blend_s: float
    wall_evaluate_s: float
    wall_analytics_s: float
    wall_s: float


@dataclass(frozen=True)
class ClientRows:
    """One round of the clients table: arrays over the clients that it lists, codes of fdsim.trace; -1, NaN are null.

    All K clients are listed, or of very many only the selected: see `TraceRound.listed`.
    """

    round: int
    client: np.ndarray
    outcome: np.ndarray
    cause: np.ndarray
    stand_in: np.ndarray
    substitute: np.ndarray
    similarity: np.ndarray
    stood_in_for: np.ndarray
    weight: np.ndarray
    test_accuracy: np.ndarray
    train_loss: np.ndarray
    substitution_error: np.ndarray
    substitution_cosine: np.ndarray
    predicted_error: np.ndarray
    true_cluster: np.ndarray


@dataclass(frozen=True)
class SimilaritySnapshot:
    """R and N of a strategy after a round, for the pairs that were compared: first < second.

    `distance` is the pair's mean ‖Δᵢ − Δⱼ‖² in the paper's units, NaN where it was not tracked.
    """

    round: int
    first: np.ndarray
    second: np.ndarray
    similarity: np.ndarray
    meetings: np.ndarray
    distance: np.ndarray
