"""Every notebook runs from its first cell to its last on a small run."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "analysis").glob("*.ipynb"))


def test_there_are_notebooks_and_they_carry_no_outputs() -> None:
    nbformat = pytest.importorskip("nbformat")
    assert {path.name for path in NOTEBOOKS} == {
        "dropout_causes.ipynb",
        "friends.ipynb",
        "from_python.ipynb",
        "time_and_energy.ipynb",
        "tour.ipynb",
    }
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        assert all(not cell.get("outputs") for cell in cells), f"{path.name}: clear the outputs"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(
    path: Path, small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("FDSIM_RUN", str(small_run))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    book = nbformat.read(path, as_version=4)
    # This one makes a run of its own, in the folder it is started in.
    folder = tmp_path if path.stem == "from_python" else path.parent
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    outputs = [output for cell in code for output in cell.outputs]
    drawn = {kind for output in outputs for kind in output.get("data", {})}
    assert drawn & {"image/png", "application/vnd.plotly.v1+json"}, "no picture was drawn"


def test_from_a_dict_to_a_plot_in_fifteen_lines() -> None:
    nbformat = pytest.importorskip("nbformat")
    cells = nbformat.read(ROOT / "analysis/from_python.ipynb", as_version=4).cells
    first = next(cell.source for cell in cells if cell.cell_type == "code")
    assert "run.plot(" in first
    assert len([line for line in first.splitlines() if line.strip()]) <= 15


def test_a_place_on_the_axes_of_who_stands_in_for_whom_is_a_client(
    small_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that were never missing have a line as well, else all behind them would be drawn one place off."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("FDSIM_RUN", str(small_run))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    book = nbformat.read(ROOT / "analysis/friends.ipynb", as_version=4)
    at = next(i for i, cell in enumerate(book.cells) if "pd.crosstab" in cell.source)
    check = (
        "assert matrix.index.tolist() == matrix.columns.tolist() == list(range(clients['client'].nunique()))\n"
        "pairs = stood.groupby(['client', 'stand_in']).size()\n"
        "assert all(matrix.iloc[int(a), int(b)] == n for (a, b), n in pairs.items()) and len(pairs)"
    )
    book.cells = [*book.cells[: at + 1], nbformat.v4.new_code_cell(check)]
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT / "analysis")}}
    ).execute()
