"""Each column is written down once: records, schemas, dictionary and README agree."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pytest

from fdsim import trace
from fdsim.telemetry import schema
from fdsim.telemetry.dictionary import STRATEGY, as_markdown, dictionary
from fdsim.telemetry.rows import clients_table, rounds_table, similarity_table

README = Path(schema.__file__).with_name("README.md")


@pytest.mark.parametrize(
    ("record", "columns", "implied"),
    [
        (schema.RoundRow, schema.ROUND_COLUMNS, set()),
        (schema.ClientRows, schema.CLIENT_COLUMNS, set()),
        (schema.SimilaritySnapshot, schema.SIMILARITY_COLUMNS, set()),
    ],
)
def test_records_have_the_names_of_their_columns(
    record: type, columns: tuple[schema.Column, ...], implied: set[str]
) -> None:
    assert {f.name for f in fields(record)} | implied == {column.name for column in columns}


def test_no_rows_make_a_table_of_the_right_schema() -> None:
    for make, columns in (
        (rounds_table, schema.ROUND_COLUMNS),
        (clients_table, schema.CLIENT_COLUMNS),
        (similarity_table, schema.SIMILARITY_COLUMNS),
    ):
        assert make([]).schema == schema.arrow_schema(columns)


def test_the_dictionary_has_every_column_of_every_schema_with_a_meaning() -> None:
    known = dictionary()
    assert list(known) == ["trace", "rounds", "clients", "similarity", "events"]
    assert [entry.name for entry in known["trace"]] == trace.SCHEMA.names
    for table, columns in schema.TABLES.items():
        names = [entry.name for entry in known[table] if entry.name != STRATEGY[0]]
        assert names == [column.name for column in columns]
    assert all(len(entry.meaning) > 3 and entry.type for entries in known.values() for entry in entries)


def test_the_readme_holds_the_dictionary() -> None:
    text = README.read_text(encoding="utf-8")
    assert as_markdown() in text, (
        "paste the output of fdsim.telemetry.dictionary.as_markdown() into the README"
    )


def test_words_are_dictionary_encoded() -> None:
    for columns in (schema.ROUND_COLUMNS, schema.CLIENT_COLUMNS):
        for column in columns:
            assert pa.types.is_dictionary(column.type) == (column.name in schema.WORDS)


def test_units_are_in_the_names() -> None:
    for columns in schema.TABLES.values():
        for column in columns:
            assert column.is_wall_time == (column.name.startswith("wall_"))
            if "share of" in column.meaning and column.name.endswith("_frac"):
                assert pa.types.is_floating(column.type)
