"""Refuse logs that no profile can be fitted to, nor be compared with: too few phones, or series that never change."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fdsim.errors import TraceError
from fdsim.trace.availability import Observed
from fdsim.trace.intervals import total_s

#: Fewer phones than this, in all, cannot be split into halves that say anything.
FEWEST_PHONES = 10
#: What each state is called in a sentence about phones.
_WORDS = {"charging": "charging", "idle": "idle", "wifi": "on Wi-Fi", "available": "available"}
_LONGER = "take longer logs, or more phones"


def check_phones(phones: Sequence[Observed], place: str) -> None:
    """Raise an error when nothing can be estimated from phones; `place` is the file."""
    if len(phones) < FEWEST_PHONES:
        raise TraceError(
            place,
            f"{len(phones)} phones are too few",
            f"a fit needs {FEWEST_PHONES}: half for it, half to test it",
        )
    available = ["available" in phone.states for phone in phones]
    if any(available) and not all(available):
        raise TraceError(
            place,
            f"{sum(available)} of the {len(phones)} phones say no more than when they were available",
            "fit them and the others apart",
        )
    refuse_constant(phones, place)


def refuse_constant(phones: Sequence[Observed], place: str) -> None:
    """Raise an error when a state or the battery never changes on any of the phones."""
    available = all("available" in phone.states for phone in phones)
    for state in ["available"] if available else ["charging", "idle", "wifi"]:
        _refuse_constant_state(phones, state, place)
    readings = [phone.levels[:, 1] for phone in phones if len(phone.levels)]
    if readings and all(np.ptp(soc) == 0.0 for soc in readings):
        raise TraceError(
            place,
            f"no battery level ever changes, the first phone's is always {readings[0][0]:g}: the series is constant",
            "leave the readings out: a fit then keeps the battery of --like",
        )


def _refuse_constant_state(phones: Sequence[Observed], state: str, place: str) -> None:
    shares = [total_s(phone.states[state]) / phone.span_s for phone in phones]
    how_often = (
        "no phone was ever"
        if not any(shares)
        else "every phone was always"
        if all(math.isclose(share, 1.0) for share in shares)
        else None
    )
    if how_often is None:
        return
    # What no row says did not happen: a log that cannot know a state must not look as if it had looked.
    unknown = (
        "" if state == "available" else "; a log that does not know it can give 'available' rows instead"
    )
    raise TraceError(place, f"{how_often} {_WORDS[state]}: the series is constant", _LONGER + unknown)
