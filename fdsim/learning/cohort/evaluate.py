"""How good a global model is: on the test set, by label, and on each client's label mix."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from fdsim.learning.local.params import ParameterLayout
from fdsim.learning.local.samples import Samples
from fdsim.learning.trainer import Evaluation


class Evaluator:
    """Evaluates flat parameters on a test set, in big batches, with one host sync."""

    def __init__(
        self, module: torch.nn.Module, samples: Samples, *, label_counts: np.ndarray, label_mix: np.ndarray
    ) -> None:
        self.module, self.samples, self.classes = module, samples, len(label_counts)
        self.layout = ParameterLayout.of(module)
        # Counted here, once: counting on an accelerator makes the host wait.
        self._counts = label_counts.astype(np.float64)
        # Also once: with a million clients it takes longer than the evaluation.
        mix = np.where(self._counts > 0, label_mix, 0.0)
        self.label_mix = mix / np.maximum(mix.sum(axis=1, keepdims=True), 1e-300)
        features = max(int(np.prod(samples.input_shape)), 1)
        self.on_cpu = samples.labels.device.type == "cpu"
        # A GPU wants about 64 MB of inputs at once. A CPU is two to three times quicker when the first layer's
        # outputs stay in its cache, and with the channels of a pixel side by side.
        self.batch = max(64, min(500 if self.on_cpu else 4096, 16_000_000 // features))

    @torch.inference_mode()
    def evaluate(self, params: torch.Tensor) -> Evaluation:
        """Return accuracy and loss of the parameters [P]."""
        labels = self.samples.labels
        weights = self.layout.by_name(params)
        right = params.new_zeros(self.classes)
        loss = params.new_zeros(1)
        self.module.eval()
        for first in range(0, len(labels), self.batch):
            rows = torch.arange(first, min(first + self.batch, len(labels)), device=labels.device)
            inputs, truth = self.samples.take(rows)
            if self.on_cpu and inputs.dim() == 4:
                inputs = inputs.contiguous(memory_format=torch.channels_last)
            logits = torch.func.functional_call(self.module, weights, (inputs,))
            loss += cross_entropy(logits, truth, reduction="sum")
            right.index_add_(0, truth, (logits.argmax(dim=1) == truth).to(right.dtype))
        self.module.train()
        read = torch.cat([right, loss]).double().cpu().numpy()
        right_n, counts_n, total = read[:-1], self._counts, float(read[-1])
        with np.errstate(invalid="ignore"):
            per_class = right_n / counts_n
        return Evaluation(
            accuracy=float(right_n.sum() / counts_n.sum()),
            loss=total / float(counts_n.sum()),
            per_class=per_class,
            label_mix=self.label_mix,
        )

    @torch.no_grad()
    def named(self, params: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the parameters [P] as the module's state dict, on the host; buffers and tied names included."""
        module = copy.deepcopy(self.module)
        values = self.layout.by_name(params)
        for name, parameter in module.named_parameters():
            parameter.copy_(values[name])
        return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}
