"""Tests which ranks are a node, and which slices and compressors the columns have."""

import pytest
import torch

import gradwire
from gradwire.torch import _nodes
from gradwire.torch._columns import model_of, parts_of
from gradwire.torch._options import Alone, Options


def test_nodes_are_those_of_torchrun_or_of_hosts():
    def of(hosts, nodes=(None,) * 6, given="auto", **changes):
        local = {node: nodes.count(node) for node in nodes}
        facts = [
            {"given": given, "count": None, "error": "", "host": host, "node": node, "local": None if node is None else local[node], **changes}
            for host, node in zip(hosts, nodes)
        ]
        return _nodes.agreed(facts)

    assert of("aabb")[0] == of("aaaa", (0, 0, 1, 1))[0] == _nodes.Nodes(2, 2)
    assert of("aabbcc")[0].of_column(1) == [1, 3, 5] and of("aabbcc")[0].of_node(2) == [4, 5]
    assert of("aaaa") == (None, "all ranks are on one node") and of("abcd") == (None, "every node has one rank")
    for hosts, nodes, says in [
        ("aaab", (None,) * 4, "different numbers of ranks"),
        ("abab", (None,) * 4, "do not follow each other"),
        ("aabb", (0, 0, 0, 0), "its host is b"),
        ("aaaa", (0, 1, 0, 1), "do not follow each other"),
    ]:
        with pytest.raises(gradwire.ConfigError, match=says):
            of(hosts, nodes)


def test_hosts_that_contradict_the_nodes_are_doubted():
    facts = lambda hosts, count: [{"given": str(count or "auto"), "count": count, "host": host, "node": None} for host in hosts]
    two = _nodes.Nodes(2, 2)
    assert "several hosts (node 0: a, b)" in _nodes.doubt_about(two, facts("abab", 2))
    assert _nodes.doubt_about(two, facts("aabb", 2)) == _nodes.doubt_about(two, facts("aaaa", 2)) == ""
    assert "localhost" in _nodes.doubt_about(None, facts(["localhost"] * 4, None))
    assert _nodes.doubt_about(None, facts("aaaa", None)) == ""


def test_slices_have_the_compressors_of_their_parameters():
    shapes = {"big": (160, 80), "small": (20, 30), "tiny": (3, 2), "bias": (40,)}
    named = [(name, torch.empty(shape)) for name, shape in shapes.items()]
    options = Options("none until 5 then topk:ratio=0.1", rules=[">=10000 -> int8"], raw_below=300)
    model = model_of(named, options, 2)
    assert model.exchange == "all-gather"
    cut = model.cut(2)
    parts = parts_of(cut, 1, 2)
    assert parts == (1, 2, [(6400, (6400, 1)), (0, (0, 1)), (0, (3, 2)), (0, (40,))])
    owners = {name: parts[0].owner for name, parts in cut.items() if len(parts) == 1}
    # The largest first, each to the rank with the fewest elements.
    assert owners == {"small": 0, "bias": 1, "tiny": 1}
    reducer = options.reducer(named, Alone(2), parts)
    assert reducer.names == ["big[6400..12800]", "small[0..0]", "tiny", "bias"]
    # The rule sees the whole parameter, which has more elements than its slices; so does raw_below.
    specs = [dict(zip(reducer.names, reducer.specs(step))) for step in (0, 9)]
    assert [one.pop("small[0..0]") for one in specs] == ["none", "topk:ratio=0.1"]
    assert specs == [{"big[6400..12800]": "int8", "tiny": "none", "bias": "none"}] * 2
    # Nothing is sent of what this rank does not own.
    assert [row[:2] for row in reducer.plan(0)] == [("big[6400..12800]", 6400), ("tiny", 6), ("bias", 40)]
    reducer.close()
    # Three nodes exchange the eight bits of int8 by all-gather, four by scatter-reduce.
    assert [model_of(named, Options("int8"), nodes).exchange for nodes in (3, 4)] == ["all-gather", "scatter-reduce"]
    whole = model_of(named, Options("powersgd", rules={"bias": "int8"}), 2)
    assert whole.whole == {"big", "small"} and len(whole.cut(2)["big"]) == 1
