"""Measure friends with memory among many clients: friends found, what smaller memories cost, rounds of a million.

python analysis/many_clients.py friends  --out analysis/results --seeds 5
python analysis/many_clients.py memories --out analysis/results --seeds 10
python analysis/many_clients.py rounds   --out analysis/results --repeats 3

Each writes a row per trial to many_clients_<what>.csv, started again goes on with the rows that are missing, and prints
its table. `rounds` takes real time, so nothing else should run beside it. On two cores a minute, six minutes
and five minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd

import fdsim
from fdsim.comparison.statistics import paired_difference

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
#: What the memories of 2 000 clients may take, GB: each needs 19 to 30 MB, half 10 to 15, and the last two hold 167 to
#: 256 and 33 to 51 circles.
MEMORIES = {"each": 4.0, "half": 0.015, "circles": 0.005, "fewest circles": 0.001}
BLACKOUT = [
    "coupling=by_cluster",
    'fleet=[{profile="midrange_phone",count=800,site="north"},{profile="midrange_phone",count=1200}]',
    'outages=[{name="blackout",site="north",takes=["wifi","cellular"],at_s=[36000.0],lasts_s=36000.0}]',
]
#: 2 000 clients of ten_thousand_clients' kind, and what is changed in it. The last has more clusters than the fewest circles.
TRIALS: dict[str, list[str]] = {
    "as in the scenario": [],
    "two of five clusters offline from 10 to 20 h": BLACKOUT,
    "twenty of fifty clusters offline from 10 to 20 h": [
        *BLACKOUT,
        "data.classes=50",
        "data.train_samples=50000",
        "data.partition.clusters=50",
        "data.partition.labels_per_cluster=1",
    ],
}
SMALLER = [
    "rounds=48",
    "fleet.0.count=2000",
    "data.train_samples=40000",
    "data.test_samples=1000",
    "telemetry.evaluate_every=2",
    "telemetry.clients=false",
]
#: What one run prints of itself; a process of its own, because its peak of memory is asked for.
ROUNDS_OF = """
import json, resource, sys
import fdsim
run = fdsim.run(sys.argv[1], sys.argv[2], overrides=sys.argv[3:], progress=False)
rounds = run.read("rounds", columns=["strategy", "wall_s"])
print(json.dumps({
    "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    "round_ms": (1e3 * rounds.groupby("strategy", observed=True)["wall_s"].median()).to_dict(),
}))
"""


def representatives(run: fdsim.Run) -> pd.DataFrame:
    """Return, by strategy, what represented the missing clients that had completed a round before.

    Columns: `missing` clients in all rounds, those `seen` before, the seen with `nothing` but the mean of the active,
    represented by a `client` or by what is `stored`, and the fraction of these clients that are `true` friends.
    """
    columns = ["strategy", "round", "client", "outcome", "stand_in", "substitute", "true_cluster"]
    rows = run.read("clients", columns=columns).sort_values(["strategy", "round"])
    cluster = rows.drop_duplicates("client").set_index("client")["true_cluster"]
    completed = rows["outcome"] == "completed"
    before = completed.groupby([rows["strategy"], rows["client"]], observed=True).cumsum() - completed
    missing = rows[rows["outcome"] == "dropped"].assign(seen=before > 0)
    found = {}
    for strategy, mine in missing.groupby("strategy", observed=True):
        seen = mine[mine["seen"]]
        by_client = seen[seen["substitute"] == "client"]
        friends = by_client["stand_in"].map(cluster).to_numpy() == by_client["true_cluster"].to_numpy()
        found[strategy] = {
            "missing": len(mine),
            "seen": len(seen),
            "nothing": int((~seen["substitute"].isin(["client", "stored"])).sum()),
            "client": len(by_client),
            "stored": int((seen["substitute"] == "stored").sum()),
            "true": float(friends.mean()) if len(friends) else np.nan,
        }
    return pd.DataFrame.from_dict(found, orient="index").rename_axis("strategy").reset_index()


def friends_of(seed: int) -> pd.DataFrame:
    """Run ten_thousand_clients; return who represented the missing clients."""
    with tempfile.TemporaryDirectory() as folder:
        run = fdsim.run(
            SCENARIOS / "ten_thousand_clients.toml",
            Path(folder) / "run",
            overrides=[
                'strategies=[{kind="fdms"},{kind="fdms",name="fdms by signatures",friends="signatures"},'
                '{kind="fdms_memory"}]',
                f"seed={seed}",
            ],
            progress=False,
        )
        return representatives(run).assign(trial="ten_thousand_clients", seed=seed)


def memories_of(trial: str, seed: int, overrides: Iterable[str] = ()) -> pd.DataFrame:
    """Run 2 000 clients with memories of three sizes on one trace; return a row per strategy."""
    kinds = ['{kind="full"}', '{kind="dropout"}']
    kinds += [f'{{kind="fdms_memory",name="{name}",max_memory_gb={size}}}' for name, size in MEMORIES.items()]
    with tempfile.TemporaryDirectory() as folder:
        run = fdsim.run(
            SCENARIOS / "ten_thousand_clients.toml",
            Path(folder) / "run",
            overrides=[
                *SMALLER,
                f"strategies=[{','.join(kinds)}]",
                *TRIALS[trial],
                f"seed={seed}",
                *overrides,
            ],
            progress=False,
        )
        rounds = run.read("rounds", columns=["strategy", "round", "test_accuracy"])
    by_strategy = rounds.sort_values("round").groupby("strategy", observed=True, sort=False)["test_accuracy"]
    found = by_strategy.agg(
        mean_accuracy="mean", worst_after_third=lambda each: each.iloc[len(each) // 3 :].min()
    )
    return found.reset_index().assign(trial=trial, seed=seed)


def rounds_of(clients: int, repeat: int, overrides: Iterable[str] = ()) -> pd.DataFrame:
    """Run million_clients with so many clients; return a strategy's median round, ms, and the process's peak, GB."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = str(SCENARIOS / "million_clients.toml")
        settings = [f"participation.clients={clients}", *overrides]
        done = subprocess.run(
            [sys.executable, "-c", ROUNDS_OF, scenario, f"{folder}/run", *settings],
            capture_output=True,
            text=True,
            check=True,
        )
    found = json.loads(done.stdout.splitlines()[-1])
    rows = [{"strategy": name, "round_ms": took} for name, took in found["round_ms"].items()]
    return pd.DataFrame(rows).assign(trial=clients, seed=repeat, peak_gb=found["peak_gb"])


def measure_missing(
    path: Path, trials: Iterable[tuple[object, int]], measure: Callable[[object, int], pd.DataFrame]
) -> pd.DataFrame:
    """Measure the trials that the CSV does not have yet, each written as soon as it is known; return all."""
    known = set()
    if path.is_file():
        known = set(pd.read_csv(path)[["trial", "seed"]].astype(str).itertuples(index=False, name=None))
    for trial, seed in trials:
        if (str(trial), str(seed)) not in known:
            rows = measure(trial, seed)
            rows = rows[["trial", "seed", *(name for name in rows if name not in ("trial", "seed"))]]
            rows.to_csv(path, mode="a", header=not path.is_file(), index=False, float_format="%.6g")
            print(f"{trial}, {seed}", flush=True)
    return pd.read_csv(path)


def friends_table(measured: pd.DataFrame) -> pd.DataFrame:
    """Return a row per strategy: counts over all seeds, and the least and greatest part of true friends."""
    rows = []
    for strategy, mine in measured.groupby("strategy", sort=False):
        total = mine[["missing", "seen", "nothing", "client", "stored"]].sum()
        true = (mine["true"] * mine["client"]).sum() / total["client"]
        rows.append(
            {"strategy": strategy, "seeds": len(mine)}
            | total.to_dict()
            | {"true friends": f"{true:.1%} ({mine['true'].min():.1%} to {mine['true'].max():.1%})"}
        )
    return pd.DataFrame(rows)


def memories_table(measured: pd.DataFrame) -> pd.DataFrame:
    """Return a row per trial: gaps to Full in points, and what smaller memories add to it, with 95 % intervals."""
    rows = []
    for trial, mine in measured.groupby("trial", sort=False):
        accuracy = 100 * mine.pivot(index="seed", columns="strategy", values="mean_accuracy")
        gaps = accuracy[["full"]].to_numpy() - accuracy
        row = {"2 000 clients": trial, "seeds": len(gaps)}
        row |= {name: f"{gaps[name].mean():.2f}" for name in ("dropout", *MEMORIES)}
        for name in ("half", "circles", "fewest circles"):
            cost = paired_difference(gaps[name].to_numpy(), gaps["each"].to_numpy())
            low, high = cost.t_interval.low, cost.t_interval.high
            row[f"{name} costs (95 %)"] = f"{cost.mean:.2f} ({low:.2f} to {high:.2f})".replace("-", "−")
        rows.append(row)
    return pd.DataFrame(rows)


def rounds_table(measured: pd.DataFrame) -> pd.DataFrame:
    """Return a row per strategy: its median round by number of clients, how that grows, and the peak of memory."""
    wide = measured.pivot(index=["strategy", "seed"], columns="trial", values="round_ms")
    few, many = wide.columns.min(), wide.columns.max()
    growth = (wide[many] / wide[few]).groupby("strategy", sort=False)
    peak = measured.groupby("trial")["peak_gb"].max()
    rows = []
    for strategy, mine in wide.groupby("strategy", sort=False):
        each = growth.get_group(strategy)
        rows.append(
            {
                "strategy": strategy,
                "repeats": len(mine),
                f"{few:,} clients, ms": f"{mine[few].median():.1f}",
                f"{many:,} clients, ms": f"{mine[many].median():.1f}",
                "grows by": f"×{each.median():.2f} ({each.min():.2f} to {each.max():.2f})",
            }
        )
    print(f"peak of the process: {peak[few]:.2f} GB with {few:,} clients, {peak[many]:.2f} GB with {many:,}")
    return pd.DataFrame(rows)


def markdown(shown: pd.DataFrame) -> str:
    """Format a table."""
    rows = [list(shown.columns), ["---"] * len(shown.columns), *shown.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["friends", "memories", "rounds"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    words = parser.parse_args()
    words.out.mkdir(parents=True, exist_ok=True)
    path = words.out / f"many_clients_{words.what}.csv"
    seeds = range(1, words.seeds + 1)
    if words.what == "friends":
        trials = [("ten_thousand_clients", seed) for seed in seeds]
        shown = friends_table(measure_missing(path, trials, lambda _, seed: friends_of(seed)))
    elif words.what == "memories":
        shown = memories_table(
            measure_missing(path, [(trial, seed) for seed in seeds for trial in TRIALS], memories_of)
        )
    else:
        sizes = [(size, repeat) for repeat in range(1, words.repeats + 1) for size in (10_000, 1_000_000)]
        shown = rounds_table(measure_missing(path, sizes, rounds_of))
    print(markdown(shown))


if __name__ == "__main__":
    main()
