"""The pages of the site that are written by the code itself, or that live elsewhere in the repository.

mkdocs calls the two hooks: `on_config` puts the pages into the menu, `on_files` hands their text over. What is generated
cannot lag behind: columns come from the telemetry's dictionary, kinds from the catalogue, keys from the scenario's tables,
commands from the command line.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

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
    from fdsim.scenario.schema import scenario_schema

    schema = scenario_schema()
    parts = [
        "# The scenario file",
        "A scenario is a TOML file. Units are in the names: `_s` seconds, `_j` joules, `_w` watts, `_bps` bits per "
        "second, `_frac` a number from 0 to 1. Where a table names a `kind`, its further keys are those of the kind: "
        "[kinds](kinds.md). `fdsim schema` prints all this as JSON Schema, for an editor.",
        "## Top level",
        _keys(schema["properties"]),
    ]
    for name in _in_order(schema):
        table = schema["$defs"][name]
        parts += [f"## {name}", _first_line(table.get("description", "")), _keys(table.get("properties", {}))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _in_order(schema: dict[str, Any]) -> list[str]:
    """Return the tables in the order in which the top level, then they themselves, refer to one another."""
    found: list[str] = []
    waiting = [schema["properties"]]
    while waiting:
        part = waiting.pop(0)
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
        waiting += [value for value in inner if isinstance(value, dict | list)]
        name = str(part.get("$ref", "")).rsplit("/", 1)[-1] if isinstance(part, dict) else ""
        if name and not name.startswith("family_") and name not in found:
            found.append(name)
            waiting.append(schema["$defs"][name].get("properties", {}))
    return found


def _keys(properties: dict[str, Any]) -> str:
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, about in properties.items():
        default = about.get("default", "")
        shown = "" if default in ("", None) or isinstance(default, dict | list) else f"`{_toml(default)}`"
        lines.append(f"| `{key}` | {_type(about)} | {shown} | {_cell(about.get('description', ''))} |")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _type(about: dict[str, Any]) -> str:
    if "$ref" in about:
        name = about["$ref"].rsplit("/", 1)[-1]
        family = name.removeprefix("family_")
        return f"a [{family}](kinds.md#{family})" if name != family else f"[{name}](#{name.lower()})"
    for joined in ("anyOf", "oneOf", "allOf"):
        if joined in about:
            return " or ".join(
                dict.fromkeys(_type(one) for one in about[joined] if one.get("type") != "null")
            )
    if "enum" in about:
        return ", ".join(f"`{value}`" for value in about["enum"])
    if about.get("type") == "array":
        return "list of " + _type(about.get("items", {})) if about.get("items") else "list"
    return {"object": "table"}.get(str(about.get("type", "any")), str(about.get("type", "any")))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def kinds_page() -> str:
    """List every kind of every family with its keys."""
    from fdsim.catalogue import BASES, MENU, each_kind, find

    parts = [
        "# Kinds",
        'What a scenario can name as `kind = "…"`, by family. A class of your own is named `module:Class`; the base '
        "class to derive from stands under each heading.",
    ]
    for family in MENU:
        parts += [f"## {family}", f"Base class: `{BASES[family].replace(':', '.')}`"]
        for name, kind, line in each_kind([family]):
            fields = {k: f for k, f in find(name, kind).model_fields.items() if k not in ("kind", "name")}
            rows = [
                f"| `{key}` | {_default(field)} | {_cell(field.description or '')} |"
                for key, field in fields.items()
            ]
            parts += [f"### {family}: {kind}", line]
            parts += ["\n".join(["| key | default | meaning |", "|---|---|---|", *rows])] if rows else []
    return "\n\n".join(parts) + "\n"


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.default if field.default_factory is None else field.get_default(call_default_factory=True)
    if hasattr(value, "kind"):
        return f"`{value.kind}`"
    return (
        ""
        if value is None
        else f"`{_cell(_toml(value))}`"
        if len(str(value)) < 60
        else "see `fdsim list kinds`"
    )


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

    from fdsim.cli.app import GROUPS, app

    root: Any = typer.main.get_command(app)
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
    "reference/kinds.md": kinds_page,
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
