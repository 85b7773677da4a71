"""The closing table of a run: what it says of the course of learning, and that it fits a terminal."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from rich.console import Console

from fdsim.inspect.summary import hours, summarise, summary_table

NIGHT = [0.2, 0.4, 0.8, 0.2, 0.2, 0.8]


def rounds() -> pd.DataFrame:
    """Full learns and stays; fdms forgets for two rounds of an hour and is back at the end."""
    curves = {"full": [0.2, 0.4, 0.8, 0.8, 0.8, 0.8], "fdms": NIGHT}
    return pd.concat(
        pd.DataFrame(
            {
                "strategy": name,
                "round": range(6),
                "sim_time_s": [3600.0 * (i + 1) for i in range(6)],
                "test_accuracy": accuracy,
                "substitution_error": 0.5,
                "energy_j": 1.0,
            }
        )
        for name, accuracy in curves.items()
    )


TRACE = pd.DataFrame({"round": [0, 0], "outcome": ["completed", "dropped"], "cause": [None, "offline"]})


def test_a_good_end_does_not_hide_a_bad_night() -> None:
    full, fdms = summarise(rounds(), TRACE).strategies
    assert fdms.final_accuracy == full.final_accuracy == 0.8
    assert fdms.worst_accuracy == 0.2
    assert fdms.gap_to_full == pytest.approx(1.2 / 6)
    assert fdms.hours_below_full == pytest.approx(2.0)
    assert (full.gap_to_full, full.hours_below_full) == (0.0, 0.0)
    assert fdms.rounds_to_target == 3


def test_without_full_there_is_nothing_to_stand_beside() -> None:
    (fdms,) = summarise(rounds().query("strategy == 'fdms'"), TRACE).strategies
    assert fdms.gap_to_full is None
    assert fdms.hours_below_full is None
    assert fdms.worst_accuracy == 0.2


def test_the_table_fits_eighty_columns() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(summary_table(summarise(rounds(), TRACE), "night, seed 1"))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    (line,) = [line for line in lines if line.split()[:1] == ["fdms"]]
    assert line.split() == ["fdms", "0.800", "0.800", "0.200", "3", "0.200", "2.0", "h", "0.5"]


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "–"), (0.0, "0 h"), (7.25, "7.2 h"), (240.0, "10.0 days")]
)
def test_times_have_a_unit_that_suits_them(value: float | None, shown: str) -> None:
    assert hours(value) == shown
