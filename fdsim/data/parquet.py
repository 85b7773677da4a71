"""Images in Parquet files, as Hugging Face data sets are stored."""

from __future__ import annotations

import contextlib
import hashlib
import io
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from fdsim.data.datasets import DataSource, Examples, Shape
from fdsim.errors import DataError
from fdsim.files import UnfinishedFile

_IMAGE_NAMES = ("image", "img")
_LABEL_NAMES = ("label", "labels", "fine_label")


class ParquetImages(DataSource):
    """Your own Parquet files of encoded images (bytes, or a struct with bytes) and integer labels."""

    train: Path = Field(description="file with the train set, seen from the folder in which fdsim is called")
    test: Path = Field(description="file with the test set, seen from the folder in which fdsim is called")
    image_column: str = Field("", description="default: image or img")
    label_column: str = Field("", description="default: label, labels or fine_label")
    cache: Path | None = Field(
        Path("~/.cache/fdsim/decoded"),
        description="folder that decoded images are cached in, if it is writable",
    )

    @property
    def input_shape(self) -> Shape:
        """The shape of the first image."""
        path = _existing(self.train, "data.train")
        return _first_shape(path, self._image_column(path), path.stat().st_mtime_ns)

    @property
    def classes(self) -> int:
        """The largest label plus one."""
        return int(self.labels().max()) + 1

    def labels(self) -> np.ndarray:
        path = _existing(self.train, "data.train")
        return _labels(path, self._label_column(path), path.stat().st_mtime_ns)

    def load(self) -> Examples:
        parts: list[np.ndarray] = []
        for name, given in (("data.train", self.train), ("data.test", self.test)):
            path = _existing(given, name)
            stamp = path.stat().st_mtime_ns
            images = _images(path, self._image_column(path), stamp, self.cache)
            parts += [images, _labels(path, self._label_column(path), stamp)]
        train_inputs, train_labels, test_inputs, test_labels = parts
        if test_inputs.shape[1:] != train_inputs.shape[1:]:
            raise DataError(
                "data.test",
                f"its images are {list(test_inputs.shape[1:])}, those of the train set {list(train_inputs.shape[1:])}",
                "both files must hold images of one size",
            )
        classes = int(max(train_labels.max(), test_labels.max())) + 1
        return Examples(train_inputs, train_labels, test_inputs, test_labels, classes=classes)

    def _refuse_undeclared(self, found: Examples) -> None:
        """Do nothing: what is declared here is what the files hold."""

    def _image_column(self, path: Path) -> str:
        return _column(path, self.image_column, _IMAGE_NAMES, "image_column")

    def _label_column(self, path: Path) -> str:
        return _column(path, self.label_column, _LABEL_NAMES, "label_column")


def _existing(path: Path, place: str) -> Path:
    path = path.expanduser()
    if not path.is_file():
        raise DataError(
            place, f"there is no file '{path}'", "give the path of a Parquet file, from the current folder"
        )
    return path.resolve()


def _column(path: Path, wanted: str, usual: tuple[str, ...], key: str) -> str:
    names = _column_names(path, path.stat().st_mtime_ns)
    for name in (wanted,) if wanted else usual:
        if name in names:
            return name
    looked_for = f"'{wanted}'" if wanted else " or ".join(f"'{name}'" for name in usual)
    raise DataError(
        f"data.{key}", f"'{path}' has no column {looked_for}; it has {', '.join(names)}", f"set {key}"
    )


# What every trial of a study asks for is kept: to read and decode one image for each takes longer than all else.
@lru_cache(maxsize=4)
def _column_names(path: Path, stamp_ns: int) -> tuple[str, ...]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return tuple(pq.read_schema(path).names)
    except pa.ArrowInvalid as error:
        raise DataError("data", f"'{path}' is not a Parquet file ({error})", "give a Parquet file") from None


@lru_cache(maxsize=4)
def _first_shape(path: Path, column: str, stamp_ns: int) -> Shape:
    import pyarrow.parquet as pq

    batch = next(pq.ParquetFile(path).iter_batches(1, columns=[column]), None)
    if batch is None or not batch.num_rows:
        raise DataError("data.train", f"'{path}' has no rows", "give a file with at least one image")
    return tuple(_decoded(_encoded(batch.column(0), path)[0], path).shape)


@lru_cache(maxsize=4)
def _labels(path: Path, column: str, stamp_ns: int) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Neither pq.read_table nor to_numpy, which bring pandas along.
    with pq.ParquetFile(path) as file:
        found = file.read(columns=[column])[column]
    whole = pa.types.is_integer(found.type) and not found.null_count
    labels = np.from_dlpack(found.combine_chunks()) if whole else np.array([-1])
    if len(labels) and labels.min() < 0:
        raise DataError(
            "data.label_column",
            f"'{column}' of '{path}' does not hold integers from 0",
            "number the labels from 0",
        )
    return np.asarray(labels, dtype=np.int64)


@lru_cache(maxsize=4)
def _images(path: Path, column: str, stamp_ns: int, cache: Path | None) -> np.ndarray:
    """Return all images [N, C, H, W] uint8, from the cache if they were decoded before."""
    kept = None
    if cache is not None:
        name = hashlib.blake2b(f"{path}/{column}/{stamp_ns}".encode(), digest_size=16).hexdigest()
        kept = cache.expanduser() / f"{name}.npy"
        found = _cached(kept)
        if found is not None:
            return found
    images = _decoded_all(path, column)
    if kept is not None:
        # Without room or permission the images are decoded again next time; nothing else changes.
        with contextlib.suppress(OSError), UnfinishedFile(kept) as waiting, open(waiting, "wb") as file:
            np.save(file, images)
            file.write(_sum(images))
    return images


def _sum(images: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(images).data, digest_size=16).digest()


def _cached(kept: Path) -> np.ndarray | None:
    """Return decoded images from the cache, if they are whole; a damaged file is decoded anew and replaced."""
    try:
        with open(kept, "rb") as file:
            images = np.load(file, allow_pickle=False)
            whole = isinstance(images, np.ndarray) and file.read() == _sum(images)
    except (OSError, ValueError, EOFError, MemoryError, SyntaxError):
        return None
    return images if whole else None


def _decoded_all(path: Path, column: str) -> np.ndarray:
    """Decode in threads; the decoders release the interpreter lock."""
    import pyarrow.parquet as pq

    encoded = _encoded(pq.read_table(path, columns=[column]).column(column).combine_chunks(), path)
    with ThreadPoolExecutor() as threads:
        images = list(threads.map(lambda each: _decoded(each, path), encoded, chunksize=256))
    shapes = {image.shape for image in images}
    if len(shapes) != 1:
        problem = f"images of '{path}' have {len(shapes)} different shapes"
        raise DataError("data", problem, "resize them to one size first")
    return np.stack(images)


def _encoded(column: Any, path: Path) -> list[bytes]:
    import pyarrow as pa

    if pa.types.is_struct(column.type):
        if column.type.get_field_index("bytes") < 0:
            raise DataError(
                "data.image_column", f"the structs of '{path}' have no field 'bytes'", "embed the images"
            )
        column = column.field("bytes")
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        raise DataError(
            "data.image_column", f"'{path}' holds {column.type} instead of encoded images", "choose another"
        )
    if column.null_count:
        raise DataError(
            "data.image_column", f"'{path}' has {column.null_count} rows without an image", "embed the images"
        )
    return column.to_pylist()  # type: ignore[no-any-return]


def _decoded(encoded: bytes, path: Path) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(encoded)) as image:
            pixels = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(
            "data.image_column", f"'{path}' holds an image that cannot be read ({error})", "repair it"
        ) from None
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
