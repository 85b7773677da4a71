"""The `[server]` table of a scenario: when rounds happen, which clients they select, and what a device must be like."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from fdsim.catalogue import Chosen, Table
from fdsim.devices.models.selection import All, Selection


class Eligibility(Table):
    """What a device must be like to take part, in the terms of mobile job schedulers."""

    requires_charging: bool = Field(default=False, description="the device must be plugged in")
    requires_unmetered: bool = Field(
        default=True, description="the device must be on Wi-Fi, throughout the round"
    )
    requires_idle: bool = Field(default=False, description="the screen must be off")
    min_soc: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="lowest state of charge; the device's own low_soc applies as well",
    )
    resume_soc_margin: float = Field(
        default=0.05,
        gt=0,
        le=0.5,
        description="work that is paused for a low charge goes on when the charge is so far above the lowest, as "
        "Android calls a battery low at 15 % and okay again at 20 %",
    )


class Server(Table):
    """The `[server]` table: the clock and the rules of the rounds."""

    deadline_s: PositiveFloat = Field(
        default=120.0, description="time a client has from the start of a round, s"
    )
    round_interval_s: PositiveFloat = Field(
        default=1800.0, description="time from one round's start to the next, s"
    )
    start_hour: float = Field(default=0.0, ge=0, lt=24, description="hour of day 0 at which round 0 starts")
    selection: Annotated[Selection, Chosen("selection")] = Field(
        default_factory=All, description="which of the eligible devices a round selects"
    )
    over_selection: float = Field(
        default=1.0,
        ge=1,
        le=10,
        description="selects this multiple of the target and closes when the target has reported",
    )
    min_reports_frac: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="quorum: a round with fewer reports than this fraction of its target is abandoned",
    )
    on_lapse: Literal["abort", "pause"] = Field(
        default="abort",
        description="what a device does when it ceases to be eligible during a round",
    )
    eligibility: Eligibility = Field(
        default_factory=Eligibility, description="what a device must be like to take part"
    )
