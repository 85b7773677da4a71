"""The public image sets that torchvision can fetch; the only module that imports it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from fdsim.data.datasets import DataSource, Examples, Shape
from fdsim.data.pickled_labels import pickled_labels
from fdsim.errors import DataError
from fdsim.rng import stream


class VisionSource(DataSource):
    """The settings of all torchvision sets."""

    torchvision_name: ClassVar[str]
    #: Where under `root` torchvision looks, and what it needs there.
    folder: ClassVar[str]
    files: ClassVar[tuple[str, ...]]
    download_mb: ClassVar[int]
    #: How many train samples of each label there are.
    label_counts: ClassVar[tuple[int, ...]]

    root: Path = Field(Path("~/.cache/fdsim/data"), description="folder of the files, also for downloads")
    download: bool = Field(True, description="download the files if they are missing")

    def load(self) -> Examples:
        return _load(self.torchvision_name, self.root.expanduser(), self.download, self.folder, self.classes)

    def labels(self) -> np.ndarray:
        """Return the train labels without torchvision, which takes seconds to import, where that can be.

        It is asked where files are not as they should be, and to download them.
        """
        folder = self.root.expanduser() / self.folder
        if self.is_missing():
            if not self.download:
                raise _absent(self.torchvision_name, folder)
            return super().labels()
        found = self.labels_in(folder)
        return super().labels() if found is None else found

    def expected_labels(self) -> np.ndarray:
        """Return the train labels; where they are yet to be downloaded, as many of each in a random order."""
        if not self.is_missing() or not self.download:
            return self.labels()
        labels = np.repeat(np.arange(len(self.label_counts), dtype=np.int64), self.label_counts)
        return stream(0, "expected labels").permutation(labels)

    def doubts(self) -> list[str]:
        """Say that files are missing, and who will download them."""
        if not self.is_missing() or not self.download:
            return []
        return [
            f"data.root: {self.torchvision_name} is not in '{self.root.expanduser() / self.folder}', and will be "
            f"downloaded ({self.download_mb} MB) before anything is trained; if you have it, point root at the "
            "folder above it"
        ]

    def is_missing(self) -> bool:
        """Whether some file of the set is not there, so that it must be downloaded or unpacked."""
        folder = self.root.expanduser() / self.folder
        return not all((folder / name).is_file() for name in self.files)

    def labels_in(self, folder: Path) -> np.ndarray | None:
        """Return the train labels [N] of a set that is whole as far as its labels go, else None."""
        raise NotImplementedError(f"{type(self).__name__} has no labels_in")


class IdxSource(VisionSource):
    """The settings of sets in the format of MNIST's files."""

    files: ClassVar[tuple[str, ...]] = tuple(
        f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
    )

    def is_missing(self) -> bool:
        # Torchvision still reads what its versions before 0.10 made of the files.
        old = (self.root.expanduser() / self.folder).parent / "processed"
        return super().is_missing() and not all(
            (old / f"{name}.pt").is_file() for name in ("training", "test")
        )

    def labels_in(self, folder: Path) -> np.ndarray | None:
        return _idx_labels(folder / "train-labels-idx1-ubyte")


class PickledSource(VisionSource):
    """The settings of sets in the format of CIFAR's files."""

    train_files: ClassVar[tuple[str, ...]]
    label_key: ClassVar[str]

    def labels_in(self, folder: Path) -> np.ndarray | None:
        paths = tuple(folder / name for name in self.train_files)
        return pickled_labels(paths, self.label_key, classes=self.classes)


class Mnist(IdxSource):
    """MNIST: 60 000 handwritten digits of 28×28."""

    torchvision_name: ClassVar[str] = "MNIST"
    folder: ClassVar[str] = "MNIST/raw"
    download_mb: ClassVar[int] = 12
    label_counts: ClassVar[tuple[int, ...]] = (
        *(5923, 6742, 5958, 6131, 5842),
        *(5421, 5918, 6265, 5851, 5949),
    )
    input_shape: ClassVar[Shape] = (1, 28, 28)
    classes: ClassVar[int] = 10


class FashionMnist(IdxSource):
    """FashionMNIST: 60 000 pictures of clothes of 28×28."""

    torchvision_name: ClassVar[str] = "FashionMNIST"
    folder: ClassVar[str] = "FashionMNIST/raw"
    download_mb: ClassVar[int] = 31
    label_counts: ClassVar[tuple[int, ...]] = (6000,) * 10
    input_shape: ClassVar[Shape] = (1, 28, 28)
    classes: ClassVar[int] = 10


class Cifar10(PickledSource):
    """CIFAR-10: 50 000 colour pictures of 32×32 in 10 classes."""

    torchvision_name: ClassVar[str] = "CIFAR10"
    folder: ClassVar[str] = "cifar-10-batches-py"
    train_files: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{number}" for number in range(1, 6))
    files: ClassVar[tuple[str, ...]] = (*train_files, "test_batch", "batches.meta")
    download_mb: ClassVar[int] = 170
    label_counts: ClassVar[tuple[int, ...]] = (5000,) * 10
    label_key: ClassVar[str] = "labels"
    input_shape: ClassVar[Shape] = (3, 32, 32)
    classes: ClassVar[int] = 10


class Cifar100(PickledSource):
    """CIFAR-100: 50 000 colour pictures of 32×32 in 100 classes."""

    torchvision_name: ClassVar[str] = "CIFAR100"
    folder: ClassVar[str] = "cifar-100-python"
    train_files: ClassVar[tuple[str, ...]] = ("train",)
    files: ClassVar[tuple[str, ...]] = (*train_files, "test", "meta")
    download_mb: ClassVar[int] = 169
    label_counts: ClassVar[tuple[int, ...]] = (500,) * 100
    label_key: ClassVar[str] = "fine_labels"
    input_shape: ClassVar[Shape] = (3, 32, 32)
    classes: ClassVar[int] = 100


def _idx_labels(path: Path) -> np.ndarray | None:
    """Return the labels in a file like MNIST's; None where torchvision must look."""
    if not path.is_file():
        return None
    written = path.read_bytes()
    # Two zeros, the code of unsigned bytes, one dimension; then how many there are.
    if written[:4] != bytes([0, 0, 8, 1]) or int.from_bytes(written[4:8], "big") != len(written) - 8:
        return None
    return np.frombuffer(written, dtype=np.uint8, offset=8).astype(np.int64)


@lru_cache(maxsize=2)
def _load(name: str, root: Path, download: bool, folder: str, classes: int) -> Examples:
    parts: list[np.ndarray] = []
    for train in (True, False):
        found = _dataset(name, root, folder, train=train, download=download)
        inputs, labels = np.asarray(found.data), np.asarray(found.targets, dtype=np.int64)
        # MNIST is [N, H, W], CIFAR [N, H, W, channels].
        inputs = inputs[:, None] if inputs.ndim == 3 else inputs.transpose(0, 3, 1, 2)
        parts += [np.ascontiguousarray(inputs), labels]
    return Examples(parts[0], parts[1], parts[2], parts[3], classes=classes)


def _dataset(name: str, root: Path, folder: str, *, train: bool, download: bool) -> Any:
    """Open the train or test half of a set, downloading it if it is missing and `download` is set."""
    import torchvision

    kind = getattr(torchvision.datasets, name)
    try:
        return kind(root=str(root), train=train, download=False)
    except RuntimeError:
        # Torchvision raises this for "not found" and "damaged".
        if not download:
            raise _absent(name, root / folder) from None
    try:
        root.mkdir(parents=True, exist_ok=True)
        return kind(root=str(root), train=train, download=True)
    except (OSError, RuntimeError) as error:
        raise _not_downloaded(name, root / folder, str(error)) from None


def _absent(name: str, folder: Path) -> DataError:
    return DataError(
        "data.root",
        f"{name} is not in '{folder}'",
        "put its files there, point root at the folder above them, or set download = true",
    )


def _not_downloaded(name: str, folder: Path, reason: str) -> DataError:
    return DataError(
        "data.root",
        f"{name} is not in '{folder}' and could not be downloaded ({reason})",
        f"fetch it on a machine with a network and fill '{folder}', or point root at a folder that has it",
    )
