"""Does a study end the same way on replayed logs and on the preset that was fitted to them?

python analysis/replay_and_preset.py FLASH.json --out runs/replay_and_preset

The design, written down before the reported seeds were run:

- The quickstart's task with 100 clients, 96 rounds over two days and four strategies; phones train while they are idle and
  on Wi-Fi. One side replays the logs of real phones (links, screens, chargers and battery readings, every log twice), the
  other simulates the preset flash2020.
- A seed is a learner: data, who holds which of them, first parameters and order of batches, the same on both sides and on
  all traces of the seed. Only who takes part differs.
- On either side a seed is the mean over twenty traces with other phones (preset) or the phones in another order (logs): which
  phone has which data decides most of what one trace differs from the next. Fleets have seeds of their own.
- Both sides begin at midnight, the preset's on a Monday; of the logs four out of five begin on a weekday.
- The measure is the mean gap to Full over all rounds, as before, and the ratio of its means over five seeds. Its 90 % interval
  is a bootstrap over seeds, which are paired, and over the traces within each.
- Logs against logs, ten traces of each seed against the ten others, show what remains of a difference without any model.
- Seeds 331–335, which nothing was looked at on before, are run once (321–325 were, on the preset before this one).

Runs that are there already are not repeated, so seeds may be run one at a time.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fdsim
from fdsim.trace.availability import write_availability
from fdsim.trace.importers.flash import read_flash

STRATEGIES = ("fdms", "dropout", "stale")
#: Traces of a seed on either side.
TRACES = 20
ROUNDS, CLIENTS = 96, 100


def scenario(seed: int, strategies: Sequence[str] = STRATEGIES) -> dict[str, Any]:
    """Return the quickstart's task for 100 clients."""
    partition = {"kind": "clustered", "clusters": 5, "labels_per_cluster": 2, "samples_per_client": 14}
    return {
        "seed": seed,
        "rounds": ROUNDS,
        "data": {"kind": "digits", "partition": partition},
        "net": {"kind": "mlp"},
        "training": {"local_epochs": 2, "batch_size": 10, "learning_rate": 0.1},
        "strategies": [{"kind": kind} for kind in strategies],
    }


def make_trace(path: Path, seed: int, fleet: dict[str, Any]) -> None:
    """Make the trace of a fleet of phones, from midnight on."""
    server = {
        "deadline_s": 120,
        "round_interval_s": 1800,
        "eligibility": {"requires_unmetered": True, "requires_idle": True},
    }
    group = {"profile": "flash2020", "count": CLIENTS, **fleet}
    made = {**scenario(seed), "name": path.stem, "server": server, "fleet": [group]}
    fdsim.make_trace(made, path, progress=False)


def learned(folder: Path, trace: str, task: dict[str, Any]) -> fdsim.Run:
    """Return the run of a learner on a trace, from the folder if it is complete there."""
    if (folder / "run.json").is_file() and (found := fdsim.open_run(folder)).status == "complete":
        return found
    made = {**task, "name": folder.name, "participation": {"kind": "trace", "path": trace}}
    return fdsim.run(made, folder, force=True, progress=False)


def accuracies(run: fdsim.Run) -> pd.DataFrame:
    """Return the accuracy of each strategy, a row for each evaluated round."""
    return run.rounds.pivot(index="round", columns="strategy", values="test_accuracy").dropna()


def participation(trace: pd.DataFrame) -> dict[str, float]:
    """Return who completes local rounds: how many, how evenly, how much together, and for how long clients stay away."""
    done = (
        trace.assign(done=trace["outcome"] == "completed")
        .pivot(index="round", columns="client", values="done")
        .to_numpy(dtype=bool)
    )
    by_client = done.mean(axis=0)
    alone = (by_client * (1 - by_client)).sum() / done.shape[1] ** 2
    away = [_stretches(~one) for one in done.T if one.any()]
    now, later = done[:-1], done[1:]
    return {
        "completed": float(done.mean()),
        "never": float((by_client == 0).mean()),
        "seen in 24 rounds": float(done[:24].any(axis=0).mean()),
        "spread between clients": float(by_client.std()),
        "spread between rounds": float(done.mean(axis=1).std()),
        "the same, if independent": float(np.sqrt(alone)),
        "back in the next round": float((now & later).sum() / now.sum()),
        "rounds away, mean": float(np.concatenate(away).mean()),
        "rounds away, longest of a client": float(np.mean([one.max(initial=0) for one in away])),
    }


def _stretches(on: np.ndarray) -> np.ndarray:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], on.astype(int), [0]])))
    return edges[1::2] - edges[::2]


def interval(first: np.ndarray, second: np.ndarray, resamples: int = 4000) -> np.ndarray:
    """Return the 90 % interval of the ratio of mean gaps [seeds, traces, strategies], by resampling seeds and traces."""
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(resamples):
        seeds = rng.integers(0, first.shape[0], first.shape[0])
        means = [
            np.mean([gap[s, rng.integers(0, gap.shape[1], gap.shape[1])].mean(axis=0) for s in seeds], axis=0)
            for gap in (first, second)
        ]
        drawn.append(means[0] / means[1])
    return np.quantile(drawn, [0.05, 0.95], axis=0)


def main() -> None:
    """Run what is missing of the seeds and print how the sides compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/replay_and_preset"))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(331, 336)))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    log = str(chosen.out / "logs.parquet")
    write_availability(log, read_flash(chosen.logs), chosen.logs.name)
    replay = {part: {"kind": "replay", "path": log} for part in ("connectivity", "usage", "battery")}
    found, took_part = {}, {}
    for seed in chosen.seeds:
        full = None
        for number in range(TRACES):
            for name, fleet in (("logs", replay), ("preset", {})):
                place = chosen.out / f"{name}-{seed}-{number}"
                trace = place.with_suffix(".parquet")
                if not trace.is_file():
                    make_trace(trace, 1000 * seed + number, fleet)
                if full is None:  # It does not depend on who takes part.
                    alone = learned(chosen.out / f"full-{seed}", str(trace), scenario(seed, ["full"]))
                    full = accuracies(alone)["full"]
                run = learned(place, str(trace), scenario(seed))
                found[name, seed, number] = accuracies(run).rsub(full, axis=0).mean()
                took_part[name, seed, number] = participation(run.trace)
    gap = pd.DataFrame(found).T.rename_axis(["side", "seed", "trace"])
    print(gap.groupby(["side", "seed"]).mean().unstack("side").round(4).to_string())
    print(gap.groupby("side").mean().T.round(4).to_string())
    logs, preset = (
        gap.loc[name].to_numpy().reshape(len(chosen.seeds), TRACES, -1) for name in ("logs", "preset")
    )
    half = TRACES // 2
    for name, first, second in (
        ("preset : logs", preset, logs),
        ("logs : other logs", logs[:, :half], logs[:, half:]),
    ):
        low, high = interval(first, second)
        ratio = first.mean(axis=(0, 1)) / second.mean(axis=(0, 1))
        print(pd.DataFrame({name: ratio, "low": low, "high": high}, index=gap.columns).round(3).to_string())
    print(pd.DataFrame(took_part).T.groupby(level=0).mean().T.round(3).to_string())


if __name__ == "__main__":
    main()
