"""The loop path's shortcuts change no number."""

from __future__ import annotations

import copy

import torch
from torch import nn

from fdsim.learning.paths.loop import pool_before_relu


def test_pooling_first_changes_no_bit():
    net = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(45, 3))
    swapped = pool_before_relu(copy.deepcopy(net))
    assert [type(layer) for layer in swapped][1:3] == [nn.MaxPool2d, nn.ReLU]
    assert [name for name, _ in swapped.named_parameters()] == [name for name, _ in net.named_parameters()]
    images = torch.randn(7, 2, 8, 8)
    for module in (net, swapped):
        module(images).square().sum().backward()
    for mine, its in zip(swapped.parameters(), net.parameters(), strict=True):
        assert torch.equal(mine.grad, its.grad)
