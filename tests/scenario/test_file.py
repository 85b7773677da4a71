"""TOML layers, overrides and the line of a key."""

from pathlib import Path

import pytest

from fdsim.catalogue import merge
from fdsim.errors import ScenarioError
from fdsim.scenario.file import line_of, override, read_layers


def test_the_nearer_layer_wins_and_tables_merge(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("rounds = 5\n[training]\nbatch_size = 10\nlearning_rate = 0.1\n")
    (tmp_path / "mid.toml").write_text('extends = "base.toml"\n[training]\nbatch_size = 20\n')
    (tmp_path / "top.toml").write_text('extends = "mid.toml"\nrounds = 7\n')
    layers = read_layers(tmp_path / "top.toml")
    assert layers.tables == {"rounds": 7, "training": {"batch_size": 20, "learning_rate": 0.1}}
    assert [path.name for path, _ in layers.texts] == ["top.toml", "mid.toml", "base.toml"]


def test_a_table_of_another_kind_is_replaced_whole() -> None:
    base = {"net": {"kind": "mlp", "hidden": [32]}}
    assert merge(base, {"net": {"kind": "cifar_cnn"}}) == {"net": {"kind": "cifar_cnn"}}
    assert merge(base, {"net": {"hidden": [8]}}) == {"net": {"kind": "mlp", "hidden": [8]}}


def test_a_circle_of_extends_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('extends = "b.toml"\n')
    (tmp_path / "b.toml").write_text('extends = "a.toml"\n')
    with pytest.raises(ScenarioError, match="extends itself"):
        read_layers(tmp_path / "a.toml")


def test_overrides_are_toml_and_reach_into_lists() -> None:
    tables = {"rounds": 1, "strategies": [{"kind": "fdms"}], "training": {}}
    changed = override(
        tables, ["rounds=9", "strategies.0.kind=dropout", "training.server_optimiser.kind=plain", "seed=0x10"]
    )
    assert changed == {
        "rounds": 9,
        "seed": 16,
        "strategies": [{"kind": "dropout"}],
        "training": {"server_optimiser": {"kind": "plain"}},
    }
    assert tables["rounds"] == 1


@pytest.mark.parametrize("setting", ["rounds", "=3", "strategies.4.kind=full", "rounds.deep.er=3"])
def test_an_override_that_cannot_be_applied_says_which(setting: str) -> None:
    with pytest.raises(ScenarioError, match="--set"):
        override({"rounds": 1, "strategies": []}, [setting])


TEXT = """rounds = 5
[training]
batch_size = 10
[[fleet]]
count = 3
[[fleet]]
count = -4
battery = { kind = "linear", capacity_wh = 0 }
"""


@pytest.mark.parametrize(
    ("loc", "line"),
    [
        (("rounds",), 1),
        (("training",), 2),
        (("training", "batch_size"), 3),
        (("fleet", 0, "count"), 5),
        (("fleet", 1, "count"), 7),
        (("fleet", 1, "battery", "capacity_wh"), 8),
        (("net",), None),
    ],
)
def test_the_line_of_a_key(loc: tuple[str | int, ...], line: int | None) -> None:
    assert line_of(TEXT, loc) == line


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 2000 + "]" * 2000, "x = " + "9" * 5000, "x = 9223372036854775808", 'extends = "a\\u0000b"',
        'extends = "' + "n" * 5000 + '"', 'extends = "loop"',
    ],
    ids=["deep", "thousands of digits", "65 bits", "NUL", "long", "loop"],
)  # fmt: skip
def test_a_hostile_file_is_an_error_of_the_input(text: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ScenarioError):
        read_layers(tmp_path / "s.toml")


@pytest.mark.parametrize(
    "setting",
    ["a.²=1", "a.99999999999999999999=1", "b=" + "[" * 2000, "b=" + "9" * 5000, "b=9223372036854775808"],
)
def test_a_hostile_setting_is_an_error_of_the_input(setting: str) -> None:
    with pytest.raises(ScenarioError):
        override({"a": [1, 2]}, [setting])


def test_a_file_that_another_one_extends_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password: hunter2")
    (tmp_path / "s.toml").write_text('extends = "secret"')
    with pytest.raises(ScenarioError) as caught:
        read_layers(tmp_path / "s.toml")
    assert "hunter2" not in str(caught.value)
