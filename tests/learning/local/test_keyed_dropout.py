"""Dropout masks are derived from their key."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from fdsim.learning.local.keyed_dropout import KeyedDropout, dropouts, mask, step_keys, with_keyed_dropout


def test_masks_drop_the_share_they_should():
    """10⁵ draws: the share dropped is within 5 standard deviations of 0.3, and what is kept is scaled up."""
    kept = mask(torch.tensor(12345), torch.Size([100_000]), 0.3, torch.float64)
    assert abs((kept == 0).double().mean() - 0.3) < 5 * (0.21 / 1e5) ** 0.5
    assert set(kept.unique().tolist()) == {0.0, 1 / 0.7}


def test_masks_of_different_keys_are_independent():
    keys = torch.arange(64)
    dropped = mask(keys, torch.Size([4096]), 0.5, torch.float64).eq(0).double()
    correlation = torch.corrcoef(dropped)
    correlation.fill_diagonal_(0)
    assert correlation.abs().max() < 6 / 4096**0.5
    # Neither do neighbouring places agree.
    shifted = (dropped[:, 1:] == dropped[:, :-1]).double().mean()
    assert abs(shifted - 0.5) < 0.01


def test_padding_moves_nothing():
    short = mask(torch.tensor([7, 8]), torch.Size([3, 5]), 0.5, torch.float32)
    longer = mask(torch.tensor([7, 8]), torch.Size([4, 5]), 0.5, torch.float32)
    assert longer[:, :3].equal(short)


def test_channels_go_as_a_whole():
    layer = with_keyed_dropout(nn.Dropout2d(0.5))
    layer.key.fill_(11)
    kept = layer(torch.ones(50, 20, 4, 3))
    assert kept.equal(kept[:, :, :1, :1].expand_as(kept))
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert abs((kept[:, :, 0, 0] == 0).double().mean() - 0.5) < 5 * (0.25 / 1000) ** 0.5


def test_a_module_is_rewired():
    module = with_keyed_dropout(
        nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.5)), nn.Dropout(0.1))
    )
    assert [(name, layer.frac) for name, layer in dropouts(module)] == [("1.0", 0.5), ("2", 0.1)]
    assert isinstance(with_keyed_dropout(nn.Dropout(0.2)), KeyedDropout)
    module.eval()
    inputs = torch.ones(1, 2)
    assert module(inputs).equal(module[0](inputs))


def test_keys_differ_by_step_layer_and_client():
    keys = step_keys(np.array([1, 2], dtype=np.uint64), steps=3, layers=2)
    assert keys.shape == (3, 2, 2)
    assert len(np.unique(keys)) == 12
    assert np.array_equal(step_keys(np.array([2], dtype=np.uint64), 3, 2)[:, :, 0], keys[:, :, 1])
