"""The command line, assembled from one module a verb; heavy imports are inside the verbs that need them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

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
from fdsim.errors import FdsimError

#: Every verb, in the order in which a newcomer needs them.
VERBS: dict[str, Callable[..., None] | typer.Typer] = {
    "new": new,
    "run": run,
    "study": study,
    "trace": trace.app,
    "fleet": fleet.app,
    "report": report,
    "compare": compare,
    "show": show,
    "validate": validate,
    "explain": explain,
    "list": listing.app,
    "verify": verify,
    "theory": theory,
    "schema": schema,
    "bench": bench.app,
}


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
for _name, _verb in VERBS.items():
    if isinstance(_verb, typer.Typer):
        app.add_typer(_verb, name=_name)
    else:
        app.command(_name)(_verb)


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


def main() -> None:
    """Run the command line; exit codes: 0 success, 1 the run failed, 2 the input was wrong, 3 a strategy failed."""
    debug = "--debug" in sys.argv or bool(os.environ.get("FDSIM_DEBUG"))
    # --debug may stand anywhere on the line, as people add it to the end of the command that failed.
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    try:
        app(args=arguments, standalone_mode=True)
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
        _print_error(
            f"{type(error).__name__}: {error}. This is a bug, in fdsim or in a model of your own; --debug shows where"
        )
        sys.exit(1)


def _print_error(text: str) -> None:
    print(f"error: {text}", file=sys.stderr)
