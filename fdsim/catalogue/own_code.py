"""Code of the user's own: what becomes of `module:Class` kinds, and from where their modules are imported."""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from fdsim.catalogue.menu import nearest
from fdsim.errors import CatalogueError


@dataclass(frozen=True)
class OwnCode:
    """What becomes of `module:Class` kinds: imported, refused, or left as the tables they are.

    A scenario file is code, so its kinds are imported; a run folder is data, so those it names are left. With `folder`
    they are imported from that folder alone.
    """

    policy: Literal["import", "refuse", "leave"] = "import"
    folder: Path | None = None


_own_code: ContextVar[OwnCode] = ContextVar("own_code", default=OwnCode())  # noqa: B039 (frozen)
#: Where modules of the user's own are looked for, before the current folder; the latest first.
_folders: list[Path] = []
#: Name of a top-level module of the user's own → its file or folder, and the folder it was found in.
_own_modules: dict[str, tuple[str, str]] = {}


@contextmanager
def own_code(chosen: OwnCode | None) -> Iterator[None]:
    """Treat `module:Class` kinds as `chosen` says for as long as the context lasts; None changes nothing."""
    token = _own_code.set(chosen or _own_code.get())
    try:
        yield
    finally:
        _own_code.reset(token)


def own_code_left() -> bool:
    """Whether `module:Class` kinds are to be left as they are, without a look at the class."""
    return _own_code.get().policy == "leave"


def import_also_from(folder: Path) -> None:
    """Look for the modules of `module:Class` kinds in `folder` too; sys.path stays as it is."""
    if folder in _folders:
        _folders.remove(folder)
    _folders.insert(0, folder)


def own_folders() -> list[Path]:
    """Return the folders in which modules of the user's own are looked for, the first one first."""
    chosen = _own_code.get().folder
    return [chosen.resolve()] if chosen is not None else [*_folders, Path.cwd()]


def own_module(name: str) -> ModuleType:
    """Import a module that a scenario names: an installed one, or else the user's own, by its file.

    Nothing but the modules that scenarios name, and what these import themselves, is ever taken from the user's
    folders: a tensorboard.py beside a scenario is nobody's tensorboard.
    """
    if _own_code.get().policy == "refuse":
        raise CatalogueError(
            "--no-code",
            f"the scenario names code of its own, '{name}'",
            "leave out --no-code if you trust it",
        )
    if not all(part.isidentifier() for part in name.split(".")):
        raise CatalogueError(
            "kind", f"'{name}' is not the name of a module", "name a file module.py as module:Class"
        )
    top = name.partition(".")[0]
    try:
        if top in _own_modules or (top not in sys.modules and find_spec(top) is None):
            _load_own(top)
        return importlib.import_module(name)
    except SystemExit as stop:
        raise CatalogueError(
            "kind",
            f"module '{name}' ends the program when it is imported (sys.exit({stop.code!r}))",
            'put what it does as a program under if __name__ == "__main__"',
        ) from None


def own_class(path: str, family: str) -> type:
    """Import the class that a `module:Class` names, or say why there is none."""
    module_name, _, class_name = path.partition(":")
    try:
        module = own_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise CatalogueError(
                family,
                f"no module called '{module_name}'",
                f"'{path}' is looked for beside the scenario, in the current folder and among installed packages",
            ) from None
        raise
    found = getattr(module, class_name, None)
    if found is None:
        names = [name for name in vars(module) if isinstance(getattr(module, name), type)]
        raise CatalogueError(
            family,
            f"module '{module_name}' has no class '{class_name}'" + nearest(class_name, names),
            f"'{module_name}' is an installed package; a file of your own needs another name"
            if _is_installed(module)
            else f"it was looked for in {module.__file__}",
        )
    return found  # type: ignore[no-any-return]


def file_of(found: type) -> str:
    """Return the file that a class was read from, or the name of its module."""
    return str(getattr(sys.modules.get(found.__module__), "__file__", None) or found.__module__)


def _is_installed(module: ModuleType) -> bool:
    """Whether a module is a package's or Python's own, and not a file that somebody wrote beside a scenario."""
    file = getattr(module, "__file__", None)
    if module.__name__.partition(".")[0] in _own_modules:
        return False
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return file is None or any(Path(file).is_relative_to(place) for place in places if place)


def _load_own(top: str) -> None:
    """Load a top-level module from the user's folders, again if another file of that name was loaded before."""
    importlib.invalidate_caches()
    spec = _found_in(top, own_folders())
    if spec is None:
        raise ModuleNotFoundError(f"no module called '{top}'", name=top)
    place = _own_modules[top][0]
    if getattr(sys.modules.get(top), "__fdsim_place__", None) == place:
        return
    for loaded in [known for known in sys.modules if known.partition(".")[0] == top]:
        del sys.modules[loaded]
    module = module_from_spec(spec)
    module.__dict__["__fdsim_place__"] = place
    sys.modules[top] = module
    try:
        if spec.loader is not None:
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(top, None)
        raise


def _found_in(name: str, folders: Sequence[Path]) -> ModuleSpec | None:
    for folder in folders:
        spec = PathFinder.find_spec(name, [str(folder)])
        if spec is not None:
            _own_modules[name] = (spec.origin or f"{folder}/{name}", str(folder))
            return spec
    return None


class _Siblings:
    """Lets modules of the user's own, and nobody else, import what lies beside them."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if path is not None or not _own_modules:
            return None
        frame = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
            "importlib",
            "_frozen_importlib",
        ):
            frame = frame.f_back  # type: ignore[assignment]
        importer = frame.f_globals.get("__name__", "") if frame is not None else ""
        known = _own_modules.get(str(importer).partition(".")[0])
        return None if known is None else _found_in(name, [Path(known[1])])


# Last, so that whatever is installed comes first.
sys.meta_path.append(_Siblings)


def own_files() -> dict[str, str]:
    """Return the modules of the user's own that were loaded, each with its file."""
    return {name: place for name, (place, _) in _own_modules.items() if name in sys.modules}


def own_kinds(tables: Any) -> list[str]:
    """Return every `module:Class` that a scenario's plain tables name, in order, without importing any."""
    if isinstance(tables, list):
        return list(dict.fromkeys(kind for item in tables for kind in own_kinds(item)))
    if not isinstance(tables, dict):
        return []
    found = [v for k, v in tables.items() if k == "kind" and isinstance(v, str) and ":" in v]
    if tables.get("kind") == "module" and isinstance(tables.get("path"), str):
        found.append(tables["path"])
    return list(dict.fromkeys([*found, *(kind for item in tables.values() for kind in own_kinds(item))]))
