"""The communication hooks and the kinds of local steps that benchmarks compare."""

PYTORCH = ("no hook", "fp16_compress_hook", "powerSGD_hook")
GRADWIRE = ("fp16", "int8", "eden:bits=2", "eden", "3lc", "topk:ratio=0.01", "powersgd:rank=1")
# The default of gradwire.torch.register.
DEFAULT = "eden"
# The uncompressed first steps of PyTorch's PowerSGD, as few as it allows.
PLAIN_STEPS = 2
# Local steps: the exchange, and the number of steps. PyTorch averages the parameters; gradwire
# compresses their change and takes an outer Nesterov step.
PYTORCH_LOCAL, GRADWIRE_LOCAL = "post-local SGD, 10 steps", "eden, 10 local steps"
LOCAL = {PYTORCH_LOCAL: 10, GRADWIRE_LOCAL: 10}
