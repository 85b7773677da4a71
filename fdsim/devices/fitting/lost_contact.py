"""How chargers lose contact, read off logs: charges in pieces that lie seconds apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdsim.devices.fitting.statistics import FLAP_S
from fdsim.trace.intervals import joined

#: Fewer lost contacts than this say nothing about their lengths.
_FEWEST = 20


def loose_plug(charging: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return the table of a loose plug from the phones' charging intervals, or nothing if contact is hardly ever lost.

    Losses after the first are geometric: of all losses, the share that is not the first of its charge is the chance that
    another follows. `calibrate` corrects `frac` for charges that are over before contact would be lost.
    """
    contact_s, lost_s, charges, interrupted = [], [], 0, 0
    for found in (one for one in charging if len(one)):
        gap_s = found[1:, 0] - found[:-1, 1]
        lost = gap_s <= FLAP_S
        contact_s += (found[:-1, 1] - found[:-1, 0])[lost].tolist()
        lost_s += gap_s[lost].tolist()
        whole = joined(found, gap_s=FLAP_S)
        charges += len(whole)
        # A charge was interrupted if one of its pieces ends before it does.
        interrupted += len(np.setdiff1d(whole[:, 0], found[:, 0][~np.append(lost, False)]))
    if len(lost_s) < _FEWEST:
        return {}
    contact, gap = (np.log(np.maximum(lengths, 1.0)) for lengths in (contact_s, lost_s))
    return {
        "loose_plug": {
            "frac": round(interrupted / charges, 3),
            "again_frac": round(min(0.95, 1.0 - interrupted / len(lost_s)), 2),
            "contact_median_s": round(float(np.exp(contact.mean())), 1),
            "contact_ln_sd": round(float(contact.std()), 2),
            "lost_median_s": round(float(np.exp(gap.mean())), 1),
            "lost_ln_sd": round(float(gap.std()), 2),
        }
    }
