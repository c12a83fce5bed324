"""Predicts from a few training steps whether compression pays for a model on its ranks and
links."""

from __future__ import annotations

import json
from math import prod
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

from .. import _core
from .._arrays import buffer, whole_number
from ._checks import check_gradients, check_unwrapped
from ._link import MeasuredLink, cores
from ._names import selected
from ._options import Options, listed, seconds_of, strings
from ._progress import DEFAULT_TRIALS, Progress
from ._recording import TIMED, WARM_UP, Alone, Recording
from ._restored import Restored, check_restorable, held
from ._tensors import shape_of, trainable
from ._trial_exchange import TrialExchange

Candidate = Union[str, Dict[str, Any]]


class Advice:
    """The result of ``advise``. ``print`` shows it as a table; ``data`` has all figures."""

    def __init__(self, data: Dict[str, Any], text: str) -> None:
        self.data = data
        self._text = text

    @property
    def compressor(self) -> Optional[str]:
        """The recommended compressor on the first link; None: do not compress, and do not call
        ``register``."""
        at = self.data["recommended"][0]
        return None if at is None else self.data["predictions"][at]["spec"]

    @property
    def crossover(self) -> Optional[float]:
        """The bandwidth in bits per second below which compression pays, at the first link's
        latency; None: it never pays.

        Does not consider local steps, nor compressors that may harm the model. Messages may reach
        only a part of a measured link's bandwidth; other links are assumed to be used fully.
        """
        found: Optional[float] = self.data["crossover"]
        return found

    @property
    def crossover_range(self) -> Tuple[Optional[float], Optional[float]]:
        """The range in which ``crossover`` may lie, since the measured times vary; 10 Tbit/s stands
        for any bandwidth."""
        least, most = self.data["crossover_range"]
        return least, most

    @property
    def tensors(self) -> List[Dict[str, Any]]:
        """For each tensor: its elements, its bytes and error with the compressor recommended on the
        first link, and the compressor to send it with."""
        found: List[Dict[str, Any]] = self.data["tensors"]
        return found

    @property
    def rules(self) -> Dict[str, str]:
        """Rules for ``register``: the matrices that are better sent uncompressed."""
        return {one["name"]: "none" for one in self.tensors if one["send"] == "none" and one["gain"] < 0}

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Advice {self.compressor or 'do not compress'}>"


def advise(
    model: torch.nn.Module,
    step: Callable[[], Any],
    *,
    optimizer: Optional[Any] = None,
    link: Union[str, Sequence[str], None] = None,
    ranks: Optional[int] = None,
    candidates: Optional[Iterable[Candidate]] = None,
    steps: int = 4,
    process_group: Optional[Any] = None,
    deadline: float = 600.0,
    progress: bool = True,
) -> Advice:
    """Predicts the step times of compressors for a model, and recommends one, or none.

    With a process group, all ranks must call it at the same time, and get the same advice. Runs
    each candidate on recorded gradients, between up to four ranks in threads of this process.

    Restores the states of the model and of a given ``optimizer``, even if ``step`` raises. Does not
    restore the states of random generators and data loaders.

    In addition to training, it takes memory for a copy of the model and of the optimizer's state,
    and on rank 0 for the recorded gradients. With ``float32`` and Adam this is up to
    ``12 + 4 * steps`` bytes per parameter. A process group takes 8 more, as does training with
    error feedback. The trials take up to 56 bytes for each element of the largest bucket or tensor.

    Args:
        model: the plain module, before DistributedDataParallel wraps it
        step: runs a training step on this rank: the forward and backward pass, and
            ``optimizer.step()`` if the time of a step includes it. It is called 13 + ``steps``
            times, and 26 times more with other ranks
        optimizer: the optimizer of ``step``. Default: ``None``, taken to be Adam
        link: each rank's bandwidth, such as ``"100mbit"``, optionally with a latency, as in
            ``"1gbit/2ms"``; or a list of such links. Default: the measured link between the ranks
            of ``process_group``
        ranks: the number of ranks of the run. Default: the number in ``process_group``
        candidates: spec strings, or dicts with ``compressor``, ``exchange`` and ``rules`` as in
            ``register``. Default: fourteen of all kinds, some with local steps (``LocalSteps``)
        steps: the number of steps whose gradients are recorded, from 1, at most 1000. Default: 4
        process_group: the ranks. Default: all
        deadline: the longest wait for another rank, in seconds, above 0, at most 86,400. It is
            longer than in ``register``, because the others wait while rank 0 alone predicts.
            Default: 600.0
        progress: whether rank 0 writes to standard error: on a terminal, a line of progress; for a
            model of 10 million parameters or more, also estimates of memory and time, and the
            trials. Default: ``True``

    Raises:
        ConfigError: an argument is missing or wrong, or a candidate cannot work.
    """
    _check(model, steps)
    if ranks is not None:
        whole_number("ranks", ranks, 32)
    seconds_of(deadline)
    grouped = dist.is_available() and dist.is_initialized()
    if not grouped and (link is None or ranks is None):
        raise _core.ConfigError(
            "without a process group, advise needs the number of ranks and their link; pass ranks= and link=, such as '100mbit', or call "
            "init_process_group first"
        )
    links = [link] if isinstance(link, str) else strings("link", () if link is None else link)
    asked = None if candidates is None else [_candidate(model, one) for one in listed("candidates", candidates)]
    elements = sum(prod(shape_of(parameter)) for _, parameter in trainable(model))
    measured = MeasuredLink(process_group, elements, deadline) if grouped and _size(process_group) > 1 else None
    first = measured is None or measured.rank == 0
    shown = Progress(elements, progress and first)
    try:
        size = ranks or (measured.ranks if measured else 1)
        _estimate(shown, model, optimizer, steps, size, asked, measured)
        with Restored(model, optimizer):
            # Rank 0 alone predicts.
            recording = Recording(model, step, steps, measured or Alone(), shown, keeps=first)
            waits = recording.seconds_with(measured) - recording.alone if measured else 0.0
            exchanged = _measured_step(recording, measured, process_group, deadline) if measured else None
        if measured and not links:
            links = [_link(measured)]
        options = {
            "ranks": size,
            "cluster": _cluster(recording, measured, max(0.0, waits)),
            "links": links,
            "optimizer": type(optimizer).__name__ if optimizer is not None else "adam",
            "candidates": asked,
            "measured": exchanged,
            "progress": shown.trial,
        }
        if measured is None:
            return Advice(*_predict(recording, options))
        return _shared(measured, recording, options)
    finally:
        shown.close()
        if measured is not None:
            measured.close()


# The most ranks of a trial, the bytes per element for each rank and for all ranks together, and the
# fewest bytes of gradients that are tried together.
_TRIED, _BYTES_OF_RANK, _BYTES_OF_ALL, _BATCH = 4, 12, 8, 25 << 20


def _estimate(
    shown: Progress,
    model: torch.nn.Module,
    optimizer: Optional[Any],
    steps: int,
    ranks: int,
    asked: Optional[List[Any]],
    measured: Optional[MeasuredLink],
) -> None:
    """Reports the memory and time that ``advise`` will take on this rank."""
    parameters = [parameter for _, parameter in trainable(model)]
    sizes = [prod(shape_of(parameter)) for parameter in parameters]
    recorded = steps * sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    # The residuals and buckets of the measured exchange.
    exchange = 8 * sum(sizes) if measured else 0
    tried = min(ranks, _TRIED)
    batch = _BATCH // min(4, *(parameter.element_size() for parameter in parameters))
    trial = (_BYTES_OF_RANK * tried + _BYTES_OF_ALL) * min(sum(sizes), max(*sizes, batch) + batch)
    memory = recorded + max(held(model, optimizer) + exchange, trial)
    trials = DEFAULT_TRIALS if asked is None else 1 + len(asked)
    own_cores = cores() // (measured.local_ranks if measured else 1)
    shown.estimate(memory, WARM_UP + TIMED + steps + (2 * (WARM_UP + TIMED) if measured else 0), steps, trials, tried, own_cores)


def _shared(measured: MeasuredLink, recording: Recording, options: Dict[str, Any]) -> Advice:
    """The advice of rank 0 for all ranks. Its error, if there is one, is raised by all."""
    answer: Any = None
    if measured.rank == 0:
        try:
            answer = _predict(recording, options)
        except _core.GradwireError as error:
            answer = str(error)
    answer = json.loads(measured.broadcast(json.dumps(answer)))
    if isinstance(answer, str):
        raise _core.ConfigError(answer)
    return Advice(*answer)


def _predict(recording: Recording, options: Dict[str, Any]) -> Any:
    gradients = [[buffer(values) for values in step] for step in recording.gradients]
    data, text = _core.advice(recording.tensors, gradients, recording.seconds, **options)
    return json.loads(data), text


def _measured_step(recording: Recording, measured: MeasuredLink, process_group: Optional[Any], deadline: float) -> Any:
    """The time and bytes of a step with a real exchange."""
    with TrialExchange(recording.named, process_group, deadline) as trial:
        seconds = recording.seconds_with(trial)
        return trial.spec, measured.ranks, _link(measured), seconds, trial.bytes_up(TIMED)


def _link(measured: MeasuredLink) -> str:
    return f"{measured.bits_per_second / 1e6}mbit"


def _cluster(recording: Recording, measured: Optional[MeasuredLink], synchronization: float) -> Dict[str, float]:
    """The load of this machine's cores, and the cost of messages apart from their bytes.

    The share of the bandwidth that each kind of message reaches holds only on the measured link.
    """
    local = measured.local_ranks if measured else 1
    cluster = {
        "spare_core": float(local * (torch.get_num_threads() + 1) <= cores()),
        "crowding": local / cores(),
        "synchronization": synchronization,
        "staging": recording.staging(),
        "efficiency": 1.0,
        "plain_efficiency": 1.0,
    }
    if measured:
        for prefix, speed in (("", measured.messages), ("plain_", measured.plain)):
            cluster[prefix + "overhead"] = speed.overhead
            cluster[prefix + "start"] = speed.start
            cluster[prefix + "efficiency"] = speed.bits_per_second / measured.bits_per_second
        # Two standard errors of the difference between medians of ten steps, and of the overheads
        # of all messages, which are medians of fifteen. The standard error of a median of n times
        # is about 1.25 * 1.48 / sqrt(n) of their median absolute deviation.
        messages = len(recording.buckets())
        cluster["noise"] = 2.0 * recording.noise + messages * (measured.messages.noise + measured.plain.noise)
    return cluster


def _candidate(model: torch.nn.Module, candidate: Candidate) -> Any:
    if isinstance(candidate, str):
        return candidate, "auto", []
    unknown = not isinstance(candidate, dict) or set(candidate) - {"compressor", "exchange", "rules"}
    if unknown or "compressor" not in candidate:
        raise _core.ConfigError(f"the candidate {candidate!r} must have 'compressor', and may have 'exchange' and 'rules'")
    spec, exchange = candidate["compressor"], candidate.get("exchange", "auto")
    for key, value in (("compressor", spec), ("exchange", exchange)):
        if not isinstance(value, str):
            raise _core.ConfigError(f"{key!r} of the candidate {candidate!r} has the type {type(value).__name__}; give a string")
    options = selected(model, dict(trainable(model)), Options(spec, candidate.get("rules"), exchange))
    return options.compressor, options.exchange, options.rules


def _size(process_group: Optional[Any]) -> int:
    return dist.get_world_size(process_group)


# The most steps that are recorded.
_MOST_STEPS = 1000


def _check(model: Any, steps: int) -> None:
    if whole_number("steps", steps) < 1:
        raise _core.ConfigError(f"steps={steps}: record at least one step")
    if steps > _MOST_STEPS:
        raise _core.ConfigError(f"steps={steps}: record at most {_MOST_STEPS}; a few are enough, and advise keeps the gradients of all")
    check_unwrapped(model)
    check_restorable(model)
    if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        raise _core.ConfigError(f"advise needs PyTorch 2.1 or later, and this is {torch.__version__}")
    check_gradients(model)
