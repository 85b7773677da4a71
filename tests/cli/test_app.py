"""The help of the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from fdsim.cli.app import GROUPS


def test_flags_take_no_value_and_their_help_names_none(fdsim: Callable[..., Any]) -> None:
    shown = fdsim("run", "--help").out
    assert re.search(r"--resume +Continue from the last checkpoint", shown)
    assert re.search(r"--out +RUN_DIR +Run folder", shown)
    assert re.search(r"--quick +Check all hashes", fdsim("verify", "--help").out)


def test_verbs_are_listed_in_groups_in_the_order_of_use(fdsim: Callable[..., Any]) -> None:
    shown = fdsim("--help").out
    words = [
        word for group, verbs in GROUPS.items() for word in (f"─ {group} ", *(f"│ {verb} " for verb in verbs))
    ]
    places = [shown.index(word) for word in words]
    assert places == sorted(places)
