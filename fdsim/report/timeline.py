"""A chosen round as a Gantt chart: download, train, upload, and where clients dropped out."""

from __future__ import annotations

from typing import Any

import numpy as np

from fdsim.report.data import RunData
from fdsim.report.figure import Figure, Remark, evenly, packed
from fdsim.trace import Cause, Outcome, Phase, TraceRound

_ROWS = 120
_ROUNDS = 500


def gantt_figure(data: RunData) -> Figure | Remark:
    """Draw what each client did, and when, in a round that the reader chooses."""
    title = "Inside a round"
    if data.trace is None or data.outcomes is None:
        return Remark(title, "There is no trace yet.")
    shown = set(evenly(data.trace.rounds, _ROUNDS).tolist())
    rounds: list[int] = []
    parts: list[dict[str, np.ndarray]] = []
    sampled = timed = False
    for trace_round in data.trace:
        if trace_round.round not in shown:
            continue
        rows = _rows(trace_round)
        sampled = sampled or len(rows) < len(trace_round.selected)
        part = _columns(trace_round, rows)
        timed = timed or bool(part["train"].any() or part["upload"].any())
        rounds.append(trace_round.round)
        parts.append(part)
    if not timed:
        return Remark(
            title, "This trace records outcomes but simulates no devices, so a round has no times to draw."
        )
    starts = np.concatenate([[0], np.cumsum([len(part["client"]) for part in parts])])
    kinds = {"client": "i4", "outcome": "u1", "cause": "u1", "phase": "u1"}
    columns = {
        name: packed(np.concatenate([part[name] for part in parts]), kinds.get(name, "f4"))
        for name in parts[0]
    }
    remarks = (
        [f"In larger rounds {_ROWS} clients are shown, evenly spaced in order of their end."]
        if sampled
        else []
    )
    if len(rounds) < data.trace.rounds:
        remarks.append(f"{len(rounds)} of {data.trace.rounds} rounds can be chosen, evenly spaced.")
    return Figure(
        key="gantt",
        title=title,
        says="What each selected client did, and when; a cross marks where and why it dropped out.",
        builder="gantt",
        payload={
            "columns": columns,
            "starts": starts.tolist(),
            "rounds": [r + 1 for r in rounds],
            "most": int(np.diff(starts).max(initial=0)),
            "deadline_s": _deadline_s(data.tables),
            "causes": [
                {"name": c.name, "text": c.name.replace("_", " "), "colour": f"@{c.name}"} for c in Cause
            ],
            "phases": [{"name": p.name, "text": p.name.replace("_", " ")} for p in Phase],
            "controls": [
                {
                    "key": "round",
                    "label": "round",
                    "kind": "slider",
                    "start": _telling(parts),
                    "options": [{"value": i, "text": str(r + 1)} for i, r in enumerate(rounds)],
                }
            ],
        },
        remark=" ".join(remarks),
    )


def _rows(trace_round: TraceRound) -> np.ndarray:
    selected = trace_round.selected
    order = selected[np.lexsort((trace_round.end_s[selected], trace_round.outcome[selected]))]
    return np.asarray(order[evenly(len(order), _ROWS)])


def _columns(trace_round: TraceRound, rows: np.ndarray) -> dict[str, np.ndarray]:
    def seconds(values: np.ndarray) -> np.ndarray:
        return np.asarray(np.nan_to_num(values[rows].astype(np.float64)))

    start = np.nan_to_num(trace_round.start_s[rows] - trace_round.round_start_s)
    return {
        "client": rows,
        "outcome": (trace_round.outcome[rows] == Outcome.dropped).astype(np.uint8),
        "cause": np.maximum(trace_round.cause[rows], 0).astype(np.uint8),
        "phase": np.maximum(trace_round.phase[rows], 0).astype(np.uint8),
        "progress": trace_round.progress[rows],
        "start": start,
        "end": np.nan_to_num(trace_round.end_s[rows] - trace_round.round_start_s),
        "download": seconds(trace_round.download_s),
        "train": seconds(trace_round.train_s),
        "upload": seconds(trace_round.upload_s),
    }


def _telling(parts: list[dict[str, np.ndarray]]) -> int:
    """Return the round with the most causes of dropout, to start with."""

    def score(part: dict[str, np.ndarray]) -> tuple[int, int]:
        broken = part["outcome"] == 1
        late = broken & (part["phase"] != Phase.check_in)
        return len(np.unique(part["cause"][late])), int(late.sum()) + len(np.unique(part["cause"][broken]))

    return max(range(len(parts)), key=lambda index: score(parts[index]))


def _deadline_s(tables: dict[str, Any]) -> float | None:
    deadline = tables.get("server", {}).get("deadline_s")
    return float(deadline) if tables.get("fleet") and deadline is not None else None
