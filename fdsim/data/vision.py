"""The public image sets that torchvision can fetch; the only module that imports it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from fdsim.data.datasets import DataSource, Examples, Shape
from fdsim.errors import DataError


class VisionSource(DataSource):
    """The settings of all torchvision sets."""

    torchvision_name: ClassVar[str]
    #: Where under `root` torchvision looks.
    folder: ClassVar[str]

    root: Path = Field(Path("~/.cache/fdsim/data"), description="folder of the files, also for downloads")
    download: bool = Field(True, description="download the files if they are missing")

    def load(self) -> Examples:
        return _load(self.torchvision_name, self.root.expanduser(), self.download, self.folder, self.classes)


class IdxSource(VisionSource):
    """The settings of sets in the format of MNIST's files."""

    def labels(self) -> np.ndarray:
        found = _idx_labels(self.root.expanduser() / self.folder)
        return super().labels() if found is None else found


class Mnist(IdxSource):
    """MNIST: 60 000 handwritten digits of 28×28."""

    torchvision_name: ClassVar[str] = "MNIST"
    folder: ClassVar[str] = "MNIST/raw"
    input_shape: ClassVar[Shape] = (1, 28, 28)
    classes: ClassVar[int] = 10


class FashionMnist(IdxSource):
    """FashionMNIST: 60 000 pictures of clothes of 28×28."""

    torchvision_name: ClassVar[str] = "FashionMNIST"
    folder: ClassVar[str] = "FashionMNIST/raw"
    input_shape: ClassVar[Shape] = (1, 28, 28)
    classes: ClassVar[int] = 10


class Cifar10(VisionSource):
    """CIFAR-10: 50 000 colour pictures of 32×32 in 10 classes."""

    torchvision_name: ClassVar[str] = "CIFAR10"
    folder: ClassVar[str] = "cifar-10-batches-py"
    input_shape: ClassVar[Shape] = (3, 32, 32)
    classes: ClassVar[int] = 10


class Cifar100(VisionSource):
    """CIFAR-100: 50 000 colour pictures of 32×32 in 100 classes."""

    torchvision_name: ClassVar[str] = "CIFAR100"
    folder: ClassVar[str] = "cifar-100-python"
    input_shape: ClassVar[Shape] = (3, 32, 32)
    classes: ClassVar[int] = 100


def _idx_labels(folder: Path) -> np.ndarray | None:
    """Return the train labels of files like MNIST's; None where torchvision, which takes seconds to import, must look."""
    parts = [
        folder / f"{part}-{what}-ubyte"
        for part in ("train", "t10k")
        for what in ("images-idx3", "labels-idx1")
    ]
    if not all(path.is_file() for path in parts):
        return None
    written = parts[1].read_bytes()
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
            raise DataError(
                "data.root",
                f"{name} is not in '{root / folder}'",
                "put its files there, point root at the folder above them, or set download = true",
            ) from None
    try:
        root.mkdir(parents=True, exist_ok=True)
        return kind(root=str(root), train=train, download=True)
    except (OSError, RuntimeError) as error:
        raise DataError(
            "data.root",
            f"{name} is not in '{root / folder}' and could not be downloaded ({error})",
            f"fetch it on a machine with a network and fill '{root / folder}', or point root at a folder that has it",
        ) from None
