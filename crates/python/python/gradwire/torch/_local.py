"""Local steps: workers train locally and exchange the change of their parameters."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch.distributed.algorithms.join import Joinable

from .. import _core
from . import _local_optimizer, _local_settings, _saved, _setup
from ._buffers import Buffers
from ._channel import connect, release
from ._copyable import broadcast, check_copyable
from ._elastic import Elastic
from ._exchanging import Exchanging
from ._forms import check_same
from ._fragments import strided
from ._joining import Joining, Shadow
from ._masking import check_maskable, sent_in_part
from ._membership import Membership
from ._modes import outside_inference, with_gradients, without_gradients
from ._mid_step import Stepping
from ._names import selected
from ._replica import Nesterov, Outer, Replica, Sent
from ._rounds import Pending, Rounds
from ._setup import State
from ._traffic import warn_of_more


class LocalSteps(Exchanging, torch.optim.Optimizer):
    """An optimizer for local training whose workers exchange weight updates every ``every`` steps.

    ``every`` defaults to that of the compressor, or to 50 if the compressor has none. The stages of a schedule may differ in it, as in
    ``eden:every=25 until 3000 then eden:every=100``; then a round also ends where the next stage begins. If only some stages have
    ``every``, the others exchange at every step. Use it instead of the optimizer, with a plain model (not DistributedDataParallel)::

        steps = gradwire.torch.LocalSteps(model, optimizer, every=25, outer=gradwire.torch.Nesterov(lr=0.7, momentum=0.5))
        loss.backward()
        steps.step()

    All ranks start from rank 0's parameters and buffers. In each round a rank sends the compressed change of its
    parameters since the last round, with error feedback if the compressor has it (``eden``, the default, has none), and all
    ranks continue from the common parameters. The first ``sync_until`` steps are rounds of one step each (post-local SGD). Without ``outer`` the mean
    change is added to the common parameters. With it, an optimizer applies the change as the negative of a gradient:
    ``outer`` is called with the common parameters, and returns the optimizer, such as ``Nesterov(lr=0.7)`` or
    ``partial(torch.optim.Adam, lr=1e-3)``. Compressors that average by votes need one, with a small rate. With ``mask`` the local
    momentum of the elements that were sent is set to zero, as in sparse binary compression. With ``median_clip`` a change whose norm exceeds the median
    norm of all workers' changes is scaled down to it (SparseLoCo).

    ``fragments`` is the number of groups into which the layers of the model are divided. Each is exchanged once in
    ``every`` steps, one after the other. With ``fragment_sync_delay``, a number of steps, training goes on for these steps
    while a fragment is exchanged. Then the fragment's parameters become the common ones, mixed with the worker's own, which
    have the weight ``fragment_update_alpha`` (0.5 by default with a delay), as in Streaming DiLoCo (Douillard et al. 2025).
    Neither works with ``lighthouse``.

    ``buffers`` says what becomes of buffers that training changes, such as running means, in a round, once in ``every`` steps: ``first``,
    all continue from those of rank 0, as with DistributedDataParallel; ``mean``, from their mean, which suits running means, but not queues
    and counters (integers are those of rank 0); ``own``, they stay different.

    The common parameters are kept in main memory in float32, four bytes per element. A model of 16-bit floats continues
    from them rounded; changes too small for its type still add up over rounds. Schedules count steps, not rounds: the last
    step of a round determines its stage.

    With ``lighthouse``, the address of torchft's ``torchft_lighthouse`` (``http://host:29510``), workers may come and go:
    a round goes on with those that are left, if they are at least ``min_workers``. A worker that is created while the
    others train waits for the end of their round, and continues from their parameters and optimizer state with an empty
    residual; ``completed_steps`` tells where it is. Without ``lighthouse``, a lost rank ends the run.

    The optimizer may have a part of the model's parameters. One that trains others, which no round would average, raises ``ConfigError``.

    Learning rate schedulers and ``GradScaler`` accept it as an optimizer: ``param_groups`` and ``state`` are those of the local
    optimizer. Its state contains that of the local optimizer, for frameworks that save it as an optimizer.

    All ranks must take the same number of steps. In a block ``with torch.distributed.algorithms.Join([steps]):`` a rank that has no further
    batches takes part in the rounds of the others, with a change of zero after its last step, and ends with their parameters and
    ``completed_steps``. The block takes one ``LocalSteps`` and nothing else.

    The other arguments are ``rules``, ``exchange``, ``seed``, ``deadline``, ``raw_vectors``, ``raw_below``, ``raw_names``,
    ``total_steps`` and ``threads`` of ``register``. A change of the parameters that is not finite is an error, because skipping a
    step cannot repair the parameters.
    """

    @without_gradients
    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        every: Optional[int] = None,
        compressor: str = "eden",
        *,
        outer: Optional[Outer] = None,
        sync_until: int = 0,
        mask: bool = True,
        median_clip: bool = False,
        buffers: str = "first",
        fragments: int = 1,
        fragment_sync_delay: int = 0,
        fragment_update_alpha: Optional[float] = None,
        process_group: Optional[Any] = None,
        min_workers: Optional[int] = None,
        lighthouse: Optional[str] = None,
        **options: Any,
    ) -> None:
        if every is not None and _setup.whole_number("every", every) < 1:
            raise _core.ConfigError(f"every={every} is too small; a round has at least 1 step")
        if options.pop("scaler", None) is not None or options.get("on_nonfinite", "error") != "error":
            raise _core.ConfigError(
                "LocalSteps does not support scaler and on_nonfinite: skipping a round does not repair parameters that "
                "are not finite; skip the local step that overflows"
            )
        if lighthouse is not None:
            if (fragments, fragment_sync_delay, fragment_update_alpha) != (1, 0, None):
                raise _core.ConfigError(
                    "with lighthouse a round has the whole model at once; remove fragments, fragment_sync_delay and fragment_update_alpha"
                )
            _local_settings.check_elastic(compressor, options, min_workers, process_group)
        elif min_workers is not None:
            raise _core.ConfigError("min_workers needs lighthouse, the address of torchft_lighthouse, as http://host:port")
        if outer is Nesterov or (outer is not None and not callable(outer)):
            raise _core.ConfigError("outer makes an optimizer of parameters, as outer=gradwire.torch.Nesterov(lr=0.7) does")
        if not isinstance(model, torch.nn.Module) or not hasattr(optimizer, "param_groups"):
            given = f"{type(model).__name__} and {type(optimizer).__name__}"
            raise _core.ConfigError(f"LocalSteps takes a model and its optimizer, and got {given}; write LocalSteps(model, optimizer)")
        _setup.whole_number("sync_until", sync_until)
        _setup.check_options(options, [*_ARGUMENTS, *_setup.OPTIONS])
        _setup.check_replicated(options)
        _setup.check_unwrapped(model)
        _setup.check_whole([*model.named_parameters(), *model.named_buffers()])
        check_copyable(model)
        _setup.check_types(model)
        named = _setup.trainable(model)
        options = selected(model, dict(named), options)
        self._optimized = _local_settings.optimized(optimizer)
        _setup.check_optimizer(optimizer, [parameter for _, parameter in named])
        _setup.check_others(optimizer, model)
        if outer is None or lighthouse is not None:
            _local_settings.check_votes(named, compressor, options, lighthouse)
        if mask:
            sparse = sent_in_part(named, compressor, **options)
            if sparse:
                check_maskable(optimizer, sparse)
        parts = strided(named, fragments)
        make = partial(_setup.reducer, [one for part in parts for one in part], compressor, **options)
        self._replica = Replica(model, parts, optimizer, outer, mask, median_clip, Buffers(model, buffers), make)
        self._joining = Joining(named[0][1].device, process_group)

        def rounds() -> Rounds:
            lengths = _local_settings.round_lengths(every, compressor, self._replica.reducer.stages)
            return Rounds(self._replica, self._joining, lengths, sync_until, fragment_sync_delay, fragment_update_alpha)

        self._stepping = Stepping()
        self._elastic: Optional[Elastic] = None
        if lighthouse is not None:
            deadline = _setup.seconds(options.pop("deadline", 300.0))
            # Messages do not depend on the number of threads.
            others = sorted((name, one) for name, one in options.items() if name != "threads")
            settings = (compressor, every, sync_until, mask, median_clip, buffers, min_workers, others)
            membership = Membership(lighthouse, min_workers or 1, deadline)
            self._elastic = Elastic(self._replica, membership, _local_settings.fingerprint(model, self._replica, settings), deadline)
            self._rounds = rounds()
        else:
            settings = {
                "every": every,
                "sync_until": sync_until,
                "mask": mask,
                "median_clip": median_clip,
                "buffers": buffers,
                "fragments": fragments,
                "fragment_sync_delay": fragment_sync_delay,
                "fragment_update_alpha": fragment_update_alpha,
                "outer": _local_settings.outer_settings(self._replica),
            }
            self._connect(model, process_group, options.get("deadline"), settings, rounds)

    def _connect(
        self,
        model: torch.nn.Module,
        process_group: Optional[Any],
        deadline: Optional[float],
        settings: Dict[str, Any],
        rounds: Callable[[], Rounds],
    ) -> None:
        """Connects the ranks of a group, which all start from the model of the first, with the same settings."""
        _, groups = connect(process_group, self._replica.connect, deadline, "gradwire.torch.LocalSteps")
        self._release = weakref.finalize(self, release, self._replica.reducer, groups)
        self._release.atexit = False
        try:
            _setup.compare(self._replica.reducer, {what: str(setting) for what, setting in settings.items()})
            check_same(self._replica.reducer, model)
            # Refuses impossible rounds, which must leave the model as it was.
            self._rounds = rounds()
            broadcast(groups, self._replica.tensors())
        except BaseException:
            self.close()
            raise
        self._replica.start()
        self._empty = self._replica.reducer.save()
        warn_of_more(self._replica.reducer, 4 * self._replica.common.numel(), "the changes of a round", stacklevel=5)

    @property
    def _reducer(self) -> _core.Reducer:
        return self._replica.reducer

    @property
    def _step(self) -> int:  # type: ignore[override]
        return self._replica.step

    @property
    def completed_steps(self) -> int:
        """The number of local steps so far. A worker that joins a run starts with the number of the run."""
        return self._replica.step

    # GradScaler passes `found_inf` and `grad_scale` to `step`, in place of leaving out steps, which have to be counted.
    _step_supports_amp_scaling = True

    def __getattr__(self, name: str) -> Any:
        # What torch.optim.Optimizer keeps, such as hooks, is the local optimizer's.
        if name == "_replica":
            raise AttributeError(name)
        return getattr(self._replica.optimizer, name)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Raises ``ConfigError``: rounds average the parameters that the model had at the start."""
        raise _core.ConfigError("LocalSteps cannot add parameters; add them to the optimizer and create LocalSteps again")

    @property
    def param_groups(self) -> List[Dict[str, Any]]:  # type: ignore[override]
        """The parameter groups of the local optimizer."""
        return self._replica.optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The state of the local optimizer."""
        _local_optimizer.refuse_distributed_checkpoint()
        return self._replica.optimizer.state

    @property
    def defaults(self) -> Dict[str, Any]:  # type: ignore[override]
        """The defaults of the local optimizer."""
        return self._replica.optimizer.defaults

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Calls ``zero_grad`` of the optimizer."""
        self._replica.optimizer.zero_grad(set_to_none=set_to_none)

    @outside_inference
    def step(self, closure: Optional[Any] = None) -> Any:
        """Takes a local step, and exchanges updates if a round is due.

        Raises ``ConfigError`` if parameters were added to the local optimizer, which rounds would not average.
        """
        if len(_local_settings.optimized(self._replica.optimizer)) != len(self._optimized):
            raise _core.ConfigError(
                "the local optimizer has other parameters than when LocalSteps was created, and rounds would not average them; "
                "create LocalSteps again"
            )
        self._stepping.begin()
        try:
            loss = self._local_step(closure)
        except BaseException:
            # An error of the closure changes nothing.
            self._stepping.end()
            raise
        with self._stepping.step(), torch.no_grad():
            self._replica.step += 1
            if self._elastic is None:
                self._rounds.advance()
            elif self._rounds.starting():
                self._elastic.synchronize()
        return loss

    def _local_step(self, closure: Optional[Any]) -> Any:
        """Takes a step of the local optimizer, unless a ``GradScaler`` has found infinities in its gradients."""
        optimizer, found = self._replica.optimizer, self.__dict__.get("found_inf")
        if found is not None and found.item():
            return None
        scale = self.__dict__.get("grad_scale")
        if scale is not None:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.div_(scale.to(parameter.grad.device))
        return optimizer.step(with_gradients(closure)) if closure is not None else optimizer.step()

    @without_gradients
    def synchronize(self) -> None:
        """Exchanges updates of all fragments now, after which all ranks continue from the same parameters and buffers.

        All ranks must call it at the same time, after the same number of steps; ``ConfigError`` tells how many each has taken.
        """
        with self._stepping.step():
            if self._elastic is not None:
                self._elastic.synchronize()
            else:
                self._rounds.exchange(list(range(self._replica.fragments)))

    def _hurry(self) -> None:
        if self._elastic is None:
            super()._hurry()

    def close(self) -> None:
        """Ends the exchange, with its thread and process groups, between the same two steps on all ranks.

        If workers may come and go, leaves the run; the others need not wait for this one.
        """
        if self._elastic is not None:
            self._elastic.close()
        else:
            self._release()

    def stats(self) -> Dict[str, Any]:
        """The cost of the last round, as in ``Hook.stats``, and ``wait_seconds``, for which training waited for it.

        With ``lighthouse`` there is no ``wait_seconds``, but ``workers``, the number of workers, and ``lost_workers`` and
        ``joined_workers``, the numbers of those that were lost and that have joined since this one started.
        """
        if self._elastic is not None:
            return self._elastic.stats()
        return {**self._rounds.gathering.add_to(self._replica.reducer.stats()), "wait_seconds": self._rounds.waited}

    def join_hook(self, **kwargs: Any) -> Shadow:
        """What ``torch.distributed.algorithms.Join`` calls for a rank without further batches.

        Raises ``ConfigError`` with ``lighthouse``, and for compressors that average by votes.
        """
        if self._elastic is not None:
            raise _core.ConfigError("with lighthouse workers come and go, and Join is not needed; a worker without further batches calls close()")
        if self._replica.reducer.votes:
            raise _core.ConfigError(
                f"'{self._spec}' averages by votes, and under Join the zeros of a rank without further batches would vote; use another compressor, "
                "such as efsignsgd"
            )
        return Shadow(self._rounds, self._joining)

    @property
    def join_device(self) -> torch.device:
        """The device of the tensors that ``Join`` exchanges."""
        return self._joining.join_device

    @property
    def join_process_group(self) -> Any:
        """The process group that ``Join`` uses."""
        return self._joining.join_process_group

    @property
    def _join_config(self) -> Any:
        return self._joining._join_config

    @_join_config.setter
    def _join_config(self, config: Any) -> None:
        self._joining.configure(config)

    @without_gradients
    def state_dict(self, *, all_ranks: bool = False) -> State:
        """The state that a resumed run needs beside the model, as in ``Hook.state_dict``. It contains the state of the local optimizer.

        With ``lighthouse`` each worker saves its own; ``all_ranks=True`` raises ``ConfigError``. Call it between two calls of
        ``step``: in the middle of one it raises ``MidStepError``, and in another thread it waits.
        """
        if all_ranks and self._elastic is not None:
            # A worker that joins after this round does not send its state, and a lost one would end the run of the others.
            raise _core.ConfigError(
                "with lighthouse workers come and go, so that not all can be asked for their states; save that of each in a file of its own, "
                "and pass load_state_dict the list of them"
            )
        with self._stepping.between_steps(all_ranks, self._replica.reducer.deadline):
            return self._state(all_ranks)

    def _state(self, all_ranks: bool) -> State:
        replica = self._replica
        reducer, pending = replica.reducer, self._rounds.pack()
        state = _setup.packed("local", replica.step, reducer, reducer.save_all() if all_ranks else [reducer.save()])
        state.update(round=replica.round, common=replica.common.clone(), fragments=replica.fragments)
        # Distributed checkpoints load only keys that there are before, and take a tuple whole.
        state.update(outer=(replica.pack_outer(),), pending=(pending,))
        state["sent"] = _setup.by_rank(reducer, _setup.to_bytes(self._rounds.sent()), all_ranks)
        state["optimizer"] = _setup.by_rank(reducer, _local_optimizer.pack(replica.optimizer), all_ranks)
        if self._elastic is not None:
            state.update(base=replica.base, worker=self._elastic.name, rounds=self._elastic.rounds)
        return state

    @without_gradients
    def load_state_dict(self, states: Union[State, Sequence[State]]) -> None:
        """Restores results of ``state_dict``, with the local optimizer, as ``Hook.load_state_dict`` does: on all ranks, or on none.

        Restore the model, too: each rank its own, if it was saved between two rounds. Do it after the ``LocalSteps`` was created,
        since that makes all models equal to the first. On another number of ranks, an exchange that was under way
        (``fragment_sync_delay``) does not set the momentum of what was sent to zero.

        Some frameworks save the optimizer of rank 0 alone. The other ranks then continue with the local optimizer of rank 0, and
        with an empty residual, and say so in a ``RuntimeWarning``.

        A worker that has joined a run keeps the parameters of the run, and takes over only the residual, from the last
        state of a worker that was lost. That is an error if the lost worker sent anything after it saved this state.
        """
        replica, elastic = self._replica, self._elastic
        if elastic is None:
            load = partial(self._check_and_load, states, self._load_exchange)
            loaded = _setup.together(replica.reducer, replica.reducer, load, lambda one: f"step {one.step} and round {one.round}")
        elif replica.step and not self._has_saved(states):
            self._check_and_load(states, elastic.take_over)
            return
        else:
            loaded = self._check_and_load(states, elastic.load)
        replica.step, replica.round, replica.base = loaded.step, loaded.round, loaded.base
        replica.common.copy_(loaded.common)
        replica.load_outer(loaded.outer)
        if loaded.optimizer is not None:
            replica.optimizer.load_state_dict(loaded.optimizer)
        self._rounds.load(loaded.pending)
        key = _setup.rank_key(replica.reducer)
        states = _saved.listed(states)
        if elastic is None and _local_optimizer.is_of_another_rank(states, key, replica.reducer.size):
            _local_optimizer.warn_of_another_rank(states, key, self._residual_is_missing, loaded.optimizer)

    def _has_saved(self, states: Any) -> bool:
        """Whether the only state is what this worker has saved since the last round."""
        assert self._elastic is not None
        with _saved.reading():
            return self._elastic.has_saved(_saved.listed(states))

    def _load_exchange(self, states: Sequence[State], parts: List[bytes]) -> None:
        """Loads the residuals of states. Begins with empty ones if the only state is that of another rank."""
        reducer, self._residual_is_missing = self._replica.reducer, False
        try:
            reducer.load(parts)
        except _core.ConfigError:
            alone = _local_optimizer.is_of_another_rank(states, _setup.rank_key(reducer), reducer.size)
            if not alone or _local_settings.keeps_what_all_have(reducer):
                raise
            reducer.load([self._empty])
            self._residual_is_missing = True

    def _sent(self, states: Sequence[State]) -> Sent:
        """What this rank had sent of an exchange that was under way when it saved one of these states."""
        reducer = self._replica.reducer
        for state in states:
            own = state["sent"].get(_setup.rank_key(reducer))
            if own is not None and state["world_size"] == reducer.size:
                sent: Sent = _saved.from_bytes(own)
                return sent
        return {}

    def _check_and_load(
        self, given: Union[State, Sequence[State]], load: Callable[[Sequence[State], List[bytes]], None]
    ) -> _Loaded:
        """Calls ``load`` with some saved states that fit, and with the states of their exchanges; returns the rest of the states."""
        with _saved.reading():
            states = _saved.listed(given)
            loaded, parts = self._read(states)
            load(states, parts)
        return loaded

    def _read(self, states: Sequence[State]) -> Tuple[_Loaded, List[bytes]]:
        """What some saved states that fit have beside those of their exchanges, and these."""
        _local_optimizer.check_kind(states)
        first, parts = _saved.merged(states, "local", self._replica.reducer.size, _ENTRIES)
        common = self._replica.common
        if first["common"].shape != common.shape:
            raise _core.StateError(
                f"the state has {first['common'].numel()} parameters, and the model has {common.numel()}; LocalSteps resumes only with the "
                "model that was saved"
            )
        outer = _outer(first, self._replica)
        fragments = first["fragments"]
        if fragments != self._replica.fragments:
            raise _core.StateError(
                f"the state was saved with fragments={fragments}, and this run has {self._replica.fragments}; use the same number"
            )
        try:
            pending = self._rounds.unpack(_whole(first["pending"]), self._sent(states))
        except Exception as error:
            raise _core.StateError(
                f"the exchange under way in the state is damaged: {error!r}; load another checkpoint"
            ) from error
        step = first["step"]
        key = _setup.rank_key(self._replica.reducer)
        optimizer = _local_optimizer.saved(states, key, self._replica.optimizer)
        return _Loaded(step, first["round"], first.get("base", step), first["common"], outer, optimizer, pending), parts


# What the state of local steps has beside the entries of every state.
_ENTRIES = ("round", "common", "fragments", "outer", "pending", "sent", "optimizer")


@dataclass
class _Loaded:
    """What a saved state has beside that of the exchange."""

    step: int
    round: int
    base: int
    common: torch.Tensor
    outer: Optional[Dict[str, Any]]
    # Of the local optimizer.
    optimizer: Optional[Dict[str, Any]]
    pending: Optional[Pending]


def _whole(entry: Any) -> Any:
    """An entry of a state from its tuple, which a file format may have made a list."""
    return entry[0]


def _outer(state: State, replica: Replica) -> Optional[Dict[str, Any]]:
    """The saved state of the outer optimizer. Refuses one that the present outer optimizer cannot load."""
    saved: Optional[Dict[str, Any]] = _whole(state["outer"])
    if (saved and saved["kind"]) != (replica.outer and type(replica.outer).__name__):
        raise _core.StateError("the state was saved with another outer optimizer; use the same one")
    if saved is not None and replica.outer is not None:
        _saved.need(saved["state"], ["state"])
        groups = [len(group["params"]) for group in saved["state"]["param_groups"]]
        if groups != [len(group["params"]) for group in replica.outer.param_groups]:
            raise _core.StateError("the saved outer optimizer has other parameter groups; use the same ones")
    return saved


# A virtual subclass: the constructor of ``Joinable`` would call that of ``Optimizer``.
Joinable.register(LocalSteps)

# The keyword arguments of ``LocalSteps`` of its own.
_ARGUMENTS = [name for name, one in signature(LocalSteps).parameters.items() if one.kind is one.KEYWORD_ONLY]
