"""torchvision's sets: read where they lie, refused with the folder to fill where they cannot be had."""

from __future__ import annotations

import pathlib
import pickle
import sys

import numpy as np
import pytest

from fdsim.catalogue import build
from fdsim.data.vision import Cifar10, Cifar100, FashionMnist, IdxSource, Mnist
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
        for part in raw.glob("*-labels-*"):
            part.unlink()
        with pytest.raises(DataError, match="download = true"):
            source.labels()
        # What versions of torchvision before 0.10 made of the files is torchvision's to read.
        (tmp_path / "MNIST" / "processed").mkdir()
        for name in ("training.pt", "test.pt"):
            (tmp_path / "MNIST" / "processed" / name).touch()
        with pytest.raises(ImportError):
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


def old_text(text: bytes) -> bytes:
    """Write text as Python 2 pickled it."""
    return b"T" + len(text).to_bytes(4, "little") + text


def old_array(array: np.ndarray) -> bytes:
    """Write bytes in two dimensions as Python 2 pickled a NumPy array."""
    kind = b"cnumpy\ndtype\n" + old_text(b"u1") + b"K\0K\1\x87R(K\3" + old_text(b"|") + b"NNNJ" + b"\xff" * 4
    kind += b"J" + b"\xff" * 4 + b"K\0tb"
    shape = b"".join(b"J" + side.to_bytes(4, "little") for side in array.shape)
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85" + old_text(b"b") + b"\x87R"
    return empty + b"(K\1" + shape + b"\x86" + kind + b"\x89" + old_text(array.tobytes()) + b"tb"


def old_pickle(values: dict[bytes, bytes]) -> bytes:
    """Write a dict of what is written already as Python 2 pickled it."""
    return b"\x80\2}(" + b"".join(old_text(key) + value for key, value in values.items()) + b"u."


def old_batch(labels: list[int], key: bytes = b"labels") -> bytes:
    images = np.random.default_rng(labels).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return old_pickle({b"data": old_array(images), b"batch_label": old_text(b"some"), key: listed})


def write_cifar10(root) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for number in range(1, 6):
        (folder / f"data_batch_{number}").write_bytes(old_batch([number, number + 1, 9 - number]))
    (folder / "test_batch").write_bytes(old_batch([0, 1]))
    (folder / "batches.meta").write_bytes(old_pickle({b"label_names": b"]"}))


def test_labels_of_cifar10_are_those_that_torchvision_reads(tmp_path, monkeypatch):
    from torchvision.datasets import cifar

    monkeypatch.setattr(cifar, "check_integrity", lambda path, md5: True)
    write_cifar10(tmp_path)
    source = Cifar10(root=tmp_path, download=False)
    examples = source.load()
    assert examples.train_inputs.shape == (15, 3, 32, 32)
    assert len(np.unique(examples.train_inputs)) > 200
    assert source.labels().tolist() == examples.train_labels.tolist()
    assert source.labels().dtype == examples.train_labels.dtype


def test_labels_of_cifar_need_no_torchvision(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    write_cifar10(tmp_path)
    assert Cifar10(root=tmp_path).labels().tolist()[:6] == [1, 2, 8, 2, 3, 7]
    hundred = tmp_path / "cifar-100-python"
    hundred.mkdir()
    for name in ("train", "test", "meta"):
        (hundred / name).write_bytes(old_batch([99, 0, 7], b"fine_labels"))
    assert Cifar100(root=tmp_path).labels().tolist() == [99, 0, 7]


MARK = pathlib.Path("marked")


class Marks:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self):
        return (MARK.touch, ())


@pytest.mark.parametrize(
    "written",
    [
        old_batch([1, 10]),
        old_batch([1, 2])[:-1],
        old_batch([1, 2])[100:],
        old_batch([1, 2], b"names"),
        old_pickle({b"labels": old_text(b"12")}),
        old_pickle({b"labels": old_array(np.zeros((2, 2), dtype=np.uint8))}),
        pickle.dumps({b"labels": [1, 2], "more": Marks()}),
        pickle.dumps([b"labels"]),
        b"",
    ],
    ids=["label", "cut short", "shifted", "no labels", "text", "array", "code", "list", "empty"],
)
def test_other_pickles_are_left_to_torchvision(tmp_path, written, monkeypatch):
    """Nothing that a file names is called. Torchvision itself reads only files whose checksums it knows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    write_cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(written)
    with pytest.raises(ImportError):
        Cifar10(root=tmp_path).labels()
    assert not MARK.exists()


@pytest.mark.parametrize("kind", [Mnist, FashionMnist, Cifar10, Cifar100])
def test_what_is_known_of_torchvision_is_true(kind):
    import torchvision

    theirs = getattr(torchvision.datasets, kind.torchvision_name)
    if issubclass(kind, IdxSource):
        assert {name.removesuffix(".gz") for name, _ in theirs.resources} == set(kind.files)
        assert (theirs.training_file, theirs.test_file) == ("training.pt", "test.pt")
        return
    assert theirs.base_folder == kind.folder
    assert tuple(name for name, _ in theirs.train_list) == kind.train_files
    others = (*(name for name, _ in theirs.test_list), theirs.meta["filename"])
    assert kind.files == (*kind.train_files, *others)


@pytest.mark.parametrize("kind", [Mnist, Cifar10])
def test_that_a_set_is_absent_is_told_without_torchvision(tmp_path, kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    # A download that failed leaves an empty folder behind.
    (tmp_path / kind.folder).mkdir(parents=True)
    with pytest.raises(DataError, match="download = true") as error:
        kind(root=tmp_path, download=False).labels()
    assert str(tmp_path / kind.folder) in str(error.value)


def test_an_absent_set_is_left_to_torchvision_to_download(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ImportError):
        Cifar10(root=tmp_path).labels()


@pytest.mark.parametrize("kind", [Mnist, FashionMnist, Cifar10, Cifar100])
def test_a_check_of_an_absent_set_downloads_nothing(tmp_path, kind, monkeypatch):
    """The labels are as many as they will be, and whoever asks for the check is told of the download."""
    monkeypatch.setitem(sys.modules, "torchvision", None)
    source = kind(root=tmp_path / "none")
    labels = source.expected_labels()
    assert labels.dtype == np.int64
    assert np.bincount(labels).tolist() == list(kind.label_counts)
    assert len(kind.label_counts) == kind.classes
    (doubt,) = source.doubts()
    assert str(tmp_path / "none" / kind.folder) in doubt
    assert f"downloaded ({kind.download_mb} MB)" in doubt
    assert not (tmp_path / "none").exists()
    refused = kind(root=tmp_path / "none", download=False)
    assert refused.doubts() == []
    with pytest.raises(DataError, match="download = true"):
        refused.expected_labels()


def test_a_check_of_a_set_that_is_there_looks_at_its_labels(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    write_cifar10(tmp_path)
    source = Cifar10(root=tmp_path)
    assert source.expected_labels().tolist() == source.labels().tolist()
    assert source.doubts() == []
    (tmp_path / source.folder / "test_batch").unlink()
    assert len(source.expected_labels()) == 50_000
    assert len(source.doubts()) == 1


@pytest.mark.parametrize("kind", [Mnist, FashionMnist])
def test_labels_are_as_many_as_is_said(shared, kind):
    root = shared / "datasets"
    if not (root / kind.folder).is_dir():
        pytest.skip(f"{kind.torchvision_name} is not among the shared files")
    assert np.bincount(kind(root=root).labels()).tolist() == list(kind.label_counts)


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
