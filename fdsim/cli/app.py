"""The command line, assembled from one module a verb; heavy imports are inside the verbs that need them."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TextIO, cast

import typer
from typer.core import TyperGroup

from fdsim import __version__
from fdsim.devices.engine.gc_pause import paused
from fdsim.errors import FdsimError, RunFolderWarning, ScenarioWarning, printable

#: Every verb and where it is, in groups and in the order in which a newcomer needs them.
GROUPS: dict[str, dict[str, str]] = {
    "Simulate": {
        "new": "fdsim.cli.new:new",
        "run": "fdsim.cli.run:run",
        "study": "fdsim.cli.study:study",
        "trace": "fdsim.cli.trace:app",
        "fleet": "fdsim.cli.fleet:app",
    },
    "Look at results": {
        "report": "fdsim.cli.report:report",
        "compare": "fdsim.cli.compare:compare",
        "show": "fdsim.cli.show:show",
    },
    "Write scenarios": {
        "validate": "fdsim.cli.validate:validate",
        "explain": "fdsim.cli.explain:explain",
        "list": "fdsim.cli.listing:app",
        "schema": "fdsim.cli.schema:schema",
    },
    "Check": {
        "verify": "fdsim.cli.verify:verify",
        "theory": "fdsim.cli.theory:theory",
        "bench": "fdsim.cli.bench:app",
    },
}
VERBS = [name for verbs in GROUPS.values() for name in verbs]
#: Verbs that are over before Python's collector of garbage could find any.
_BRIEF = {"new", "validate", "list", "schema"}


class _Ordered(TyperGroup):
    """Lists the verbs as `VERBS` does; Typer alone would put all groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [verb for verb in VERBS if verb in self.commands]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fdsim {__version__}")
        raise typer.Exit


def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Federated learning on devices that drop out."""


def assemble(wanted: Sequence[str] = VERBS) -> typer.Typer:
    """Return the command line with the verbs that are wanted; the modules of others are not even imported."""
    app = typer.Typer(
        name="fdsim",
        cls=_Ordered,
        help="Federated learning on devices that drop out.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for panel, verbs in GROUPS.items():
        for name in verbs:
            if name in wanted:
                module, _, attribute = verbs[name].partition(":")
                verb = getattr(import_module(module), attribute)
                if isinstance(verb, typer.Typer):
                    app.add_typer(verb, name=name, rich_help_panel=panel)
                else:
                    app.command(name, rich_help_panel=panel)(verb)
    return app


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
    # Looking for plugins of pydantic reads the metadata of every installed package; "" in its place looks for them.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    atexit.register(_end_soon)
    debug = "--debug" in sys.argv or bool(os.environ.get("FDSIM_DEBUG"))
    # --debug may stand anywhere on the line, as people add it to the end of the command that failed.
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    plainly = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, RunFolderWarning | ScenarioWarning):
            print(printable(f"warning: {message}"), file=sys.stderr)
        else:
            plainly(message, category, *rest, **more)

    with warnings.catch_warnings():
        for own in (RunFolderWarning, ScenarioWarning):
            warnings.simplefilter("always", own)
        warnings.showwarning = show
        _call(arguments, debug=debug)


def _end_soon() -> None:
    """Spare a short verb Python's last look for garbage; what torch has loaded reports leaks if it is not taken down."""
    if "torch" not in sys.modules:
        gc.freeze()


def _command(verb: str) -> Any:
    """Return the command line for a verb, all of it for anything else; flags take no value, so their help names none."""
    made: Any = typer.main.get_command(assemble([verb] if verb in VERBS else VERBS))
    waiting = [made]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        for parameter in command.params:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
    return made


def _call(arguments: list[str], *, debug: bool) -> None:
    verb = arguments[0] if arguments else ""
    try:
        with paused() if verb in _BRIEF else nullcontext():
            _command(verb)(args=arguments, standalone_mode=True)
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
