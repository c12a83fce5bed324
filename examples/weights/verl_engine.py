"""A checkpoint engine for verl, which ships weights from actor to rollout workers as deltas.

    actor_rollout_ref.rollout.checkpoint_engine.backend=gradwire
    actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=verl_engine
    +actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs.gradwire.base=/models/base
    +actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs.gradwire.folder=/shared/run7

Actor and rollout share the folder, no network of GPUs. Each rollout worker keeps a copy of the
model in main memory. Written for verl 0.9.1.
"""

import asyncio
from pathlib import Path

import torch
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry

import gradwire.delta as delta


@CheckpointEngineRegistry.register("gradwire")
class DeltaCheckpointEngine(CheckpointEngine):
    """`base` is the checkpoint that the rollout engines load; `rollout_dtype` is its element type.

    verl sets `is_master` on rank 0 of the actor, and `bucket_size`, which deltas do not need.
    """

    def __init__(self, bucket_size, base, folder, rollout_dtype=torch.bfloat16, is_master=False):
        self.base, self.dtype, self.is_master = base, rollout_dtype, is_master
        self.folder = delta.Folder(folder)
        # Names the step of the newest version.
        self.step_file = Path(folder) / "step"
        self.sender = self.receiver = None
        # The names of tensors that changed since the engine last loaded all.
        self.changed = set()

    def prepare(self):
        """Nothing: no buffers are registered with a network."""

    @classmethod
    def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
        """No process group, so no arguments for `init_process_group`."""
        return {}, {}

    def init_process_group(self):
        """Nothing: the folder connects actor and rollout."""

    def finalize(self):
        """verl calls this after all workers have loaded the weights."""
        self.changed.clear()

    async def send_weights(self, weights, global_steps=None):
        """Publishes one version. All ranks iterate, since gathering a weight is collective."""
        if not self.is_master:
            for _ in weights:
                pass
            return None
        if self.sender is None:
            self.sender = delta.Sender.resume(self.folder, self.base)
        frames = self.sender.diff((name, tensor.to(self.dtype)) for name, tensor in weights)
        sent = self.folder.publish(frames, keep=200, snapshot_every=50)
        self.sender.commit()
        self.step_file.with_suffix(".tmp").write_text(str(global_steps))
        self.step_file.with_suffix(".tmp").rename(self.step_file)
        return {"checkpoint_engine/payload_mbytes": sent / (1 << 20)}

    async def receive_weights(self, global_steps=None):
        """Takes all new versions, and yields the tensors that changed; after a failure again. verl
        starts it together with `send_weights`, so it waits for the step to be published."""
        while not self.step_file.exists() or self.step_file.read_text() != str(global_steps):
            await asyncio.sleep(0.05)
        if self.receiver is None:
            self.receiver = delta.Receiver(self.base, threads=8)
        for update in self.receiver.updates(self.folder):
            self.changed.update(name for name, _, _ in update.patches())
            update.commit()
        for name, tensor in self.receiver.tensors():
            if name in self.changed:
                yield name, tensor
