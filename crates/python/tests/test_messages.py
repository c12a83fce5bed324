"""Tests the messages of a hook: their sizes and number, and how a handle describes them."""

import torch

from gradwire.torch import _messages
from models import build, exchange_bytes, flat, train
from world import in_turn, ranks


def rules(rank, size):
    model, handle = build(
        "none until 3 then topk:ratio=0.01",
        rules={"second.*": "fp16", "norm.*": "none"},
        small_buckets=False,
        exchange="all-gather",
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    sizes = []
    for step in range(5):
        train(model, optimizer, rank, [step])
        sizes.append(handle.stats()["message_bytes"])
    return flat(model), sizes, list(handle.scalars())


def test_rules_and_warm_up():
    found = ranks(2, rules)
    assert (found[0][0] == found[1][0]).all()
    _, sizes, scalars = found[0]
    # second.weight and its bias at 16 bits, vectors uncompressed, first.weight uncompressed and
    # then at a hundredth.
    fixed = 2 * 970 + 4 * 3 * 96
    assert all(fixed + 4 * 6144 <= size < fixed + 4 * 6144 + 100 for size in sizes[:3])
    assert all(fixed + 4 * 61 < size < fixed + 6 * 61 + 100 for size in sizes[3:])
    assert ("gradwire/message_bytes", float(sizes[-1]), 4) in scalars


def in_messages(rank, size, most):
    _messages.MOST_ELEMENTS = most
    model, handle = build("topk:ratio=0.1", small_buckets=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, rank, range(1))
    messages = handle.stats()["messages_up"]
    train(model, optimizer, rank, range(1, 4))
    return flat(model), exchange_bytes(handle.state_dict()), messages


def test_a_large_bucket_has_several_messages():
    # 10 biases and 960 weights; three vectors of 96; 6144 weights.
    for whole, parts in zip(*in_turn(2, (in_messages, 1 << 28), (in_messages, 1000))):
        assert (whole[0] == parts[0]).all() and whole[1] == parts[1]
        assert (whole[2], parts[2]) == (1, 3)


def described(rank, size):
    rules = {"first.weight": "topk:ratio=0.01"}
    model, handle = build("none until 2 then 3lc", rules=rules, exchange="all-gather")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before, start = handle.describe(), handle.summary()
    with torch.profiler.profile() as profile:
        train(model, optimizer, rank, range(3))
    ranges = {event.key for event in profile.key_averages()}
    return before, handle.describe(), start, handle.summary(), repr(handle), ranges, handle.stats()


def test_a_handle_tells_how_tensors_are_sent():
    before, after, start, summary, name, ranges, stats = ranks(2, described)[0]
    plans = {one.name: one for one in before.tensors}
    assert plans["first.weight"].compressor == "topk" and plans["second.weight"].compressor == "none"
    # 61 of 6144 values, and their positions.
    assert 50 < plans["first.weight"].expected_ratio < 100
    assert plans["second.weight"].expected_ratio == 1.0 and plans["norm.weight"].message_bytes == 0
    plans = {one.name: one for one in after.tensors}
    assert plans["second.weight"].compressor == "3lc" and plans["second.weight"].expected_ratio > 15
    assert sum(one.message_bytes for one in after.tensors) == stats["message_bytes"]
    assert "all-gather over 2 ranks, step 3" in str(after) and "second.weight  960" in str(after)
    assert "no step yet" in start and "step 2" in summary and "waited" in summary
    assert name == "<Hook none until 2 then 3lc by all-gather over 2 ranks, step 3>"
    assert {"gradwire::submit", "gradwire::wait"} <= ranges
