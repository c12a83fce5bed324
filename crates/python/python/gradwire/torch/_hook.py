"""The communication hook for DistributedDataParallel."""

from __future__ import annotations

import warnings
import weakref
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch.autograd import profiler
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from .. import _core
from .._arrays import buffer
from .._specs import has_error_feedback
from . import _device
from ._averaged import Averaged
from ._buckets import Key, Part, ends_of, gradients_of, key_of
from ._checks import check_gradients, check_optimizer, check_scaler
from ._crates import check_crates
from ._custom import Custom
from ._handle import Handle
from ._messages import shared
from ._names import selected
from ._nodes import check_inside
from ._onebit_adam import OneBitAdam
from ._options import Options, Rules, check_given
from ._staging import Scale, Staging, joined
from ._states import Layout, layout_of
from ._tensors import Named, as_reals, plain, trainable
from ._traffic import Plain, bytes_of, sizes_of, warn_of_more
from ._two_levels import NodeOptions, TwoLevels


class Hook(Handle):
    """The state of the hook: residuals by parameter name, the averaging thread, statistics.

    All ranks must create one at the same time. Takes the arguments of ``register``; ``ignored`` are
    the names of parameters that DistributedDataParallel leaves out.
    """

    # A ``DeviceExchange``, if the device compresses what the host sends.
    _device_exchange: Optional[Any] = None
    _warned_of_toggled = False
    # The model that calls the hook, if it is known.
    _caller: Callable[[], Optional[DistributedDataParallel]] = staticmethod(lambda: None)

    def __init__(
        self,
        module: torch.nn.Module,
        compressor: Any = "eden",
        *,
        process_group: Optional[Any] = None,
        rules: Rules = None,
        exchange: str = "auto",
        seed: int = 0,
        deadline: float = 300.0,
        on_nonfinite: str = "error",
        scaler: Optional[Any] = None,
        raw_vectors: bool = True,
        raw_below: int = 256,
        raw_names: Sequence[str] = (),
        total_steps: Optional[int] = None,
        optimizer: Optional[OneBitAdam] = None,
        device: str = "auto",
        transport: str = "auto",
        ignored: Collection[str] = (),
        threads: int = 1,
        nodes: Optional[Any] = None,
        inside: Optional[str] = None,
    ) -> None:
        arguments = dict(locals())
        options = Options.of(arguments)
        # Accelerate wraps optimizers.
        optimizer = getattr(optimizer, "optimizer", optimizer)
        _check(options, {**arguments, "optimizer": optimizer})
        custom = None if isinstance(compressor, str) else compressor
        if custom is not None:
            options = replace(options, compressor="none", exchange="all-gather")
        check_crates(options, process_group, "gradwire.torch.register")
        named = trainable(module, ignored)
        check_gradients(module, ignored=ignored)
        if optimizer is not None:
            check_optimizer(optimizer, [parameter for _, parameter in named])
        self._note(module, named, ignored)
        levels, caller = NodeOptions(nodes, inside), "gradwire.torch.register"
        super().__init__(named, selected(module, dict(named), options), process_group, scaler, caller, levels)
        reference = weakref.ref(self)
        self._averaged = Averaged(lambda: getattr(reference(), "step", 0), dict(named))
        self._suggest_skipping()
        if optimizer is not None:
            self._refuse_votes("OneBitAdam divides what ranks exchange by the root of its second moments")
        self._optimizer = optimizer
        shapes = {name: as_reals(parameter).shape for name, parameter in named}
        self._custom = None if custom is None else Custom(custom, self._reducer, shapes)
        self._compare(
            {
                "compressor": "a spec string" if self._custom is None else self._custom.spec,
                "scaler": "none" if scaler is None else "GradScaler",
                "optimizer": "none" if optimizer is None else f"OneBitAdam(freeze={optimizer.freeze})",
            }
        )
        if self._custom is None:
            group = torch.distributed.group.WORLD if process_group is None else process_group
            request = _device.Request(device, transport, group, devices=self._devices)
            self._choose_device(request, named, options)

    def _note(self, module: torch.nn.Module, named: List[Tuple[str, torch.nn.Parameter]], ignored: Collection[str]) -> None:
        """Notes the parameters, and that no step has begun."""
        self._names = {id(parameter): name for name, parameter in named}
        self._parameters = [parameter for _, parameter in named]
        self._devices = {parameter.device for parameter in self._parameters}
        frozen = [(name, p) for name, p in module.named_parameters() if not p.requires_grad and name not in ignored]
        self._frozen = [(plain(name), parameter) for name, parameter in frozen]
        # The messages of a bucket by its parameters.
        self._parts_by_key: Dict[Key, List[Part]] = {}
        self._staging: Dict[torch.device, Staging] = {}
        # The backward pass of the present step, and the buckets that it has submitted.
        self._pass = -1
        self._submitted: List[Key] = []

    def _choose_device(self, request: _device.Request, named: List[Tuple[str, torch.nn.Parameter]], options: Options) -> None:
        compressed = self._compressed(named)
        try:
            place = _device.of(request, self._reducer, compressed, options)
        except BaseException:
            self.close()
            raise
        self._on_device, self._device_exchange = place.transport, place.exchange
        self._compressed_on, self._through_host = place.compressed_on, place.through_host
        sizes = sizes_of(self._on_device)
        if not isinstance(self._reducer, TwoLevels):
            warn_of_more(self._reducer, Plain(bytes_of(named), "the gradients"), stacklevel=5, sizes=sizes)
            return
        self._reducer.uses_streams = self._device_exchange is not None
        if self._reducer.rank == 0:
            # DistributedDataParallel would send the types of the gradients, but slices are float32.
            bytes_of_one = {name: parameter.real.element_size() for name, parameter in named}
            size = sum(elements * bytes_of_one[name] for name, elements in self._reducer.owned().items())
            warn_of_more(self._reducer.column, Plain(size, "the gradients, between nodes,"), stacklevel=5, sizes=sizes)

    def _compressed(self, named: Sequence[Named]) -> Sequence[Named]:
        """The tensors that this rank compresses: with nodes, the slices that it owns, as float32
        without memory."""
        if not isinstance(self._reducer, TwoLevels):
            return named
        devices = {name: parameter.device for name, parameter in named}
        like = lambda name: torch.empty(1, dtype=torch.float32, device=devices[name])
        return [(own, like(name).expand(shape)) for name, own, shape in self._reducer.slices()]

    def _refuse_votes(self, reason: str) -> None:
        """Refuses compressors that average by votes, because a zero would count like any other
        number. A refusal closes the handle."""
        if self._reducer.votes:
            spec = self._reducer.spec
            self.close()
            raise _core.ConfigError(
                f"'{spec}' averages by votes, which are +1 or -1, and {reason}; use another compressor, such as efsignsgd"
            )

    def _follow(self, model: DistributedDataParallel) -> None:
        """Refuses settings of the model that the compressors do not suit, now and at every step."""
        if model.find_unused_parameters and not model.static_graph:
            self._refuse_votes(
                "with find_unused_parameters=True the zeros of ranks that did not use a parameter would vote: if all ranks use all "
                "parameters, pass find_unused_parameters=False (ddp_find_unused_parameters=False to Transformers' TrainingArguments)"
            )
        self._caller = weakref.ref(model)

    def close(self) -> None:
        if self._reducer.forked:
            return
        self._averaged.close()
        try:
            super().close()
        finally:
            for averages in (self._on_device, self._device_exchange):
                if averages is not None:
                    averages.release()

    @property
    def _states(self) -> Any:
        return self._custom or self._on_device or self._device_exchange or self._reducer

    @property
    def _layout(self) -> Optional[Layout]:
        return layout_of((self._names[id(parameter)], parameter) for parameter in self._parameters)

    def _plan(self) -> List[Tuple[str, int, str, float, int]]:
        if self._custom is not None:
            return self._custom.plan()
        return super()._plan()

    @property
    def _spec(self) -> str:
        return super()._spec if self._custom is None else self._custom.spec

    def _begin(self) -> None:
        if self._optimizer is not None and self._costs()["skipped"]:
            # The scaler skipped the optimizer's step.
            self._optimizer.forget_exchange()
        self._check_step()
        super()._begin()

    def _check_step(self) -> None:
        """Refuses conditions that would silently make the averages of this step wrong."""
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise _core.ConfigError(
                    f"'{name}' requires gradients now but did not when the model was wrapped, so DistributedDataParallel does not average "
                    "its gradient; unfreeze it before you wrap the model, and add it to the optimizer when it should be trained "
                    "(optimizer.add_param_group), or wrap the model and register again after unfreezing"
                )
        if torch._C._current_graph_task_id() == -1 and self._reducer.votes:
            raise _core.ConfigError(
                f"'{self._reducer.spec}' averages by votes, and the zeros of a rank without data would vote; give all ranks the same "
                "number of batches instead of using torch.distributed.algorithms.Join, or use another compressor, such as efsignsgd"
            )
        model = self._caller()
        if model is not None and model._join_config.enable and not getattr(model, "_divide_by_initial_world_size", True):
            raise _core.ConfigError(
                "gradwire averages over all ranks, and ranks without data count as zeros; leave out divide_by_initial_world_size=False in Join"
            )

    def average(self, bucket: Any) -> Future:
        """Averages a bucket over ranks, in place and in the background."""
        try:
            last = bucket.is_last()
            if bucket.index() == 0:
                last = self._begin_with(bucket) or last
            future = self._submit(bucket)
        except BaseException:
            # The other ranks wait for this one.
            self._reducer.abort()
            self._stepping.end(failed=True)
            raise
        if last:
            self._wait_at_end()
        return future

    def _begin_with(self, bucket: Any) -> bool:
        """Begins a step with its first bucket. Returns whether to wait for averages at the end of
        the backward pass even if no bucket is marked as the last.

        In the first step of a model with ``static_graph=True``, DistributedDataParallel gives all
        buckets the index 0, and marks none as the last.
        """
        task, key = torch._C._current_graph_task_id(), key_of(bucket)
        if task != -1 and task == self._pass and key not in self._submitted:
            return len(self._submitted) == 1
        self._pass, self._submitted = task, []
        self._begin()
        return False

    def _submit(self, bucket: Any) -> Future:
        """Starts to average a bucket; returns its future."""
        number = len(self._submitted)
        self._submitted.append(key_of(bucket))
        whole, scale = bucket.buffer(), self._scale
        tensor = as_reals(whole).view(-1)
        if isinstance(scale, torch.Tensor) and scale.device != tensor.device:
            # A model on several devices has its loss on one of them.
            scale = scale.to(tensor.device)
        if self._optimizer is not None:
            self._optimizer.to_exchange(bucket.parameters(), gradients_of(bucket, tensor), scale)
        parts = self._parts(bucket, tensor)
        self._warn_of_toggled(bucket.parameters())
        if self._custom is not None:
            names = [name for part in parts for name in part.names]
            return self._custom.average(self._step - 1, names, list(map(as_reals, gradients_of(bucket, tensor))), whole)
        if len(parts) == 1 and tensor.dtype == whole.dtype:
            return self._average((number, 0), parts[0], tensor, scale)
        futures = [self._average((number, at), part, tensor[part.place], scale) for at, part in enumerate(parts)]
        return joined(futures, whole)

    def _warn_of_toggled(self, parameters: Sequence[torch.Tensor]) -> None:
        """Warns once if this step loses a residual, because its parameter is not trained in it: for
        example, a parameter of the generator in a step of the discriminator."""
        if self._warned_of_toggled or all(parameter.requires_grad for parameter in parameters):
            return
        keeps = self._custom.has_feedback if self._custom is not None else any(map(has_error_feedback, self._reducer.specs(self._step - 1)))
        if not keeps:
            return
        self._warned_of_toggled = True
        name = next(self._names[id(parameter)] for parameter in parameters if not parameter.requires_grad)
        warnings.warn(
            f"'{name}' does not require gradients in this step. DistributedDataParallel discards its average, so the part of its residual "
            "that this step sends is lost; use a compressor without error feedback, such as eden, or wrap the parameters of each "
            "optimizer in their own DistributedDataParallel",
            RuntimeWarning,
            stacklevel=2,
        )

    def _average(self, number: Tuple[int, int], part: Part, tensor: torch.Tensor, scale: Scale) -> Future:
        """Averages the gradients of a message. ``number`` has the number of the bucket in the step,
        and the number of the message in the bucket."""
        if self._on_device is not None:
            return self._on_device.average(part.tensor_group, self._step - 1, part.names, tensor, scale)  # type: ignore[no-any-return]
        if isinstance(self._reducer, TwoLevels):
            between = lambda own, values, ready: self._exchange(number, own, values, scale, ready)
            return self._reducer.average_bucket(part.tensor_group, self._step - 1, tensor, between)
        return self._exchange(number, part, tensor, scale)

    def _exchange(
        self, number: Tuple[int, int], part: Part, tensor: torch.Tensor, scale: Scale, ready: Optional[Callable[[], Optional[float]]] = None
    ) -> Future:
        """Averages values over the ranks of the reducer, through the host. Calls ``ready`` before
        it reads values that are in main memory; it may return their scale."""
        if self._device_exchange is not None and tensor.numel():
            return self._device_exchange.average(part.tensor_group, self._step - 1, part.names, tensor, scale)
        if tensor.device.type == "cuda":
            staging = self._staging.get(tensor.device)
            if staging is None:
                staging = self._staging[tensor.device] = Staging(tensor.device)
            future, values, done, ready = staging.stage(number, tensor, scale)
            left = 1.0
        else:
            future, values, left = Future(), tensor, float(scale) if tensor.numel() else 1.0
            done = partial(future.set_result, tensor)
        self._reducer.average(part.tensor_group, self._step - 1, buffer(values, "a bucket"), done, scale=left, ready=ready)
        return future

    def _parts(self, bucket: Any, tensor: torch.Tensor) -> List[Part]:
        """The messages of a bucket. Before DistributedDataParallel has seen the order of gradients,
        the whole model may be one bucket."""
        parameters, key = bucket.parameters(), key_of(bucket)
        parts = self._parts_by_key.get(key)
        if parts is None:
            self._check_known(parameters)
            ends = ends_of(parameters)
            for parameter, gradient, start in zip(parameters, bucket.gradients(), ends):
                # An empty tensor has no address, and a complex one has another address: see
                # ``gradients_of``.
                if gradient.numel() > 0 and not parameter.is_complex() and gradient.data_ptr() != tensor.data_ptr() + start * tensor.element_size():
                    name = self._names[id(parameter)]
                    raise _core.ConfigError(f"the gradient of '{name}' is not at the expected offset of its bucket")
            parts = []
            sizes = [end - start for start, end in zip(ends, ends[1:])]
            # Only messages through the host have a limit, and a joined future makes the stream that
            # computes gradients wait.
            for places in shared(sizes) if self._on_device is None else [slice(0, len(sizes))]:
                names = [self._names[id(parameter)] for parameter in parameters[places]]
                parts.append(Part(self._reducer.tensor_group(names), names, slice(ends[places.start], ends[places.stop])))
            self._parts_by_key[key] = parts
        return parts

    def _check_known(self, parameters: Sequence[torch.Tensor]) -> None:
        """Refuses a bucket with a parameter that did not exist, or was not trained, when the hook
        was registered."""
        frozen = {id(parameter): name for name, parameter in self._frozen}
        for parameter in parameters:
            if id(parameter) in frozen:
                raise _core.ConfigError(
                    f"'{frozen[id(parameter)]}' did not require gradients when the hook was registered, but did when "
                    "DistributedDataParallel wrapped the model; freeze parameters before wrapping it, or after registering"
                )
            if id(parameter) not in self._names:
                raise _core.ConfigError(
                    f"a bucket has a parameter of shape {tuple(parameter.shape)} that the model did not have when the hook was "
                    "registered; register the hook after the model is complete"
                )

    def _costs(self) -> Dict[str, Any]:
        return (self._custom or self._on_device or self._reducer).stats()  # type: ignore[no-any-return]

    def _wait_for_averages(self) -> None:
        if self._on_device is None:
            super()._wait_for_averages()
        else:
            self._on_device.end_step()


def hook(state: Hook, bucket: Any) -> Future:
    """The communication hook that ``register`` registers, for ``register_comm_hook``."""
    # Without a profiler, to record takes longer than to submit.
    if not getattr(profiler, "_is_profiler_enabled", True):
        return state.average(bucket)
    with record_function("gradwire::submit"):
        return state.average(bucket)


# DistributedDataParallel compares the annotations as objects, not as strings.
hook.__annotations__ = {"bucket": torch.distributed.GradBucket, "return": Future[torch.Tensor]}


def _check(options: Options, arguments: Mapping[str, Any]) -> None:
    """Refuses arguments of ``Hook`` that cannot be combined, and an optimizer other than
    ``OneBitAdam``."""
    optimizer = arguments["optimizer"]
    if optimizer is not None and not isinstance(optimizer, OneBitAdam):
        raise _core.ConfigError(
            f"the optimizer is a {type(optimizer).__name__}, not gradwire.torch.OneBitAdam; omit optimizer= for any other"
        )
    check_given(options.compressor)
    check_inside(arguments["inside"], arguments["nodes"])
    if not isinstance(options.compressor, str):
        Custom.check(options.compressor, arguments)
    check_scaler(arguments["scaler"], options.on_nonfinite)
    options.check_replicated()
