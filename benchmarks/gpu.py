"""Measures gradwire on a GPU, in this order: whether kernels write the host's messages, keep the host's residuals and add as the
host does; how fast they are beside a copy; and whole training steps of two processes on the GPU. Writes one JSON file, and ends
within eight minutes.

    python benchmarks/gpu.py --out results/gpu/NAME.json

With TRITON_INTERPRET=1 and --small it runs on a CPU, to try the script; such times mean nothing.
"""

import argparse
import json
import os
import socket
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from gradwire import _core
from gradwire._arrays import buffer

SPECS = [
    "none", "fp16", "bf16", "int8", "8bit", "qsgd:s=7", "natural", "terngrad", "signsgd", "signum", "efsignsgd", "onebit", "3lc",
    "eden", "eden:bits=4", "topk", "topk:select=sampled", "gradient-dropping", "dgc", "sgc", "threshold:v=2.5", "strom:tau=2.5", "sbc",
    "dryden", "adacomp", "local-selection", "randomk",
]
# Compared, but not timed: a memory in front of a kernel.
COMPARED = [*SPECS, "topk:momentum=0.9"]
# Compared with 2³⁰ elements, too, and where a tensor begins at an element that 32 bits do not reach.
LARGE = ["3lc", "eden", "topk"]
FAR = (1 << 31) + 3
HOOKS = ["eden", "3lc", "int8", "topk", "powersgd"]
# Those whose messages are the host's, byte for byte, so that runs on device and host must end with the same parameters.
EXACT = ["3lc", "int8", "topk"]
# Bytes a second that a process sends in whole steps: 1 Gbit/s.
LINK = 125e6
SECONDS = 460


class Clock:
    """The time that is left."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()


class One:
    """A compressor of one tensor on the device, whose first element is at ``start`` of its arrays."""

    def __init__(self, spec, elements, device, start=0):
        from gradwire.torch.cuda._batch import Batch, Slot
        from gradwire.torch.cuda._config import Config
        from gradwire.torch.cuda.kernels import kernel_and_memory

        self.kernel, self.memory = kernel_and_memory(Config.of(spec, 7, 0, 2))
        self.batch = Batch([Slot("w", (elements,), start, start)], device)
        self.arrays = {name: torch.zeros(start + elements, device=device) for name in self.memory.kept}

    def encode(self, values, step):
        source, found = self.memory.source(self.batch, values, self.arrays)
        forms = self.kernel.start(self.batch, source, found, step)()
        return source, forms

    def clear_sent(self, source, forms):
        at = self.batch.vector([0])
        self.kernel.clear_sent(self.batch, forms, at, source)
        self.memory.clear_sent(self.batch, forms, at, self.arrays)

    def add(self, form, out, step, rank=0):
        self.kernel.add(self.batch, form, self.batch.vector([0]), out, 0.5, step, rank)


def on_device(form, device):
    return torch.frombuffer(bytearray(form + bytes(4)), dtype=torch.uint8).to(device)


def compare(spec, elements, dtype, device, steps=2, start=0):
    """Some steps on device and host: whether messages, what is kept, and sums have the same bits."""
    from gradwire.torch.cuda._kernel import Forms

    one, host, packer = One(spec, elements, device, start), _core.Codec(spec, 7, 0, 2), _core.Codec(spec, 7, 0, 2)
    bucket, found = torch.zeros(start + elements, dtype=dtype, device=device), torch.zeros(start + elements, device=device)
    same = {"message": True, "kept": True, "sum": True}
    for step in range(steps):
        bucket[start:] = torch.randn(elements, device=device, generator=torch.Generator(device).manual_seed(step)).to(dtype)
        source, forms = one.encode(bucket, step)
        first, end = forms.ranges[0]
        message = packer.pack("w", (elements,), step, forms.bytes[first:end].cpu().numpy().tobytes())
        form = packer.unpack("w", (elements,), step, 0, message)
        one.clear_sent(source, Forms(on_device(form, device), [(0, len(form))]))
        same["message"] &= message == host.encode("w", (elements,), step, buffer(bucket[start:].cpu(), "values"))
        for kind, array in one.arrays.items():
            same["kept"] &= equal(array[start:], torch.frombuffer(bytearray(host.array("w", kind)), dtype=torch.float32))
        expected = torch.zeros(elements)
        one.add(on_device(form, device), found.zero_(), step)
        host.decode_add("w", (elements,), step, 0, message, 0.5, buffer(expected, "sum"))
        same["sum"] &= equal(found[start:], expected)
    results = {f"same_{what}": value for what, value in same.items()}
    return {"spec": spec, "elements": elements, "start": start, "dtype": str(dtype)[6:], **results}


def equal(found, expected):
    """Whether numbers have the same bits."""
    return bool((found.cpu().view(torch.int32) == expected.view(torch.int32)).all())


def seconds_of(work, device, repeat):
    """The median time of some work on the device."""
    times = []
    for _ in range(repeat + 2):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def speed(spec, elements, device, repeat):
    """GB/s of float32 elements of compression and of adding a message, beside a copy in the same minute."""
    one, values = One(spec, elements, device), torch.randn(elements, device=device)
    out = torch.zeros(elements, device=device)
    copy = seconds_of(lambda: values.clone(), device, repeat)
    step = iter(range(1 << 30))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    encode = seconds_of(lambda: one.encode(values, next(step)), device, repeat)
    _, forms = one.encode(values, 0)
    add = seconds_of(lambda: one.add(forms.bytes, out, 0), device, repeat)
    rates = {name: 4e-9 * elements / seconds for name, seconds in [("copy", copy), ("encode", encode), ("add", add)]}
    peak = torch.cuda.max_memory_allocated() - before if device.type == "cuda" else None
    named = {f"{name}_gb_per_s": rate for name, rate in rates.items()}
    return {"spec": spec, "elements": elements, **named, "peak_bytes": peak}


def gpt(small):
    """A GPT of bytes with the layers of GPT-2, 86 million parameters, and its context."""
    from gpt import SYMBOLS, Gpt

    context = 16 if small else 1024
    model = Gpt(1, 2, 32, context) if small else Gpt(12, 12, 768, context)
    return model, lambda device: torch.randint(SYMBOLS, (4, context + 1), device=device)


def throttle():
    """Lets a process send ``LINK`` bytes a second."""
    from gradwire.torch._channel import Channel

    send = Channel.send

    def throttled(self, peer):
        time.sleep(sum(part.numel() for part in self._posting.parts) / LINK)
        send(self, peer)

    Channel.send = throttled


def steps(rank, port, small, spec, where, results):
    """One process of a run of some training steps."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    device = torch.device("cpu" if small else "cuda")
    import gradwire.torch

    torch.manual_seed(0)
    throttle()
    module, windows = gpt(small)
    model = torch.nn.parallel.DistributedDataParallel(module.to(device))
    handle = gradwire.torch.register(model, spec, device=where)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    # Ranks have batches of their own.
    torch.manual_seed(1 + rank)
    times = []
    for _ in range(3 if small else 8):
        batch = windows(device)
        start = time.perf_counter()
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    # Only parameters that have learnt from the same means are the same on both.
    digest = sum(int(one.detach().view(torch.int32).sum(dtype=torch.int64)) for one in model.parameters())
    digests = [None, None]
    dist.all_gather_object(digests, digest)
    if rank == 0:
        peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
        stats = handle.stats()
        results.put({
            "spec": spec,
            "device": where,
            "step_s": statistics.median(times[len(times) // 2:]),
            "peak_bytes": peak,
            "same_replicas": digests[0] == digests[1],
            "parameters": digests[0],
            **{name: stats[name] for name in ("bytes_up", "wait_seconds", "compress_seconds", "wire_seconds") if name in stats},
        })
    dist.destroy_process_group()


def whole_step(small, spec, where, clock):
    context = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = context.SimpleQueue()
    processes = [context.Process(target=steps, args=(rank, port, small, spec, where, results)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(max(1.0, clock.left()))
    if any(process.exitcode != 0 for process in processes):
        for process in processes:
            process.kill()
        return {"spec": spec, "device": where, "error": [process.exitcode for process in processes]}
    return results.get()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--small", action="store_true", help="few elements, and a CPU where there is no GPU")
    parser.add_argument("--only", choices=["messages", "speed", "steps"], help="one part")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not (options.small and os.environ.get("TRITON_INTERPRET") == "1"):
        raise SystemExit("there is no GPU; try the script with TRITON_INTERPRET=1 and --small")
    small, clock = options.small, Clock(SECONDS)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "interpreter"
    report = {"device": name, "torch": torch.__version__, "messages": [], "speed": [], "steps": [], "left_out": []}
    sizes = [1000, 5000] if small else [1000, 1 << 20, 25_000_000]
    plan = [("messages", lambda c=c, d=d: compare(*c, d, device)) for c in [(s, n) for n in sizes for s in COMPARED]
            for d in ([torch.float32, torch.float16, torch.bfloat16] if c[1] < 10_000_000 else [torch.float32])]
    far = 3 if small else FAR
    plan += [("messages", lambda s=s: compare(s, 5003, torch.float32, device, 1, far)) for s in COMPARED]
    plan += [("messages", lambda s=s: compare(s, 5003 if small else (1 << 30) + 3, torch.float32, device, 1)) for s in LARGE]
    lengths = [5000] if small else [1 << 20, 25_000_000, 250_000_000]
    plan += [("speed", lambda s=s, n=n: speed(s, n, device, 1 if small else 7)) for n in lengths for s in SPECS]
    runs = [("none", "host")] + [(spec, where) for spec in HOOKS for where in ("gpu", "host")]
    if small:
        runs = [("3lc", "gpu"), ("3lc", "host"), ("powersgd", "gpu")]
    plan += [("steps", lambda s=s, w=w: whole_step(small, s, w, clock)) for s, w in runs]
    for part, work in [one for one in plan if options.only in (None, one[0])]:
        if part == "steps" and device.type == "cuda":
            # The processes need what was measured with.
            torch.cuda.empty_cache()
        # Whole steps get the last three minutes, whatever the parts before them take.
        if clock.left() < (180 if part != "steps" else 45):
            report["left_out"].append(part)
            continue
        try:
            report[part].append(work())
        except Exception as error:
            report[part].append({"error": f"{type(error).__name__}: {error}"})
        Path(options.out).parent.mkdir(parents=True, exist_ok=True)
        Path(options.out).write_text(json.dumps(report, indent=1))
    compared = report["messages"]
    differ = ", ".join(f"{sum(not one.get(f'same_{what}') for one in compared)} {what}s" for what in ("message", "sum"))
    kept = sum(not one.get("same_kept") for one in compared)
    replicas = sum(one.get("same_replicas") is False for one in report["steps"])
    places = [{one.get("parameters") for one in report["steps"] if one.get("spec") == spec} for spec in EXACT]
    runs = sum(len(parameters) > 1 for parameters in places)
    print(
        f"{name}: {len(compared)} comparisons; different: {differ}, {kept} residuals or velocities, {replicas} replicas, "
        f"{runs} runs on device and host; {options.out}"
    )
    failed = [one["error"] for part in ("messages", "speed", "steps") for one in report[part] if "error" in one]
    if failed:
        raise SystemExit(f"{len(failed)} did not run: {failed[0]}")
    exact = sum(not one.get("same_message") for one in compared if one["spec"] in EXACT)
    if exact or replicas or runs:
        raise SystemExit(f"different: {exact} messages of exact compressors, {replicas} replicas, {runs} runs on device and host")
    if report["left_out"]:
        raise SystemExit(f"no time was left for {len(report['left_out'])} parts; give --only")


if __name__ == "__main__":
    main()
