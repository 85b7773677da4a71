"""The `[telemetry]` table of a scenario: what is recorded, and how often it reaches the disk."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from fdsim.catalogue import Table


class Telemetry(Table):
    """What a run records; nothing here affects what is learned."""

    checkpoint_every: PositiveInt | Literal["auto"] = Field(
        "auto",
        description="rounds between two checkpoints, from which --resume continues; auto: every two seconds, or "
        "less often, so that they take at most 1 % of the time",
    )
    flush_every_s: PositiveFloat = Field(
        5.0,
        description="real seconds, or 1 % of the time so far if that is longer, between two writes of new rows to disk",
    )
    evaluate_every: PositiveInt = Field(1, description="rounds between two evaluations on the test set")
    clients: bool = Field(True, description="write the clients table, one row per round and client")
    similarity_every: NonNegativeInt = Field(
        10, description="rounds between two snapshots of R and N; 0 takes none"
    )
    keep_models_every: PositiveInt | None = Field(
        None,
        description="rounds between two global models that are kept beside the final one, for Run.model; by default the "
        "final one alone",
    )
    events: bool = Field(False, description="write the fleet's event log")
    counterfactual: bool = Field(
        False,
        description="also train the missing clients, to measure the substitution error; takes the time of their training",
    )
    tensorboard: bool = Field(
        False, description="write TensorBoard files as well (needs the package tensorboard)"
    )
