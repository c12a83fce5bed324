import gc
import importlib
import importlib.util
import os
import sys

# One thread for each rank; must be set before torch starts its threads.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
# Kernels for GPUs run on the CPU. Must be set before they are imported.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Some tests run without PyTorch, too.
if importlib.util.find_spec("torch"):
    import torch

    # The first optimizer imports much of torch: here once, not in every rank of every test.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0).step()

if os.environ["TRITON_INTERPRET"] != "0" and importlib.util.find_spec("triton"):
    import interpreter

    interpreter.hasten()


def pytest_collection_modifyitems(items):
    """Starts Ray's example first: it takes longest, and mostly waits, while the other tests run."""
    items.sort(key=lambda item: "_rays_" not in item.name)


def pytest_collection_finish():
    """Imports the kernels for GPUs, which each rank that runs them would import; and keeps garbage
    collectors away from what has been imported: traversing it takes long, and copies the memory of
    ranks."""
    if "triton" in sys.modules:
        for name in ("_exchange", "_node_transport", "_transport"):
            importlib.import_module(f"gradwire.torch.cuda.{name}")
    gc.collect()
    gc.freeze()
