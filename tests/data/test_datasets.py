"""The sets that come without a download."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from fdsim.catalogue import build
from fdsim.data.datasets import DataSource, Digits, Examples, Synthetic
from fdsim.errors import DataError
from fdsim.prepare import make_task, prepare
from fdsim.scenario import load_scenario


@pytest.mark.parametrize(
    "data", [Digits(), Synthetic(shape=(3, 8, 8), classes=4, train_samples=90, test_samples=30)]
)
def test_a_set_is_what_it_says(data):
    examples = data.load()
    assert examples.train_inputs.shape[1:] == data.input_shape
    assert examples.test_inputs.shape[1:] == data.input_shape
    assert examples.train_inputs.dtype == np.float32
    assert len(examples.train_inputs) == len(examples.train_labels)
    assert len(examples.test_inputs) == len(examples.test_labels)
    assert examples.classes == data.classes
    assert set(examples.train_labels) == set(examples.test_labels) == set(range(data.classes))
    assert np.array_equal(data.labels(), examples.train_labels)


def test_digits_agree_with_scikit_learn():
    from sklearn.datasets import load_digits

    examples, truth = Digits().load(), load_digits()
    ours = np.concatenate([examples.train_inputs, examples.test_inputs]).reshape(-1, 64)
    assert len(ours) == 1797
    assert np.isclose((ours + 1).sum() * 8, truth.data.sum(), rtol=1e-5)
    assert np.bincount(examples.train_labels).min() >= 139
    # No test picture is also a train picture.
    assert len(np.unique(ours, axis=0)) == 1797


def test_synthetic_patterns_belong_to_their_seed():
    first = Synthetic(train_samples=20, test_samples=10).load()
    other = Synthetic(train_samples=20, test_samples=10, data_seed=1).load()
    assert not np.allclose(first.train_inputs, other.train_inputs)


def test_synthetic_labels_can_be_told_apart():
    """The nearest class mean is right nearly always under little noise, and less often under much."""

    def accuracy(noise):
        examples = Synthetic(shape=(1, 8, 8), train_samples=400, test_samples=200, noise=noise).load()
        flat, test = examples.train_inputs.reshape(400, -1), examples.test_inputs.reshape(200, -1)
        means = np.stack([flat[examples.train_labels == label].mean(0) for label in range(10)])
        nearest = ((test[:, None] - means) ** 2).sum(-1).argmin(1)
        return (nearest == examples.test_labels).mean()

    assert accuracy(0.3) > 0.99
    assert accuracy(6.0) < 0.9


def test_a_set_carries_its_partition():
    data = build("data", {"kind": "digits", "partition": {"kind": "dirichlet", "alpha": 2.0}})
    assert data.partition.alpha == 2.0
    assert type(data).model_validate(data.model_dump()) == data


def test_labels_of_embedded_sets_need_no_torch():
    code = (
        "import sys; from fdsim.catalogue import build\n"
        "for kind in ('digits', 'synthetic'): build('data', {'kind': kind}).labels()\n"
        "print([m for m in ('torch', 'torchvision', 'sklearn', 'pandas') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


class _WithNonsense(Digits):
    """Digits with something no net can learn from in one row."""

    part: str = "train"
    nonsense: float = 0.0
    label: int = 0

    def load(self):
        found = super().load()
        inputs, labels = (np.array(getattr(found, f"{self.part}_{what}")) for what in ("inputs", "labels"))
        inputs[211, 0, 3, 4] += self.nonsense
        labels[211] += self.label
        return replace(found, **{f"{self.part}_inputs": inputs, f"{self.part}_labels": labels})


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"nonsense": np.nan}, "NaN or infinity"),
        ({"nonsense": -np.inf}, "NaN or infinity"),
        ({"label": 99}, "there are 10 classes"),
        ({"label": -99}, "there are 10 classes"),
    ],
)
def test_what_no_net_can_learn_from_is_named_by_set_and_row(part, wrong, said):
    source = _WithNonsense.model_construct(part=part, **wrong)
    with pytest.raises(DataError, match=rf"data.*{part} set, row 211: .*{said}"):
        source.examples()
    assert len(_WithNonsense().examples().train_labels)


def test_a_set_of_unequal_inputs_and_labels_is_refused():
    class Uneven(Digits):
        def load(self):
            found = super().load()
            return replace(found, test_labels=found.test_labels[:-1])

    with pytest.raises(DataError, match="test set: it has 364 inputs and 363 labels"):
        Uneven().examples()


def test_a_run_on_such_data_stops_before_any_strategy_learns(tmp_path):
    (tmp_path / "nan_data.py").write_text(
        "import numpy as np\n"
        "from dataclasses import replace\n"
        "from fdsim.data.datasets import Digits\n"
        "class Holed(Digits):\n"
        "    def load(self):\n"
        "        found = super().load()\n"
        "        inputs = np.array(found.test_inputs)\n"
        "        inputs[5] = np.nan\n"
        "        return replace(found, test_inputs=inputs)\n"
    )
    (tmp_path / "s.toml").write_text(
        'name = "n"\nrounds = 1\nnet = "mlp"\ndata = "nan_data:Holed"\ntraining = { local_steps = 1 }\n'
        'participation = { kind = "bernoulli", clients = 2 }\nstrategies = ["dropout"]\n'
    )
    scenario = load_scenario(tmp_path / "s.toml")
    with pytest.raises(DataError, match=r"data \('nan_data:Holed'\), test set, row 5"):
        make_task(prepare(scenario))


@pytest.mark.parametrize(
    ("declared", "classes", "word"), [((3,), 2, r"\(3,\).*\(2,\)"), ((2,), 5, "classes = 5")]
)
def test_what_is_declared_must_be_what_is_loaded(declared: tuple[int, ...], classes: int, word: str) -> None:
    held = Examples(
        np.zeros((4, 2), np.float32), np.arange(4) % 2, np.zeros((2, 2), np.float32), np.arange(2), 2
    )

    class Declared(DataSource):
        input_shape: ClassVar[tuple[int, ...]] = declared

        def load(self) -> Examples:
            return held

    Declared.classes = classes  # type: ignore[assignment,misc]
    with pytest.raises(DataError, match=word):
        Declared().examples()
