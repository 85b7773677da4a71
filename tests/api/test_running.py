"""The public surface: its names, and each of them used as a notebook would use it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fdsim
from fdsim.errors import InputError, RunError, RunFolderError, ScenarioError

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "scenarios/quickstart.toml"

SMALL: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "rounds": 4,
    "data": {"kind": "digits", "partition": {"kind": "clustered", "clusters": 2, "samples_per_client": 30}},
    "net": {"kind": "mlp", "hidden": [8]},
    "training": {"local_epochs": 1, "batch_size": 10, "learning_rate": 0.1},
    "server": {"round_interval_s": 1800},
    "fleet": [{"profile": "midrange_phone", "count": 6}],
    "strategies": [{"kind": "full"}, {"kind": "fdms"}, {"kind": "dropout"}],
    "telemetry": {"keep_models_every": 2, "similarity_every": 2, "events": True},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fdsim.Run:
    return fdsim.run(SMALL, tmp_path_factory.mktemp("api") / "run", progress=False)


def test_every_public_name_is_there_documented_and_listed() -> None:
    assert set(fdsim.__all__) == {*fdsim._PUBLIC, "__version__"}
    assert set(fdsim.__all__) <= set(dir(fdsim))
    for name in fdsim._PUBLIC:
        assert (getattr(fdsim, name).__doc__ or "").strip(), f"fdsim.{name} has no docstring"
    assert (ROOT / "fdsim/py.typed").is_file()


def test_functions_and_what_they_return_show_an_example() -> None:
    shown = ("run", "run_study", "make_trace", "load_scenario", "open_run", "open_study", "open_trace")
    for name in (*shown, "Run", "Scenario"):
        assert "fdsim." in (getattr(fdsim, name).__doc__ or ""), f"fdsim.{name} shows no example"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        _ = fdsim.rum


def test_run_stays_a_function_whatever_was_imported() -> None:
    code = (
        "import fdsim, fdsim.pipeline, fdsim.cli.app, fdsim.api.running, fdsim.studies.launch\n"
        "try:\n    import fdsim.run\nexcept ModuleNotFoundError:\n    pass\n"
        "assert callable(fdsim.run) and callable(fdsim.make_trace)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_a_run_gives_its_tables_as_frames(run: fdsim.Run) -> None:
    assert len(run.rounds) == 3 * 4
    assert len(run.clients) == 3 * 4 * 6
    assert len(run.trace) == 4 * 6
    assert len(run.events) > 0
    assert run.status == "complete"


def test_a_summary_has_a_row_per_strategy(run: fdsim.Run) -> None:
    summary = run.summary()
    assert list(summary.index) == ["full", "fdms", "dropout"]
    last = run.rounds[run.rounds["round"] == 3].set_index("strategy")["test_accuracy"]
    assert summary["final_accuracy"].to_dict() == pytest.approx(last.to_dict())
    assert summary.attrs["dropout_frac"] == pytest.approx((run.trace["outcome"] == "dropped").mean())


def test_the_html_shows_status_and_strategies_escaped(run: fdsim.Run, tmp_path: Path) -> None:
    assert "complete" in run._repr_html_()
    assert "fdms" in run._repr_html_()
    named = {**SMALL, "rounds": 1, "strategies": [{"kind": "dropout", "name": "bold & big"}]}
    shown = fdsim.run(named, tmp_path / "run", progress=False)._repr_html_()
    assert "bold & big" not in shown
    assert "bold &amp; big" in shown


def test_a_run_writes_its_report(run: fdsim.Run, tmp_path: Path) -> None:
    assert "<html" in run.report(tmp_path / "page.html").read_text(encoding="utf-8")


def test_file_text_dict_and_scenario_are_the_same_source() -> None:
    text = QUICKSTART.read_text()
    read = [fdsim.load_scenario(source) for source in (QUICKSTART, str(QUICKSTART), text)]
    built = [fdsim.load_scenario(read[0].as_tables()), fdsim.load_scenario(read[0])]
    assert {scenario.content_hash for scenario in (*read, *built)} == {read[0].content_hash}
    changed = [
        fdsim.load_scenario(s, {"rounds": 5, "training.batch_size": 7}) for s in (QUICKSTART, text, read[0])
    ]
    assert {(s.rounds, s.training.batch_size) for s in changed} == {(5, 7)}
    assert fdsim.load_scenario(QUICKSTART, ["rounds=5"]).rounds == 5


def test_mistakes_in_text_and_dict_are_told_by_place() -> None:
    with pytest.raises(ScenarioError, match=r"scenario text, line \d+: rounds: 0 must be greater than 0"):
        fdsim.load_scenario(QUICKSTART.read_text().replace("rounds = 60", "rounds = 0"))
    with pytest.raises(ScenarioError, match=r"scenario: net.*no net called 'mpl' \(did you mean 'mlp'"):
        fdsim.load_scenario({**SMALL, "net": {"kind": "mpl"}})


def test_a_scenario_is_built_in_code_from_objects_and_tables() -> None:
    from fdsim.strategies.fdms import Fdms

    scenario = fdsim.Scenario(**{**SMALL, "strategies": [Fdms(), {"kind": "dropout"}]})
    assert [strategy.label for strategy in scenario.strategies] == ["fdms", "dropout"]


def test_existing_runs_are_kept_and_the_remedy_is_an_argument(run: fdsim.Run) -> None:
    with pytest.raises(RunFolderError, match="force=True") as caught:
        fdsim.run(SMALL, run.path, progress=False)
    assert "--" not in str(caught.value)
    assert fdsim.run(SMALL, run.path, resume=True, progress=False).status == "complete"


def test_a_trace_alone(tmp_path: Path, run: fdsim.Run) -> None:
    trace = fdsim.make_trace(SMALL, tmp_path / "t.parquet", progress=False)
    pd.testing.assert_frame_equal(trace.to_pandas(), run.trace)
    assert fdsim.open_trace(tmp_path / "t.parquet").rounds == 4


@pytest.mark.parametrize(
    ("what", "choices"),
    [
        ("accuracy", {}),
        ("accuracy", {"x": "hours", "y": "train_loss"}),
        ("loss", {}),
        ("dropout", {}),
        ("outcomes", {"sort": "cluster"}),
        ("fleet", {"round": 2}),
        ("gantt", {"round": 2}),
        ("device", {"client": 3}),
        ("completion", {}),
        ("groups", {}),
        ("friends", {}),
        ("similarity", {"strategy": "fdms", "round": 2}),
        ("pairs", {}),
    ],
    ids=str,
)
def test_a_figure_is_plotly_with_colours_in_place_of_tokens(
    run: fdsim.Run, what: str, choices: dict[str, Any]
) -> None:
    import plotly.graph_objects as go

    figure = run.plot(what, **choices)
    assert isinstance(figure, go.Figure)
    assert len(figure.data) > 0
    assert figure.layout.title.text
    assert '"@' not in figure.to_json()
    assert "plotly" in figure.to_html()


def test_the_curves_are_the_rounds_table(run: fdsim.Run) -> None:
    figure = run.plot("accuracy")
    drawn = {trace.name: list(trace.y) for trace in figure.data}
    for label, rows in run.rounds.groupby("strategy", observed=True):
        np.testing.assert_allclose(drawn[str(label)], rows["test_accuracy"], rtol=1e-4)
    colours = {trace.name: trace.line.color for trace in figure.data}
    assert colours["fdms"] == "#1159db"


def test_the_heat_map_is_the_similarity_table(run: fdsim.Run) -> None:
    figure = run.plot("similarity", strategy="fdms")
    heat = figure.data[0]
    labels = [int(name) for name in heat.customdata[:, 0, 0]]
    for row in run.similarity(strategy="fdms").itertuples():
        if np.isfinite(row.similarity):
            value = heat.z[labels.index(row.first), labels.index(row.second)]
            assert value == pytest.approx(row.similarity, abs=1e-3)


def test_the_gantt_chart_is_the_trace(run: fdsim.Run) -> None:
    """Bars last as long as the trace says, begin where the phase before ends, and crosses are the dropped."""
    figure = run.plot("gantt", round=2)
    rows = run.trace.query("round == 1 and outcome != 'not_selected'").set_index("client")
    bars = {trace.name: trace for trace in figure.data if trace.type == "bar"}
    spent = {}
    for phase, bar in bars.items():
        for name, lasts_s, begin_s in zip(bar.text, bar.x, bar.base, strict=True):
            client = int(name.removeprefix("client "))
            assert lasts_s == pytest.approx(rows.loc[client, f"{phase}_s"], rel=1e-5)
            began = rows.loc[client, "start_s"] - rows.loc[client, "round_start_s"]
            assert begin_s == pytest.approx(began + spent.get(client, 0.0), abs=1e-3)
            spent[client] = spent.get(client, 0.0) + lasts_s
    assert set(spent) >= set(rows.index[rows["outcome"] == "completed"])
    crosses = [trace for trace in figure.data if trace.type == "scatter"]
    assert sum(len(trace.x) for trace in crosses) == (rows["outcome"] == "dropped").sum()


def test_the_device_figure_is_the_client_asked_for(run: fdsim.Run) -> None:
    figure = run.plot("device", client=3)
    rows = run.trace.query("client == 3")
    marks = {trace.name: list(trace.x) for trace in figure.data}
    for outcome in ("completed", "dropped"):
        hours = rows.loc[rows["outcome"] == outcome, "round_start_s"] / 3600
        np.testing.assert_allclose(marks[outcome], hours, atol=1e-3)
    levels = run.events.query("client == 3 and what == 'soc'")
    battery = next(trace for trace in figure.data if trace.name == "battery")
    np.testing.assert_allclose(battery.x[:-1], levels["t_s"] / 3600, atol=1e-3)  # the last lasts to the end
    np.testing.assert_allclose(battery.y[:-1], 100 * levels["value"], atol=1e-3)
    with pytest.raises(InputError, match=r"client=99 is not among the choices.*0, 1, 2"):
        run.plot("device", client=99)


def test_a_figure_that_is_not_there_is_told(run: fdsim.Run) -> None:
    with pytest.raises(InputError, match="did you mean 'accuracy'"):
        run.plot("acuracy")
    with pytest.raises(InputError, match="counterfactual = true"):
        run.plot("substitution")
    with pytest.raises(InputError, match=r"x='days' is not among.*hours"):
        run.plot("accuracy", x="days")


def test_the_final_model_scores_what_the_table_says(run: fdsim.Run) -> None:
    examples = run.scenario.data.load()
    inputs, labels = torch.as_tensor(examples.test_inputs), torch.as_tensor(examples.test_labels)
    for label in ("full", "fdms", "dropout"):
        net = run.model(label)
        with torch.no_grad():
            accuracy = (net(inputs.float()).argmax(dim=1) == labels).float().mean().item()
        said = run.rounds[(run.rounds["strategy"] == label) & (run.rounds["round"] == 3)][
            "test_accuracy"
        ].item()
        assert accuracy == pytest.approx(said, abs=1e-6)


def test_a_model_loads_without_fdsim(run: fdsim.Run) -> None:
    state = torch.load(run.path / "models/strategy=fdms/final.pt", weights_only=True)
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 10)
    )
    net.load_state_dict(state)
    ours = run.model("fdms")
    inputs = torch.rand(3, 1, 8, 8)
    torch.testing.assert_close(net(inputs), ours(inputs))


def test_models_are_kept_every_so_many_rounds_and_checked(run: fdsim.Run, tmp_path: Path) -> None:
    import shutil

    assert sorted(run.manifest["strategies"]["fdms"]["models"]) == [
        *("final.pt", "round-00000001.pt", "round-00000003.pt"),
    ]
    last, final = run.model_state("fdms", 3), run.model_state("fdms")
    assert all(torch.equal(last[name], final[name]) for name in final)
    assert any(not torch.equal(value, final[name]) for name, value in run.model_state("fdms", 1).items())
    with pytest.raises(RunFolderError, match=r"no model after round 2 of 'fdms'.*round-00000001"):
        run.model("fdms", 2)
    with pytest.raises(RunFolderError, match="name one of: full, fdms, dropout"):
        run.model()
    copied = fdsim.open_run(shutil.copytree(run.path, tmp_path / "copy"))
    path = copied.path / "models/strategy=full/final.pt"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(RunFolderError, match="damaged"):
        copied.model("full")


OWN_PARTS = """
import numpy as np
import torch
from typing import ClassVar
import fdsim
from fdsim.data.datasets import Examples


class Dots(fdsim.DataSource):
    input_shape: ClassVar[tuple[int, ...]] = (2,)
    classes: ClassVar[int] = 2

    def load(self):
        inputs = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
        labels = (inputs[:, 0] > 0).astype(np.int64)
        return Examples(inputs[:40], labels[:40], inputs[40:], labels[40:], classes=2)


class Line(fdsim.Net):
    bias: bool = True

    def module(self, input_shape, classes):
        size = int(np.prod(input_shape))
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(size, classes, self.bias))
"""


@pytest.mark.parametrize(
    ("data", "net", "features"),
    [
        ({"kind": "own_parts:Dots"}, {"kind": "mlp", "hidden": [3]}, (2,)),
        ({"kind": "digits"}, {"kind": "own_parts:Line", "bias": False}, (1, 8, 8)),
        ({"kind": "own_parts:Dots"}, {"kind": "own_parts:Line"}, (2,)),
    ],
)
def test_a_model_of_ones_own_data_or_net_is_built(
    data: dict[str, Any],
    net: dict[str, Any],
    features: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "own_parts.py").write_text(OWN_PARTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    people = {"kind": "fixed_ratio", "clients": 4, "alpha": 0.5}
    scenario = {"name": "own", "rounds": 1, "data": data, "net": net, "participation": people}
    made = fdsim.run(
        {**scenario, "training": {"local_steps": 1}, "strategies": ["dropout"]},
        tmp_path / "run",
        progress=False,
    )
    model = made.model()
    state = made.model_state()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert len(model(torch.zeros(3, *features))) == 3
    # The class is gone but for a copy in the run folder, from which nothing is imported.
    (tmp_path / "own_parts.py").rename(made.path / "own_parts.py")
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    with pytest.raises(RunFolderError, match=r"'own_parts:\w+'.*no module called 'own_parts'.*work in the"):
        fdsim.open_run(made.path).model()


def test_a_study_runs_from_python(tmp_path: Path) -> None:
    base = fdsim.load_scenario({**SMALL, "rounds": 2}).as_toml()
    (tmp_path / "small.toml").write_text(base)
    (tmp_path / "two.study.toml").write_text('[study]\nbase = "small.toml"\nseeds = 2\n')
    study = fdsim.run_study(tmp_path / "two.study.toml", tmp_path / "study", progress=False, workers=1)
    assert len(study.runs) == 2
    assert len(study.rounds) == 2 * 3 * 2


NOTES = """
from pathlib import Path

import fdsim


class Notes(fdsim.Callback):
    def run_begin(self, scenario, folder):
        self.path = folder / "notes.txt"
        self.path.write_text("")

    def round_end(self, label, row):
        with self.path.open("a") as file:
            file.write(f"{label} {row.round}\\n")


class Grumpy:
    def round_end(self, label, row):
        raise RuntimeError("no")
"""


def test_every_trial_of_a_study_makes_its_own_callbacks(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(fdsim.load_scenario({**SMALL, "rounds": 2}).as_toml())
    (tmp_path / "two.study.toml").write_text('[study]\nbase = "small.toml"\nseeds = 2\nretries = 0\n')
    (tmp_path / "my_notes.py").write_text(NOTES)
    file, quietly = tmp_path / "two.study.toml", {"progress": False, "workers": 1}
    with pytest.raises(RunError, match="2 of 2 trials failed"):
        fdsim.run_study(file, tmp_path / "grumpy", callbacks=["my_notes:Grumpy"], **quietly)
    logged = fdsim.open_study(tmp_path / "grumpy")
    assert [run.status for run in logged.runs] == ["failed", "failed"]
    study = fdsim.run_study(
        file, tmp_path / "study", overrides={"rounds": 3}, callbacks=["my_notes:Notes"], **quietly
    )
    for run in study.runs:
        lines = (run.path / "notes.txt").read_text().split("\n")[:-1]
        assert lines == [f"{label} {at}" for label in ("full", "fdms", "dropout") for at in range(3)]


def test_callbacks_that_no_trial_could_import_are_told_before_anything_runs(tmp_path: Path) -> None:
    class Here(fdsim.Callback):
        """In no file's top level."""

    (tmp_path / "small.toml").write_text(fdsim.load_scenario(SMALL).as_toml())
    (tmp_path / "two.study.toml").write_text('[study]\nbase = "small.toml"\nseeds = 2\n')
    for wrong, told in [
        (Here, "in no file that the trials"),
        (Here(), "give the class"),
        ("nowhere:Notes", "there is no 'nowhere:Notes'"),
    ]:
        with pytest.raises(InputError, match=told):
            fdsim.run_study(
                tmp_path / "two.study.toml", tmp_path / "study", callbacks=[wrong], progress=False
            )
    assert not (tmp_path / "study").exists()


def test_the_example_of_a_scenario_can_be_run() -> None:
    import inspect

    from fdsim.prepare import prepare

    shown = inspect.cleandoc(fdsim.Scenario.__doc__ or "").partition("classes:\n")[2]
    example = eval(inspect.cleandoc(shown), {"fdsim": fdsim})
    assert prepare(example).scenario.clients == 20


def test_a_scenario_built_in_code_tells_problems_by_place() -> None:
    with pytest.raises(ScenarioError, match=r"^Scenario: rounds: 0 must be greater than 0$"):
        fdsim.Scenario(**{**SMALL, "rounds": 0})
    empty = {"count": 2, "battery": {"kind": "linear", "capacity_wh": -1, "charge_w": 5}}
    with pytest.raises(ScenarioError, match=r"2 problems:\n.*battery\.capacity_wh.*\n.*did you mean 'net'"):
        fdsim.Scenario(**{**SMALL, "fleet": [empty], "nett": {"kind": "mlp"}})
    with pytest.raises(ScenarioError, match="nothing defines who takes part"):
        fdsim.Scenario(**{**SMALL, "fleet": []})


def test_a_study_is_not_run_as_a_scenario() -> None:
    with pytest.raises(ScenarioError, match=r"is a study.*fdsim study .*quickstart\.study\.toml"):
        fdsim.load_scenario(ROOT / "scenarios/quickstart.study.toml")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a notebook would show, one after the other, in the same place."""
    from IPython import display

    from fdsim.api import running

    texts: list[str] = []

    class Handle:
        def update(self, shown: Any) -> None:
            texts.append(shown.data)

    def show(shown: Any, *, display_id: bool) -> Handle:
        texts.append(shown.data)
        return Handle()

    monkeypatch.setattr(display, "display", show)
    monkeypatch.setattr(running, "in_notebook", lambda: True)
    return texts


def test_a_notebook_has_bars(drawn: list[str], tmp_path: Path) -> None:
    fdsim.run({**SMALL, "rounds": 2}, tmp_path / "run")
    assert drawn[0].count("<progress") == 1
    assert drawn[-1].count("<progress") == 4
    assert drawn[-1].count("2/2") == 4
    assert "accuracy 0." in drawn[-1]


def test_a_study_has_bars_in_a_notebook(drawn: list[str], tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(fdsim.load_scenario({**SMALL, "rounds": 2}).as_toml())
    (tmp_path / "two.study.toml").write_text('[study]\nbase = "small.toml"\nseeds = 2\n')
    fdsim.run_study(tmp_path / "two.study.toml", tmp_path / "study", workers=1)
    assert "0/2 trials" in drawn[0]
    assert any(shown.count("<progress") == 2 and "seed=3" in shown for shown in drawn)  # one is running
    assert "2/2 trials" in drawn[-1]
    assert drawn[-1].count("<progress") == 1


#: What a notebook's cells would hold: classes that are in no file, so their kinds are __main__:….
CELLS = """
import sys

import numpy as np

import fdsim


class Mine(fdsim.Strategy):
    '''Average over the active.'''

    def blend(self, state, cohort):
        weights = cohort.client_weight[cohort.active]
        nobody = np.full(len(cohort.missing), -1)
        return fdsim.Blend(weights / weights.sum(), nobody, np.full(len(nobody), np.nan))


class Tunnel(fdsim.Connectivity):
    '''An hour on, half an hour off.'''

    def spells(self, rng):
        while True:
            yield fdsim.Spell(online=True, length_s=3600.0)
            yield fdsim.Spell(online=False, length_s=1800.0)


run = fdsim.run(
    {
        "name": "own",
        "rounds": 4,
        "data": {"kind": "digits", "partition": {"kind": "iid"}},
        "net": {"kind": "mlp"},
        "training": {"local_steps": 2},
        "fleet": [{"count": 6, "connectivity": Tunnel()}],
        "strategies": [Mine(), {"kind": "dropout"}],
    },
    sys.argv[1],
    progress=False,
)
assert run.scenario.strategies[0].kind == "__main__:Mine"
final = run.summary()["final_accuracy"]
assert final["Mine"] == final["dropout"], final
run.model("Mine")
"""


def test_classes_of_a_notebook_need_no_file(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-", str(tmp_path / "run")]
    done = subprocess.run(
        words, input=CELLS, text=True, cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Whoever only reads the run needs none of the classes.
    assert fdsim.open_run(tmp_path / "run").summary().index.tolist() == ["Mine", "dropout"]
