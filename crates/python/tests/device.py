"""Where tests run the kernels for GPUs: on the CPU by Triton's interpreter, or with
TRITON_INTERPRET=0 on a GPU."""

import os

import torch

DEVICE = torch.device("cuda" if os.environ.get("TRITON_INTERPRET") == "0" else "cpu")
