"""A Parquet file that carries the hash of its own bytes, so that a single flipped bit is noticed.

Parquet's page checksums do not cover the footer. The footer's key-value metadata is stored as plain bytes, so
a placeholder of fixed length can be put there, the whole file hashed, and the placeholder overwritten with
the hash. To everyone else it is an ordinary Parquet file with one more metadata entry.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fdsim.errors import RunFolderError
from fdsim.files import SEAL_BLANK as _BLANK
from fdsim.files import SEAL_KEY as _KEY
from fdsim.files import SEAL_MARK as _MARK

#: Rows of a row group: filters on the round skip whole groups.
GROUP_ROWS = 16_384


def checksummed_parquet(table: pa.Table) -> bytes:
    """Return a table as the bytes of a Parquet file that carries its own checksum."""
    sink = pa.BufferOutputStream()
    metadata = {**(table.schema.metadata or {}), _KEY: _MARK + _BLANK}
    pq.write_table(
        table.replace_schema_metadata(metadata),
        sink,
        compression="zstd",
        row_group_size=GROUP_ROWS,
        version="2.6",
    )
    content = bytearray(memoryview(sink.getvalue()))
    start = content.rfind(_MARK + _BLANK) + len(_MARK)
    content[start : start + len(_BLANK)] = _hash(content)
    return bytes(content)


def seal_in(content: bytes) -> str:
    """Return the checksum that the bytes of a Parquet file carry, unchecked."""
    start = content.rfind(_MARK) + len(_MARK)
    return content[start : start + len(_BLANK)].decode("ascii", "replace")


def verify_checksum(content: bytes, path: Path) -> None:
    """Raise an error that names the file when its bytes are not those that were written."""
    start = content.rfind(_MARK) + len(_MARK)
    hashed = bytearray(content)
    found = bytes(hashed[start : start + len(_BLANK)])
    hashed[start : start + len(_BLANK)] = _BLANK
    if start < len(_MARK) or found != _hash(hashed):
        raise RunFolderError(
            str(path),
            "the file is damaged: its bytes are not those that were written",
            "restore it from a copy, or run the scenario again with --force",
        )


def _hash(content: bytearray) -> bytes:
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()
