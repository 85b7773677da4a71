"""The command line, assembled from one module a verb; heavy imports are inside the verbs that need them."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TextIO, cast

import typer
from typer.core import TyperGroup

from fdsim import __version__
from fdsim.cli import bench, fleet, listing, trace
from fdsim.cli.compare import compare
from fdsim.cli.explain import explain
from fdsim.cli.new import new
from fdsim.cli.report import report
from fdsim.cli.run import run
from fdsim.cli.schema import schema
from fdsim.cli.show import show
from fdsim.cli.study import study
from fdsim.cli.theory import theory
from fdsim.cli.validate import validate
from fdsim.cli.verify import verify
from fdsim.errors import FdsimError, RunFolderWarning, printable

#: Every verb, in groups and in the order in which a newcomer needs them.
GROUPS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Simulate": {"new": new, "run": run, "study": study, "trace": trace.app, "fleet": fleet.app},
    "Look at results": {"report": report, "compare": compare, "show": show},
    "Write scenarios": {"validate": validate, "explain": explain, "list": listing.app, "schema": schema},
    "Check": {"verify": verify, "theory": theory, "bench": bench.app},
}
VERBS = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}


class _Ordered(TyperGroup):
    """Lists the verbs as `VERBS` does; Typer alone would put all groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)


app = typer.Typer(
    name="fdsim",
    cls=_Ordered,
    help="Federated learning on devices that drop out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _panel, _verbs in GROUPS.items():
    for _name, _verb in _verbs.items():
        if isinstance(_verb, typer.Typer):
            app.add_typer(_verb, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel)(_verb)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fdsim {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Federated learning on devices that drop out."""


class _UntilClosed:
    """A stream whose reader may leave, as `head` does: the rest goes nowhere, and the command does its work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._close()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._close()

    def _close(self) -> None:
        # What is still buffered is written when Python exits, and must find a place then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def main() -> None:
    """Run the command line; exit codes: 0 success, 1 the run failed, 2 the input was wrong, 3 a strategy failed."""
    sys.stdout = cast("TextIO", _UntilClosed(sys.stdout))
    debug = "--debug" in sys.argv or bool(os.environ.get("FDSIM_DEBUG"))
    # --debug may stand anywhere on the line, as people add it to the end of the command that failed.
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    plainly = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, RunFolderWarning):
            print(printable(f"warning: {message}"), file=sys.stderr)
        else:
            plainly(message, category, *rest, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", RunFolderWarning)
        warnings.showwarning = show
        _call(arguments, debug=debug)


def _command() -> Any:
    """Return the whole command line; flags take no value, so their help names none."""
    made: Any = typer.main.get_command(app)
    waiting = [made]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        for parameter in command.params:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
    return made


def _call(arguments: list[str], *, debug: bool) -> None:
    try:
        _command()(args=arguments, standalone_mode=True)
    except FdsimError as error:
        if debug:
            raise
        _print_error(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        _print_error(_unforeseen(error))
        sys.exit(1)


def _unforeseen(error: Exception) -> str:
    """Describe an error that nobody meant to raise: by the line of the user's own code that it passed, if any."""
    import sysconfig

    said = f"{type(error).__name__}: {error}"
    others = (str(Path(__file__).parent.parent), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
    frames = traceback.extract_tb(error.__traceback__)
    passed = [f for f in frames if Path(f.filename).is_file() and not f.filename.startswith(others)]
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith(others):
        return f"{error.filename}, line {error.lineno}: SyntaxError: {error.msg}. This is in code of your own"
    if not passed:
        return f"{said}. This is a bug, in fdsim or in a model of your own; --debug shows where"
    last = passed[-1]
    place = f"{last.filename}, line {last.lineno}" + ("" if last.name == "<module>" else f", in {last.name}")
    return f"{place}: {said}. This is in code of your own; --debug shows how it was called"


def _print_error(text: str) -> None:
    print(printable(f"error: {text}"), file=sys.stderr)
