"""Trains with TRL's GRPOTrainer, and ships each step's weights to vLLM servers as a delta.

    export VLLM_SERVER_DEV_MODE=1
    vllm serve /models/base --worker-extension-cls vllm_receiver.DeltaWorker &
    accelerate launch training.py

training.py calls use_deltas before it makes the trainer:

    trl_trainer.use_deltas("/models/base", "/shared/run7")
    GRPOTrainer("/models/base", ..., args=GRPOConfig(use_vllm=True, vllm_mode="server", ...))

TRL gathers the weights as always, but they reach the server by the folder, not by NCCL: trainer and
server need no common network of GPUs. Written for TRL 1.16.0 and vLLM 0.33.0.
"""

import torch
import trl.generation.vllm_generation as generation
import vllm_receiver
from trl.generation.vllm_client import VLLMClient

import gradwire.delta as delta


class DeltaClient(VLLMClient):
    """Publishes weights in a folder, and tells the server to follow it.

    The class attributes `base` and `folder` are paths that trainer and server share.
    """

    base = folder = None

    def init_communicator(self, device=0):
        """Resumes the folder if it has versions; opens no NCCL group."""
        self.published = delta.Folder(self.folder)
        self.sender = delta.Sender.resume(self.published, self.base)

    def close_communicator(self):
        """There is no NCCL group to close."""

    def update_named_params(self, metadata, named_params):
        """Publishes one version. TRL calls it on the main process, before it generates."""
        frames = self.sender.diff((name, weights.to(torch.bfloat16)) for name, weights in named_params)
        self.published.publish(frames, keep=200, snapshot_every=50)
        self.sender.commit()
        # A server that missed a version or restarted catches up.
        vllm_receiver.follow(self.collective_rpc, self.base, self.folder)

    def collective_rpc(self, method, args=()):
        body = {"method": method, "args": list(args)}
        return self._post(f"{self.base_url}/collective_rpc", json=body)["results"]


def use_deltas(base, folder):
    """Makes every GRPOTrainer of this process ship deltas. `base` is the checkpoint in bfloat16
    with which trainer and server start."""
    DeltaClient.base, DeltaClient.folder = str(base), str(folder)
    generation.VLLMClient = DeltaClient
