"""A Parquet file with a checksum notices every flipped bit, and is ordinary to everyone else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fdsim.errors import RunFolderError
from fdsim.telemetry.checksum import checksummed_parquet, verify_checksum


def table() -> pa.Table:
    return pa.table({"round": np.arange(50), "loss": np.linspace(0, 1, 50)}).replace_schema_metadata(
        {"a": "b"}
    )


def test_a_file_with_a_checksum_reads_like_any_other() -> None:
    found = pq.read_table(pa.BufferReader(checksummed_parquet(table())))
    assert found.equals(table())
    assert found.schema.metadata[b"a"] == b"b"


def test_an_untouched_file_passes_and_has_the_same_checksum_twice() -> None:
    content = checksummed_parquet(table())
    verify_checksum(content, Path("x"))
    assert checksummed_parquet(table()) == content


def test_every_flipped_byte_is_noticed() -> None:
    content = checksummed_parquet(table())
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << (place % 8)
        with pytest.raises(RunFolderError, match=r"part-7\.parquet: the file is damaged"):
            verify_checksum(bytes(damaged), Path("part-7.parquet"))


@pytest.mark.parametrize("length", [0, 3, 100])
def test_a_truncated_file_is_noticed(length: int) -> None:
    with pytest.raises(RunFolderError, match="damaged"):
        verify_checksum(checksummed_parquet(table())[:length], Path("x"))
