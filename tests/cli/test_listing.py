"""`fdsim list`: nothing is cut, and a kind is found by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from fdsim.cli.listing import app
from fdsim.devices.config.profiles import names, profile, sources


@pytest.mark.parametrize("name", names())
def test_a_profile_is_shown_whole_in_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, ["profiles", name], catch_exceptions=False).output
    assert "…" not in shown
    assert max(map(len, shown.split("\n"))) <= 80
    # Cells as they were before they were broken into lines.
    rows = [line.split("│")[1:-1] for line in shown.split("\n") if line.startswith("│")]
    values, told = ("".join(row[column].strip() for row in rows) for column in (1, 2))
    for part, table in profile(name).items():
        for key in table if isinstance(table, dict) else []:
            assert key in values
            if f"{part}.{key}" in sources(name):
                assert f"{key}:" in told


def test_keys_of_a_kind_by_its_name(fdsim: Callable[..., Any]) -> None:
    assert fdsim("list", "keys", "fdms_memory").out == fdsim("list", "keys", "strategy fdms_memory").out
    of_all = fdsim("list", "keys", "replay").out
    for family in ("battery", "connectivity", "usage"):
        assert f"[{family} replay]" in of_all
    wrong = fdsim("list", "keys", "fdms_memry")
    assert wrong.exit_code == 2
    assert "did you mean 'fdms_memory'?" in wrong.err
