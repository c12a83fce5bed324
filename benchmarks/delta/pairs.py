"""Makes pairs of safetensors files: a model before and after an update.

    python benchmarks/delta/pairs.py                    # all pairs: 3 minutes of a core, 3 GB
    python benchmarks/delta/pairs.py minilm-late-1e-6   # one pair

Files go to the folder that GRADWIRE_DELTA_DATA names, or to gradwire/delta in the user's cache.
Seeds are fixed; a pair that exists is kept. The weights are those of models.py:

- minilm-late-R: MiniLM under 50 steps of Adam at rate R on gradients of white noise, float32
  masters, exported to bfloat16; the pair is the last step. The masters begin on MiniLM's float32
  weights, those of minilm-early-R on these weights rounded to bfloat16. minilm-fp8-R are the steps
  of minilm-late-R in float8 e4m3, scaled so that the largest weight of a tensor is 448.
- minilm-all-S: every weight in float32 plus normal noise of standard deviation S, exported to
  bfloat16, as checkpoints of ordinary training; minilm-relative-S: noise of S times the weight.
- gpt-R: a step of AdamW at rate R, of the GPT of benchmarks/tasks.py after 500 steps at 1e-3,
  exported to bfloat16; gpt-float32 the same at 1e-3 in float32. Needs torch and GRADWIRE_DATA.
- large-1e-6: a synthetic decoder of 1 GiB in bfloat16, with one update of Adam.

Checkpoints of reinforcement learning are made by grpo.py.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy

import models
import store

BETAS = 0.9, 0.999
# The standard deviation of Adam's update, as a part of the learning rate, on gradients of white
# noise.
UPDATE = ((1 - BETAS[0]) / (1 + BETAS[0])) ** 0.5


def rounded(weights):
    return {name: ("BF16", store.bfloat16(values)) for name, values in weights.items()}


def exact(weights):
    return {name: ("F32", values.view(numpy.uint32)) for name, values in weights.items()}


def adam(weights, rate, steps, random):
    """The weights before and after the last step of Adam on gradients of white noise."""
    before, after = {}, {}
    for name, values in weights.items():
        values = values.copy()
        mean, square = numpy.zeros_like(values), numpy.zeros_like(values)
        for step in range(1, steps + 1):
            before[name] = values.copy() if step == steps else None
            gradient = random.standard_normal(values.shape, numpy.float32)
            mean += (1 - BETAS[0]) * (gradient - mean)
            square += (1 - BETAS[1]) * (gradient * gradient - square)
            unbiased = numpy.sqrt(square / (1 - BETAS[1] ** step)) + 1e-8
            values -= (rate / (1 - BETAS[0] ** step)) * mean / unbiased
        after[name] = values
    return before, after


def float8(before, after):
    """Both casts to float8 with the scales of the first."""
    old, new = {}, {}
    for name, values in before.items():
        scale = numpy.float32(448 / numpy.abs(values).max())
        old[name] = "F8_E4M3", store.float8(values * scale)
        new[name] = "F8_E4M3", store.float8(after[name] * scale)
    return old, new


def minilm_adam(rate, age):
    weights, random = models.minilm(), numpy.random.default_rng(1)
    if age == "early":
        weights = {name: store.from_bfloat16(store.bfloat16(values)) for name, values in weights.items()}
    before, after = adam(weights, float(rate), 50, random)
    save(f"minilm-{age}-{rate}", rounded(before), rounded(after))
    if age == "late":
        save(f"minilm-fp8-{rate}", *float8(before, after))


def minilm_noise(name, deviation, relative):
    random = numpy.random.default_rng(2)
    weights, after = models.minilm(), {}
    for key, values in weights.items():
        noise = random.standard_normal(values.shape, numpy.float32) * numpy.float32(float(deviation))
        after[key] = values + (noise * values if relative else noise)
    save(name, rounded(weights), rounded(after))


def gpt():
    sys.path.insert(0, str(Path(__file__).parent.parent))
    import torch
    from tasks import TASKS

    torch.manual_seed(0)
    torch.set_num_threads(1)
    task = TASKS["gpt"]()
    model = task.model()
    optimizer = task.optimizer(model)

    def step(at):
        optimizer.zero_grad()
        task.loss(model, 0, at).backward()
        optimizer.step()
        return {name: value.detach().numpy().copy() for name, value in model.named_parameters()}

    for at in range(500):
        before = step(at)
    after = step(500)
    save("gpt-1e-3", rounded(before), rounded(after))
    save("gpt-float32", exact(before), exact(after))
    for group in optimizer.param_groups:
        group["lr"] = 1e-5
    for at in range(501, 520):
        before = step(at)
    save("gpt-1e-5", rounded(before), rounded(step(520)))


def large():
    random = numpy.random.default_rng(3)
    before, after = {}, {}
    for name, values in models.synthetic(1 << 30):
        before[name] = "BF16", store.bfloat16(values)
        values -= 1e-6 * UPDATE * random.standard_normal(values.shape, numpy.float32)
        after[name] = "BF16", store.bfloat16(values)
    save("large-1e-6", before, after)


RATES, DEVIATIONS = ("1e-6", "3e-6"), ("1e-5", "1e-4", "1e-3")
MAKERS = {
    **{f"minilm-early-{rate}": partial(minilm_adam, rate, "early") for rate in RATES},
    **{f"minilm-late-{rate}": partial(minilm_adam, rate, "late") for rate in RATES},
    **{f"minilm-fp8-{rate}": partial(minilm_adam, rate, "late") for rate in RATES},
    **{f"minilm-all-{size}": partial(minilm_noise, f"minilm-all-{size}", size, False) for size in DEVIATIONS},
    "minilm-relative-1e-3": partial(minilm_noise, "minilm-relative-1e-3", "1e-3", True),
    "large-1e-6": large,
    "gpt-1e-3": gpt,
    "gpt-1e-5": gpt,
    "gpt-float32": gpt,
}
# Checkpoints of grpo.py: run, steps before and after.
TRAINED = {
    "grpo-early-1e-6": ("early-1e-6", 24, 25),
    "grpo-early-3e-6": ("early-3e-6", 9, 10),
    "grpo-early-folded": ("early-3e-6", 0, 10),
    "grpo-late-1e-6": ("late-1e-6", 9, 10),
    "grpo-late-folded": ("late-1e-6", 2, 10),
}
NAMES = [*MAKERS, *TRAINED]


def paths(name):
    """The two files of a pair, made or not."""
    if name in TRAINED:
        run, before, after = TRAINED[name]
        return tuple(store.folder() / "grpo" / run / f"{step:02}.safetensors" for step in (before, after))
    return tuple(store.folder() / name / f"{which}.safetensors" for which in ("old", "new"))


def made(name):
    return all(path.exists() for path in paths(name))


def save(name, old, new):
    for path, tensors in zip(paths(name), (old, new)):
        store.write(path, tensors)
    changed = sum(int(numpy.count_nonzero(old[key][1] != new[key][1])) for key in old)
    print(f"{name}: {changed} of {sum(bits.size for _, bits in old.values())} weights changed", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PAIR", help=", ".join(MAKERS))
    parser.add_argument("--list", action="store_true", help="make nothing; print the pairs that exist and their two files")
    arguments = parser.parse_args()
    if arguments.list:
        for name in filter(made, NAMES):
            print(name, *paths(name))
        return
    for name in arguments.names or MAKERS:
        if name not in MAKERS:
            parser.error(f"no pair {name}; there are {', '.join(MAKERS)}")
        if not made(name):
            MAKERS[name]()


if __name__ == "__main__":
    main()
