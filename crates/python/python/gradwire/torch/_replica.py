"""One worker's copy of the model. It averages the change of its parameters with other workers."""

from __future__ import annotations

import copy
import itertools
import statistics
import struct
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from .. import _core
from ._buffers import Buffers
from ._channel import Channel
from ._local_options import LocalOptions
from ._options import Parts
from ._masking import forget, momenta
from ._messages import shared
from ._modes import write
from ._rows import Rows, pack_optimizer, unpack_optimizer
from ._site import Site
from ._staging import Pinned
from ._tensors import Named, as_reals, own_part, shape_of
from ._two_levels import average_in_memory

# The positions of the elements that a message carried, by tensor. Whole tensors are left out.
Sent = Dict[str, torch.Tensor]


class Replica:
    """A model with a local optimizer, the common parameters of all replicas, and their outer
    optimizer.

    Each of ``fragments`` lists parameters that a round averages together. Call ``connect`` before
    the first round. Complex parameters are averaged as pairs of reals.
    """

    reducer: _core.Reducer
    # Averages changes on the device; ``None`` if the host does.
    transport: Optional[Any] = None

    def __init__(
        self,
        model: torch.nn.Module,
        fragments: Sequence[Sequence[Named]],
        optimizer: torch.optim.Optimizer,
        options: LocalOptions,
        site: Site,
    ) -> None:
        named = [one for fragment in fragments for one in fragment]
        self.names = [name for name, _ in named]
        self.trained = [parameter for _, parameter in named]
        # The places of each fragment's parameters among all of them.
        ends = list(itertools.accumulate(len(fragment) for fragment in fragments))
        self.places = [slice(end - len(fragment), end) for end, fragment in zip(ends, fragments)]
        self._frozen = [(name, parameter) for name, parameter in model.named_parameters() if not parameter.requires_grad]
        self.buffers = Buffers(model, options.buffers)
        self.optimizer, self.named, self._options, self.site = optimizer, named, options, site
        self.step = 0
        # The steps whose changes the common parameters contain.
        self.base = 0
        # The smallest number that the next round may use.
        self.round = 0
        self.start()

    @property
    def _parameters(self) -> List[torch.Tensor]:
        """The parameters that rounds average; of sharded ones, this rank's rows. FSDP2 may replace
        the tensors of the rows, so they are looked up each time."""
        return [own_part(parameter) for parameter in self.trained]

    @property
    def clips(self) -> bool:
        """Whether changes are scaled down to the median norm."""
        return self._options.median_clip

    @property
    def fragments(self) -> int:
        """The number of fragments."""
        return len(self.places)

    @property
    def number(self) -> int:
        """The number of a round that begins now.

        It is the number of the last step, which determines the stage of a schedule. Two rounds
        without a step between them must not share a number, because it is also part of the key of
        random draws.
        """
        return max(self.step - 1, self.round)

    def start(self) -> None:
        """Makes the present parameters of the model the common ones."""
        self.common = _flat(self._parameters, self._device())
        # Views: the outer optimizer changes the flat tensor.
        self.common_parts = [
            torch.nn.Parameter(values.view(shape_of(parameter)))
            for values, parameter in zip(_parts(self.common, self._parameters), self._parameters)
        ]
        self.outer = self._options.outer(self.common_parts) if self._options.outer is not None else None

    def _device(self) -> torch.device:
        """The device of the common parameters."""
        if self._options.common_device == "cpu":
            return torch.device("cpu")
        devices = {parameter.device for parameter in self.trained}
        if len(devices) > 1:
            raise _core.ConfigError(
                f"common_device='model' needs a model on one device, but its parameters are on {', '.join(sorted(map(str, devices)))}; "
                "leave out common_device"
            )
        return devices.pop()

    def tensors(self) -> List[torch.Tensor]:
        """All tensors of the model."""
        return [*self._parameters, *(own_part(parameter) for _, parameter in self._frozen), *self.buffers.tensors()]

    def copies(self) -> List[torch.Tensor]:
        """The tensors of which each rank of the site has a copy."""
        return [*(parameter for _, parameter in self._frozen if own_part(parameter) is parameter), *self.buffers.tensors()]

    def connect(self, channel: Channel) -> _core.Reducer:
        """Averages over the channel's ranks from now on, with an empty residual; returns the
        reducer."""
        rows = [self.site.rows(parameter) for parameter in self.trained]
        own = [one.part for one in rows if one is not None]
        parts = Parts(self.site.rank, self.site.size, own) if own else None
        # A change is not a number of the parameter's type, even if both parameters are.
        exchanged = self.site.exchanged(self.named)
        changes = [(name, torch.empty(shape_of(one), dtype=torch.float32, device="meta")) for name, one in exchanged]
        self.use(self._options.reducer(changes, channel, parts))
        return self.reducer

    def use(self, reducer: Any) -> None:
        """Averages with a reducer of this replica's parameters from now on."""
        self.reducer = reducer
        self._messages = [list(self._split(places)) for places in self.places]

    def use_transport(self, transport: Any) -> None:
        """Averages on the device from now on, by a ``DeviceTransport`` of the reducer."""
        self.transport = transport

    @property
    def averages(self) -> Any:
        """The object that has the state and the statistics of averages."""
        return self.transport or self.reducer

    def _split(self, places: slice) -> Iterator[Tuple[int, int]]:
        """The tensor groups whose messages carry a fragment, in order, with their numbers of
        elements."""
        names, sizes = self.reducer.names[places], [_elements(parameter) for parameter in self._parameters[places]]
        for part in shared(sizes):
            yield self.reducer.tensor_group(names[part]), sum(sizes[part])

    def change(self, fragment: int = 0) -> torch.Tensor:
        """The change of a fragment's parameters since its last round.

        The round started from the common parameters, rounded to the model's type. The rounding is
        not part of the change.
        """
        places = self.places[fragment]
        self.site.reshard()
        parameters = self._parameters[places]
        self._check_frozen()
        change = _flat(parameters, self.common.device)
        for own, common, parameter in zip(_parts(change, parameters), self.common_parts[places], parameters):
            own.sub_(common.detach().reshape(-1).to(parameter.real.dtype))
        return change if self.transport is not None else _in_main_memory(change)

    def _check_frozen(self) -> None:
        """Refuses parameters that were frozen when rounds were set up and are now trained, since no
        round averages them. Refuses parameters that are no longer trained, since residuals and the
        outer optimizer would still change them."""
        for name, parameter in zip(self.names, self.trained):
            if not parameter.requires_grad:
                raise _core.ConfigError(
                    f"'{name}' required gradients when LocalSteps was created, and workers still average it; create LocalSteps "
                    "again after freezing parameters"
                )
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise _core.ConfigError(
                    f"'{name}' did not require gradients when LocalSteps was created, so workers do not average it; create LocalSteps "
                    "again after unfreezing parameters"
                )

    def average(self, change: torch.Tensor, fragment: int = 0) -> int:
        """Replaces ``change`` by the mean over all ranks; returns the number of the round."""
        number = self.send(change, fragment)
        self.wait()
        return number

    def send(self, change: torch.Tensor, fragment: int = 0) -> int:
        """Like ``average``, but in the background: the mean is ready after ``wait()``."""
        number = self.number
        if self._options.median_clip:
            self._clip(change, number)
        if self.transport is not None:
            names = self.reducer.names[self.places[fragment]]
            self.transport.average(self.reducer.tensor_group(names), number, names, change, 1.0)
            return number
        messages = self._messages[fragment]
        for (tensor_group, _), values in zip(messages, change.split([elements for _, elements in messages])):
            average_in_memory(self.reducer, tensor_group, number, values)
        return number

    def wait(self) -> None:
        """Waits until all means are ready. Raises ``NonFiniteError`` if a change is not finite."""
        if self.transport is None:
            self.reducer.wait()
        else:
            self.transport.end_step()
            self.transport.check()

    def close(self) -> None:
        """Frees the memory of averages on the device, and ends the connections of the site."""
        if self.transport is not None:
            self.transport.release()
        self.site.close()

    def _clip(self, change: torch.Tensor, number: int) -> None:
        """Scales ``change`` down to the median of all ranks' norms, if it is longer."""
        norm = self.site.norm(change, f"the norm of round {number}")
        norms = [struct.unpack("<d", one)[0] for one in self.reducer.gather(number, struct.pack("<d", norm))]
        limit = statistics.median(norms)
        if norm > limit:
            change.mul_(limit / norm)

    def apply(
        self, change: torch.Tensor, number: int, fragment: int = 0, alpha: float = 0.0, sent: Optional[Sent] = None
    ) -> None:
        """Applies the mean change of a fragment's round; the replica continues from the common
        parameters, mixed with ``alpha`` of its own.

        ``sent`` is the result of the method ``sent`` after the round's message. By default it comes
        from the reducer.
        """
        self.round, self.base = number + 1, self.step
        self.site.reshard()
        places = self.places[fragment]
        common, parameters = self.common_parts[places], self._parameters[places]
        changes = _parts(change.to(self.common.device, non_blocking=True), parameters)
        if self.outer is None:
            for one, mean in zip(common, changes):
                one.add_(mean.view(one.shape))
        else:
            # The optimizer does not change parameters without a gradient.
            for one, mean in zip(common, changes):
                one.grad = mean.neg().view(one.shape)
            self.outer.step()
            self.outer.zero_grad(set_to_none=True)
        self._continue(places, alpha)
        if self._options.mask:
            self._mask_momentum(places, self.sent(fragment) if sent is None else sent)

    def _continue(self, places: slice, alpha: float) -> None:
        """Replaces parameters by the common ones, mixed with ``alpha`` of their own."""
        parameters = self._parameters[places]
        devices = {parameter.device for parameter in parameters}
        if len(devices) == 1 and self.common.is_pinned():
            # They are contiguous, so one copy to the GPU suffices.
            start = sum(map(_elements, self._parameters[: places.start]))
            elements = sum(map(_elements, parameters))
            moved = self.common[start : start + elements].to(devices.pop(), non_blocking=True)
            common = list(_parts(moved, parameters))
        else:
            common = [one.detach().reshape(-1) for one in self.common_parts[places]]
        for parameter, one in zip(parameters, common):
            own = _reals(parameter).to(one.device, torch.float32) if alpha else one
            _set(parameter, torch.lerp(one, own, alpha) if alpha else one)

    def pack(self) -> Dict[str, Any]:
        """The state that another replica needs to continue like this one."""
        return {
            "common": self.common,
            "outer": self.pack_outer(),
            "base": self.base,
            "round": self.round,
            "frozen": [own_part(parameter).detach().cpu() for _, parameter in self._frozen],
            "buffers": [tensor.detach().cpu() for tensor in self.buffers.tensors()],
            # Before the first step, workers keep their own optimizers' settings.
            "optimizer": pack_optimizer(self.optimizer.state_dict(), *self.of_optimizer()) if self.step else None,
        }

    def of_optimizer(self) -> Tuple[List[torch.Tensor], List[Optional[Rows]]]:
        """The parameters of the local optimizer, with the rows of those that are sharded."""
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        return parameters, list(map(self.site.rows, parameters))

    def pack_outer(self) -> Optional[Dict[str, Any]]:
        """The kind of the outer optimizer, and a copy of its state."""
        if self.outer is None:
            return None
        return {"kind": type(self.outer).__name__, "state": copy.deepcopy(self.outer.state_dict())}

    def load_outer(self, packed: Optional[Dict[str, Any]]) -> None:
        """Restores a result of ``pack_outer``."""
        if self.outer is not None and packed is not None:
            self.outer.load_state_dict(copy.deepcopy(packed["state"]))

    def adopt(self, packed: Dict[str, Any], ahead: Optional[torch.Tensor], new: bool) -> None:
        """Continues from another replica's packed state, and from ``ahead``, a change that no round
        contains yet.

        A ``new`` replica also adopts frozen parameters, buffers and optimizer state. Others keep
        their own, except buffers that rounds make equal.
        """
        self.site.reshard()
        self.common.copy_(packed["common"])
        self.load_outer(packed["outer"])
        self.step = self.base = packed["base"]
        self.round = packed["round"]
        start = self.common if ahead is None else self.common + ahead.to(self.common.device)
        for parameter, values in zip(self._parameters, _parts(start, self._parameters)):
            _set(parameter, values)
        if new or self.buffers.shared:
            for tensor, values in zip(self.buffers.tensors(), packed["buffers"]):
                write(tensor, values)
        if new:
            for (_, parameter), values in zip(self._frozen, packed["frozen"]):
                write(own_part(parameter), values)
            if packed["optimizer"] is not None:
                self.optimizer.load_state_dict(unpack_optimizer([packed["optimizer"]], *self.of_optimizer(), moves=False))

    def sent(self, fragment: int = 0) -> Sent:
        """The positions whose momentum is set to zero when the fragment's last message is
        applied."""
        places, sent = self.places[fragment], {}
        for name, parameter, sent_as in zip(self.names[places], self.trained[places], self.reducer.names[places]):
            positions = self.reducer.sent(sent_as) if self._options.mask and momenta(self.optimizer, parameter) else None
            if positions:
                sent[name] = torch.frombuffer(bytearray(positions), dtype=torch.int32)
        return sent

    def _mask_momentum(self, places: slice, sent: Sent) -> None:
        for name, parameter in zip(self.names[places], self.trained[places]):
            if name in sent:
                forget(self.optimizer, name, parameter, sent[name])


def _flat(parameters: Sequence[torch.Tensor], device: torch.device = torch.device("cpu")) -> torch.Tensor:
    """The elements of all parameters as float32 on a device, or in main memory, which is pinned if
    any of them is on a GPU.

    Parameters are copied one by one: they may be on several devices, and this needs no second copy
    of the whole model on a GPU.
    """
    elements = sum(map(_elements, parameters))
    gpus = {one.device for one in parameters if one.device.type == "cuda"}
    if device.type == "cpu":
        flat = Pinned(min(gpus, key=str, default=device)).of(4 * elements).view(torch.float32)
    else:
        flat = torch.empty(elements, dtype=torch.float32, device=device)
    for part, one in zip(_parts(flat, parameters), parameters):
        part.copy_(_reals(one), non_blocking=True)
    for gpu in gpus if device.type == "cpu" else ():
        torch.cuda.current_stream(gpu).synchronize()
    return flat


def _in_main_memory(flat: torch.Tensor) -> torch.Tensor:
    """Floats in main memory, which is pinned if they are on a GPU."""
    if flat.device.type == "cpu":
        return flat
    return Pinned(flat.device).of(4 * flat.numel()).view(torch.float32).copy_(flat)


def _parts(flat: torch.Tensor, parameters: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    return flat.split([_elements(parameter) for parameter in parameters])


def _elements(parameter: torch.Tensor) -> int:
    """The number of floats that are sent for a parameter; a complex element counts as two."""
    return 2 * parameter.numel() if parameter.is_complex() else parameter.numel()


def _reals(parameter: torch.Tensor) -> torch.Tensor:
    """The floats of a parameter in the order of its shape."""
    return as_reals(parameter.detach().resolve_conj()).reshape(-1)


def _set(parameter: torch.Tensor, values: torch.Tensor) -> None:
    """Sets a parameter from floats in the form of ``_reals``."""
    if parameter.is_complex():
        write(parameter, torch.view_as_complex(values.reshape(*parameter.shape, 2)))
    else:
        write(parameter, values.view(parameter.shape))
