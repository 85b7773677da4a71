"""The pages of the site that are written by the code itself, or that live elsewhere in the repository.

mkdocs calls the two hooks: `on_config` puts the pages into the menu, `on_files` hands their text over. What is generated
cannot lag behind: columns come from the telemetry's dictionary, kinds from the catalogue, keys from the scenario's tables,
commands from the command line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fdsim.scenario.reference import Key

ROOT = Path(__file__).resolve().parent.parent
#: Texts of the repository that are pages of the site as they are.
ELSEWHERE = {"explanation/realism.md": ROOT / "fdsim/devices/README.md"}
TITLES = {"CONTRIBUTING": "Contributing", "gpu": "GPU"}


def project_pages() -> dict[str, Path]:
    """Return the texts in docs/ itself, architecture first, as pages of the site."""
    found = sorted(
        (ROOT / "docs").glob("*.md"), key=lambda path: (path.stem != "architecture", path.stem.lower())
    )
    return {f"project/{path.name}": path for path in found}


def scenario_page() -> str:
    """List every key of a scenario file, table by table."""
    from fdsim.scenario import Scenario
    from fdsim.scenario.reference import tables_of

    lists = {name for name, field in Scenario.model_fields.items() if "tuple[" in str(field.annotation)}
    parts = [
        "# The scenario file",
        "A scenario is a TOML file. Units are in the names: `_s` seconds, `_j` joules, `_w` watts, `_bps` bits per "
        "second, `_frac` a number from 0 to 1. Where a table names a `kind`, its further keys are those of the kind: "
        "[kinds](kinds.md). `fdsim list keys` prints all this, `fdsim schema` as JSON Schema, for an editor.",
    ]
    for table in tables_of(Scenario, ""):
        parts += [_heading(table.name, lists), table.about, _keys(table.keys)]
        if not table.name:
            parts.append(
                "`extends` names another scenario file that this one builds on, relative to this one: tables merge key by "
                "key, lists such as `[[fleet]]` are replaced. Paths of other files (`path = …`) are seen from the folder "
                "in which `fdsim` is called."
            )
    return "\n\n".join(part for part in parts if part) + "\n"


def study_page() -> str:
    """List every key of a study file."""
    from fdsim.scenario.reference import tables_of
    from fdsim.studies.study_file import StudyTable

    (table,) = tables_of(StudyTable, "study")
    return "\n\n".join(
        [
            "# The study file",
            "A study is a TOML file with a `[study]` table. Keys outside it are laid over the `base`, as with `extends`; or "
            "the whole scenario stands there, without a base. Swept keys are dotted, in quotes or not: "
            '`"server.deadline_s" = [20, 120]`. [How to](../howto/study.md).',
            _heading(table.name, set()),
            table.about,
            _keys(table.keys),
        ]
    )


def _heading(name: str, lists: set[str]) -> str:
    """Write a table's name as its TOML file does; what is one of several kinds is named by its kind."""
    if not name:
        return "## Top level"
    place, _, kind = name.partition(" ")
    brackets = f"[[{place}]]" if place in lists else f"[{place}]"
    return f"## `{brackets}`" + (f" {kind}" if kind else "")


def _keys(keys: Sequence[Key]) -> str:
    if not keys:
        return ""
    lines = ["| key | takes | default | meaning |", "|---|---|---|---|"]
    for key in keys:
        takes = re.sub(
            r"table with a kind, see `fdsim list keys (\w+)`",
            r"a kind of [\1](kinds.md#\1)",
            key.type.replace("|", "\\|"),
        )
        default = "**required**" if key.required else f"`{key.default}`" if key.default else ""
        lines.append(f"| `{key.name}` | {takes} | {default} | {_cell(key.meaning)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def kinds_page() -> str:
    """List every kind of every family with its keys."""
    from fdsim.catalogue import BASES, MENU
    from fdsim.scenario.reference import key_tables

    parts = [
        "# Kinds",
        'What a scenario can name as `kind = "…"`, by family. A class of your own is named `module:Class`; '
        "`module.py` is looked for beside the scenario, then in the current folder (an installed package of that name comes "
        "first). The base class to derive from stands under each heading. Tables inside a kind's table come right after it.",
    ]
    tables = key_tables()
    for family in MENU:
        module, _, name = BASES[family].partition(":")
        parts += [f"## {family}", f"Base class: `fdsim.{name}`, in `{module}`."]
        for table in tables:
            if table.name.startswith(f"{family} "):
                inner = "####" if "." in table.name else "###"
                keys = [key for key in table.keys if key.name not in ("kind", "name")]
                parts += [f"{inner} {table.name.replace(' ', ': ', 1)}", table.about, _keys(keys)]
    return "\n\n".join(part for part in parts if part) + "\n"


def profiles_page() -> str:
    """List the device profiles with every value and its source."""
    from fdsim.devices.config.profiles import MARKS, about, profile, sources

    parts = [
        "# Device profiles",
        'What a `[[fleet]]` group starts from: `profile = "midrange_phone"`; any part may be replaced. A file of '
        'your own is named likewise, `profile = "mine.toml"`: [fit one to logs](../howto/fit.md). '
        "Each number has its source, with a mark: "
        + "; ".join(f"`{mark}` {meaning}" for mark, meaning in MARKS.items())
        + ".",
    ]
    for name, line in about():
        known = sources(name)
        rows = [
            f"| `{key}` | `{json.dumps(value, ensure_ascii=False)}` | {_cell(_source(key, known))} |"
            for key, value in _leaves(profile(name))
        ]
        parts += [f"## {name}", line, "\n".join(["| key | value | source |", "|---|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def _leaves(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield above + key, value


def _source(key: str, known: Mapping[str, str]) -> str:
    """Return the source of a key: its own, else that of the longest beginning of it that has one."""
    words = key.split(".")
    beginnings = (".".join(words[:length]) for length in range(len(words), 0, -1))
    return next((known[beginning] for beginning in beginnings if beginning in known), "")


def columns_page() -> str:
    """List every column of a run's tables."""
    from fdsim.telemetry.dictionary import as_markdown

    about = (
        '# Columns\n\nA run folder\'s tables are Parquet: `pd.read_parquet("runs/x/rounds")`. `clients` has a row per '
        "strategy, round and client, so count dropouts in `trace`, or in one strategy's rows.\n\n"
    )
    return about + as_markdown() + "\n"


def commands_page() -> str:
    """List every command with its arguments and options."""
    import typer.main

    from fdsim.cli.app import GROUPS, assemble

    root: Any = typer.main.get_command(assemble())
    parts = [
        "# Commands",
        "Exit codes: 0 success, 1 the run failed, 2 the input was wrong. `--debug` shows tracebacks.",
    ]
    for group, verbs in GROUPS.items():
        parts.append(f"## {group}")
        for verb in verbs:
            command = root.commands[verb]
            inner = getattr(command, "commands", None)
            for name, one in (
                {f"{verb} {k}": c for k, c in inner.items()}.items() if inner else [(verb, command)]
            ):
                parts += [f"### fdsim {name}", _first_line(one.help or ""), _options(one)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _options(command: Any) -> str:
    rows = []
    for parameter in command.params:
        if parameter.name == "help":
            continue
        names = (
            ", ".join(f"`{o}`" for o in parameter.opts)
            if parameter.param_type_name == "option"
            else (f"`{parameter.metavar or parameter.name.upper()}`")
        )
        rows.append(f"| {names} | {_cell(getattr(parameter, 'help', '') or '')} |")
    return "\n".join(["| argument or option | meaning |", "|---|---|", *rows]) if rows else ""


GENERATED = {
    "reference/scenario.md": scenario_page,
    "reference/study.md": study_page,
    "reference/kinds.md": kinds_page,
    "reference/profiles.md": profiles_page,
    "reference/columns.md": columns_page,
    "reference/commands.md": commands_page,
}


def as_page(text: str, source: Path, page: str) -> str:
    """Keep a text's links to other pages; what is not on the site is named by its path in the repository."""
    pages = {path.resolve(): name for name, path in {**ELSEWHERE, **project_pages()}.items()}

    def link(found: re.Match[str]) -> str:
        words, target = found.group(1), found.group(2)
        if re.match(r"https?:|#|mailto:", target):
            return found.group(0)
        path, _, anchor = target.partition("#")
        place = (source.parent / path).resolve()
        if place in pages:
            address = os.path.relpath(pages[place], Path(page).parent)
            return f"[{words}]({address}{'#' + anchor if anchor else ''})"
        inside = place.relative_to(ROOT).as_posix() if place.is_relative_to(ROOT) else target
        return f"`{inside}`" if words.strip("`") in (inside, Path(inside).name) else f"{words} (`{inside}`)"

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", link, text)


def on_config(config: Any) -> Any:
    """Add the repository's own texts to the menu."""
    pages = [{TITLES.get(path.stem, path.stem.capitalize()): name} for name, path in project_pages().items()]
    config.nav = [*config.nav, {"Project": pages}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Hand over the pages that no file in docs/pages holds."""
    from mkdocs.structure.files import File

    made = {name: write() for name, write in GENERATED.items()}
    for name, path in {**ELSEWHERE, **project_pages()}.items():
        made[name] = as_page(path.read_text(encoding="utf-8"), path, name)
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    for picture in ("report.png", "released.png"):
        source = ROOT / "analysis/results" / picture
        files.append(File.generated(config, f"pictures/{picture}", abs_src_path=str(source)))
    return files
