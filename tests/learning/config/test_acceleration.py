"""Accelerators: written for a GPU, tested as near to one as a CPU gets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.utils._python_dispatch import TorchDispatchMode

from fdsim.catalogue import MENU, build
from fdsim.data.datasets import Synthetic
from fdsim.errors import RunError, ScenarioError
from fdsim.learning.cohort.cohort import CohortTrainer
from fdsim.learning.cohort.workers import Worker
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.config.training import Training
from fdsim.learning.counterfactual import add_weighted_
from fdsim.learning.engine import Task, begin, learn
from fdsim.learning.nets.library import CifarCnn, DepthwiseCnn, Mlp
from fdsim.learning.similarity import UpdateComparer
from fdsim.strategies.base import Federation, UpdateScore
from fdsim.telemetry.config import Telemetry
from tests.strategies.worlds import scripted_trace

INDICES = tuple(np.split(np.arange(60), [5, 12, 30, 31, 50]))
HARD = Training(local_epochs=1, batch_size=4, momentum=0.9, weight_decay=0.1, proximal_mu=0.1, clip_norm=1.0)


def trainer(net, *, training=HARD, indices=INDICES, **acceleration):
    data = Synthetic(shape=(3, 16, 16), train_samples=60, test_samples=40)
    return CohortTrainer(net, data.load(), indices, training, Acceleration(**acceleration), seed=3)


class Waits(TorchDispatchMode):
    """Counts what makes the host wait for an accelerator: reading a number out of a tensor."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        waiting = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "unique")
        self.count += func.overloadpacket.__name__ in waiting
        return func(*args, **(kwargs or {}))


class Ghost(TorchDispatchMode):
    """Makes an accelerator of the meta device: what is read from it comes as zeros, and every reading is counted."""

    def __init__(self):
        super().__init__()
        self.reads: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name, on_meta = func.overloadpacket.__name__, _on_meta(args)
        # In inference mode `to` comes whole.
        if name in ("_to_copy", "to") and on_meta and str(kwargs.get("device")) == "cpu":
            self.reads.append("copy")
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if on_meta and name in ("_local_scalar_dense", "nonzero", "equal", "masked_select", "bincount"):
            self.reads.append(name)
        if name == "copy_" and _on_meta(args[1:]) and args[0].device.type == "cpu":
            self.reads.append(name)
            return args[0]
        return func(*args, **kwargs)


def _on_meta(values):
    return any(isinstance(value, torch.Tensor) and value.device.type == "meta" for value in values)


@pytest.mark.parametrize("kind", MENU["strategy"])
@pytest.mark.parametrize("evaluate_every", [0, 1])
def test_a_round_makes_the_host_wait_once(kind, evaluate_every):
    """A whole round on a fake accelerator: one transfer to the host, and one more where the model is evaluated."""
    cohort = trainer(CifarCnn(), device="meta", stack_size=4)
    federation = Federation(
        clients=6,
        rounds=9,
        parameters=cohort.parameters,
        seed=0,
        client_weight=np.full(6, 1 / 6),
        true_cluster=np.arange(6) % 2,
        accelerator=cohort.accelerator,
        dtype=cohort.dtype,
    )
    telemetry = Telemetry.model_validate({"evaluate_every": evaluate_every or 99, "similarity_every": 0})
    task, strategy = Task(cohort, federation, HARD, telemetry), build("strategy", kind)
    learner = begin(strategy, task)
    trace = scripted_trace({0, 1, 2, 3, 4, 5}, {0, 1, 4}, {2, 3, 4, 5}, clients=6)
    rounds = learn(strategy, task, trace, learner)
    with np.errstate(all="ignore"):
        for _ in trace:
            with Ghost() as ghost:
                next(rounds)
            assert ghost.reads == ["copy"] * (1 + evaluate_every)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_cuda_is_told_which_algorithms_it_may_use(deterministic, precision):
    from torch.backends import cuda, cudnn

    try:
        trainer(Mlp(), device="cpu", deterministic=deterministic, precision=precision)
        assert (cudnn.deterministic, cudnn.benchmark) == (deterministic, not deterministic)
        assert cudnn.allow_tf32 == cuda.matmul.allow_tf32 == (precision == "tf32")
    finally:
        Acceleration().set_up_cuda()


class Small:
    """A local trainer with memory for a few clients."""

    def __init__(self, trainer, most):
        self.trainer, self.most, self.sizes = trainer, most, []

    def train(self, start, batches, settings):
        self.sizes.append(batches.rows.shape[1])
        if self.sizes[-1] > self.most:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.trainer.train(start, batches, settings)


def test_out_of_memory_goes_on_with_half_the_stack(caplog):
    small, whole = (trainer(Mlp(), device="cpu", stack_size=5) for _ in range(2))
    worker = small._workers[0]
    worker.trainer = Small(worker.trainer, most=3)
    for _ in range(2):
        chunks = list(small.train(small.initial(), np.arange(6), 0))
    assert worker.trainer.sizes == [5, 3, 2, 1, 3, 3]
    assert "out of memory with 5 clients at once, continuing with 3" in caplog.text
    order = np.argsort(np.concatenate([chunk.clients for chunk in chunks]))
    ours = torch.cat([chunk.updates for chunk in chunks])[order]
    theirs = list(whole.train(whole.initial(), np.arange(6), 0))
    order = np.argsort(np.concatenate([chunk.clients for chunk in theirs]))
    torch.testing.assert_close(ours, torch.cat([chunk.updates for chunk in theirs])[order])


@pytest.mark.parametrize("stack_size", [1, 4])
def test_out_of_memory_again_ends_the_run_with_a_remedy(stack_size):
    small = trainer(Mlp(), device="cpu", stack_size=stack_size)
    small._workers[0].trainer = Small(small._workers[0].trainer, most=0)
    with pytest.raises(RunError, match=r"out of memory even with .* Lower acceleration.stack_size"):
        list(small.train(small.initial(), np.arange(6), 0))


@pytest.mark.parametrize("path", ["loop", "vmap", "stacked"])
def test_training_never_makes_the_host_wait(path):
    cohort = trainer(DepthwiseCnn(width=8, dropout=0.1), device="cpu", path=path, stack_size=3)
    # The counter sees one thread only.
    cohort._workers = [Worker(worker.trainer, worker.accelerator, inline=True) for worker in cohort._workers]
    with Waits() as waits:
        chunks = list(cohort.train(cohort.initial(), np.arange(6), 0, work_frac=np.full(6, 0.7)))
    assert len(chunks) == 2
    assert waits.count == 0


def test_evaluation_reads_once():
    cohort = trainer(Mlp(), device="cpu")
    with Waits() as waits:
        cohort.evaluate(cohort.initial())
    assert waits.count == 0  # everything comes over in one copy


@pytest.mark.parametrize("path", ["loop", "vmap", "stacked"])
@pytest.mark.parametrize("net", [CifarCnn(), DepthwiseCnn(width=8, dropout=0.1)], ids=lambda net: net.kind)
def test_no_stray_cpu_tensor(net, path):
    """On the meta device nothing is computed, but a tensor from elsewhere raises, as it would on a GPU."""
    cohort = trainer(net, device="meta", path=path, stack_size=4)
    chunks = list(cohort.train(cohort.initial(), np.arange(6), 0, work_frac=np.full(6, 0.7)))
    assert [len(chunk.clients) for chunk in chunks] == [4, 2]
    for chunk in chunks:
        assert chunk.updates.device.type == chunk.losses.device.type == "meta"
        assert chunk.updates.shape == (len(chunk.clients), cohort.parameters)


@pytest.mark.parametrize("sketch_dim", [None, 16])
def test_a_round_with_similarity_and_blending_has_no_stray_cpu_tensor(sketch_dim):
    """Training, comparing, blending and the server's step on the meta device."""
    cohort = trainer(CifarCnn(), device="meta", stack_size=4)
    federation = Federation(
        clients=6,
        rounds=1,
        parameters=cohort.parameters,
        seed=0,
        client_weight=np.full(6, 1 / 6),
        true_cluster=None,
        accelerator=cohort.accelerator,
        dtype=cohort.dtype,
    )
    comparer = UpdateComparer(UpdateScore(sketch_dim=sketch_dim), federation)
    wanted = ~np.eye(6, dtype=bool)
    wanted[5], wanted[:, 5] = False, False  # client 5 is compared with nobody
    comparer.begin(0, wanted, active=6)
    params = cohort.initial()
    update = torch.zeros_like(params)
    for chunk in cohort.train(params, np.arange(6), 0):
        add_weighted_(update, np.full(len(chunk.clients), 1 / 6), chunk.updates)
        comparer.add(chunk.clients, chunk.updates)
    products = comparer.products()
    assert products.device.type == "meta"
    for kind in MENU["optimiser"]:
        optimiser = build("optimiser", kind)
        state = optimiser.start(cohort.parameters, cohort.accelerator, cohort.dtype)
        assert optimiser.step(params, update, state, 1.0)[0].device.type == "meta"


def test_several_accelerators_share_a_cohort():
    """Two workers on two (ghost) accelerators; updates come back to the first."""
    cohort = trainer(CifarCnn(), device=("meta", "meta"))
    assert len(cohort._workers) == 2
    chunks = list(cohort.train(cohort.initial(), np.arange(6), 0))
    assert sorted(np.concatenate([chunk.clients for chunk in chunks]).tolist()) == list(range(6))


def test_lanes_do_not_change_the_result(monkeypatch):
    monkeypatch.setattr("fdsim.learning.cohort.plan._SMALL_STEP_FLOPS", 0.0)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        two = trainer(CifarCnn(), device="cpu", stack_size=3)
        assert two.plan.workers == 2
        torch.set_num_threads(1)
        one = trainer(CifarCnn(), device="cpu", stack_size=3)
        assert one.plan.workers == 1
        for a, b in zip(
            two.train(two.initial(), np.arange(6), 0), one.train(one.initial(), np.arange(6), 0), strict=True
        ):
            assert a.clients.tolist() == b.clients.tolist()
            assert a.updates.equal(b.updates)
    finally:
        torch.set_num_threads(threads)


MIXED = """
import sys; sys.path.insert(0, {folder!r})
import numpy as np, torch
from test_acceleration import CifarCnn, trainer
for path in ("loop", "stacked", "vmap"):
    full, mixed = (trainer(CifarCnn(), device="cpu", path=path, precision=p) for p in ("float32", {precision!r}))
    (a, b) = (torch.cat([c.updates for c in t.train(t.initial(), np.arange(6), 0)]) for t in (full, mixed))
    assert b.dtype == torch.float32
    assert 0 < (a - b).norm() < 0.05 * a.norm(), path
"""


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_is_near_full_precision(precision):
    """In a process of its own: half-precision products are an illegal instruction on some virtual machines."""
    code = MIXED.format(folder=str(Path(__file__).parent), precision=precision)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode < 0:
        pytest.skip(f"this CPU cannot: signal {-done.returncode}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["gpu", "cuda:x", ["cpu", "tpu"]])
def test_unknown_accelerators_are_refused(name):
    with pytest.raises(ValidationError, match="there are auto, cpu, cuda"):
        Acceleration(device=name)


def test_an_absent_gpu_is_named():
    absent = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(ScenarioError, match="is not available"):
        Acceleration(device=absent).accelerators()
