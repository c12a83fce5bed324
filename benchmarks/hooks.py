"""The communication hooks, and the kinds of local steps, that benchmarks compare."""

PYTORCH = ("no hook", "fp16_compress_hook", "powerSGD_hook")
GRADWIRE = ("fp16", "int8", "eden:bits=2", "eden", "3lc", "topk:ratio=0.01", "powersgd:rank=1")
# The default of gradwire.torch.register.
DEFAULT = "eden"
# The uncompressed steps of PyTorch's PowerSGD, as few as it allows.
PLAIN_STEPS = 2
# Local steps between two exchanges. The first name is PyTorch's averaging of parameters, without compression.
LOCAL = {"post-local SGD, 10": 10, "eden, 10 local": 10, "eden, 5 local": 5, "eden:bits=2, 10 local": 10, "eden, 10 local, outer": 10}
