"""Compression on GPUs, by Triton kernels.

The device makes the dense pass over the tensors, and the host codes and sends. They exchange device
forms; see ``gradwire::device``. The compressors in ``kernels.KERNELS`` have kernels.
``changes`` finds changed weights for ``gradwire.delta``.
"""
