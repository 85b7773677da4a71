"""A chosen device over the days: battery, link, screen and charger, from the event log or else from the trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from fdsim.errors import FdsimError
from fdsim.report.data import RunData
from fdsim.report.figure import Figure, Remark, evenly, packed
from fdsim.trace import Network, Outcome

_DEVICES = 60
#: Points per line and device: enough for a week's screen sessions to be seen.
_POINTS = 1500
_HOUR_S = 3600.0

_ROWS: tuple[dict[str, Any], ...] = (
    {"key": "soc", "name": "battery", "title": "battery (%)", "colour": "@fdms", "domain": [0.47, 1.0]},
    {
        "key": "link",
        "name": "link",
        "title": "link",
        "colour": "@stale",
        "domain": [0.29, 0.41],
        "step": True,
        "words": ["none", "cellular", "Wi-Fi"],
    },
    {
        "key": "charger",
        "name": "charger",
        "title": "",
        "colour": "@fedvarp",
        "domain": [0.15, 0.23],
        "step": True,
        "words": ["off", "charging"],
    },
    {
        "key": "screen",
        "name": "screen",
        "title": "",
        "colour": "@oracle_friends",
        "domain": [0.0, 0.08],
        "step": True,
        "words": ["off", "screen on"],
    },
)
#: The event log numbers links as the trace does; the figure has the better link higher up.
_LINK_HEIGHT = {Network.none: 0, Network.cellular: 1, Network.wifi: 2}


def day_figure(data: RunData) -> Figure | Remark:
    """Draw battery, link, charger and screen of one device."""
    outcomes = data.outcomes
    if outcomes is None:
        return Remark("A device over the days", "There is no trace yet.")
    if not data.tables.get("fleet"):
        return Remark(
            "A device over the days", "This run had no simulated devices, only a trace of outcomes."
        )
    order = np.argsort(-outcomes.completion_frac, kind="stable")
    clients = np.sort(order[evenly(len(order), _DEVICES)])
    rows, series, remark = _from_events(data, clients)
    devices = []
    hours = outcomes.round_start_s / _HOUR_S
    for client in clients:
        outcome = outcomes.outcome[:, client]
        devices.append(
            {
                "series": series.get(int(client), {}),
                "marks": {
                    "completed": np.round(hours[outcome == Outcome.completed], 4).tolist(),
                    "dropped": np.round(hours[outcome == Outcome.dropped], 4).tolist(),
                },
            }
        )
    if len(clients) < outcomes.clients:
        remark += f" {len(clients)} of {outcomes.clients:,} devices can be chosen, evenly spaced in order of completion rate."
    span = [float(outcomes.round_start_s[0] / _HOUR_S), float(outcomes.round_end_s[-1] / _HOUR_S)]
    # Start with a device that completes about as often as it drops out.
    start = int(np.argmin(np.abs(outcomes.completion_frac[clients] - 0.6)))
    return Figure(
        key="device",
        title="A device over the days",
        says="Battery, link, charger and screen of the chosen device; the marks above are the rounds it was selected for.",
        builder="day",
        payload={
            "rows": rows,
            "devices": devices,
            "marks": [
                {
                    "key": "completed",
                    "name": "completed",
                    "symbol": "triangle-down",
                    "height": 108,
                    "colour": "@stale",
                },
                {
                    "key": "dropped",
                    "name": "dropped",
                    "symbol": "triangle-down-open",
                    "height": 104,
                    "colour": "@dropout",
                },
            ],
            "span": span,
            "ticks": _ticks(span),
            "timeTitle": "simulated day and hour",
            "controls": [
                {
                    "key": "device",
                    "label": "device",
                    "kind": "select",
                    "start": start,
                    "options": [
                        {
                            "value": i,
                            "text": f"client {c}, {data.devices[c]}, completed {outcomes.completion_frac[c]:.0%}",
                        }
                        for i, c in enumerate(clients)
                    ],
                }
            ],
        },
        remark=remark.strip(),
    )


def _ticks(span: list[float]) -> dict[str, list[Any]]:
    length = span[1] - span[0]
    step = next(s for s in (1, 2, 3, 6, 12, 24, 48, 120, 240, 10**9) if length / s <= 16)
    at = np.arange(np.ceil(span[0] / step) * step, span[1] + 1e-9, step)
    text = [f"day {int(h // 24) + 1}" if h % 24 == 0 else f"{int(h % 24):02d}:00" for h in at]
    return {"at": at.tolist(), "text": text}


def _from_events(data: RunData, clients: np.ndarray) -> tuple[list[dict[str, Any]], dict[int, Any], str]:
    if not (data.run.path / "events.parquet").is_file():
        return _from_trace(data, clients)
    events = data.run.events
    events = events[
        events["client"].isin(clients.tolist()) & events["what"].isin([row["key"] for row in _ROWS])
    ]
    end_h = 0.0 if data.outcomes is None else float(data.outcomes.round_end_s[-1]) / _HOUR_S
    thinned = False
    series: dict[int, dict[str, Any]] = {}
    for (client, what), rows in events.groupby([events["client"].astype(int), "what"], observed=True):
        hours, values = rows["t_s"].to_numpy() / _HOUR_S, rows["value"].to_numpy(dtype=np.float64)
        thinned = thinned or len(hours) > _POINTS
        keep = evenly(len(hours), _POINTS)
        # A state lasts until it changes, the last one until the end.
        keep, hours = np.append(keep, keep[-1]), np.append(hours[keep], max(hours[-1], end_h))
        series.setdefault(int(str(client)), {})[str(what)] = _points(str(what), hours, values[keep])
    found = {key for device in series.values() for key in device}
    rows_shown = [row for row in _ROWS if row["key"] in found]
    remark = f"Lines with more than {_POINTS:,} points are thinned evenly." if thinned else ""
    return rows_shown, series, remark


def _points(what: str, hours: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    if what == "soc":
        return {"hours": packed(hours, "f4"), "values": packed(100 * values, "f4")}
    if what == "link":
        values = np.array([_LINK_HEIGHT.get(Network(int(v)), 0) for v in values])
    return {"hours": packed(hours, "f4"), "values": packed(values, "u1")}


def _from_trace(data: RunData, clients: np.ndarray) -> tuple[list[dict[str, Any]], dict[int, Any], str]:
    """Fall back to the state that the trace recorded of each device at the start of its rounds."""
    if data.trace is None:
        raise FdsimError("the figure of a device's days needs a trace")
    hours, soc, network = [], [], []
    for trace_round in data.trace:
        hours.append(trace_round.round_start_s / _HOUR_S)
        soc.append(trace_round.soc_start[clients])
        network.append(trace_round.network[clients])
    at, levels, links = np.array(hours), np.stack(soc), np.stack(network)
    series = {}
    for place, client in enumerate(clients):
        known = np.flatnonzero(np.isfinite(levels[:, place]))
        known = known[evenly(len(known), _POINTS)]
        link = np.maximum(links[known, place], 0)
        series[int(client)] = {
            "soc": _points("soc", at[known], levels[known, place]),
            "link": _points("link", at[known], link),
        }
    rows = [{**row, "points": row["key"] == "soc"} for row in _ROWS if row["key"] in ("soc", "link")]
    rows[0]["domain"], rows[1]["domain"] = [0.34, 1.0], [0.0, 0.24]
    return (
        rows,
        series,
        (
            "No event log was recorded: these are the levels at the start of each round. "
            "Set `events = true` under [telemetry] to record every change."
        ),
    )
