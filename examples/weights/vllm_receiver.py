"""Brings the weights of vLLM engines up to date with a folder of deltas.

    llm = vllm.LLM("/models/base", worker_extension_cls="vllm_receiver.DeltaWorker")
    # Before each batch:
    if vllm_receiver.follow(llm.collective_rpc, "/models/base", "/shared/run7"):
        llm.reset_prefix_cache()

With a server, start `vllm serve /models/base --worker-extension-cls vllm_receiver.DeltaWorker` with
VLLM_SERVER_DEV_MODE=1, and post the same two calls to /collective_rpc; see trl_trainer.py.

Written for vLLM 0.33.0. The model must be loaded as the checkpoint has it: no quantisation at load.
"""

import os

import torch
from vllm.model_executor.model_loader.checkpoint_weight_patch import (
    CheckpointWeightPatch, load_checkpoint_weight_patches,
)

import gradwire.delta as delta

# Where the first worker of a machine leaves a staged update for the others.
STAGED = os.environ.get("GRADWIRE_STAGED", "/dev/shm/gradwire-staged.pt")


class DeltaWorker:
    """Methods that vLLM adds to each worker, by `worker_extension_cls`."""

    def stage_weights(self, base, folder):
        """Decodes and checks the next version while the engine serves, and changes no weight.

        One worker of a machine does it for all, with one copy of the model in main memory. Returns
        the version, or None if the engine has the newest one.
        """
        folder = delta.Folder(folder)
        if self.local_rank or folder.latest is None:
            return None
        if not hasattr(self, "delta_receiver"):
            self.delta_receiver = delta.Receiver(base, threads=8)
        self.delta_update = next(self.delta_receiver.updates(folder), None)
        if self.delta_update is None:
            return None
        torch.save(list(patches(self.delta_update)), STAGED)
        return [self.delta_update.version]

    def commit_weights(self):
        """Writes the staged update into the weights: the pause. Values are absolute, so if a worker
        fails, call it again."""
        staged = [CheckpointWeightPatch(*fields) for fields in torch.load(STAGED)]
        model, device = self.model_runner.model, self.device
        staged = [patch._replace(values=patch.values.to(device)) for patch in staged]
        # vLLM marks unchanged places by NaN, so it takes tensors that have NaN or integers whole.
        sparse = [patch for patch in staged if patch.indices is not None]
        load_checkpoint_weight_patches(model, sparse, validate_unique_indices=False)
        model.load_weights((one.name, one.values.view(one.shape)) for one in staged if one.indices is None)
        if getattr(self, "delta_update", None) is not None:
            # Only now the version advances.
            self.delta_update.commit()
            self.delta_update = None


def patches(update):
    """The fields of a CheckpointWeightPatch for each tensor that changes."""
    for (name, positions, values), (_, whole) in zip(update.patches(), update.tensors(), strict=True):
        if values.is_floating_point() and not values.isnan().any():
            yield name, tuple(whole.shape), values.dtype, values, positions
        else:
            yield name, tuple(whole.shape), values.dtype, whole.flatten(), None


def follow(collective_rpc, base, folder):
    """Brings all workers to the newest version, link by link; also after a restart. Returns the
    version, or None if there was nothing new."""
    version = None
    while any(staged := collective_rpc("stage_weights", args=(base, folder))):
        version = next(one[0] for one in staged if one)
        collective_rpc("commit_weights")
    return version
