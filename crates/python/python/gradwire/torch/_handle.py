"""The handle of a registered model: steps, statistics, and the state of a checkpoint."""

from __future__ import annotations

import math
import time
import weakref
from functools import partial
from typing import Any, Callable, Collection, Dict, Iterable, Mapping, Optional, Sequence, Union

import torch
from torch.autograd import Variable
from torch.profiler import record_function

from .. import _core
from . import _saved, _states
from ._channel import connect, release
from ._exchanging import Exchanging
from ._mid_step import MidStepError, Stepping
from ._modes import without_gradients
from ._options import Options, compare
from ._staging import Scale, finish_current
from ._states import Layout, State
from ._tensors import Named
from ._two_levels import NodeOptions, Request, connect as connect_levels


class Handle(Exchanging):
    """The handle of a model whose gradients gradwire averages: residuals by parameter name, the
    averaging thread, and statistics."""

    # The kind of object that a saved state names.
    _kind = "hook"
    # The devices whose gradients may still be computed when the host waits for their averages.
    _devices: Collection[torch.device] = ()
    # Whether the model has both shards and replicas, so no rank exchanges gradients with all
    # others.
    _has_replicas = False

    def __init__(
        self,
        named: Iterable[Named],
        options: Options,
        group: Optional[Any],
        scaler: Optional[Any],
        caller: str,
        levels: NodeOptions = NodeOptions(None),
    ) -> None:
        """Connects the ranks of ``group``. ``caller`` is the function that the user called."""
        groups: Sequence[Any]
        if levels.nodes is None:
            make = partial(options.reducer_of_gradients, named)
            self._reducer, groups = connect(group, make, options.deadline, caller)
        else:
            request = Request(list(named), options, levels, type(options).reducer_of_gradients, caller)
            self._reducer, groups, self._nodes = connect_levels(group, request)
        self._release = weakref.finalize(self, release, self._reducer, groups)
        self._release.atexit = False
        self._scaler = scaler
        self._stepping = Stepping()
        self._step = 0
        self._scale: Scale = 1.0
        self._wait_seconds = 0.0

    @property
    def step(self) -> int:
        """The number of steps started so far. Every backward pass that exchanges gradients is a
        step."""
        return self._step

    def close(self) -> None:
        """Ends the exchange, its thread and its process groups.

        All ranks must call it between the same two steps. Afterwards, a backward pass that
        exchanges gradients raises ``ConfigError``. The handle is also closed when it is collected
        with its model, or at the end of a ``with`` block.
        """
        self._release()

    @property
    def _states(self) -> Any:
        """The object that saves and loads the state of the exchange."""
        return self._reducer

    @property
    def _layout(self) -> Optional[Layout]:
        """The order of elements in residuals, if it is the order of the parameters in memory."""
        return None

    def _compare(self, settings: Mapping[str, Any]) -> None:
        """Raises ``ConfigError``, and closes the handle, unless all ranks have the same
        settings."""
        try:
            compare(self._reducer, settings)
        except BaseException:
            self.close()
            raise

    def _suggest_skipping(self) -> None:
        """Makes errors about gradients that are not finite suggest ``on_nonfinite="skip"``, if that
        is possible."""
        self._reducer.nonfinite_remedy = '; to skip such steps on all ranks, pass on_nonfinite="skip" and scaler=, the GradScaler'

    def _begin(self) -> None:
        """Begins a step."""
        self._stepping.begin()
        self._step += 1
        self._scale = self._present_scale()
        self._wait_seconds = 0.0

    def _present_scale(self) -> Scale:
        """The factor of the ``GradScaler``; NaN in place of infinity, because gradients that are
        divided by infinity would be zeros. It stays on the GPU, because reading it would wait for
        the GPU."""
        if self._scaler is None:
            return 1.0
        scale = getattr(self._scaler, "_scale", None)
        if isinstance(scale, torch.Tensor) and scale.device.type == "cuda":
            return scale.detach().clone().masked_fill_(scale.isinf(), torch.nan)
        given = float(self._scaler.get_scale())
        return math.nan if math.isinf(given) else given

    def _wait_at_end(self) -> None:
        """Makes the end of the backward pass wait for all averages of the step.

        Reentrant checkpointing nests backward passes; then the pass that calls this waits at its
        end.
        """
        try:
            # Errors of this callback leave backward() unchanged; DistributedDataParallel would wrap
            # errors of a future.
            Variable._execution_engine.queue_callback(self._wait)
        except RuntimeError:
            # There is no backward pass: under torch's Join a rank without data sends zeros.
            self._wait()

    def _wait(self) -> None:
        with self._stepping.step():
            self._wait_for_averages()

    def _wait_for_averages(self) -> None:
        # The exchange also waits for gradients, but their time does not count as its own.
        for device in self._devices:
            finish_current(device)
        start = time.perf_counter()
        with record_function("gradwire::wait"):
            self._reducer.wait()
        self._wait_seconds += time.perf_counter() - start

    def _costs(self) -> Dict[str, Any]:
        """The costs of the exchange, as ``Reducer.stats``."""
        costs: Dict[str, Any] = self._reducer.stats()
        return costs

    def stats(self) -> Dict[str, Any]:
        """The cost of the last step for this rank, and totals of all steps.

        - ``step``: its number, from 0; None before the first. ``skipped``: whether it was skipped
        - ``elements``: the number of averaged elements
        - ``message_bytes``: the size of this rank's messages, each counted once. ``ratio``: 4
          ``elements`` / ``message_bytes``. This compares message sizes, not traffic: with
          all-gather over n ranks, divide by n / 2 to compare with an all-reduce, or use
          ``bytes_up``
        - ``bytes_up``, ``bytes_down``, ``messages_up``, ``messages_down``: the traffic that this
          rank sent and received, headers included; a message to several ranks counts once for each
        - ``compress_seconds``, ``decompress_seconds``, ``wire_seconds``: the time that the
          background thread spent on compressing, on decompressing, and on sending and waiting for
          other ranks
        - ``inside_bytes_up``, ``inside_bytes_down``, ``total_inside_bytes``: with ``nodes``, what
          this rank sends and receives inside its node, without the backend's headers. The other
          numbers are then of the slices that this rank owns, and of the traffic between nodes
        - ``wait_seconds``: the time that ``backward()`` waited for the background thread once
          gradients were computed
        - ``total_steps``, ``total_skipped``, ``total_bytes_up``, ``total_bytes_down``: the totals
          of all steps so far

        If messages stay on the device, no thread of the host compresses or sends, and the first
        three times are 0; bytes and messages are those of the collectives' buffers, and the call
        waits for the device.
        """
        return {**self._costs(), "wait_seconds": self._wait_seconds}

    @without_gradients
    def state_dict(self, *, all_ranks: bool = False) -> State:
        """The state of this rank: residuals and the number of steps.

        Every rank saves its own state. Its key contains the rank, so distributed checkpoints keep
        the states of all ranks. A rank must load its own state again, so in an FSDP2 job on a mesh
        of two dimensions ranks must keep their places. With ``all_ranks=True``, each rank returns
        the states of all ranks, which are sent over the network; all ranks must call it at the same
        time.

        Call it between two steps. A thread that does not train waits for the end of a step. In the
        middle of a step, as in a signal handler, a compressor that keeps nothing gives the state of
        the last complete step; others raise ``MidStepError``. ``all_ranks=True`` also raises it in
        a signal handler or in a thread that does not train.
        """
        if all_ranks and self._has_replicas:
            raise _core.ConfigError(
                f"this rank exchanges gradients with {self._reducer.size} of the ranks that train the model, so it cannot collect the "
                "states of all; save each rank's state with torch.distributed.checkpoint or in its own file"
            )
        try:
            with self._stepping.between_steps(all_ranks, self._reducer.deadline):
                return self._packed(self._step, self._states.save_all() if all_ranks else [self._states.save()])
        except MidStepError:
            step, own = self._step - self._stepping.in_step, self._states.save_unless_kept()
            if own is None:
                raise
            # The step under way changes only the number of steps, and all ranks have the same
            # state.
            return self._packed(step, [own])

    def _packed(self, step: int, states: Sequence[bytes]) -> State:
        layout = [] if self._layout is None else [self._layout]
        return _states.packed(self._kind, step, self._reducer, states, *layout)

    def load_state_dict(self, states: Union[State, Sequence[State]]) -> None:
        """Restores results of ``state_dict``: this rank's state, a state with ``all_ranks=True``,
        or a list of all ranks' states.

        With another number of ranks the states of all old ranks are needed. Rank j of n then takes
        over the residuals of the old ranks j, j + n, j + 2n …, added up and multiplied by n / old
        n. So the mean over ranks of the values still to be sent stays the same.

        All ranks must call it at the same time. If a state does not fit on one rank, no rank
        changes, and all raise ``StateError`` or ``ConfigError``.
        """

        self._load_with(lambda: _saved.listed(states))

    @without_gradients
    def _load_with(self, read: Callable[[], Optional[Union[State, Sequence[State]]]]) -> bool:
        """Like ``load_state_dict`` with the result of ``read()``. If that fails on one rank, all
        ranks raise.

        If it returns ``None`` on all ranks, nothing changes, and the result is false.
        """

        def load() -> Optional[int]:
            states = read()
            if states is None:
                return None
            with _saved.reading():
                first, parts = _saved.merged(states, self._kind, self._reducer.size)
                if self._layout is not None:
                    _saved.check_layout(states, self._layout)
                self._states.load(parts)
            step: int = first["step"]
            return step

        step = _states.together(self._reducer, self._states, load)
        if step is None:
            return False
        self._step = step
        return True
