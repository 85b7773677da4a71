"""Mistakes in code of one's own are told by its file and line, and its file is found where it is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

QUICKSTART = Path(__file__).resolve().parents[2] / "scenarios/quickstart.toml"

LEAKY = """\
from fdsim import Battery


class Leaky(Battery):
    '''Asks its flow for something that no flow has.'''

    def full_j(self, throughput_j):
        return 3600.0

    def after(self, charge_j, time_s, flow):
        return charge_j - flow.leak_w * time_s

    def time_to_level(self, charge_j, level_j, flow):
        return flow.leak_w
"""


@pytest.fixture
def leaky(tmp_path: Path) -> Path:
    (tmp_path / "leaky_models.py").write_text(LEAKY)
    path = tmp_path / "leaky.toml"
    fleet = '[[fleet]]\ncount = 20\nbattery = { kind = "leaky_models:Leaky" }\n'
    path.write_text(f'extends = "{QUICKSTART}"\nname = "leaky"\nrounds = 1\n{fleet}')
    return path


def test_an_error_in_a_model_of_ones_own_names_its_line(leaky: Path, fdsim: Callable[..., Any]) -> None:
    answer = fdsim("trace", "make", leaky, "--out", leaky.parent / "t.parquet")
    assert answer.exit_code == 1
    place = f"error: {leaky.parent / 'leaky_models.py'}, line "
    assert answer.err.startswith(place)
    assert (
        "AttributeError: 'Flow' object has no attribute 'leak_w'. This is in code of your own" in answer.err
    )


FAULTY = """\
from fdsim.devices.models.battery import Linear


class Backwards(Linear):
    def time_to_level(self, charge_j, level_j, flow):
        return -1.0


class Endless(Linear):
    def after(self, charge_j, time_s, flow):
        return charge_j + time_s if flow.plugged else super().after(charge_j, time_s, flow)
"""


@pytest.mark.parametrize(
    ("name", "problem"),
    [("Backwards", "time_to_level is not negative"), ("Endless", "stays between empty and full")],
)
@pytest.mark.parametrize("verb", ["validate", "run"])
def test_a_battery_that_breaks_its_contract_is_refused(
    verb: str, name: str, problem: str, tmp_path: Path, fdsim: Callable[..., Any]
) -> None:
    (tmp_path / "faulty_models.py").write_text(FAULTY)
    path = tmp_path / "faulty.toml"
    battery = f'{{ kind = "faulty_models:{name}", capacity_wh = 10, charge_w = 5 }}'
    fleet = f"[[fleet]]\ncount = 20\nbattery = {battery}\n"
    path.write_text(f'extends = "{QUICKSTART}"\nname = "faulty"\nrounds = 1\n{fleet}')
    answer = fdsim(verb, path, *(["--out", tmp_path / "run"] if verb == "run" else []))
    assert answer.exit_code == 2
    assert f"fleet[0].battery: 'faulty_models:{name}' ({tmp_path / 'faulty_models.py'})" in answer.err
    assert problem in answer.err


def test_a_class_that_cannot_be_made_names_its_line(tmp_path: Path, fdsim: Callable[..., Any]) -> None:
    (tmp_path / "bare_data.py").write_text(
        "import fdsim\n\n\nclass Bare(fdsim.DataSource):\n    classes = 2\n"
    )
    path = tmp_path / "bare.toml"
    path.write_text(f'extends = "{QUICKSTART}"\nname = "bare"\n[data]\nkind = "bare_data:Bare"\n')
    answer = fdsim("validate", path)
    assert answer.exit_code == 1
    assert f"{tmp_path / 'bare_data.py'}, line 4" in answer.err
    assert "annotating it as a `ClassVar`" in answer.err


def test_a_class_is_found_beside_the_file_that_names_it(
    leaky: Path, tmp_path: Path, fdsim: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that file is extended by one elsewhere, or is the base of a study elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    sound = "from fdsim.devices.models.battery import Mains\n\n\nclass Leaky(Mains):\n    pass\n"
    (tmp_path / "leaky_models.py").write_text(sound)
    (elsewhere / "mine.toml").write_text(f'extends = "{leaky}"\nname = "mine"\n')
    (elsewhere / "mine.study.toml").write_text('[study]\nbase = "mine.toml"\nseeds = 2\n')
    for file in ("mine.toml", "mine.study.toml"):
        answer = fdsim("validate", file)
        assert answer.exit_code == 0, answer.err


def test_an_nn_module_is_told_its_way_in(tmp_path: Path, fdsim: Callable[..., Any]) -> None:
    (tmp_path / "plain_nets.py").write_text("from torch import nn\n\n\nclass Plain(nn.Module):\n    pass\n")
    path = tmp_path / "plain.toml"
    path.write_text(f'extends = "{QUICKSTART}"\nname = "plain"\n[net]\nkind = "plain_nets:Plain"\n')
    answer = fdsim("validate", path)
    assert answer.exit_code == 2
    assert 'an nn.Module is named { kind = "module", path = "plain_nets:Plain" }' in answer.err


def with_battery(folder: Path, kind: str) -> Path:
    path = folder / "battery.toml"
    path.write_text(f'extends = "{QUICKSTART}"\n[[fleet]]\ncount = 20\nbattery = {{ kind = "{kind}" }}\n')
    return path


def test_a_syntax_error_names_file_and_line(tmp_path: Path, fdsim: Callable[..., Any]) -> None:
    (tmp_path / "unparsable.py").write_text("import fdsim\nclass X(fdsim.Battery:\n    pass\n")
    answer = fdsim("validate", with_battery(tmp_path, "unparsable:X"))
    assert answer.err.startswith(f"error: {tmp_path / 'unparsable.py'}, line 2: SyntaxError")
    assert "bug" not in answer.err


def test_a_class_that_lacks_methods_names_them(tmp_path: Path, fdsim: Callable[..., Any]) -> None:
    source = LEAKY.partition("    def after")[0]
    (tmp_path / "unfinished.py").write_text(source)
    answer = fdsim("validate", with_battery(tmp_path, "unfinished:Leaky"))
    assert answer.exit_code == 2
    assert "line 4: fleet[0].battery: 'unfinished:Leaky'" in answer.err
    assert f"({tmp_path / 'unfinished.py'}) lacks after, time_to_level. write them" in answer.err


def test_a_file_that_python_found_first_is_no_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fdsim: Callable[..., Any]
) -> None:
    (tmp_path / "found_first.py").write_text("class Other: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    answer = fdsim("validate", with_battery(tmp_path, "found_first:X"))
    assert "has no class 'X'" in answer.err
    assert "installed" not in answer.err
    assert str(tmp_path / "found_first.py") in answer.err
