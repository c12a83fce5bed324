"""Averages over two levels: inside a node without compression, between nodes with it.

1. The ranks of a node send each other chunks of a bucket. Each gets its slices from all of them,
   and adds them up.
2. Each rank averages its slices with the ranks that own the same slices on the other nodes: its
   column. This is the exchange of one level, between nodes.
3. The ranks of a node send each other the averages of their slices, and put them together.

The backward pass begins step 1. In main memory the thread of the column's reducer begins step 3,
and on devices the end of the backward pass; both in the order of buckets, which is the same on all
ranks. If messages stay on the device, ``cuda/_node_transport.py`` does all three steps.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from math import prod
from typing import Any, Callable, Collection, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.futures import Future

from .. import _core
from .._arrays import buffer, keeping
from . import _nodes
from ._buckets import Part
from ._channel import Channel, connect as connect_one_level, destroy, private_groups, private_groups_of
from ._columns import Cut, Model, model_of, parts_of
from ._custom_reducer import CustomReducer
from ._failures import Failures, Pending
from ._inside import DeviceInside, HostInside, Inside, NodeBucket, NodeExchange, group_on_devices
from ._node_averages import Between, DeviceAverage, HostAverage, Links, Unfinished
from ._nodes import Nodes
from ._options import Alone, Options, Parts, compare, seconds_of
from ._staging import Stream
from ._tensors import Named

# Creates the reducer of some tensors.
Create = Callable[[Options, Iterable[Named], Channel, Optional[Parts]], _core.Reducer]

# The most bytes of a state that ranks send each other at once.
_STATE_PART = 1 << 28

_TYPES = {None: None, "bf16": torch.bfloat16}

# What the reducer of a column does and says for ``TwoLevels``.
_OF_COLUMN = frozenset(
    "average average_device deadline enter array set_array exchange_at failed fewest_bytes forked load message_specs plan save "
    "save_unless_kept sent specs".split()
)


class NodeOptions(NamedTuple):
    """The arguments ``nodes`` and ``inside`` of the user."""

    nodes: Any
    inside: Optional[str] = None
    # Whether values are in main memory, wherever parameters are.
    on_host: bool = False


@dataclass(frozen=True)
class Connected:
    """The connections of a rank: to all ranks, to its column, and inside its node by the type of
    the device."""

    control: _core.Reducer
    column: _core.Reducer
    inside: Dict[str, Inside]
    # All process groups, which end with the exchange.
    groups: List[Any]


class TwoLevels:
    """Averages buckets over the ranks of equal nodes.

    It has the methods of ``_core.Reducer`` that hooks and ``LocalSteps`` use, except that
    ``average_bucket`` takes the place of ``average``; ``average`` and ``average_device`` average
    slices of this rank's column.
    """

    def __init__(self, nodes: Nodes, model: Model, cut: Cut, connected: Connected, ranks: Sequence[int], request: Request) -> None:
        control, column = connected.control, connected.column
        self.nodes, self.column, self._control, self._inside = nodes, column, control, connected.inside
        self._ranks, self._process_groups = ranks, connected.groups
        self.rank, self.size = control.rank, control.size
        self.exchange, self.spec, self.votes, self.stages = model.exchange, model.spec, model.votes, model.stages
        # The parameters, in the order of the model.
        self.names = list(model.shapes)
        self._cut, self._dtype = cut, _TYPES[request.levels.inside]
        self._groups: Dict[Tuple[str, ...], int] = {}
        self._buckets: List[Tuple[NodeBucket, Part]] = []
        self.failures, self._pending = Failures(control, nodes, ranks, request.options.on_nonfinite == "skip"), Pending()
        self._links: Dict[torch.device, Links] = {}
        self._unfinished = Unfinished()
        # Whether buckets in main memory pass through streams like those on a GPU, as under Triton's
        # interpreter.
        self.uses_streams = False
        # Of the present step: its number, and the bytes that this rank sent inside its node. And
        # the bytes of earlier steps.
        self._step, self._bytes, self._earlier_bytes = -1, 0, 0

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_COLUMN:
            raise AttributeError(f"'TwoLevels' has no '{name}'")
        return getattr(self.column, name)

    @property
    def nonfinite_remedy(self) -> str:
        """The remedy in errors about a gradient with NaN or infinity."""
        return self.failures.remedy

    @nonfinite_remedy.setter
    def nonfinite_remedy(self, remedy: str) -> None:
        self.failures.remedy = self.column.nonfinite_remedy = remedy

    def slices(self) -> List[Tuple[str, str, Tuple[int, ...]]]:
        """The slices that this rank owns, in the order of the model: the name of the parameter, the
        slice's own name, and its shape. A slice may have no elements."""
        parts = parts_of(self._cut, self.nodes.local_rank_of(self.rank), self.nodes.local).of_tensors
        return [(name, own, shape) for name, own, (_, shape) in zip(self.names, self.column.names, parts)]

    def owned(self) -> Dict[str, int]:
        """The number of elements that this rank owns of each parameter."""
        return {name: prod(shape) for name, _, shape in self.slices()}

    def tensor_group(self, names: Sequence[str]) -> int:
        """The number of a group of parameters, given in the order of their values."""
        key = tuple(names)
        if key not in self._groups:
            self._groups[key] = len(self._buckets)
            bucket = NodeBucket(names, self._cut, self.nodes.local, self.nodes.local_rank_of(self.rank))
            part = Part(self.column.tensor_group(bucket.names), bucket.names, slice(0, bucket.elements))
            self._buckets.append((bucket, part))
        return self._groups[key]

    def average_bucket(self, tensor_group: int, step: int, values: torch.Tensor, between: Between) -> Future:
        """Averages the values of a group of parameters over all ranks, in place and in the
        background. ``between`` averages slices of this rank, in float32, between nodes."""
        exchange, part = self.exchange_of(tensor_group, step, values)
        average = HostAverage if values.device.type == "cpu" and not self.uses_streams else DeviceAverage
        with self.finding_cause():
            return average(self._links_of(values.device), exchange).start(part, between)

    def exchange_of(self, tensor_group: int, step: int, values: torch.Tensor) -> Tuple[NodeExchange, Part]:
        """The exchange of a bucket inside the node at a step, whose bytes are counted, and the
        slices of this rank."""
        bucket, part = self._buckets[tensor_group]
        dtype = self._dtype or values.dtype
        if step != self._step:
            self._step, self._bytes, self._earlier_bytes = step, 0, self._earlier_bytes + self._bytes
        self._bytes += bucket.sent * torch.empty((), dtype=dtype).element_size()
        if not self._inside:
            raise _core.ConfigError("the exchange has ended: it was closed; create it again, with register or LocalSteps")
        return NodeExchange(self._inside[values.device.type], bucket, values, dtype), part

    @contextmanager
    def finding_cause(self) -> Iterator[None]:
        """A block whose errors end the exchange. Raises the error of the rank that has caused them;
        all ranks of the failed step meet for it."""
        try:
            with self.failures.noted():
                yield
        except (RuntimeError, _core.GradwireError) as error:
            raise self._cause(error) from error

    def _cause(self, error: Exception) -> Exception:
        """The error to raise in place of this rank's; ends the exchange."""
        # The ranks that wait for this one fail, too, and then all look for the cause.
        self.column.abort()
        return self.failures.cause_of(error)

    def _links_of(self, device: torch.device) -> Links:
        if device not in self._links:
            self._links[device] = Links(self.column, self.failures, self._pending, Stream(device), self._unfinished)
        return self._links[device]

    def column_group(self) -> Any:
        """Creates a process group of the ranks of this column with the default backend of the job.
        All ranks must call it."""
        column = [self._ranks[at] for at in self.nodes.of_column(self.nodes.local_rank_of(self.rank))]
        group = group_on_devices(column, self.column.deadline)
        self._process_groups.append(group)
        return group

    def wait(self) -> None:
        """Waits until all averages are done, and all messages of this rank have left."""
        failure: Optional[Exception] = None
        try:
            self.column.call_later(self._unfinished.finish_last)
            self.column.wait()
        except _core.GradwireError as error:
            failure = self.failures.of_column(error)
        self._unfinished.finish_on_devices()
        self._pending.wait()
        failure = self.failures.first(failure)
        if failure is not None:
            raise self._cause(failure)
        self._control.wait()

    def stats(self) -> Dict[str, Any]:
        """The cost of the last step for this rank: of its column, and the bytes inside its node."""
        return {**self.column.stats(), **self.inside_bytes()}

    def inside_bytes(self) -> Dict[str, int]:
        """The bytes of the last step, and of all steps, inside the node."""
        return {"inside_bytes_up": self._bytes, "inside_bytes_down": self._bytes, "total_inside_bytes": self._earlier_bytes + self._bytes}

    def gather(self, step: int, own: bytes) -> List[bytes]:
        """Returns the bytes of all ranks, in rank order, on every rank."""
        try:
            gathered: List[bytes] = self._control.gather(step, own)
        except (_core.PeerLostError, _core.DeadlineError) as error:
            raise self.failures.of_control(error) from error
        return gathered

    def traffic(self) -> List[int]:
        """The counts of the connections to all ranks, which carry no averages."""
        return self._control.traffic()

    def save_all(self) -> List[bytes]:
        """The states of all ranks, in rank order."""
        return self.gather_states(self.column.save())

    def gather_states(self, own: bytes) -> List[bytes]:
        """The states of all ranks, in rank order, given this rank's."""
        states = [b""] * self.size
        for start in range(0, max(map(int, self.gather(0, str(len(own)).encode()))), _STATE_PART):
            parts = self.gather(0, own[start : start + _STATE_PART])
            states = [state + part for state, part in zip(states, parts)]
        # This rank may end now, and the others must have its state.
        self._control.wait()
        return states

    def abort(self) -> None:
        """Aborts the exchange on all ranks."""
        self.column.abort()
        self._control.abort()

    def hurry(self) -> None:
        """Makes ``close`` wait only a moment."""
        self.column.hurry()
        self._control.hurry()

    def close(self) -> None:
        """Ends the threads of this exchange."""
        try:
            self.column.close()
        finally:
            self._control.close()
            # The process groups end with their last reference.
            self._links.clear()
            self._inside.clear()


def average_in_memory(reducer: Any, tensor_group: int, step: int, values: torch.Tensor) -> None:
    """Averages values in main memory, in place and in the background, over the ranks of a reducer
    of one or two levels. A compressor written in Python averages them at once."""
    if isinstance(reducer, CustomReducer):
        reducer.average_values(tensor_group, step, values)
        return
    if not isinstance(reducer, TwoLevels):
        reducer.average(tensor_group, step, buffer(values), keeping(values))
        return

    def between(own: Part, slices: torch.Tensor, ready: Optional[Callable[[], Optional[float]]]) -> Future:
        future: Future = Future()
        reducer.average(own.tensor_group, step, buffer(slices), partial(future.set_result, slices), ready=ready)
        return future

    reducer.average_bucket(tensor_group, step, values, between)


@dataclass(frozen=True)
class Request:
    """What to average over two levels: tensors, with these options. ``create`` makes the reducers,
    and ``caller`` is the function that the user called."""

    named: Sequence[Named]
    options: Options
    levels: NodeOptions
    create: Create
    caller: str


def connect(process_group: Optional[Any], request: Request) -> Tuple[Any, List[Any], str]:
    """A reducer over two levels, or over one if there are no nodes of several ranks; its process
    groups; and a description of the levels.

    All refusals are the same on all ranks.
    """
    options, deadline = request.options, seconds_of(request.options.deadline)
    options.check()
    groups = list(private_groups(process_group, deadline, request.caller))
    control: Optional[_core.Reducer] = None
    try:
        control = Options("none", exchange="all-gather", deadline=deadline).reducer([], Channel((groups[0], groups[1])))
        _compare(control, request)
        ranks = _nodes.ranks_of(process_group)
        nodes, reason = _nodes.agree(control, request.levels.nodes, ranks)
        if nodes is not None:
            return _connected(nodes, ranks, request, control, groups), groups, str(nodes)
    except BaseException:
        _end(control, groups)
        raise
    _end(control, groups)
    make = lambda channel: request.create(options, request.named, channel, None)
    reducer, pair = connect_one_level(process_group, make, deadline, request.caller)
    return reducer, list(pair), f"{reducer.size} ranks, in one level, because {reason}"


def _connected(nodes: Nodes, ranks: List[int], request: Request, control: _core.Reducer, groups: List[Any]) -> TwoLevels:
    """Connects the ranks of this rank's column and node; adds their process groups to
    ``groups``."""
    options, caller = request.options, request.caller
    model = model_of(request.named, options, nodes.count)
    cut, local_rank = model.cut(nodes.local), nodes.local_rank_of(control.rank)
    # The averages of a node are float32.
    tensors = [(name, torch.empty(shape, dtype=torch.float32, device="meta")) for name, shape in model.shapes.items()]
    create = lambda channel: request.create(options, tensors, channel, parts_of(cut, local_rank, nodes.local))
    # Whatever is refused on some ranks only is refused on all, before the others connect.
    _agree(control, lambda: create(Alone(nodes.count)).close())
    pair = private_groups_of([ranks[at] for at in nodes.of_column(local_rank)], options.deadline, f"{caller}, between nodes")
    groups.extend(pair)
    inside = _connected_inside([ranks[at] for at in nodes.of_node(nodes.node_of(control.rank))], request)
    groups.extend(group for one in inside.values() for group in one.groups)
    return TwoLevels(nodes, model, cut, Connected(control, create(Channel(pair)), inside, groups), ranks, request)


def _agree(control: _core.Reducer, check: Callable[[], None]) -> None:
    """Raises ``ConfigError`` on all ranks if ``check`` raises it on one."""
    refusal = ""
    try:
        check()
    except _core.ConfigError as error:
        refusal = str(error)
    refusals = [one.decode() for one in control.gather(0, refusal.encode())]
    # This rank may end now, and the others must have its answer.
    control.wait()
    found = next((one for one in refusals if one), "")
    if found:
        raise _core.ConfigError(refusal or found)


def _connected_inside(ranks: List[int], request: Request) -> Dict[str, Inside]:
    """Connects the ranks of a node, for each type of device that has values."""
    on_host = request.levels.on_host
    types = dict.fromkeys("cpu" if on_host else parameter.device.type for _, parameter in request.named)
    deadline = request.options.deadline
    return {one: HostInside(ranks, deadline, request.caller) if one == "cpu" else DeviceInside(ranks, deadline) for one in types}


def _compare(control: _core.Reducer, request: Request) -> None:
    """Refuses options and models that differ between ranks. The reducers of columns would find it
    on some ranks only."""
    shapes = repr([(name, tuple(parameter.shape)) for name, parameter in request.named])
    settings = {one.name: getattr(request.options, one.name) for one in fields(Options) if one.compare}
    digest = hashlib.sha256(shapes.encode()).hexdigest()[:16]
    compare(control, {**settings, "inside": request.levels.inside, "the digest of the names and shapes of parameters": digest})


def _end(control: Optional[_core.Reducer], groups: Collection[Any]) -> None:
    if control is not None:
        control.close()
    destroy(list(groups))
