"""Images in Parquet files."""

from __future__ import annotations

import io
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fdsim.data.parquet import ParquetImages
from fdsim.errors import DataError


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write(path, pixels, labels, *, struct=True, names=("img", "label")):
    encoded = [png(p) for p in pixels]
    column = [{"bytes": e, "path": None} for e in encoded] if struct else encoded
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())]) if struct else pa.binary()
    pq.write_table(pa.table({names[0]: pa.array(column, kind), names[1]: pa.array(labels, pa.int64())}), path)
    return path


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)


@pytest.mark.parametrize("struct", [True, False])
def test_images_come_back_as_they_were(tmp_path, pixels, struct):
    train = write(tmp_path / "train.parquet", pixels, [0, 1, 2, 0, 1, 2], struct=struct)
    test = write(tmp_path / "test.parquet", pixels[:2], [2, 0], struct=struct)
    data = ParquetImages(train=train, test=test, cache=tmp_path / "cache")
    assert (data.input_shape, data.classes) == ((3, 5, 4), 3)
    for _ in range(2):  # decoded, then from the cache
        examples = data.load()
        assert np.array_equal(examples.train_inputs, pixels.transpose(0, 3, 1, 2))
        assert examples.test_labels.tolist() == [2, 0]
        from fdsim.data import parquet

        parquet._images.cache_clear()
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2


@pytest.mark.parametrize(
    "damage", [lambda b: b[:200], lambda b: b"", lambda b: b[:-40] + b"x" * 40, lambda b: b"\x80\x04}."]
)
def test_a_damaged_cache_is_decoded_again(tmp_path, pixels, damage):
    from fdsim.data import parquet

    path = write(tmp_path / "a.parquet", pixels, [0, 1, 2, 0, 1, 2])
    data = ParquetImages(train=path, test=path, cache=tmp_path / "cache")
    data.load()
    (kept,) = (tmp_path / "cache").glob("*.npy")
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    parquet._images.cache_clear()
    assert np.array_equal(data.load().train_inputs, pixels.transpose(0, 3, 1, 2))
    assert kept.read_bytes() == whole


def test_a_changed_file_is_decoded_again(tmp_path, pixels):
    path = write(tmp_path / "a.parquet", pixels[:3], [0, 1, 2])
    data = ParquetImages(train=path, test=path, cache=tmp_path / "cache")
    assert len(data.load().train_inputs) == 3
    write(path, pixels, [0, 1, 2, 0, 1, 2])
    assert len(data.load().train_inputs) == 6


def test_the_trials_of_a_study_decode_one_image_together(tmp_path, pixels, monkeypatch):
    """A file that is written anew is looked at anew."""
    from fdsim.data import parquet

    decoded = []
    plain = parquet._decoded
    monkeypatch.setattr(parquet, "_decoded", lambda *given: decoded.append(given) or plain(*given))
    path = write(tmp_path / "a.parquet", pixels, [0, 1, 2, 0, 1, 2])
    shapes = {ParquetImages(train=path, test=path).input_shape for _ in range(3)}
    assert shapes == {(3, 5, 4)}
    assert len(decoded) == 1
    write(path, pixels[:, :2], [0, 1, 2, 0, 1, 2], names=("image", "label"))
    os.utime(path, ns=(0, 0))
    assert ParquetImages(train=path, test=path).input_shape == (3, 2, 4)


def test_grey_images_have_one_channel(tmp_path, pixels):
    path = write(tmp_path / "a.parquet", pixels[..., 0], [0] * 6)
    assert ParquetImages(train=path, test=path, cache=None).load().train_inputs.shape == (6, 1, 5, 4)


def test_what_is_wrong_is_said(tmp_path, pixels):
    path = write(tmp_path / "a.parquet", pixels, [0] * 6, names=("picture", "label"))
    with pytest.raises(DataError, match="picture, label"):
        ParquetImages(train=path, test=path).load()
    with pytest.raises(DataError, match="there is no file"):
        ParquetImages(train=tmp_path / "b.parquet", test=path).labels()
    (tmp_path / "c.parquet").write_text("no")
    with pytest.raises(DataError, match="not a Parquet file"):
        ParquetImages(train=tmp_path / "c.parquet", test=path).labels()
    broken = pa.table({"image": pa.array([b"no image"], pa.binary()), "label": [0]})
    pq.write_table(broken, tmp_path / "d.parquet")
    with pytest.raises(DataError, match="cannot be read"):
        _ = ParquetImages(train=tmp_path / "d.parquet", test=path).input_shape
    small = write(tmp_path / "e.parquet", pixels[:, :4], [0] * 6)
    good = write(tmp_path / "f.parquet", pixels, [0] * 6)
    with pytest.raises(DataError, match="one size"):
        ParquetImages(train=good, test=small, cache=None).load()
