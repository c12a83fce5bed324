"""Tests of the names by which rules and raw_names select parameters."""

import pytest
import torch
from torch import nn

import gradwire.torch
from gradwire.torch import _names
from gradwire.torch._options import Options
from gradwire.torch._tensors import trainable
from world import ranks


class Tied(nn.Module):
    """A language model whose output layer has the weight of its embedding."""

    def __init__(self):
        super().__init__()
        self.wte, self.body, self.lm_head = nn.Embedding(64, 32), nn.Linear(32, 32), nn.Linear(32, 64, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, x):
        return self.lm_head(self.body(self.wte(x)))


def selected(net, **options):
    found = _names.selected(net, dict(trainable(net)), Options(**options))
    return found.rules, found.raw_names


def test_rules_and_words_fit_every_name_of_a_tied_weight():
    net = Tied()
    assert selected(net, rules={"*head*": "none"}) == (["wte.weight -> none"], [])
    # The order of rules stays, and so does a rule that fits another parameter, too.
    rules = ["*weight -> fp16", "lm_head.weight -> int8", "*b*d* -> none"]
    assert selected(net, rules=rules)[0] == ["*weight -> fp16", "wte.weight -> int8", "*b*d* -> none", "wte.weight -> none"][:3]
    assert selected(net, raw_names=["lm_head"]) == (["wte.weight -> none"], [])
    assert selected(net, rules=["<100 -> fp16"], raw_names=["head", "body"]) == (["<100 -> fp16", "wte.weight -> none"], ["body"])
    # What fits nothing is left to the reducer, which refuses it.
    assert selected(net, rules={"*haed*": "none"}, raw_names=["haed", ""]) == (["*haed* -> none"], ["haed", ""])


def test_only_words_that_fit_frozen_parameters_alone_are_left_out():
    net = Tied()
    net.body.weight.requires_grad_(False)
    assert selected(net, raw_names=("body.weight", "weight", "body", "bdoy", ""))[1] == ["weight", "body", "bdoy", ""]
    with pytest.raises(gradwire.ConfigError, match="'body.weight' is frozen"):
        selected(net, rules={"body.w*": "none"})
    net.wte.weight.requires_grad_(False)
    with pytest.raises(gradwire.ConfigError, match="'lm_head.weight' is frozen"):
        selected(net, rules={"*head*": "none"})


def compressors(rank, size):
    """How each kind of exchange sends the tied weight."""
    rules, words = {"*head*": "int8"}, ["head"]
    found = []
    for options in ({"rules": rules}, {"raw_names": words}):
        model = nn.parallel.DistributedDataParallel(Tied())
        net, sharded = Tied(), Tied()
        torch.distributed.fsdp.fully_shard(sharded)
        handles = [
            gradwire.torch.register(model, "eden", **options),
            gradwire.torch.fsdp.register(sharded, "eden", **options),
            gradwire.torch.LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), compressor="eden", **options),
        ]
        for handle in handles:
            specs = {one.name: one.compressor for one in handle.describe().tensors}
            found.append((specs["wte.weight"], specs["body.weight"]))
            handle.close()
    return found


def test_all_exchanges_know_every_name():
    assert ranks(1, compressors) == [[("int8", "eden")] * 3 + [("none", "eden")] * 3]


def test_rules_of_candidates_know_every_name():
    net = Tied()
    x = torch.arange(64)

    def step():
        net(x).square().mean().backward()

    candidates = ["none", {"compressor": "eden", "rules": {"lm_head*": "none"}}]
    advice = gradwire.torch.advise(net, step, ranks=2, link="10mbit", candidates=candidates, steps=1)
    sizes = [one["bytes_up"] for one in advice.data["predictions"] if one["spec"] == "eden"]
    # The tied weight travels uncompressed: four bytes an element.
    assert sizes and sizes[0] > 4 * 64 * 32, advice.data["predictions"]
