"""The communication hooks that benchmarks compare."""

PYTORCH = ("no hook", "fp16_compress_hook", "powerSGD_hook")
GRADWIRE = ("fp16", "int8", "eden:bits=2", "eden", "3lc", "topk:ratio=0.01", "powersgd:rank=1")
# The default of gradwire.torch.register.
DEFAULT = "eden"
# The uncompressed steps of PyTorch's PowerSGD, as few as it allows.
PLAIN_STEPS = 2
