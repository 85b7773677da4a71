"""Data sets: the data family, and the two sets that need no download."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from fdsim.catalogue import Chosen, Component
from fdsim.data.memory import machine_bytes, refuse_beyond
from fdsim.data.partition import Iid, Partition
from fdsim.errors import DataError
from fdsim.rng import stream

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Examples:
    """A train and a test set as NumPy arrays; uint8 inputs are mapped to [−1, 1] on the accelerator."""

    train_inputs: np.ndarray
    """[N, C, H, W] uint8 or float32; [N, L] int64 for token sequences."""
    train_labels: np.ndarray
    """[N] int64."""
    test_inputs: np.ndarray
    test_labels: np.ndarray
    classes: int


class DataSource(Component):
    """A labelled train and test set, and how the train set is divided among clients."""

    family: ClassVar[str] = "data"
    #: The least that one number of an input takes in memory.
    value_bytes: ClassVar[int] = 1

    partition: Annotated[Partition, Chosen("partition")] = Field(
        default_factory=lambda: Iid(), description="how the train set is divided among clients"
    )

    if (
        TYPE_CHECKING
    ):  # Plain attributes in some kinds, fields in others; pydantic would warn about shadowing.

        @property
        def input_shape(self) -> Shape:
            """The shape of one input."""
            raise NotImplementedError

        @property
        def classes(self) -> int:
            """How many labels there are."""
            raise NotImplementedError

    def load(self) -> Examples:
        """Return all examples."""
        raise NotImplementedError(f"{type(self).__name__} has no load")

    def examples(self) -> Examples:
        """Return all examples, checked: whoever learns from them takes them from here, and not from `load`."""
        found = self.load()
        for part in ("train", "test"):
            self._refuse_nonsense(found, part)
        self._refuse_undeclared(found)
        return found

    def _refuse_undeclared(self, found: Examples) -> None:
        """Raise an error where the examples are not of the shape or number of classes that the class declares."""
        place = f"data ('{self.kind}')"
        for part, inputs in (("train", found.train_inputs), ("test", found.test_inputs)):
            given, declared = tuple(inputs.shape[1:]), tuple(self.input_shape)
            if given != declared:
                raise DataError(
                    place,
                    f"it declares input_shape = {declared}, an input of its {part} set has the shape {given}",
                    "make them agree",
                )
        if found.classes != self.classes:
            raise DataError(
                place,
                f"it declares classes = {self.classes}, its examples have {found.classes}",
                "make them agree",
            )

    def _refuse_nonsense(self, found: Examples, part: str) -> None:
        """Raise an error that names the file, as far as it is known, and the row of what no net can learn from."""
        inputs, labels = getattr(found, f"{part}_inputs"), getattr(found, f"{part}_labels")
        given = getattr(self, part, None)
        place = (
            f"data.{part} ('{given}')"
            if isinstance(given, Path | str)
            else f"data ('{self.kind}'), {part} set"
        )
        if len(inputs) != len(labels) or not len(labels):
            raise DataError(
                place,
                f"it has {len(inputs)} inputs and {len(labels)} labels",
                "give one label with each input",
            )
        row = _first_not_finite(inputs)
        if row is not None:
            raise DataError(
                f"{place}, row {row}",
                "the input has NaN or infinity in it",
                "leave the row out, or put a number in its place",
            )
        wrong = np.flatnonzero((labels < 0) | (labels >= found.classes))
        if len(wrong):
            raise DataError(
                f"{place}, row {wrong[0]}",
                f"the label is {labels[wrong[0]]}, and there are {found.classes} classes",
                f"number the labels from 0 to {found.classes - 1}",
            )

    def labels(self) -> np.ndarray:
        """Return the train labels [N] alone, which is all a partition looks at."""
        return self.load().train_labels

    def expected_labels(self) -> np.ndarray:
        """Return the train labels [N], or what is known of them as long as nobody has downloaded them."""
        return self.labels()

    def doubts(self) -> list[str]:
        """Return what whoever only has the scenario checked should know of its data."""
        return []


def _first_not_finite(inputs: np.ndarray) -> int | None:
    """Return the first row with NaN or infinity in it, looking at a few megabytes at a time."""
    if not np.issubdtype(inputs.dtype, np.floating):
        return None
    rows = max(1, 2**20 // max(1, int(np.prod(inputs.shape[1:]))))
    for start in range(0, len(inputs), rows):
        block = inputs[start : start + rows]
        bad = ~np.isfinite(block).reshape(len(block), -1).all(axis=1)
        if bad.any():
            return start + int(np.argmax(bad))
    return None


class Digits(DataSource):
    """The 1797 handwritten 8×8 digits that come with scikit-learn; nothing is downloaded."""

    input_shape: ClassVar[Shape] = (1, 8, 8)
    classes: ClassVar[int] = 10

    def load(self) -> Examples:
        return _digits()


@lru_cache(maxsize=1)
def _digits() -> Examples:
    """Read the digits file itself, since importing scikit-learn costs more than a second."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError(
            "data.kind",
            "'digits' comes with scikit-learn, which is not installed",
            "pip install scikit-learn",
        )
    table = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    # Grey levels run from 0 to 16.
    inputs = (table[:, :64].reshape(-1, 1, 8, 8) / 8.0 - 1.0).astype(np.float32)
    labels = table[:, 64].astype(np.int64)
    # Every fifth sample of each label is for testing.
    position = np.zeros(len(labels), dtype=np.int64)
    for label in range(10):
        (rows,) = np.nonzero(labels == label)
        position[rows] = np.arange(len(rows))
    test = position % 5 == 0
    return Examples(inputs[~test], labels[~test], inputs[test], labels[test], classes=10)


class Synthetic(DataSource):
    """Smooth random patterns, one per label, plus noise: generated images of any size and number."""

    value_bytes: ClassVar[int] = 4

    shape: tuple[PositiveInt, PositiveInt, PositiveInt] = Field(
        (1, 16, 16), description="channels, height, width"
    )
    classes: int = Field(10, ge=2, description="labels")
    train_samples: PositiveInt = Field(5000, description="samples of the train set")
    test_samples: PositiveInt = Field(1000, description="samples of the test set")
    noise: NonNegativeFloat = Field(0.5, description="standard deviation of the noise; patterns have about 1")
    data_seed: NonNegativeInt = Field(
        0, description="seed of the patterns; independent of the scenario's seed"
    )

    @property
    def input_shape(self) -> Shape:
        return self.shape

    def load(self) -> Examples:
        return _synthetic(
            self.shape, self.classes, (self.train_samples, self.test_samples), self.noise, self.data_seed
        )

    def labels(self) -> np.ndarray:
        refuse_beyond(
            machine_bytes(),
            24.0 * self.train_samples,
            place="data.train_samples",
            what=f"{self.train_samples} labels",
            remedy="make fewer samples",
        )
        return _synthetic_labels(self.classes, self.train_samples, self.data_seed, "train")


def _synthetic_labels(classes: int, samples: int, data_seed: int, part: str) -> np.ndarray:
    return stream(data_seed, "synthetic labels", part).permutation(
        np.arange(samples, dtype=np.int64) % classes
    )


@lru_cache(maxsize=2)
def _synthetic(
    shape: tuple[int, int, int], classes: int, samples: tuple[int, int], noise: float, data_seed: int
) -> Examples:
    channels, height, width = shape
    rng = stream(data_seed, "synthetic patterns")
    # A few low spatial frequencies, so that nearby pixels agree as in photographs and convolutions have work to do.
    rows, columns = np.linspace(0, np.pi, height)[:, None], np.linspace(0, np.pi, width)[None, :]
    waves = np.stack([np.cos(i * rows) * np.cos(j * columns) for i in range(4) for j in range(4)])
    patterns = np.einsum("lcw,whx->lchx", rng.normal(size=(classes, channels, len(waves))), waves)
    patterns /= patterns.std(axis=(1, 2, 3), keepdims=True) + 1e-12
    parts = []
    for part, count in zip(("train", "test"), samples, strict=True):
        labels = _synthetic_labels(classes, count, data_seed, part)
        draw = stream(data_seed, "synthetic noise", part)
        inputs = draw.standard_normal(size=(count, *shape), dtype=np.float32) * np.float32(noise)
        inputs += patterns.astype(np.float32)[labels]
        parts += [np.clip(inputs, -3.0, 3.0), labels]
    return Examples(parts[0], parts[1], parts[2], parts[3], classes=classes)
