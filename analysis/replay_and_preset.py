"""Does a study end the same way on replayed logs and on the preset that was fitted to them?

python analysis/replay_and_preset.py FLASH.json --out runs/replay_and_preset

The quickstart's task with 100 clients and four strategies over two days, on the logs of real phones (links, screens,
chargers and battery readings replayed, every log twice) and on the preset flash2020, from the same hour on; phones train
while they are idle and on Wi-Fi. Either side of a seed has the same data; fleets and who holds which data are drawn anew for
each seed, and decide so much that the gap of one run to the next varies by a third or more: hence twenty seeds. Prints, for each
strategy, the mean gap to Full over the rounds on either, the gap of the last fifth of the rounds, their ratios with a 90 %
bootstrap interval over seeds, and who took part.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fdsim
from fdsim.trace.availability import write_availability
from fdsim.trace.importers.flash import read_flash

STRATEGIES = [{"kind": "full"}, {"kind": "fdms"}, {"kind": "dropout"}, {"kind": "stale"}]


def scenario(name: str, seed: int, fleet: dict[str, Any]) -> dict[str, Any]:
    """Return the quickstart's task on a fleet of 100 phones."""
    partition = {"kind": "clustered", "clusters": 5, "labels_per_cluster": 2, "samples_per_client": 14}
    return {
        "name": f"{name}-{seed}",
        "seed": seed,
        "rounds": 96,
        "data": {"kind": "digits", "partition": partition},
        "net": {"kind": "mlp"},
        "training": {"local_epochs": 2, "batch_size": 10, "learning_rate": 0.1},
        "server": {
            "deadline_s": 120,
            "round_interval_s": 1800,
            "eligibility": {"requires_unmetered": True, "requires_idle": True},
        },
        "fleet": [{"profile": "flash2020", "count": 100, **fleet}],
        "strategies": STRATEGIES,
    }


def gaps(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return each strategy's gap to Full, over all rounds and over the last fifth, of one run."""
    accuracy = rounds.pivot(index="round", columns="strategy", values="test_accuracy").dropna()
    lost = accuracy.rsub(accuracy["full"], axis=0).drop(columns="full")
    return pd.DataFrame({"mean": lost.mean(), "last": lost[len(lost) * 4 // 5 :].mean()})


def participation(trace: pd.DataFrame) -> dict[str, float]:
    """Return the share of completed local rounds, of clients that never completed one, and the spread of both ways."""
    done = trace.assign(done=trace["outcome"] == "completed").pivot(
        index="round", columns="client", values="done"
    )
    by_client, by_round = done.mean(axis=0), done.mean(axis=1)
    return {
        "completed": float(by_client.mean()),
        "never": float((by_client == 0).mean()),
        "spread between clients": float(by_client.std()),
        "spread between rounds": float(by_round.std()),
    }


def intervals(gap: pd.DataFrame, resamples: int = 2000) -> pd.DataFrame:
    """Return the 90 % bootstrap interval over seeds of the ratio preset : logs, by strategy."""
    rng = np.random.default_rng(0)
    preset, logs = (gap.loc[name].to_numpy() for name in ("preset", "replay"))
    drawn = [
        preset[rng.integers(0, len(preset), len(preset))].mean(axis=0)
        / logs[rng.integers(0, len(logs), len(logs))].mean(axis=0)
        for _ in range(resamples)
    ]
    return pd.DataFrame(np.quantile(drawn, [0.05, 0.95], axis=0), index=["low", "high"], columns=gap.columns)


def main() -> None:
    """Run both fleets and print their gaps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/replay_and_preset"))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(201, 221)))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    log = str(chosen.out / "logs.parquet")
    write_availability(log, read_flash(chosen.logs), chosen.logs.name)
    replay = {part: {"kind": "replay", "path": log} for part in ("connectivity", "usage", "battery")}
    found, took_part = {}, {}
    for name, fleet in (("replay", replay), ("preset", {})):
        for seed in chosen.seeds:
            run = fdsim.run(
                scenario(name, seed, fleet), chosen.out / f"{name}-{seed}", force=True, progress=False
            )
            found[name, seed] = gaps(run.rounds)
            took_part[name, seed] = participation(run.trace)
    table = pd.concat(found, names=["fleet", "seed", "strategy"])
    print(table["mean"].unstack("strategy").round(4).to_string())
    means = table.groupby(["fleet", "strategy"]).mean()
    print(means.unstack("fleet").round(4).to_string())
    print((means.loc["preset"] / means.loc["replay"]).round(3).to_string())
    print(intervals(table["mean"].unstack("strategy")).round(2).to_string())
    print(pd.DataFrame(took_part).T.groupby(level=0).mean().round(3).to_string())


if __name__ == "__main__":
    main()
