"""Compression under torchft's Manager: replicas may be lost and join again."""

# Without postponed annotations, because DistributedDataParallel compares the annotations of its
# hook as objects.
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from functools import partial
from inspect import signature
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
import torchft
from torch.futures import Future
from torchft import ddp, process_group
from torchft.work import _DummyWork

from .. import _core
from .._arrays import buffer, keeping
from . import _saved
from ._channel import Channel
from ._checks import check_gradients
from ._names import selected
from ._options import Options, Rules, suggestion
from ._tensors import as_reals, trainable
from ._traffic import Plain, bytes_of, warn_of_more

__all__ = ["DistributedDataParallel", "ProcessGroupGloo"]


class ProcessGroupGloo(process_group.ProcessGroupGloo):
    """torchft's process group over gloo, for the Manager of a ``DistributedDataParallel`` of this
    module.

    The buckets of that model are sent compressed. torchft sends everything else. ``timeout`` is the
    longest wait for another replica.
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60)) -> None:
        super().__init__(timeout=timeout)
        self._channel: Optional[Channel] = None
        self._next: Optional[Tuple[int, Callable[[Channel], None]]] = None

    def configure(self, store_addr: str, replica_id: str, rank: int, world_size: int, *rest: Any, **more: Any) -> None:
        """Connects the replicas of a quorum; torchft calls it."""
        super().configure(store_addr, replica_id, rank, world_size, *rest, **more)
        if self._channel is not None:
            self._channel.close()

        def connect(direction: str) -> Any:
            store = process_group.create_store_client(f"{store_addr}/gradwire/{direction}", timeout=self._timeout)
            return dist.ProcessGroupGloo(store, rank, world_size, self._timeout)

        self._channel = Channel((connect("up"), connect("down")))

    @property
    def deadline(self) -> float:
        """The longest wait for another replica, in seconds."""
        return self._timeout.total_seconds()

    def expect(self, tensor: torch.Tensor, average: Callable[[Channel], None]) -> None:
        """Sends a tensor by ``average`` when the Manager next requests its sum."""
        self._next = tensor.data_ptr(), average

    def allreduce(self, tensors: List[torch.Tensor], opts: object) -> Any:
        """Sums tensors over the replicas; the Manager calls it."""
        expected, self._next = self._next, None
        if expected is None or expected[0] != tensors[0].data_ptr() or self._channel is None:
            return super().allreduce(tensors, opts)
        expected[1](self._channel)
        # The Manager divides the sum by the number of participating replicas: a recovering replica
        # sends zeros.
        tensors[0].mul_(self._channel.size)
        return _DummyWork(tensors)


class DistributedDataParallel(ddp.DistributedDataParallel):
    """torchft's DistributedDataParallel with compressed gradients, for a model on the CPU.

    The ``manager`` must have been created with a ``ProcessGroupGloo`` of this module. The named
    arguments are passed to ``gradwire.torch.register``; the exchange is all-gather. ``of_pytorch``
    are arguments of PyTorch's DistributedDataParallel, such as ``bucket_cap_mb``::

        manager = Manager(pg=ProcessGroupGloo(), max_retries=10, ...)
        model = DistributedDataParallel(manager, model, "eden")
        optimizer = torchft.Optimizer(manager, optimizer)

    A step that the Manager does not commit changes no residual. A replica that joins begins with an
    empty residual; one that stays keeps its own. Nor does the Manager commit a step with NaN or
    infinity. A script that tries the same batch again meets them again, so give the Manager
    ``max_retries``. After this number of tries it raises an error.
    """

    def __init__(
        self,
        manager: torchft.Manager,
        module: torch.nn.Module,
        compressor: str = "eden",
        *,
        rules: Rules = None,
        seed: int = 0,
        raw_vectors: bool = True,
        raw_below: int = 256,
        raw_names: Sequence[str] = (),
        total_steps: Optional[int] = None,
        threads: int = 1,
        **of_pytorch: Any,
    ) -> None:
        arguments = dict(locals())
        group = getattr(manager, "_pg", None)
        if not isinstance(group, ProcessGroupGloo):
            raise _core.ConfigError(
                f"the Manager has a {type(group).__name__}; create it with pg=gradwire.torch.torchft.ProcessGroupGloo()"
            )
        check_gradients(module)
        for name, parameter in module.named_parameters():
            if parameter.device.type != "cpu":
                # In a step, the Manager would mistake the error for a lost replica, and try again
                # forever.
                raise _core.ConfigError(f"'{name}' is on {parameter.device}; with torchft, gradwire averages only on the CPU")
        _check_of_pytorch(of_pytorch)
        options = Options.of({**arguments, "exchange": "all-gather", "deadline": group.deadline, "on_nonfinite": "error"})
        if options.uses_ef21():
            raise _core.ConfigError(
                "with torchft, ef=ef21 cannot work: its sum of changes cannot take back a step that is not committed; use ef=on"
            )
        compression = _Compression(manager, module, options)
        super().__init__(manager, module, **of_pytorch)
        self._compression = compression

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Registers the hook of this class in place of torchft's."""
        super().register_comm_hook(state, self._average)

    def _average(self, manager: torchft.Manager, bucket: dist.GradBucket) -> Future[torch.Tensor]:
        """The communication hook."""
        tensor = bucket.buffer()
        parameters, first = bucket.parameters(), bucket.index() == 0

        def average(channel: Channel) -> None:
            self._compression.average(channel, first, parameters, tensor)

        manager._pg.expect(tensor, average)
        # Reports errors to the Manager, which then does not commit.
        work = manager.allreduce(tensor)
        work.wait()
        future: Future[torch.Tensor] = Future()
        future.set_result(tensor)
        return future

    def stats(self) -> Dict[str, Any]:
        """The cost of the last step for this replica, as in ``Handle.stats``, and totals since the
        last quorum."""
        return self._compression.stats()

    def residuals(self) -> bytes:
        """This replica's residuals, for a checkpoint. Call it between two steps."""
        return self._compression.save()

    def load_residuals(self, residuals: bytes) -> None:
        """Restores a result of ``residuals``, before the first step.

        Raises ``StateError`` for residuals of another model or compressor, and for damaged ones.
        """
        self._compression.load(residuals)


# The unsupported arguments of ``register``, with the reason.
_REFUSED = {
    "deadline": "the longest wait for a replica is the timeout of ProcessGroupGloo",
    "exchange": "it is all-gather",
    "on_nonfinite": "the Manager does not commit a step with NaN or infinity",
    "scaler": "the Manager decides which steps the optimizer takes",
}
# The arguments of PyTorch's DistributedDataParallel that torchft does not set.
_OF_PYTORCH = [
    name
    for name in signature(torch.nn.parallel.DistributedDataParallel).parameters
    if name not in ("module", "process_group", "find_unused_parameters")
]


def _check_of_pytorch(arguments: Mapping[str, Any]) -> None:
    """Refuses arguments that are not PyTorch's."""
    for name in arguments:
        if name in _REFUSED:
            raise _core.ConfigError(f"{name}= is not supported under torchft: {_REFUSED[name]}; remove it")
        if name not in _OF_PYTORCH:
            known = [*(one.name for one in fields(Options)), *_OF_PYTORCH]
            raise _core.ConfigError(f"there is no argument {name!r}; {suggestion(name, known)}")


class _Compression:
    """The reducer of a replica in the present quorum, and its residuals across quorums."""

    def __init__(self, manager: torchft.Manager, module: torch.nn.Module, options: Options) -> None:
        named = trainable(module)
        self._names = {id(parameter): name for name, parameter in named}
        self._plain: Optional[Plain] = Plain(bytes_of(named), "the gradients")
        self._make = partial(selected(module, dict(named), options).reducer_of_gradients, named)
        self._manager, self._deadline = manager, timedelta(seconds=options.deadline)
        # Finds wrong arguments here: later the Manager would mistake one for the fault of a
        # replica, and try again.
        with self._alone() as reducer:
            if reducer.votes:
                raise _core.ConfigError(
                    f"'{reducer.spec}' averages by votes, and the zeros of a replica that recovers would vote; use another compressor, "
                    "such as efsignsgd"
                )
        self._channel: Optional[Channel] = None
        self._reducer: Optional[_core.Reducer] = None
        self._residuals: Optional[bytes] = None
        # The last step that was tried, its number of failed attempts, and the residuals before it.
        self._tried: Optional[Tuple[int, int, bytes]] = None

    @contextmanager
    def _alone(self) -> Iterator[_core.Reducer]:
        """A reducer of this replica alone."""
        group = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, self._deadline)
        reducer = self._make(Channel((group, group)))
        try:
            yield reducer
        finally:
            reducer.close()

    def average(self, channel: Channel, first: bool, parameters: List[torch.Tensor], tensor: torch.Tensor) -> None:
        """Averages the gradients of a bucket over the replicas, in place."""
        if channel is not self._channel or self._reducer is None:
            self._connect(channel)
        reducer = self._reducer
        assert reducer is not None
        if first:
            self._begin(reducer)
        tensor_group = reducer.tensor_group([self._names[id(parameter)] for parameter in parameters])
        reals = as_reals(tensor).view(-1)
        reducer.average(tensor_group, self._manager.current_step(), buffer(reals, "a bucket"), keeping(tensor))
        reducer.wait()

    def _connect(self, channel: Channel) -> None:
        residuals = self._reducer.save() if self._reducer is not None else self._residuals
        if self._reducer is not None:
            self._reducer.close()
        self._reducer, self._channel = self._make(channel), channel
        if self._plain is not None and self._reducer.size > 1:
            # Once, in the first quorum of several replicas.
            warn_of_more(self._reducer, self._plain, stacklevel=3, only_gathers=True)
            self._plain = None
        if residuals is not None:
            self._reducer.adopt(residuals)
        self._residuals = None

    def _begin(self, reducer: _core.Reducer) -> None:
        """Undoes the changes of the last attempt at this step, if the Manager did not commit it.
        Several backward passes may belong to one attempt."""
        step, failures = self._manager.current_step(), self._manager._commit_failures
        if self._tried is None or self._tried[0] != step:
            self._tried = step, failures, reducer.save()
        elif self._tried[1] != failures:
            reducer.adopt(self._tried[2])
            self._tried = step, failures, self._tried[2]

    def stats(self) -> Dict[str, Any]:
        if self._reducer is None:
            raise _core.ConfigError("there was no step yet")
        return self._reducer.stats()

    def save(self) -> bytes:
        if self._tried is not None and self._tried[0] == self._manager.current_step():
            # The last attempt was not committed.
            return self._tried[2]
        if self._reducer is not None:
            return self._reducer.save()
        if self._residuals is None:
            raise _core.ConfigError("there was no step yet; residuals are empty")
        return self._residuals

    def load(self, residuals: bytes) -> None:
        if self._reducer is not None:
            raise _core.ConfigError("load residuals before the first step")
        with self._alone() as reducer, _saved.reading():
            reducer.adopt(residuals)
        self._residuals = residuals
