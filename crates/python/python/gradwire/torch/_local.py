"""Local steps: workers train locally and exchange the change of their parameters."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Union

import torch
from torch.distributed.algorithms.join import Joinable

from .. import _core
from . import _local_optimizer, _local_transport, _site
from ._attaching import Attaching
from ._channel import connect, release
from ._copyable import broadcast
from ._crates import check_crates
from ._custom import Custom
from ._custom_reducer import CustomReducer
from ._deadlines import SURVIVOR_DEADLINES
from ._elastic import Elastic
from ._exchanging import Exchanging
from ._forms import check_same, fingerprint
from ._fragments import strided
from ._join_interface import JoinInterface
from ._joining import Joining
from ._local_checks import check_local_optimizer, check_model
from ._local_options import LocalOptions, refuse_scaler
from ._local_states import LocalStates
from ._membership import Membership
from ._mid_step import Stepping
from ._modes import outside_inference, without_gradients
from ._names import selected
from ._optimizer_proxy import OptimizerProxy
from ._options import Options, Rules, compare, seconds_of
from ._outer import Outer, settings_of
from ._replica import Replica
from ._rounds import Rounds, lengths_of
from ._site_membership import SiteMembership
from ._site_states import SiteStates
from ._states import State
from ._tensors import Named, shape_of, trainable
from ._traffic import Plain, sizes_of, warn_of_more
from ._two_levels import NodeOptions, Request, TwoLevels, connect as connect_levels


class LocalSteps(Exchanging, Attaching, JoinInterface, OptimizerProxy):
    """An optimizer for local training whose workers exchange weight updates every ``every`` steps.

    Use it instead of the optimizer, with a plain model (not DistributedDataParallel)::

        outer = gradwire.torch.Nesterov()
        steps = gradwire.torch.LocalSteps(model, optimizer, every=25, outer=outer)
        loss.backward()
        steps.step()

    All ranks must create it at the same time with the same arguments; only ``deadline`` and
    ``threads`` may differ. All ranks start from rank 0's parameters and buffers. In each round a
    rank sends the compressed change of its parameters since the last round, and all ranks continue
    from the common parameters. Compressors with error feedback use it; ``eden``, the default, has
    none. All ranks must take the same number of steps, except in a block
    ``with torch.distributed.algorithms.Join([steps]):``. There, a rank without further batches
    takes part in the rounds of the others: first with the change of its last steps, then with a
    change of zero. It ends with their parameters and ``completed_steps``. The block takes one
    ``LocalSteps`` and nothing else. Ranks of a site must have the same number of batches, as FSDP2
    requires.

    Schedules count steps, not rounds: the last step of a round determines its stage. The stages of
    a schedule may differ in ``every``, as in ``eden:every=25 until 3000 then eden:every=100``. A
    round also ends where the next stage begins. If only some stages have ``every``, the others
    exchange at every step.

    A model may be sharded by ``fully_shard`` (FSDP2) over the ranks of a site. Then
    ``process_group`` has the ranks that hold the same shard in all sites, and each rank exchanges
    the change of its own rows with them::

        mesh = init_device_mesh("cuda", (sites, shards), mesh_dim_names=("sites", "shards"))
        fully_shard(model, mesh=mesh["shards"])
        optimizer = torch.optim.AdamW(model.parameters())
        steps = gradwire.torch.LocalSteps(model, optimizer, process_group=mesh["sites"])

    Names and rules are those of whole parameters. If a round fails on one rank of a site, it fails
    on all, before parameters change.

    The common parameters are kept in float32, four bytes per element that this rank has. A model of
    16-bit floats continues from their rounded values; changes too small for its type still add up
    over rounds. A change that is not finite is an error: skipping a round cannot repair parameters.

    Learning rate schedulers and ``GradScaler`` accept it as an optimizer: it has the
    ``param_groups`` and ``state`` of the local optimizer. Its saved state contains the state of the
    local optimizer, for frameworks that save it as an optimizer.

    Args:
        model: the plain model, or one that ``fully_shard`` has sharded
        optimizer: the local optimizer. It may train only a part of the model's parameters. Other
            parameters raise ``ConfigError``, since no round would average them
        every: the number of steps of a round, from 1. Default: ``every`` of the compressor, or 50
            if it has none
        compressor: a spec string or a schedule, or an object with ``compress(tensor) -> bytes`` and
            ``decompress(bytes, shape) -> tensor``, as in ``register``. Compressors that average by
            votes need ``outer``, with a small rate. Default: ``"eden"``
        outer: a function that takes the common parameters and returns an optimizer that applies the
            mean change as the negative of a gradient, such as ``Nesterov()`` or
            ``partial(torch.optim.Adam, lr=1e-3)``. Default: ``None``, the mean change is added to
            the common parameters
        sync_until: the number of steps at the start of the run that are rounds of one step each
            (post-local SGD). Default: 0
        mask: set the local momentum of the sent elements to zero, as in sparse binary compression.
            Default: ``True``
        median_clip: if the norm of a change exceeds the median norm of all workers' changes, scale
            the change down to it (SparseLoCo). Default: ``False``
        buffers: the values that a round gives to buffers that training changes, such as running
            means. ``"first"``: the values of rank 0, as with DistributedDataParallel. ``"mean"``:
            the mean over ranks, which suits running means, but not queues and counters (integers
            have the value of rank 0). ``"own"``: they stay different. Default: ``"first"``
        fragments: the number of parts into which the layers of the model are divided, from 1. Each
            is exchanged once in ``every`` steps, one after the other. Default: 1
        fragment_sync_delay: the number of steps, below ``every // fragments``, that training goes
            on while a fragment is exchanged. Then the fragment's parameters become the common ones,
            mixed with the worker's own, as in Streaming DiLoCo (Douillard et al. 2025). Default: 0
        fragment_update_alpha: the weight of the worker's own parameters in this mixture, from 0,
            below 1. Default: 0.5 with a delay
        common_device: where the common parameters and the state of ``outer`` are. ``"cpu"``: main
            memory. ``"model"``: the device of the model. Default: ``"cpu"``
        process_group: the ranks, as a process group or a mesh of one dimension. For a sharded
            model, the ranks that hold the same shard. Default: all
        min_workers: with ``lighthouse`` the fewest workers of a round, from 1. Default: 1
        lighthouse: the address of torchft's ``torchft_lighthouse`` (``http://host:29510``). Workers
            may then come and go: a round goes on with the remaining workers, if there are at least
            ``min_workers``. A worker that is created while the others train waits for the end of
            their round. It continues from their parameters and optimizer state with an empty
            residual; ``completed_steps`` tells its position in the run. It cannot be combined with
            fragments and ``process_group``. If the model is sharded, a worker is a site with all
            ranks of its ``torch.distributed`` group, which come and go together; it has no
            ``state_dict``. Default: ``None``, a lost rank ends the run
        rules: other compressors for some tensors, as in ``register``. Default: none
        exchange: ``"all-gather"``, ``"scatter-reduce"``, ``"all-reduce"`` or ``"auto"``. Default:
            ``"auto"``
        seed: the seed of all random draws, from 0. Default: 0
        deadline: the longest wait for another rank, in seconds, above 0, at most 86,400. Default:
            300.0. Ranks of a site wait twice as long for each other, with ``lighthouse`` four times
        raw_vectors: send tensors of one dimension uncompressed unless a rule matches them. Default:
            ``True``
        raw_below: the same for tensors with fewer elements than this. Default: 256
        raw_names: the same for tensors whose name contains one of these words. Default: none
        total_steps: the number of steps of the run, from 1, for schedules with fractions of it.
            Default: ``None``
        threads: the number of host threads, from 1, that compress and decompress. Default: 1
        on_nonfinite, scaler: arguments of ``register`` that ``LocalSteps`` does not support. A
            value that is not the default raises ``ConfigError``
        nodes: two levels, as in ``register``: the ranks of a node average their changes without
            compression, over gloo, and each of them compresses a part of the mean and exchanges it
            with other nodes. With compressors that send only a part of the elements it needs
            ``mask=False``. It cannot be combined with ``lighthouse``. Default: ``None``, one level
        transport: how messages travel, as in ``register``. ``"device"``: they stay on the GPU, and
            travel by the process group. This needs ``common_device="model"`` and compressors whose
            messages have a fixed length there, and excludes sharded models, ``lighthouse`` and
            ``nodes``. ``"host"``: through main memory, over gloo. ``"auto"``: ``"device"`` if it is
            possible. Default: ``"auto"``

    Raises:
        ConfigError: an argument is wrong, differs between ranks, or does not suit the model.
        DeadlineError: a rank did not create ``LocalSteps`` within ``deadline``.
    """

    @without_gradients
    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        every: Optional[int] = None,
        compressor: Any = "eden",
        *,
        outer: Optional[Outer] = None,
        sync_until: int = 0,
        mask: bool = True,
        median_clip: bool = False,
        buffers: str = "first",
        fragments: int = 1,
        fragment_sync_delay: int = 0,
        fragment_update_alpha: Optional[float] = None,
        common_device: str = "cpu",
        process_group: Optional[Any] = None,
        min_workers: Optional[int] = None,
        lighthouse: Optional[str] = None,
        rules: Rules = None,
        exchange: str = "auto",
        seed: int = 0,
        deadline: float = 300.0,
        raw_vectors: bool = True,
        raw_below: int = 256,
        raw_names: Sequence[str] = (),
        total_steps: Optional[int] = None,
        threads: int = 1,
        on_nonfinite: str = "error",
        scaler: None = None,
        nodes: Optional[Any] = None,
        transport: str = "auto",
    ) -> None:
        arguments = dict(locals())
        options = LocalOptions.of(arguments)
        self._custom: Optional[Any] = None
        if compressor is not None and not isinstance(compressor, str):
            Custom.check(compressor, {name: value for name, value in arguments.items() if name != "optimizer"})
            self._custom, options = compressor, replace(options, compressor="none", exchange="all-gather")
        process_group = _site.group_of(process_group)
        if lighthouse is None:
            check_crates(options, process_group, "gradwire.torch.LocalSteps")
        check_model(model, optimizer, options, process_group)
        if scaler is not None:
            refuse_scaler()
        if lighthouse is not None and process_group is not None:
            raise _core.ConfigError("with lighthouse, LocalSteps makes its own process groups; remove process_group")
        site = _site.of(model, process_group)
        if self._custom is not None and site.is_sharded:
            raise _core.ConfigError(
                "a compressor written in Python does not support models that fully_shard has sharded; use a compressor of gradwire.list()"
            )
        named = trainable(model)
        options = selected(model, dict(named), options.resolved())
        check_local_optimizer(model, optimizer, named, options)
        self._build(model, optimizer, named, options, process_group, site)
        if lighthouse is not None:
            self._join(model, lighthouse, options)
        else:
            self._connect(model, process_group, options)
        self._states = (SiteStates if site.is_sharded else LocalStates)(self._replica, self._rounds, self._elastic)

    def _build(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        named: Sequence[Named],
        options: LocalOptions,
        process_group: Optional[Any],
        site: _site.Site,
    ) -> None:
        """Creates the parts of this rank that need no other rank."""
        self._optimizer = optimizer
        self._stepping = Stepping()
        self._elastic: Optional[Elastic] = None
        self._attached: List[ExitStack] = []
        self._parameters = len(_local_optimizer.parameters(optimizer))
        self._replica = Replica(model, strided(named, options.fragments), optimizer, options, site)
        self._joining = Joining(named[0][1].device, process_group)
        self._rounds = Rounds(self._replica, self._joining, lengths_of(options, options.stages(named)), options)

    def _join(self, model: torch.nn.Module, lighthouse: str, options: LocalOptions) -> None:
        """Joins the workers that the lighthouse knows."""
        deadline, site = seconds_of(options.deadline), self._replica.site
        arguments = lighthouse, options.min_workers or 1, deadline
        site.connect(deadline, SURVIVOR_DEADLINES + 1)
        membership = SiteMembership(site, *arguments) if site.is_sharded else Membership(*arguments)
        settings = {**options.compared(), "outer": settings_of(self._replica.outer), "shards": site.layout()}
        self._elastic = Elastic(self._replica, membership, fingerprint(model, settings), deadline)
        self._warn_of_more(stacklevel=6)

    def _connect(self, model: torch.nn.Module, process_group: Optional[Any], options: LocalOptions) -> None:
        """Connects the ranks of a group, which all start from the model of the first, with the same
        settings."""
        replica, caller = self._replica, "gradwire.torch.LocalSteps"
        replica.site.connect(seconds_of(options.deadline))
        groups: Sequence[Any]
        try:
            with replica.site.agreed("LocalSteps"):
                if process_group is not None:
                    replica.site.check_places(process_group)
                if options.nodes is None:
                    _, groups = connect(process_group, replica.connect, options.deadline, caller)
                else:
                    levels = NodeOptions(options.nodes, on_host=True)
                    request = Request(replica.named, options, levels, type(options).reducer, caller)
                    reducer, groups, self._nodes = connect_levels(process_group, request)
                    replica.use(reducer)
                if self._custom is not None:
                    replica.use(CustomReducer(self._custom, replica.reducer, {name: shape_of(one) for name, one in replica.named}))
                self._release = weakref.finalize(self, release, replica.reducer, groups)
                self._release.atexit = False
                # The reducer has compared the options of reducers.
                settings = {name: value for name, value in options.compared().items() if not hasattr(Options, name)}
                kind = "a spec string" if self._custom is None else replica.reducer.spec
                compare(replica.reducer, {**settings, "compressor": kind, "outer": settings_of(replica.outer)})
                check_same(replica.reducer, model)
                replica.site.check_shards(replica.reducer)
                self._choose_transport(options, process_group)
                broadcast((groups[0], groups[1]), replica.tensors())
            replica.site.broadcast(replica.copies())
        except BaseException:
            self.close()
            raise
        replica.start()
        if not isinstance(replica.reducer, CustomReducer):
            self._warn_of_more(stacklevel=6)

    def _warn_of_more(self, stacklevel: int) -> None:
        """Warns if a round sends more than an uncompressed round, whose changes are float32."""
        reducer = self._replica.reducer
        if not isinstance(reducer, TwoLevels):
            plain = Plain(4 * self._replica.common.numel(), "the changes of a round")
            warn_of_more(reducer, plain, stacklevel, only_gathers=self._elastic is not None, sizes=sizes_of(self._on_device))
        elif reducer.rank == 0:
            plain = Plain(4 * sum(reducer.owned().values()), "the changes of a round, between nodes,")
            warn_of_more(reducer.column, plain, stacklevel)

    def _choose_transport(self, options: LocalOptions, process_group: Optional[Any]) -> None:
        place = _local_transport.choose(self._replica, options, process_group)
        self._on_device, self._compressed_on, self._through_host = place.transport, place.compressed_on, place.through_host

    @property
    def _reducer(self) -> _core.Reducer:
        return self._replica.reducer

    @property
    def _step(self) -> int:  # type: ignore[override]
        return self._replica.step

    @property
    def completed_steps(self) -> int:
        """The number of local steps so far. A worker that joins a run starts with the number of the
        run."""
        return self._replica.step

    @outside_inference
    def step(self, closure: Optional[Any] = None) -> Any:
        """Takes a local step, and exchanges updates if a round is due.

        Raises ``ConfigError`` if parameters were added to the local optimizer, because rounds would
        not average them.
        """
        if self._attached:
            raise _core.ConfigError("after attach(), rounds follow the local optimizer; call its step() instead")
        self._begin()
        try:
            loss = self._step_of_optimizer(closure)
        except BaseException:
            # An error of the closure changes nothing.
            self._stepping.end()
            raise
        self._advance()
        return loss

    @without_gradients
    def _advance(self) -> None:
        """Counts a local step, and exchanges updates if a round is due."""
        with self._stepping.step():
            self._replica.step += 1
            if self._elastic is None:
                self._rounds.advance()
            elif self._rounds.starting():
                self._elastic.synchronize()

    @without_gradients
    def synchronize(self) -> None:
        """Exchanges updates of all fragments now. All ranks then continue from the same parameters
        and buffers.

        All ranks must call it at the same time, after the same number of steps; otherwise
        ``ConfigError`` tells the number of each.
        """
        with self._stepping.step():
            if self._elastic is not None:
                self._elastic.synchronize()
            else:
                self._rounds.exchange(list(range(self._replica.fragments)))

    def _hurry(self) -> None:
        if self._elastic is None:
            super()._hurry()
            self._replica.site.hurry()

    def close(self) -> None:
        """Ends the exchange, with its thread and process groups, between the same two steps on all
        ranks.

        If workers may come and go, leaves the run; the others need not wait for this one.
        """
        for attached in list(self._attached):
            attached.close()
        if self._elastic is not None:
            self._elastic.close()
        elif hasattr(self, "_release"):
            self._release()
        self._replica.close()

    def stats(self) -> Dict[str, Any]:
        """The cost of the last round, as in ``Hook.stats``, and ``wait_seconds``, the time that
        training waited for it. It does not count what the ranks of a site send each other.

        With ``lighthouse`` there is no ``wait_seconds``, but ``workers``, the number of workers.
        ``lost_workers`` and ``joined_workers`` count the workers that were lost or have joined
        since this one started.
        """
        if self._elastic is not None:
            return self._elastic.stats()
        return {**self._rounds.gathering.add_to(self._replica.averages.stats()), "wait_seconds": self._rounds.waited}

    @without_gradients
    def state_dict(self, *, all_ranks: bool = False) -> State:
        """The state that a resumed run needs besides the model, as in ``Hook.state_dict``. It
        contains the state of the local optimizer.

        With ``lighthouse`` each worker saves its own; ``all_ranks=True`` raises ``ConfigError``.
        Call it between two calls of ``step``. In the middle of a step it raises ``MidStepError``;
        in another thread it waits.
        """
        if all_ranks and self._elastic is not None:
            # A worker that joins after this round does not send its state, and a lost one would end
            # the run of the others.
            raise _core.ConfigError(
                "with lighthouse, workers come and go, so no worker can collect the states of all; save each worker's state in its own "
                "file, and pass the list of all states to load_state_dict"
            )
        with self._stepping.between_steps(all_ranks, self._replica.reducer.deadline):
            return self._states.pack(all_ranks)

    @without_gradients
    def load_state_dict(self, states: Union[State, Sequence[State]]) -> None:
        """Restores results of ``state_dict``, with the local optimizer, as ``Hook.load_state_dict``
        does: on all ranks, or on none.

        Restore the model, too: each rank its own, if it was saved between two rounds. Do so after
        creating the ``LocalSteps``, which makes all models equal to the first. On another number of
        ranks, an exchange that was under way (``fragment_sync_delay``) does not set the momentum of
        the sent elements to zero.

        Some frameworks save the optimizer of rank 0 alone. The other ranks then continue with the
        local optimizer of rank 0, and with an empty residual, and say so in a ``RuntimeWarning``.

        A worker that has joined a run keeps the parameters of the run, and takes over only the
        residual from the last state of a lost worker. This is an error if the lost worker sent
        anything after it saved this state.
        """
        self._states.load(states)


# A virtual subclass: the constructor of ``Joinable`` would call the constructor of ``Optimizer``.
Joinable.register(LocalSteps)
