"""Trains with TRL's GRPOTrainer, and ships each step's weights to vLLM servers as a delta.

    VLLM_SERVER_DEV_MODE=1 vllm serve BASE --worker-extension-cls vllm_receiver.DeltaWorker &
    BASE=/models/base FOLDER=/shared/run7 accelerate launch my_training.py

my_training.py calls `trl_trainer.use_deltas(base, folder)` before it makes the trainer:

    GRPOTrainer(base, ..., args=GRPOConfig(use_vllm=True, vllm_mode="server", ...))

TRL gathers the weights as always, but they reach the server by the folder, not by NCCL: trainer and
server need no common network of GPUs. Written for TRL 1.16.0 and vLLM 0.33.0.
"""

import torch
import trl.generation.vllm_generation as generation
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
        self.follow()

    def follow(self):
        """Brings the server to the newest version; the receiver counts versions, so a server that
        missed one or restarted catches up."""
        while any(self.call("stage_weights", self.base, self.folder)):
            self.call("commit_weights")

    def call(self, method, *arguments):
        body = {"method": method, "args": list(arguments)}
        return self._post(f"{self.base_url}/collective_rpc", json=body)["results"]


def use_deltas(base, folder):
    """Makes every GRPOTrainer of this process ship deltas. `base` is the checkpoint in bfloat16
    with which trainer and server start."""
    DeltaClient.base, DeltaClient.folder = str(base), str(folder)
    generation.VLLMClient = DeltaClient
