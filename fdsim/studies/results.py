"""Carry run folders between machines: packed as bytes, or uploaded to a URL."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from fdsim.errors import InputError, StorageError
from fdsim.files import TEMPORARY, storage_errors
from fdsim.telemetry.lock import LOCK_NAME
from fdsim.telemetry.manifest import NAME as RUN_MANIFEST

#: Tables that stay at the URL; the driver keeps what comparing runs needs.
_LARGE = ("clients", "similarity", "events.parquet", "models", "tensorboard")


def pack(folder: Path, *, without: Iterable[str] = ()) -> bytes:
    """Pack a run folder, checkpoints included, but nothing half-written."""
    left_out = {TEMPORARY, LOCK_NAME, *without}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in files_in(folder):
            name = path.relative_to(folder)
            if name.parts[0] not in left_out:
                archive.add(path, arcname=name.as_posix(), recursive=False)
    return buffer.getvalue()


def pack_small(folder: Path) -> bytes:
    """Pack what comparing runs needs: manifest, scenario, trace and rounds."""
    return pack(folder, without=(*_LARGE, "checkpoints"))


def unpack(packed: bytes, folder: Path) -> None:
    """Unpack a run folder; the manifest comes last, since a folder is a run from the moment it has one."""
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        arriving = folder / TEMPORARY / "arriving"
        shutil.rmtree(arriving, ignore_errors=True)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(arriving, filter="data")
        (folder / RUN_MANIFEST).unlink(missing_ok=True)
        names = sorted((path.name for path in arriving.iterdir()), key=lambda name: name == RUN_MANIFEST)
        for name in names:
            target = folder / name
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(arriving / name, target)
        shutil.rmtree(folder / TEMPORARY, ignore_errors=True)


def files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and those below it, sorted."""
    yield from sorted(path for path in folder.rglob("*") if path.is_file())


class RemoteFolder:
    """A folder at a URL that pyarrow or fsspec can write to."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._files, self._root = _filesystem(self.url)

    def check(self) -> None:
        """Write and remove a small file, so that a folder which cannot be written to is found beforehand."""
        probe = f"{self._root}/.fdsim-probe"
        try:
            self._write(probe, b"fdsim")
            self._files.delete_file(probe)
        except (OSError, NotImplementedError) as error:
            raise InputError(
                self.url, f"results cannot be written there ({error})", "see --results"
            ) from None

    def put(self, folder: Path, name: str) -> None:
        """Copy a run folder to `name`, its manifest last."""
        paths = [p for p in files_in(folder) if p.relative_to(folder).parts[0] not in (TEMPORARY, LOCK_NAME)]
        try:
            for path in sorted(paths, key=lambda p: p.name == RUN_MANIFEST):
                place = PurePosixPath(self._root, name, path.relative_to(folder).as_posix())
                self._write(str(place), path.read_bytes())
        except OSError as error:
            raise StorageError(f"{self.url}/{name}: results cannot be written there ({error})") from None

    def _write(self, path: str, content: bytes) -> None:
        self._files.create_dir(str(PurePosixPath(path).parent), recursive=True)
        with self._files.open_output_stream(path) as stream:
            stream.write(content)


def _filesystem(url: str) -> tuple[Any, str]:
    """Find the file system of a URL: pyarrow's own, or through fsspec for the schemes pyarrow does not know."""
    import pyarrow as pa
    from pyarrow import fs

    scheme = urlsplit(url).scheme
    try:
        found, root = fs.FileSystem.from_uri(url)
        return found, root
    except pa.ArrowInvalid as error:
        try:
            import fsspec

            return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme))), url.split("://", 1)[-1]
        except (ImportError, ValueError) as other:
            raise InputError(
                url,
                f"no file system for '{scheme}://' ({other or error})",
                "use one such as s3://bucket/folder",
            ) from None
