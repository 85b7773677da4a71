"""The catalogue: the menu of kinds, the components they name, and code of the user's own."""

from fdsim.catalogue.component import (
    Chosen,
    Component,
    NestedError,
    PlainName,
    Table,
    build,
    each_kind,
    find,
    first_line,
    kind_of,
    merge,
)
from fdsim.catalogue.menu import BASES, MENU, nearest
from fdsim.catalogue.own_code import (
    OwnCode,
    import_also_from,
    own_code,
    own_code_left,
    own_files,
    own_folders,
    own_kinds,
    own_module,
)

__all__ = [
    "BASES",
    "MENU",
    "Chosen",
    "Component",
    "NestedError",
    "OwnCode",
    "PlainName",
    "Table",
    "build",
    "each_kind",
    "find",
    "first_line",
    "import_also_from",
    "kind_of",
    "merge",
    "nearest",
    "own_code",
    "own_code_left",
    "own_files",
    "own_folders",
    "own_kinds",
    "own_module",
]
