"""What the command line does with a reader that leaves early, and how it introduces itself."""

from __future__ import annotations

import subprocess
import sys

from typer.testing import CliRunner

from fdsim.cli.app import GROUPS, VERBS, assemble


def test_help_lists_the_verbs_in_groups_in_the_order_of_use() -> None:
    text = CliRunner().invoke(assemble(), ["--help"], env={"COLUMNS": "80"}).output
    places = [text.index(f"│ {verb} ") for verb in VERBS]
    assert places == sorted(places)
    assert list(VERBS)[:4] == ["new", "run", "study", "trace"]
    assert [text.index(f"─ {group} ─") for group in GROUPS] == sorted(text.index(f"─ {g} ─") for g in GROUPS)


def test_a_closed_pipe_is_no_error() -> None:
    """The reader is gone before anything is printed: the command ends as if it were there."""
    words = [sys.executable, "-m", "fdsim", "list", "kinds"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.close()
        complaints = started.stderr.read()
        assert (started.wait(timeout=120), complaints) == (0, "")
