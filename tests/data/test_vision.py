"""torchvision's sets: read where they lie, refused with the folder to fill where they cannot be had."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fdsim.catalogue import build
from fdsim.data.vision import Cifar10, Mnist
from fdsim.errors import DataError


def idx(array: np.ndarray) -> bytes:
    """Write an array as MNIST's files are written."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(int(side).to_bytes(4, "big") for side in array.shape)
    return header + array.astype(np.uint8).tobytes()


def test_mnist_is_read_from_its_folder(tmp_path):
    rng = np.random.default_rng(0)
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 12), ("t10k", 5)):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(rng.integers(0, 256, (count, 28, 28))))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(count) % 10))
    source = Mnist(root=tmp_path, download=False)
    examples = source.load()
    assert examples.train_inputs.shape == (12, 1, 28, 28)
    assert source.labels().tolist() == examples.train_labels.tolist()
    assert source.labels().dtype == examples.train_labels.dtype
    assert examples.train_inputs.dtype == np.uint8
    assert examples.test_labels.tolist() == [0, 1, 2, 3, 4]


def test_labels_of_mnist_need_no_torchvision(tmp_path, monkeypatch):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(np.zeros((6, 28, 28))))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(6)))
    source = Mnist(root=tmp_path, download=False)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "torchvision", None)
        assert source.labels().tolist() == [0, 1, 2, 3, 4, 5]
        # Whether a set is whole is torchvision's to say.
        (raw / "t10k-images-idx3-ubyte").unlink()
        with pytest.raises(ImportError):
            source.labels()
    with pytest.raises(DataError, match="download = true"):
        source.labels()


@pytest.mark.parametrize("damage", [slice(0, 10), slice(1, None)], ids=["cut short", "shifted"])
def test_damaged_labels_of_mnist_are_left_to_torchvision(tmp_path, damage, monkeypatch):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(np.zeros((6, 28, 28))))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(6))[damage])
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ImportError):
        Mnist(root=tmp_path, download=False).labels()


@pytest.mark.parametrize(("kind", "folder"), [("mnist", "MNIST/raw"), ("cifar100", "cifar-100-python")])
def test_an_absent_set_names_the_folder_to_fill(tmp_path, kind, folder):
    with pytest.raises(DataError, match="download = true") as error:
        build("data", {"kind": kind, "root": tmp_path, "download": False}).load()
    assert str(tmp_path / folder) in str(error.value)


def test_an_impossible_download_names_the_folder_to_fill(tmp_path, monkeypatch):
    import torchvision

    def refuse(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(torchvision.datasets.cifar, "download_and_extract_archive", refuse)
    with pytest.raises(DataError, match="could not be downloaded") as error:
        Cifar10(root=tmp_path).load()
    assert str(tmp_path / "cifar-10-batches-py") in str(error.value)


def test_the_real_mnist(shared):
    if not (shared / "datasets" / "MNIST").is_dir():
        pytest.skip("MNIST is not among the shared files")
    examples = Mnist(root=shared / "datasets", download=False).load()
    assert examples.train_inputs.shape == (60000, 1, 28, 28)
    assert np.bincount(examples.test_labels).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
