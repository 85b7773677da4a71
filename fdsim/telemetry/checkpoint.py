"""A strategy's state on disk: whole, checked, and without pickled code.

A checkpoint file is a header line of fixed length (JSON: the round to continue with, length and hash of what
follows) and the state as torch.save writes it. It is loaded with weights_only, so that a checkpoint from
elsewhere cannot run code; numpy arrays are therefore stored as marked tensors, and tuples as marked lists.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fdsim.errors import RunFolderError, StorageError
from fdsim.files import UnfinishedFile, storage_errors

_HEADER_BYTES = 256
_FORMAT = 1
_MARK = "__fdsim__"
KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint file whose checksum was verified."""

    path: Path
    next_round: int
    tables: tuple[str, ...] = ()
    """What the tables were when it was made, see `parts.digests`; empty where it does not say."""

    def state(self) -> dict[str, Any]:
        """Load the state; tensors come to the CPU."""
        import torch

        with open(self.path, "rb") as file:
            file.seek(_HEADER_BYTES)
            found = _unpack(torch.load(file, map_location="cpu", weights_only=True))
        if not isinstance(found, dict):
            raise RunFolderError(str(self.path), "the checkpoint contains no state")
        return found


def save(
    folder: Path, state: dict[str, Any], next_round: int, *, temporary: Path, tables: Sequence[str] = ()
) -> None:
    """Write a checkpoint, then remove all but the last two; `tables` says what the tables are now."""
    import torch

    path = folder / f"round-{next_round:08d}.checkpoint"
    with storage_errors(path):
        with UnfinishedFile(path, temporary=temporary) as waiting, open(waiting, "wb") as file:
            file.write(b" " * _HEADER_BYTES)
            sink = _HashingSink(file)
            torch.save(_pack(state), sink)  # type: ignore[arg-type]
            sink.raise_failure()
            file.seek(0)
            file.write(_header(next_round, sink, tables))
        for old in _files(folder)[KEPT:]:
            old.unlink()


def unstorable(state: Any, place: str = "state") -> str | None:
    """Return what in a state a checkpoint cannot hold, and where; None when all is well."""
    if isinstance(state, dict):
        inner = [(f"{place}[{key!r}]", part) for key, value in state.items() for part in (key, value)]
    elif isinstance(state, list | tuple):
        inner = [(f"{place}[{index}]", value) for index, value in enumerate(state)]
    else:
        try:
            _pack(state)
        except TypeError:
            what = type(state).__name__
            return f"{place} is a {what}" if what != "ndarray" else f"{place} is an array of Python objects"
        return None
    return next((told for name, value in inner if (told := unstorable(value, name))), None)


def last_good(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint that is whole, or None."""
    return next(filter(None, map(_checked, _files(folder))), None)


def promised_tables(folder: Path) -> tuple[str, ...]:
    """Return what the newest checkpoint says of the tables, without a look at the rest of it."""
    for path in _files(folder)[:1]:
        try:
            with open(path, "rb") as file:
                return tuple(map(str, json.loads(file.read(_HEADER_BYTES)).get("tables", ())))
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            return ()
    return ()


def clear(folder: Path) -> None:
    """Remove all checkpoints of a strategy."""
    with storage_errors(folder):
        for path in _files(folder):
            path.unlink()
        if folder.is_dir():
            folder.rmdir()


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("round-*.checkpoint"), reverse=True)


class _HashingSink:
    """A file for torch.save to write to, which hashes as it goes.

    torch's writer turns an error of the file into one of its own without the reason, so the reason is kept
    here and the remaining bytes are discarded.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest, self.length = hashlib.blake2b(digest_size=16), 0
        self._failed: OSError | None = None

    def write(self, content: bytes) -> int:
        size = memoryview(content).nbytes
        if self._failed is None:
            try:
                self._file.write(content)
            except OSError as error:
                self._failed = error
        self.digest.update(content)
        self.length += size
        return size

    def flush(self) -> None:
        """Do nothing: nothing is buffered here."""

    def raise_failure(self) -> None:
        if self._failed is not None:
            raise self._failed


def _header(next_round: int, sink: _HashingSink, tables: Sequence[str]) -> bytes:
    facts: dict[str, Any] = {"fdsim_checkpoint": _FORMAT, "next_round": next_round, "length": sink.length}
    if tables:
        facts["tables"] = list(tables)
    return (
        json.dumps({**facts, "hash": _checksum(sink.digest, facts)}).encode().ljust(_HEADER_BYTES - 1) + b"\n"
    )


def _checksum(digest: hashlib.blake2b, facts: dict[str, Any]) -> str:
    """Return the hash, which covers the header's facts too: a flipped bit must not lead the run to the wrong round."""
    covered = [facts["fdsim_checkpoint"], facts["next_round"], facts["length"], *facts.get("tables", ())]
    digest.update(json.dumps(covered).encode())
    return digest.hexdigest()


def _checked(path: Path) -> Checkpoint | None:
    """Return a checkpoint, or None when the file is not whole."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with open(path, "rb") as file:
            facts = json.loads(file.read(_HEADER_BYTES))
            while block := file.read(1 << 20):
                digest.update(block)
        if facts["hash"] != _checksum(digest, facts):
            return None
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if facts["fdsim_checkpoint"] != _FORMAT:
        raise RunFolderError(str(path), "written by another version of fdsim", "continue with that version")
    try:
        return Checkpoint(path, int(facts["next_round"]), tuple(map(str, facts.get("tables", ()))))
    except (ValueError, TypeError):
        return None


def _pack(value: Any) -> Any:
    import torch

    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _pack(item) for key, item in value.items()}
        return {_MARK: "dict", "items": [[_pack(key), _pack(item)] for key, item in value.items()]}
    if isinstance(value, np.ndarray):
        return {_MARK: "array", **_pack_array(value)}
    if isinstance(value, np.generic):
        return {_MARK: "scalar", **_pack_array(np.asarray(value))}
    if isinstance(value, tuple):
        return {_MARK: "tuple", "items": [_pack(item) for item in value]}
    if isinstance(value, list):
        return [_pack(item) for item in value]
    if isinstance(value, torch.Tensor):
        # A view would drag its whole storage along.
        return value.detach().clone() if value.untyped_storage().nbytes() > value.nbytes else value.detach()
    if value is None or type(value) in (bool, int, float, str, bytes, complex):
        return value
    raise TypeError(
        f"a checkpoint cannot hold a {type(value).__name__}: give it as numbers, text, arrays or tensors"
    )


def _pack_array(value: np.ndarray) -> dict[str, Any]:
    import torch

    if value.dtype.hasobject:
        raise TypeError("a checkpoint cannot hold an array of Python objects")
    raw = np.frombuffer(np.ascontiguousarray(value).tobytes(), dtype=np.uint8).copy()
    return {"dtype": value.dtype.str, "shape": list(value.shape), "raw": torch.from_numpy(raw)}


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_MARK)
    if kind in ("array", "scalar"):
        array = np.frombuffer(value["raw"].numpy().tobytes(), dtype=np.dtype(value["dtype"])).reshape(
            value["shape"]
        )
        return array.copy() if kind == "array" else array[()]
    if kind == "tuple":
        return tuple(_unpack(item) for item in value["items"])
    if kind == "dict":
        return {_unpack(key): _unpack(item) for key, item in value["items"]}
    return {key: _unpack(item) for key, item in value.items()}
