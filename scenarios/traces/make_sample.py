"""Makes up a small log in the format of the FLASH phones, for scenarios/flash_phones.toml.

python scenarios/traces/make_sample.py scenarios/traces/made_up_phones.json
fdsim trace import flash scenarios/traces/made_up_phones.json --out scenarios/traces/made_up_phones.parquet

Twenty phones over two days: most charge overnight on their home Wi-Fi, some only by day, two have no Wi-Fi.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from fdsim.rng import stream

MIDNIGHT = datetime(2026, 3, 2)
DAYS = 2


def log_of(phone: int) -> str:
    """One phone's log lines, in the order of time."""
    rng = stream(7, "made-up phone", phone)
    events: list[tuple[float, str]] = [(0.0, "screen_off"), (0.0, "wifi" if phone % 10 else "4G")]
    by_night = bool(rng.random() < 0.7)
    events.append((0.0, "battery_charged_on" if by_night else "battery_charged_off"))
    for day in range(DAYS):
        hour = day * 24.0
        if by_night:
            events.append((hour + rng.normal(7.0, 0.7), "battery_charged_off"))
            events.append((hour + rng.normal(22.3, 0.5), "battery_charged_on"))
        else:
            start = hour + rng.uniform(9, 19)
            events += [(start, "battery_charged_on"), (start + rng.uniform(0.5, 3), "battery_charged_off")]
        if phone % 10:
            events.append((hour + rng.normal(8.2, 0.5), "4G" if rng.random() < 0.7 else "Unknown"))
            events.append((hour + rng.normal(18.0, 1.0), "wifi"))
        looks = rng.poisson(45)
        for start in np.sort(hour + rng.triangular(5.5, 19.5, 23.9, size=looks)):
            events += [(float(start), "screen_on"), (float(start) + rng.lognormal(-4.0, 1.2), "screen_off")]
    return "".join(
        f"{MIDNIGHT + timedelta(hours=round(h * 3600) / 3600)} \t{what}\n" for h, what in sorted(events)
    )


def main(path: Path) -> None:
    """Write the log of all phones."""
    phones = {
        str(phone): {"guid": str(phone), "model": "made up", "messages": log_of(phone)} for phone in range(20)
    }
    path.write_text(json.dumps(phones, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
