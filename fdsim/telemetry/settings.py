"""The `[telemetry]` table of a scenario: what is recorded, and how often it reaches the disk."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from fdsim.catalogue import Table


class Telemetry(Table):
    """What a run records; nothing here changes what is learned."""

    checkpoint_every: PositiveInt | Literal["auto"] = Field(
        "auto",
        description="rounds between two checkpoints, from which --resume goes on; auto: every two seconds, or "
        "as seldom as it takes to spend at most 1 % of the time on them",
    )
    flush_every_s: PositiveFloat = Field(
        5.0, description="real seconds, or 1 % of the time so far, after which waiting rows go to disk"
    )
    evaluate_every: PositiveInt = Field(1, description="rounds between two evaluations on the test set")
    clients: bool = Field(True, description="write the clients table, one row per round and client")
    similarity_every: NonNegativeInt = Field(
        10, description="rounds between two snapshots of R and N; 0 takes none"
    )
    events: bool = Field(False, description="keep the fleet's event log")
    counterfactual: bool = Field(
        False,
        description="train the missing clients too, to measure the substitution error; costs their time",
    )
    tensorboard: bool = Field(
        False, description="write TensorBoard files as well (needs the package tensorboard)"
    )

    def snapshot_due(self, round_index: int, rounds: int) -> bool:
        """Whether R and N are to be written after this round; the last round is, unless they never are."""
        if not self.similarity_every:
            return False
        return (round_index + 1) % self.similarity_every == 0 or round_index + 1 == rounds

    def evaluation_due(self, round_index: int, rounds: int) -> bool:
        """Whether the net is to be evaluated after this round; the last round always is."""
        return (round_index + 1) % self.evaluate_every == 0 or round_index + 1 == rounds
