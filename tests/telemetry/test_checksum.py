"""A sealed Parquet file notices every flipped bit, and is ordinary to everyone else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fdsim.errors import RunFolderError
from fdsim.telemetry.checksum import check_seal, sealed_parquet


def table() -> pa.Table:
    return pa.table({"round": np.arange(50), "loss": np.linspace(0, 1, 50)}).replace_schema_metadata(
        {"a": "b"}
    )


def test_a_sealed_file_reads_like_any_other() -> None:
    found = pq.read_table(pa.BufferReader(sealed_parquet(table())))
    assert found.equals(table())
    assert found.schema.metadata[b"a"] == b"b"


def test_an_untouched_file_passes_and_seals_the_same_twice() -> None:
    content = sealed_parquet(table())
    check_seal(content, Path("x"))
    assert sealed_parquet(table()) == content


def test_every_flipped_byte_is_noticed() -> None:
    content = sealed_parquet(table())
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << (place % 8)
        with pytest.raises(RunFolderError, match=r"part-7\.parquet: the file is damaged"):
            check_seal(bytes(damaged), Path("part-7.parquet"))


@pytest.mark.parametrize("length", [0, 3, 100])
def test_a_truncated_file_is_noticed(length: int) -> None:
    with pytest.raises(RunFolderError, match="damaged"):
        check_seal(sealed_parquet(table())[:length], Path("x"))
