"""The nodes of a run: which ranks share a machine, and whether all ranks agree about it."""

from __future__ import annotations

import json
import os
import socket
import warnings
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch.distributed as dist

from .. import _core
from .._arrays import whole_number

_INSIDE = (None, "bf16")


@dataclass(frozen=True)
class Nodes:
    """Nodes of equal size, whose ranks are adjacent. Ranks are those of the process group."""

    # The number of nodes, and of ranks on each.
    count: int
    local: int

    def __str__(self) -> str:
        return f"{self.count} nodes of {self.local} ranks"

    def node_of(self, rank: int) -> int:
        """The node of a rank."""
        return rank // self.local

    def local_rank_of(self, rank: int) -> int:
        """The local rank of a rank: its number among the ranks of its node."""
        return rank % self.local

    def of_node(self, node: int) -> List[int]:
        """The ranks of a node."""
        return list(range(node * self.local, (node + 1) * self.local))

    def of_column(self, local_rank: int) -> List[int]:
        """The ranks with this local rank, by node: the ranks that own the same slices."""
        return [node * self.local + local_rank for node in range(self.count)]


# Nodes; or why the exchange is flat.
Layout = Tuple[Optional[Nodes], str]


def check_inside(inside: Any, nodes: Any) -> None:
    """Refuses a type of values inside a node that is unknown or has no use."""
    if inside not in _INSIDE:
        raise _core.ConfigError(f"inside={inside!r} is unknown; use 'bf16', or leave it out to send the type of the gradients inside a node")
    if inside is not None and nodes is None:
        raise _core.ConfigError(f"inside={inside!r} is the type in which the ranks of a node add gradients; give nodes, too, such as nodes='auto'")


def facts_of(nodes: Any, ranks: Sequence[int]) -> Dict[str, Any]:
    """What a rank knows about the nodes of a process group with these ``ranks``: the argument
    ``nodes``, the host, and the variables that torchrun sets."""
    size, given, error = len(ranks), str(nodes), ""
    count: Optional[int] = None
    try:
        if hasattr(nodes, "mesh") and hasattr(nodes, "get_group"):
            given, count = f"a DeviceMesh of shape {tuple(nodes.mesh.shape)}", _of_mesh(nodes.mesh.tolist(), list(ranks))
        elif isinstance(nodes, str):
            _check_auto(nodes)
        else:
            count = _of_number(nodes, size)
    except _core.ConfigError as refused:
        error = str(refused)
    number = lambda name: int(os.environ[name]) if os.environ.get(name, "").isdigit() else None
    return {
        "given": given,
        "count": count,
        "error": error,
        "host": socket.gethostname(),
        "local": number("LOCAL_WORLD_SIZE"),
        "node": number("GROUP_RANK"),
    }


def agreed(facts: Sequence[Mapping[str, Any]]) -> Layout:
    """The nodes of ranks with these facts. Raises ``ConfigError``, the same on all ranks, if they
    have no common nodes of equal size with adjacent ranks."""
    for rank, one in enumerate(facts):
        if one["error"]:
            raise _core.ConfigError(one["error"] if rank == 0 or facts[0]["error"] else f"rank {rank}: {one['error']}")
        if one["given"] != facts[0]["given"]:
            raise _core.ConfigError(f"the argument nodes differs between ranks: rank 0 has {facts[0]['given']}, rank {rank} has {one['given']}")
    size = len(facts)
    count = facts[0]["count"]
    if count is None:
        count = _of_places([_place(one) for one in facts], [one["host"] for one in facts])
    if count == 1:
        return None, "all ranks are on one node"
    if count == size:
        return None, "every node has one rank"
    return Nodes(count, size // count), ""


def _check_auto(nodes: str) -> None:
    if nodes != "auto":
        raise _core.ConfigError(
            f"nodes={nodes!r} is unknown; use 'auto', the number of nodes, a DeviceMesh of nodes and ranks a node, or None for one level"
        )


def _of_number(nodes: Any, size: int) -> int:
    if isinstance(nodes, bool):
        raise _core.ConfigError(f"nodes={nodes} is no number of nodes; use 'auto', the number of nodes, or None for one level")
    count = whole_number("nodes", nodes)
    if count < 1 or size % count:
        raise _core.ConfigError(
            f"nodes={count} does not divide the {size} ranks into equal nodes; give a number that divides {size}, or nodes=None for one level"
        )
    return count


def _of_mesh(mesh: Any, ranks: List[int]) -> int:
    """The number of nodes of a mesh, given as nested lists of ranks."""
    if not mesh or not isinstance(mesh[0], list) or (mesh[0] and isinstance(mesh[0][0], list)):
        raise _core.ConfigError(
            "nodes is a DeviceMesh whose number of dimensions is not 2; give one of nodes and ranks a node, such as "
            'init_device_mesh("cuda", (nodes, local), mesh_dim_names=("nodes", "local"))'
        )
    flat = [rank for row in mesh for rank in row]
    if sorted(flat) != sorted(ranks):
        raise _core.ConfigError(
            f"nodes is a DeviceMesh of ranks {flat}, but the process group of the model has ranks {ranks}; give a mesh of the same ranks"
        )
    if flat != ranks:
        raise _core.ConfigError(
            f"nodes is a DeviceMesh of ranks {mesh}, in another order than the process group, {ranks}: the ranks of a node must follow each "
            "other; give a mesh with the nodes as its first dimension"
        )
    return len(mesh)


def _place(fact: Mapping[str, Any]) -> str:
    """The node of a rank: the number that torchrun gives it, or its host."""
    return fact["host"] if fact["node"] is None or fact["local"] is None else f"node {fact['node']}"


def _of_places(places: Sequence[str], hosts: Sequence[str]) -> int:
    """The number of nodes, given the node and the host of each rank."""
    sizes: Dict[str, int] = {}
    for rank, place in enumerate(places):
        if place in sizes and places[rank - 1] != place:
            raise _core.ConfigError(
                f"nodes='auto': the ranks of {place} do not follow each other: rank {rank} is there, but rank {rank - 1} is not; start ranks node by "
                "node, as torchrun does, or use nodes=None"
            )
        sizes[place] = sizes.get(place, 0) + 1
        host = hosts[places.index(place)]
        if hosts[rank] != host:
            raise _core.ConfigError(
                f"nodes='auto': GROUP_RANK says that rank {rank} is on {place}, but its host is {hosts[rank]}, and that of rank {places.index(place)} "
                f"is {host}; give the number of nodes, or correct GROUP_RANK"
            )
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{place} has {count}" for place, count in sizes.items())
        raise _core.ConfigError(
            f"nodes='auto': nodes have different numbers of ranks ({listed}), and the mean over nodes would not be the mean over ranks; start the "
            "same number on each, or use nodes=None"
        )
    return len(sizes)


def agree(control: Any, nodes: Any, ranks: Sequence[int]) -> Layout:
    """The nodes of all ranks of ``control``, which are ``ranks`` of the job."""
    told = control.gather(0, json.dumps(facts_of(nodes, ranks)).encode())
    # This rank may end now, and the others must have its facts.
    control.wait()
    facts = [json.loads(one) for one in told]
    layout = agreed(facts)
    doubt = doubt_about(layout[0], facts)
    if doubt and control.rank == 0:
        warnings.warn(doubt, RuntimeWarning, stacklevel=2)
    return layout


def doubt_about(nodes: Optional[Nodes], facts: Sequence[Mapping[str, Any]]) -> str:
    """What is probably wrong with nodes that suit the arguments of all ranks, but not the names of
    their hosts; empty if nothing is."""
    hosts = [str(one["host"]) for one in facts]
    distinct = set(hosts)
    if nodes is None:
        if len(facts) > 1 and distinct == {"localhost"} and facts[0]["node"] is None and facts[0]["count"] is None:
            return (
                "nodes='auto' found one node, because the host of every rank is called localhost; if ranks are on several machines, give the "
                "number of nodes"
            )
        return ""
    of_node = [set(hosts[node * nodes.local : (node + 1) * nodes.local]) for node in range(nodes.count)]
    if len(distinct) > 1 and all(len(one) > 1 for one in of_node):
        return (
            f"nodes={facts[0]['given']}: every node has ranks of several hosts (node 0: {', '.join(sorted(of_node[0]))}), so gradients travel between "
            "hosts without compression; start ranks host by host, as torchrun does, so that the ranks of a node follow each other"
        )
    return ""


def ranks_of(process_group: Optional[Any]) -> List[int]:
    """The ranks of a process group in the job, in its order; of all ranks for ``None``."""
    if process_group is None or process_group is dist.group.WORLD:
        return list(range(dist.get_world_size()))
    ranks: List[int] = dist.get_process_group_ranks(process_group)
    return ranks
