"""Compression on GPUs, by Triton kernels.

The device makes the dense pass over the tensors, the host codes and sends; see ``gradwire::device`` for what they hand each
other. Kernels exist for the compressors in ``kernels.KERNELS``.
"""
