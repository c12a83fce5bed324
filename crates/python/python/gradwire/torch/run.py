"""Starts a training script with compressed gradients, without a change of the script::

    torchrun --nproc-per-node 2 -m gradwire.torch.run --compressor eden train.py --epochs 3

Every DistributedDataParallel model of the script is registered, as by ``gradwire.torch.register``,
when its first training step begins. A ``GradScaler`` that the script has made by then is passed
on. Communication hooks that the script registers itself are replaced. Rank 0 says on standard error
what was replaced. With ``--state FOLDER`` residuals continue from one run of the script to the
next.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import weakref
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .. import _core
from . import _state_files
from ._hook import Hook, hook
from ._mid_step import state_or_nothing
from ._register import register

# Errors of this module name it.
_NAME = "gradwire.torch.run"


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Runs a script with the arguments of this process, or with ``arguments``."""
    options = vars(_parser().parse_args(arguments))
    script, is_module, rest = options.pop("script"), options.pop("module"), options.pop("arguments")
    options["rules"], state = options["rules"] or None, options.pop("state")
    with _replacing(options, state) as replacement:
        try:
            _execute(script, is_module, rest)
        except SystemExit as end:
            if end.code in (None, 0):
                replacement.end()
            raise
        replacement.end()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {_NAME}",
        description="Starts a training script whose DistributedDataParallel models exchange compressed gradients.",
        epilog=f"example: torchrun --nproc-per-node 2 -m {_NAME} --compressor eden train.py --epochs 3",
    )
    add = parser.add_argument
    add("--compressor", default="eden", metavar="SPEC", help="a compressor such as eden:bits=2, or a schedule (default: eden)")
    add("--rule", dest="rules", action="append", default=[], metavar="TENSORS -> SPEC", help="another compressor for some tensors; repeatable")
    add("--exchange", default="auto", help="all-gather, scatter-reduce, all-reduce or auto (default: auto)")
    add("--seed", type=int, default=0, help="the seed of random draws (default: 0)")
    add("--deadline", type=float, default=300.0, metavar="SECONDS", help="the longest wait for another rank (default: 300)")
    add("--device", default="auto", help="where gradients on a GPU are compressed: host, gpu or auto (default: auto)")
    add("--transport", default="auto", help="how messages travel: host, device or auto (default: auto)")
    add("--threads", type=int, default=1, metavar="N", help="threads of the host that compress (default: 1)")
    add("--nodes", type=_nodes, metavar="N|auto", help="two levels: the number of nodes, or auto (default: one level)")
    add("--total-steps", type=int, metavar="N", help="the steps of the run, for schedules with fractions of it")
    add(
        "--state",
        type=Path,
        metavar="FOLDER",
        help="begin with the residuals in this folder, if it has any, and write them there when the script ends without an error",
    )
    add("-m", "--module", action="store_true", help="the script is the name of a module")
    add("script", help="the training script")
    add("arguments", nargs=argparse.REMAINDER, help="the arguments of the script")
    return parser


def _nodes(text: str) -> Any:
    if text != "auto" and not text.isdecimal():
        raise argparse.ArgumentTypeError("give a number of nodes, or auto")
    return text if text == "auto" else int(text)


def _execute(script: str, is_module: bool, arguments: Sequence[str]) -> None:
    """Runs the script as Python would."""
    sys.argv = [script, *arguments]
    if is_module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
        return
    if not Path(script).is_file():
        raise SystemExit(f"{_NAME}: there is no script {script}")
    # Scripts import modules of their own folder.
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


class _Replacement:
    """What takes the place of averages in the models of a script."""

    def __init__(self, options: Dict[str, Any], state: Optional[Path]) -> None:
        self._options = options
        self._state = state
        self._handles: List[Hook] = []
        # A script may destroy its process group before it ends.
        self._rank, self._ranks = 0, 1
        self._is_alone, self._registers_itself = False, False
        self.scalers: weakref.WeakSet[Any] = weakref.WeakSet()
        # The names of models that have run in eval mode only.
        self.evaluated: Set[str] = set()

    def attach(self, model: DistributedDataParallel, replaced: List[str]) -> None:
        """Registers a model, whose own hooks were ``replaced``."""
        self.evaluated.discard(type(model.module).__name__)
        if any(each is hook for each, _ in getattr(model, "_comm_hooks", ())):
            self._registers_itself = True
            _say("the script registers its model with gradwire itself; nothing was replaced")
        elif dist.get_world_size(model.process_group) == 1:
            self._is_alone = True
        else:
            handle = register(model, **self._options, **self._scaling())
            self._handles.append(handle)
            plan = handle.describe()
            instead = " and ".join([*replaced, "the all-reduce of DistributedDataParallel"])
            _say(
                f"{type(model.module).__name__} exchanges gradients by {plan.exchange} with {self._options['compressor']}, expected ratio "
                f"{plan.expected_ratio:.1f}, instead of {instead}"
            )
            self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
            if self._state is not None:
                folder = _folder(self._state, len(self._handles) - 1)
                self._restore(handle, folder, dist.get_world_size(model.process_group))

    def _restore(self, handle: Hook, folder: Path, size: int) -> None:
        """Loads the state of a model that ``size`` ranks train, if an earlier run has saved one."""
        if handle._load_with(partial(_state_files.read, folder, self._rank, size)):
            _say(f"continues at step {handle.step} with the state in {folder}")
        else:
            _say(f"begins without residuals, because {folder} has no complete state")

    def _scaling(self) -> Dict[str, Any]:
        """The arguments of ``register`` for the script's ``GradScaler``, if it has one."""
        enabled = [scaler for scaler in self.scalers if scaler.is_enabled()]
        if len(enabled) > 1:
            raise _core.ConfigError(
                f"the script has {len(enabled)} GradScalers, and {_NAME} cannot tell which one scales the model's gradients; call "
                "gradwire.torch.register(model, scaler=...) in the script"
            )
        return {"scaler": enabled[0], "on_nonfinite": "skip"} if enabled else {}

    def end(self) -> None:
        """Says at the end what was sent, and saves the states of the models."""
        self._report()
        if self._state is None:
            return
        for at, handle in enumerate(self._handles):
            folder = _folder(self._state, at)
            state = state_or_nothing(handle.state_dict)
            _state_files.write(folder, self._rank, state)
            # One rank of each node, whose disks may be their own.
            if int(os.environ.get("LOCAL_RANK", self._rank)) == 0:
                _state_files.remove_stale(folder, self._ranks)
            if state:
                _say(f"saved the state after step {state['step']} in {folder}")

    def _report(self) -> None:
        for handle in self._handles:
            stats = handle.stats()
            sent = stats["total_bytes_up"] / 1e6
            _say(f"{stats['total_steps']} steps, rank 0 sent {sent:.3g} MB, ratio {stats['ratio'] or 0:.1f} in the last step")
        for name in sorted(self.evaluated):
            _say(f"{name} ran in eval mode only, so it was left as it is; if the script trains it like this, call gradwire.torch.register there")
        if self._handles or self._registers_itself:
            return
        if self._is_alone:
            _say("nothing was compressed, because only a single process trains; start several, for example with torchrun")
        else:
            _say("nothing was compressed, because no DistributedDataParallel of this process began a training step")


def _folder(state: Path, at: int) -> Path:
    """The folder of the state of one of the script's models, in the order of their first training
    steps."""
    return state / f"model{at}"


class _Pending:
    """A model before its first training step."""

    def __init__(self, replacement: _Replacement, model: DistributedDataParallel) -> None:
        self._replacement = replacement
        self.replaced: List[str] = []
        # A compiler must not trace it: it makes process groups.
        self._hook = model.register_forward_pre_hook(torch.compiler.disable(self._begin))

    def _begin(self, model: DistributedDataParallel, _: Any) -> None:
        # One rank alone may evaluate a model.
        if model.training and torch.is_grad_enabled():
            self._replacement.attach(model, self.replaced)
            self._hook.remove()
        elif torch.is_grad_enabled():
            self._replacement.evaluated.add(type(model.module).__name__)


@contextmanager
def _replacing(options: Dict[str, Any], state: Optional[Path]) -> Iterator[_Replacement]:
    """Replaces the averages of the DistributedDataParallel models that are made meanwhile."""
    replacement = _Replacement(options, state)
    pending: weakref.WeakKeyDictionary[Any, _Pending] = weakref.WeakKeyDictionary()

    def making(make: Callable[..., None]) -> Callable[..., None]:
        @wraps(make)
        def make_and_follow(model: DistributedDataParallel, *arguments: Any, **named: Any) -> None:
            make(model, *arguments, **named)
            pending[model] = _Pending(replacement, model)

        return make_and_follow

    def registering(register_hook: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(register_hook)
        def register_or_replace(model: DistributedDataParallel, *arguments: Any, **named: Any) -> Any:
            # The last argument of both methods, called `hook` by one of them.
            given = named.get("hook", [*arguments, *named.values()][-1])
            if given is hook or model not in pending:
                return register_hook(model, *arguments, **named)
            pending[model].replaced.append(f"the hook {getattr(given, '__name__', given)}")
            return None

        return register_or_replace

    def noting(make: Callable[..., None]) -> Callable[..., None]:
        @wraps(make)
        def make_and_note(scaler: Any, *arguments: Any, **named: Any) -> None:
            make(scaler, *arguments, **named)
            replacement.scalers.add(scaler)

        return make_and_note

    replaced = [
        (DistributedDataParallel, "__init__", making),
        (DistributedDataParallel, "register_comm_hook", registering),
        (DistributedDataParallel, "_register_builtin_comm_hook", registering),
        (_scaler_class(), "__init__", noting),
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, wrap in replaced:
        setattr(owner, name, wrap(getattr(owner, name)))
    try:
        yield replacement
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _scaler_class() -> Any:
    """The base class of all ``GradScaler``; before PyTorch 2.3 it is for GPUs alone."""
    return getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)


def _say(text: str) -> None:
    """Writes a line on rank 0."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_rank() == 0:
        if os.environ.get("RANK", "0") == "0":
            print(f"{_NAME}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
