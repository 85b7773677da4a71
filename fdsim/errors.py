"""The errors that fdsim raises deliberately, as one small tree.

`InputError` and its children mean that something the user gave was wrong (exit code 2); `RunError` and its children
mean that the work itself failed (exit code 1; 3 where a run ended and only some of its strategies failed). Anything
else that escapes is a bug, in fdsim or in a user's own model.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return text for a terminal: without the control characters by which a name could steer it; line breaks stay."""
    return "".join(each if each.isprintable() or each == "\n" else "�" for each in text)


class FdsimError(Exception):
    """The root of the tree; `exit_code` is what the command line exits with."""

    exit_code = 1


class InputError(FdsimError):
    """Something the user gave is wrong: `place` says where, `problem` what, `remedy` what to do about it."""

    exit_code = 2

    def __init__(self, place: str, problem: str, remedy: str = "") -> None:
        self.place, self.problem, self.remedy = place, problem, remedy
        super().__init__(printable(f"{place}: {problem}" + (f". {remedy}" if remedy else "")))

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str]]:
        # Errors cross process borders in studies; the default would call __init__ with the joined text only.
        return type(self), (self.place, self.problem, self.remedy)


class ScenarioError(InputError):
    """A scenario or study file cannot be run."""


class CatalogueError(InputError, ValueError):
    """A kind does not exist, or is not of the family it is used in; a ValueError, which pydantic gives a place."""


class TraceError(InputError):
    """A trace, or a file to import as one, is damaged or contradicts itself."""


class DataError(InputError):
    """A data set is missing, or cannot be partitioned as requested."""


class ContractError(FdsimError):
    """A component does not keep what its family promises."""


class RunFolderError(InputError):
    """A run folder is not what the command needs it to be."""


class RunFolderWarning(UserWarning):
    """A run folder is not as its run left it."""


class ScenarioWarning(UserWarning):
    """A scenario can be run, but something in it can hardly be meant."""


class RunError(FdsimError):
    """The run could not continue."""


class CallbackError(RunError):
    """A callback of the user's own raised an error."""


class NumericalError(RunError):
    """Training gave NaN or infinity."""


class StrategyFailureError(RunError):
    """The run reached its end, but some of its strategies failed on the way."""

    exit_code = 3


class StorageError(RunError):
    """The disk refused: full, read-only or gone."""
