"""`fdsim fleet …`: fit a device profile to logs of real phones, and check any profile against them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fdsim.cli.options import refuse_output

if TYPE_CHECKING:
    from fdsim.devices.fitting.goodness import Row
    from fdsim.devices.fitting.statistics import PhoneRecord
    from fdsim.trace.availability import Observed

app = typer.Typer(help="Fit device profiles to logs, and check them.", no_args_is_help=True)

LogFile = Annotated[
    Path,
    typer.Argument(
        metavar="TRACE", help="A log: an imported availability file, FLASH JSON, FedScale or interval CSV."
    ),
]
SilentScreen = Annotated[
    float,
    typer.Option(
        "--silent-screen-s",
        min=0,
        help="FLASH: screens count as off in silences of the log longer than this; 0 takes the log as it is.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
Page = Annotated[Path | None, typer.Option("--page", metavar="F.html", help="Also write a page of pictures.")]


@app.command()
def fit(
    trace: LogFile,
    out: Annotated[Path, typer.Option("--out", metavar="PROFILE.toml", help="Where to write the profile.")],
    like: Annotated[
        str, typer.Option("--like", help="The profile whose fields hold where logs say nothing.")
    ] = "budget_phone",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides which phones are for testing.")] = 0,
    turns: Annotated[int, typer.Option("--turns", min=1, help="Fleets simulated for the calibration.")] = 20,
    devices: Annotated[
        int, typer.Option("--devices", min=10, help="Phones in each of them, and of the report.")
    ] = 800,
    all_phones: Annotated[
        bool, typer.Option("--all-phones", help="Fit to all phones, and report on the same ones.")
    ] = False,
    silent_screen_s: SilentScreen = 0.0,
    page: Page = None,
    force: Force = False,
) -> None:
    """Fit a profile to half of the phones of a log, and report how good it is on the other half."""
    from fdsim.devices.fitting.calibrate import Plan
    from fdsim.devices.fitting.fit import fit as fit_profile
    from fdsim.devices.fitting.profile_file import profile_text
    from fdsim.files import write_whole

    # Not with_suffix: the table of phones.toml must not take the name of the log, phones.parquet.
    table = out.with_name(f"{out.stem}.fit.parquet")
    sources = [trace, *_files(like)]
    refuse_output("--out", out, suffix=".toml", sources=sources, force=force)
    refuse_output("--out", table, sources=sources, force=force)
    if page is not None:
        refuse_output("--page", page, suffix=".html", sources=sources, force=force)
    _known(like, "--like")
    phones = _read(trace, silent_screen_s)
    found = fit_profile(
        phones,
        str(trace),
        like=like,
        seed=seed,
        plan=Plan(devices=devices, turns=turns),
        on_turn=lambda turn, _: typer.echo(f"calibration, turn {turn + 1} of {turns}", err=True),
        all_phones=all_phones,
    )
    about = f"Fitted to {found.fitted_to} of the {len(phones)} devices of {trace.name}"
    text = profile_text(found.profile, about, source=f"fitted to {trace.name} [D]", fitted=found.fitted)
    write_whole(out, text.encode())
    whose = "the" if all_phones else "not the"
    title = f"{out.name}, on {len(found.test)} phones of {trace.name}, {whose} ones that it was fitted to"
    _report(title, found.rows, (found.test, found.simulated), table, page)
    typer.echo(f'{out}: use it with [[fleet]] profile = "{out}"')


@app.command()
def check(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="The name of a profile, or a file that `fit` wrote.")
    ],
    trace: LogFile,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="F.parquet", help="Also write the table here.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Simulated fleets.")] = 3,
    devices: Annotated[int, typer.Option("--devices", min=10, help="Phones in each of them.")] = 1000,
    silent_screen_s: SilentScreen = 0.0,
    page: Page = None,
    force: Force = False,
) -> None:
    """Compare a profile with all phones of a log, statistic by statistic."""
    from fdsim.devices.fitting.fit import compare, is_available_only
    from fdsim.devices.fitting.log_check import check_phones
    from fdsim.devices.fitting.statistics import record

    sources = [trace, *_files(profile)]
    if out is not None:
        refuse_output("--out", out, suffix=".parquet", sources=sources, force=force)
    if page is not None:
        refuse_output("--page", page, suffix=".html", sources=sources, force=force)
    _known(profile, "PROFILE")
    phones = _read(trace, silent_screen_s)
    check_phones(phones, str(trace))
    real = [record(phone) for phone in phones]
    rows, fleets = compare(
        {"profile": profile},
        real,
        available=is_available_only(phones),
        devices=devices,
        seeds=tuple(range(1, seeds + 1)),
    )
    _report(f"{profile}, on the {len(real)} phones of {trace.name}", rows, (real, fleets[0]), out, page)


def _files(profile: str) -> list[Path]:
    """Return the file of a profile, if it is one."""
    return [Path(profile)] if profile.endswith(".toml") else []


def _known(profile: str, place: str) -> None:
    """Refuse a profile that does not exist, by the place where it was given."""
    from fdsim.devices.config.profiles import profile as look_up
    from fdsim.errors import ScenarioError

    try:
        look_up(profile)
    except ScenarioError as error:
        remedy = error.remedy or "`fdsim list profiles` shows all; a file of your own ends in .toml"
        raise ScenarioError(place, error.problem, remedy) from None


def _refuse_other_files(trace: Path) -> None:
    """Refuse files of fdsim that are no logs of phones."""
    from fdsim.errors import TraceError
    from fdsim.trace.file import is_trace

    remedy = (
        "`fdsim trace import flash|fedscale|csv FILE --out F.parquet` makes a log of what phones recorded"
    )
    if trace.suffix == ".toml":
        raise TraceError(str(trace), "a TOML file (a scenario or a profile), not an availability log", remedy)
    if is_trace(trace):
        raise TraceError(str(trace), "a trace of rounds, not an availability log", remedy)


def _read(trace: Path, silent_screen_s: float) -> list[Observed]:
    from fdsim.errors import TraceError
    from fdsim.trace.availability import is_availability, read_availability
    from fdsim.trace.importers.fedscale import read_fedscale
    from fdsim.trace.importers.flash import read_flash
    from fdsim.trace.importers.interval_csv import read_interval_csv

    if not trace.is_file():
        raise TraceError(str(trace), "there is no such file")
    _refuse_other_files(trace)
    if is_availability(trace) or trace.suffix == ".parquet":
        return read_availability(trace)
    if trace.suffix == ".csv":
        return read_interval_csv(trace)
    if trace.suffix == ".json" and "avl_events" not in trace.read_text(encoding="utf-8", errors="replace"):
        return read_flash(trace, silent_screen_s=silent_screen_s)
    return read_fedscale(trace)


def _report(
    title: str,
    rows: Sequence[Row],
    phones: tuple[Sequence[PhoneRecord], Sequence[PhoneRecord]],
    out: Path | None,
    page: Path | None,
) -> None:
    from itertools import groupby

    import pyarrow.parquet as pq
    from rich.table import Table

    from fdsim.cli.console import PlainConsole
    from fdsim.devices.fitting.goodness import as_table
    from fdsim.devices.fitting.picture import page as picture_page
    from fdsim.devices.fitting.table import DISTANCES, LEGEND, STATISTICS, cells
    from fdsim.files import UnfinishedFile, storage_errors, write_whole

    table = Table(STATISTICS[0], title=title, title_justify="left")
    for column in STATISTICS[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    for is_distance, group in groupby(rows, lambda row: row.is_distance):
        if is_distance:
            table.add_section()
            table.add_row(*DISTANCES, style="bold")
        for row in group:
            table.add_row(*cells(row))
    console = PlainConsole()
    console.print(table)
    console.print(LEGEND)
    typer.echo(f"{sum(row.good for row in rows)} of {len(rows)} statistics and distances are good")
    if out is not None:
        with storage_errors(out, resumable=False), UnfinishedFile(out) as waiting:
            pq.write_table(as_table(rows), waiting, compression="zstd")
        typer.echo(f"{out}: the table")
    if page is not None:
        write_whole(page, picture_page(title, rows, *phones).encode())
        typer.echo(f"{page}: pictures")
