"""Two hooks for slime, which ship the checkpoint of each step to other clusters as a delta.

    export GRADWIRE_BASE=/models/base GRADWIRE_FOLDER=/shared/run7 PYTHONPATH=examples/weights
    ... --hf-checkpoint /models/base --update-weight-mode full --update-weight-transport disk \
        --update-weight-disk-dir /local/steps --update-weight-local-checkpoint-dir /local/engine \
        --custom-update-weight-post-write-path slime_hooks.publish \
        --sglang-custom-pull-weights-pre-read-hook slime_hooks.fetch

The trainer writes a whole checkpoint to its own disk, and `publish` a delta to the shared folder.
On an engine's machine `fetch` makes the checkpoint of the base, the newest snapshot and the deltas
after it, and slime loads this as always. So only the folder is shared. Written for slime at commit
624b824 with its patch of SGLang.
"""

import fcntl
import os
import shutil
from pathlib import Path

import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file

import gradwire.delta as delta

BASE, FOLDER = os.environ["GRADWIRE_BASE"], os.environ["GRADWIRE_FOLDER"]
senders = []


def publish(args, version_dir, rollout_engines):
    """slime calls this on each rank of the trainer after the checkpoint is written."""
    if dist.get_rank() != 0:
        return
    folder = delta.Folder(FOLDER)
    if not senders:
        senders.append(delta.Sender.resume(folder, BASE))
    (sender,) = senders
    folder.publish(sender.diff(tensors(version_dir)), keep=200, snapshot_every=50)
    sender.commit()


def tensors(checkpoint):
    """Pairs of name and tensor, one in memory at a time."""
    for path in sorted(Path(checkpoint).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                yield name, file.get_tensor(name)


def fetch(source_dir, target_version):
    """SGLang calls this in each rank of a machine before it copies the checkpoint of a version."""
    steps = Path(source_dir)
    steps.mkdir(parents=True, exist_ok=True)
    target = steps / f"weight_v{target_version:06d}"
    with open(steps / "lock", "w") as lock:
        # The first rank does the work for all.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():
            return
        receiver = delta.Receiver(BASE, threads=8)
        receiver.follow(delta.Folder(FOLDER))
        incomplete = steps / "incomplete"
        shutil.rmtree(incomplete, ignore_errors=True)
        shutil.copytree(BASE, incomplete, ignore=shutil.ignore_patterns("*.safetensors*"))
        save_file(dict(receiver.tensors()), incomplete / "model.safetensors", {"format": "pt"})
        for old in steps.glob("weight_v*"):
            shutil.rmtree(old)
        incomplete.rename(target)
