"""The fleet round by round, to be played: who trains, who is lost, who charges, sleeps or is in use."""

from __future__ import annotations

from typing import Any

import numpy as np

from fdsim.report.data import RunData
from fdsim.report.figure import Figure, Remark, evenly, packed
from fdsim.report.outcomes import map_codes, words
from fdsim.trace import Network, Outcome

_DEVICES = 400
_ROUNDS = 500
_HOUR_S = 3600.0
_UNKNOWN = 255

#: What devices do that were not selected, known from the event log; the gravest that applies.
_STATES = (
    {"text": "offline", "colour": "@offline/0.35"},
    {"text": "in use", "colour": "@in_use/0.35"},
    {"text": "charging", "colour": "@deadline/0.6"},
    {"text": "asleep", "colour": "@axis"},
)
_OFFLINE, _IN_USE, _CHARGING, _ASLEEP = range(4)


def film_figure(data: RunData) -> Figure | Remark:
    """Draw every device as a tile, in a round that the reader chooses or plays through."""
    title = "The fleet, round by round"
    outcomes = data.outcomes
    if outcomes is None or data.trace is None:
        return Remark(title, "There is no trace yet.")
    if not data.tables.get("fleet"):
        return Remark(title, "This run had no simulated devices, only a trace of outcomes.")
    clients, rounds = evenly(outcomes.clients, _DEVICES), evenly(outcomes.rounds, _ROUNDS)
    # Of who completed the map says so; here it is what the device did.
    legend = [{**word, "text": "trained"} if word["outcome"] == "completed" else word for word in words()]
    codes = map_codes(outcomes)[rounds][:, clients]
    remark = ""
    charging = np.zeros_like(codes)
    if (data.run.path / "events.parquet").is_file():
        states, charging = _states(data, clients, outcomes.round_start_s[rounds])
        resting = outcomes.outcome[rounds][:, clients] == Outcome.not_selected
        codes = np.where(resting, len(legend) + states, codes).astype(np.uint8)
    else:
        remark = "What devices do that are not selected is known with `events = true` under [telemetry]."
    if len(clients) < outcomes.clients:
        remark += f" {len(clients)} of {outcomes.clients:,} devices are shown, evenly spaced."
    shown = set(rounds.tolist())
    soc = [r.soc_start[clients] for r in data.trace if r.round in shown]
    level = np.where(np.isfinite(soc), np.round(100 * np.nan_to_num(np.array(soc))), _UNKNOWN)
    options = [
        {"value": i, "text": f"{r + 1}, {_clock(float(outcomes.round_start_s[r]))}"}
        for i, r in enumerate(rounds)
    ]
    return Figure(
        key="fleet",
        title=title,
        says="Each tile is a device: what became of it in the round, or what it did meanwhile; a ring marks a plugged-in one.",
        builder="film",
        payload={
            "codes": packed(codes, "u1"),
            "charging": packed(charging, "u1"),
            "level": packed(level, "u1"),
            "client": clients.tolist(),
            "device": [data.devices[c] for c in clients],
            "rounds": (rounds + 1).tolist(),
            "words": [{"text": w["text"], "colour": w["colour"]} for w in (*legend, *_STATES)],
            "controls": [
                {"key": "round", "label": "round", "kind": "slider", "play": True, "options": options}
            ],
        },
        remark=remark.strip(),
    )


def _states(data: RunData, clients: np.ndarray, at_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what each device does when each round begins, and whether it is plugged in; [T, K] each."""
    values: dict[str, np.ndarray] = {
        what: np.full((len(at_s), len(clients)), start)
        for what, start in (("link", float(Network.wifi)), ("screen", 0.0), ("charger", 0.0))
    }
    place = {int(client): index for index, client in enumerate(clients)}
    events: Any = data.run.events
    events = events[events["what"].isin(list(values)) & events["client"].isin(list(place))]
    for (client, what), rows in events.groupby([events["client"].astype(int), "what"], observed=True):
        times, told = rows["t_s"].to_numpy(), rows["value"].to_numpy(dtype=np.float64)
        last = np.searchsorted(times, at_s, side="right") - 1
        values[str(what)][:, place[int(client)]] = np.where(last >= 0, told[np.maximum(last, 0)], told[0])
    state = np.full((len(at_s), len(clients)), _ASLEEP)
    charging = values["charger"] > 0
    state[charging] = _CHARGING
    state[values["screen"] > 0] = _IN_USE
    state[values["link"] == float(Network.none)] = _OFFLINE
    return state, charging.astype(np.uint8)


def _clock(t_s: float) -> str:
    hours = t_s / _HOUR_S
    return f"day {int(hours // 24) + 1} {int(hours % 24):02d}:{int(t_s % _HOUR_S // 60):02d}"
