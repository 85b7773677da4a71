"""What this machine's memory can hold, so that the impossible is refused before it is tried."""

from __future__ import annotations

import os
from functools import cache

from fdsim.errors import ScenarioError

#: No machine that anybody runs a study on has more; what a study asks of its trials is held against this, since they
#: may run elsewhere.
ANY_MACHINE_BYTES = 2.0**46


@cache
def machine_bytes() -> float:
    """Return the memory of this machine; where it is not told, that of any machine."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return ANY_MACHINE_BYTES


def refuse_beyond(limit_bytes: float, needed_bytes: float, *, place: str, what: str, remedy: str) -> None:
    """Raise an error when something takes more memory than there is; `needed_bytes` is the least it takes."""
    if needed_bytes > limit_bytes:
        raise ScenarioError(
            place, f"{what} would take {_shown(needed_bytes)}, and there are {_shown(limit_bytes)}", remedy
        )


def _shown(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.0f} TB" if size < 1e6 else f"{size:.0e} TB"
