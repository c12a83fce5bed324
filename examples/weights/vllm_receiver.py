"""Brings the weights of vLLM engines up to date with a folder of deltas.

    llm = vllm.LLM("/models/base", worker_extension_cls="vllm_receiver.DeltaWorker")
    # Before each batch:
    if vllm_receiver.follow(llm.collective_rpc, "/models/base", "/shared/run7"):
        llm.reset_prefix_cache()

trl_trainer.py does the same with a server. Written for vLLM 0.33.0. The model must be loaded as the
checkpoint has it: no quantisation at load.
"""

import os
import tempfile

import torch

import gradwire.delta as delta

# Where the first worker of a machine leaves a staged update for the others: in memory.
STAGED = os.environ.get("GRADWIRE_STAGED", "/dev/shm")


class DeltaWorker:
    """Methods that vLLM adds to each worker, by `worker_extension_cls`."""

    def stage_weights(self, base, folder):
        """Decodes and checks the next version while the engine serves, and changes no weight.

        One worker of a machine does it for all, with one copy of the model in main memory. Returns
        the version and a file of patches, or None if the engine has the newest version.
        """
        folder = delta.Folder(folder)
        if self.local_rank or folder.latest is None:
            return None
        if not hasattr(self, "delta_receiver"):
            self.delta_receiver = delta.Receiver(base, threads=8)
            self.delta_directory = tempfile.TemporaryDirectory(dir=STAGED)
        self.delta_update = next(self.delta_receiver.updates(folder), None)
        if self.delta_update is None:
            return None
        file = f"{self.delta_directory.name}/patches.pt"
        torch.save(list(patches(self.delta_update)), file)
        return [self.delta_update.version, file]

    def commit_weights(self, files):
        """Writes the staged update into the weights: the pause. `files` are of all machines."""
        from vllm.model_executor.model_loader import checkpoint_weight_patch as loader

        model, device = self.model_runner.model, self.device
        (file,) = filter(os.path.exists, files)
        staged = [loader.CheckpointWeightPatch(*fields) for fields in torch.load(file, map_location=device)]
        # vLLM marks unchanged places by NaN, so it takes tensors that have NaN or integers whole.
        sparse = [patch for patch in staged if patch.indices is not None]
        loader.load_checkpoint_weight_patches(model, sparse, validate_unique_indices=False)
        model.load_weights((one.name, one.values.view(one.shape)) for one in staged if one.indices is None)

    def advance_weights(self):
        """All workers have the new weights: only now the version advances."""
        if getattr(self, "delta_update", None) is not None:
            self.delta_update.commit()


def patches(update):
    """The fields of a CheckpointWeightPatch for each tensor that changes."""
    for (name, positions, values), (_, whole) in zip(update.patches(), update.tensors(), strict=True):
        is_sparse = values.is_floating_point() and not values.isnan().any()
        content = (values, positions) if is_sparse else (whole.flatten(), None)
        yield name, tuple(whole.shape), whole.dtype, *content


def follow(collective_rpc, base, folder):
    """Brings all workers to the newest version, link by link; also after a restart, or if a worker
    failed: values are absolute. Returns the version, or None if there was nothing new."""
    version = None
    while staged := [one for one in collective_rpc("stage_weights", args=(base, folder)) if one]:
        version = staged[0][0]
        collective_rpc("commit_weights", args=([file for _, file in staged],))
        collective_rpc("advance_weights")
    return version
