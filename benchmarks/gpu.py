"""Measures gradwire on a GPU. First it checks whether kernels write the same messages, keep the
same residuals and compute the same sums as the host. Then it measures their speed compared with a
copy, the same for kernels that find changed weights, and whole training steps of two processes on
the GPU. Writes one JSON file, and ends within eight minutes.

    python benchmarks/gpu.py --out results/gpu/NAME.json
    python benchmarks/gpu.py --table results/gpu/NAME.json

With TRITON_INTERPRET=1 and --small it runs on a CPU, to try the script; such times mean nothing.
"""

import argparse
import itertools
import json
import os
import queue
import socket
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import triton

from gradwire import _core
from gradwire._arrays import buffer

SPECS = [
    "none", "fp16", "bf16", "int8", "mxfp8", "mxfp4", "nvfp4", "8bit", "qsgd:s=7", "natural", "terngrad", "signsgd", "signum", "efsignsgd",
    "onebit", "3lc", "eden", "eden:bits=4", "topk", "topk:select=sampled", "gradient-dropping", "dgc", "sgc", "threshold:v=2.5",
    "strom:tau=2.5", "sbc", "dryden", "adacomp", "local-selection", "randomk",
]
# PyTorch's own functions for the same job.
PEERS = {
    "none": torch.Tensor.clone,
    "fp16": torch.Tensor.half,
    "bf16": torch.Tensor.bfloat16,
    "signsgd": torch.Tensor.sign,
    # 1 %, as here.
    "topk": lambda values: values[values.abs().topk(values.numel() // 100, sorted=False).indices],
}
# Compared with the host, but not timed: a memory before a kernel.
COMPARED = [*SPECS, "topk:momentum=0.9"]
# Also compared with 2³⁰ elements, and with a tensor whose first element has an index beyond 32
# bits.
LARGE = ["3lc", "eden", "topk"]
FAR = (1 << 31) + 3
HOOKS = ["eden", "3lc", "int8", "topk", "powersgd"]
# Their messages equal the host's, byte for byte, so runs on device and host must end with the same
# parameters.
EXACT = ["3lc", "int8", "topk"]
# Bytes per second that a process sends in whole steps: 1 Gbit/s, and no limit.
LINKS = {"1gbit": 125e6, "unlimited": float("inf")}
SECONDS = 460
# The part of them for whole steps.
LAST_SECONDS = 180
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


class Clock:
    """The time that is left."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()


class One:
    """A compressor of one tensor on the device. The tensor begins at element ``start`` of its
    arrays."""

    def __init__(self, spec, elements, device, start=0):
        from gradwire.torch.cuda._batch import Batch, Slot
        from gradwire.torch.cuda._config import Config
        from gradwire.torch.cuda.kernels import kernel_and_memory

        self.kernel, self.memory = kernel_and_memory(Config.of(spec, 7, 0, 2))
        self.batch = Batch([Slot("w", (elements,), start, start)], device)
        self.arrays = {name: torch.zeros(start + elements, device=device) for name in self.memory.kept}

    def encode(self, values, step):
        source = self.memory.source(self.batch, values, self.arrays)
        return source, self.kernel.start(self.batch, source, step)()

    def clear_sent(self, source, forms):
        self.kernel.clear_sent(self.batch, forms, source)
        self.memory.clear_sent(self.batch, forms, self.arrays)

    def add(self, forms, out, step, rank=0):
        self.kernel.add(self.batch, forms, out, 0.5, step, rank)

    def moved(self, form):
        """A form given as bytes, on the device."""
        from gradwire.torch.cuda._forms import Forms

        padded = torch.frombuffer(bytearray(form + bytes(4)), dtype=torch.uint8).to(self.batch.device)
        return Forms(padded, self.batch.vector([0]))


def compare(spec, elements, dtype, device, steps=2, start=0):
    """Runs some steps on device and host; returns whether messages, kept arrays and sums have the
    same bits."""
    one, host, packer = One(spec, elements, device, start), _core.Codec(spec, 7, 0, 2), _core.Codec(spec, 7, 0, 2)
    bucket, found = torch.zeros(start + elements, dtype=dtype, device=device), torch.zeros(start + elements, device=device)
    same = {"message": True, "kept": True, "sum": True}
    for step in range(steps):
        bucket[start:] = torch.randn(elements, device=device, generator=torch.Generator(device).manual_seed(step)).to(dtype)
        source, encoded = one.encode(bucket, step)
        first, end = encoded.ranges[0]
        message = packer.pack("w", (elements,), step, encoded.forms.bytes[first:end].cpu().numpy().tobytes())
        values = bucket[start:].cpu()
        form = packer.unpack("w", (elements,), step, 0, message)
        received = one.moved(form)
        one.clear_sent(source, received)
        same["message"] &= message == host.encode("w", (elements,), step, buffer(values, "values"))
        for kind, array in one.arrays.items():
            same["kept"] &= equal(array[start:], torch.frombuffer(bytearray(host.array("w", kind)), dtype=torch.float32))
        expected = torch.zeros(elements)
        one.add(received, found.zero_(), step)
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
    """The GB/s of float32 elements for compressing and for adding a message, with a copy in the
    same minute for comparison."""
    one, values = One(spec, elements, device), torch.randn(elements, device=device)
    out = torch.zeros(elements, device=device)
    copy = seconds_of(lambda: values.clone(), device, repeat)
    step = iter(range(1 << 30))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    encode = seconds_of(lambda: one.encode(values, next(step)), device, repeat)
    _, encoded = one.encode(values, 0)
    add = seconds_of(lambda: one.add(encoded.forms, out, 0), device, repeat)
    rates = {name: 4e-9 * elements / seconds for name, seconds in [("copy", copy), ("encode", encode), ("add", add)]}
    peak = torch.cuda.max_memory_allocated() - before if device.type == "cuda" else None
    if spec in PEERS:
        rates["torch"] = 4e-9 * elements / seconds_of(lambda: PEERS[spec](values), device, repeat)
    named = {f"{name}_gb_per_s": rate for name, rate in rates.items()}
    return {"spec": spec, "elements": elements, **named, "peak_bytes": peak}


def weights(elements, dtype, share, device, repeat):
    """The GB/s of new weights, of an integer type, for finding their changes, with a copy and with
    PyTorch's own functions in the same minute for comparison, and whether the changes are those
    that PyTorch finds."""
    from gradwire.torch.cuda.changes import PART, Changes, ends_of

    generator = torch.Generator(device).manual_seed(1)
    old = torch.randint(0, 100, (elements,), dtype=dtype, device=device, generator=generator)
    new = old ^ (torch.rand(elements, device=device, generator=generator) < share)

    def find(base, weights):
        changes = Changes(base, weights)
        (ends,) = ends_of([changes])
        return changes.advance(ends[-1])

    def peer(base, weights):
        # Of more elements PyTorch finds no positions.
        halves = zip(range(0, elements, 1 << 30), base.split(1 << 30), weights.split(1 << 30))
        positions = torch.cat([(one != other).nonzero().reshape(-1) + at for at, one, other in halves])
        return positions, weights[positions]

    base, (expected, expected_values) = old.clone(), peer(old, new)
    positions, values = find(base, new)
    same = torch.equal(positions, (expected % PART).int()) and torch.equal(values, expected_values) and torch.equal(base, new)
    # The base advances, so the two versions alternate.
    versions = itertools.cycle((old, new))
    works = {"copy": lambda: new.clone(), "changes": lambda: find(base, next(versions)), "torch": lambda: peer(old, new)}
    size = 1e-9 * elements * old.element_size()
    rates = {f"{name}_gb_per_s": size / seconds_of(work, device, repeat) for name, work in works.items()}
    return {"spec": "weights", "elements": elements, "dtype": str(dtype)[6:], "share": share, **rates, "same_changes": same}


def shipping(elements, share, device, threads):
    """The seconds of a whole stream of changed bfloat16 weights, compared on the host and on the
    device."""
    import gradwire.delta as delta

    base = torch.randn(elements, generator=torch.Generator().manual_seed(1)).bfloat16()
    found, streams = {}, []
    for name, device_base in (("host", False), ("device", True)):
        sender, new = delta.Sender({"w": base}, threads=threads, device_base=device_base), base.to(device, copy=True)
        for step in range(2):
            # In the first step the device gets its base.
            chosen = torch.rand(elements, device=device, generator=torch.Generator(device).manual_seed(step)) < share
            new.view(torch.int16)[chosen] ^= 1
            start = time.perf_counter()
            stream = b"".join(sender.diff({"w": new}))
            found[f"{name}_{'first' if step == 0 else 'next'}_s"] = time.perf_counter() - start
            sender.commit()
        streams.append(len(stream))
    return {"spec": "shipping", "elements": elements, "share": share, "threads": threads, **found, "same_changes": len(set(streams)) == 1}


def kernel_times(spec, elements, count, device):
    """The microseconds of each kernel that runs for blocks, with a number of warps."""
    from gradwire.torch.cuda import _launch

    run, found = _launch.run, []
    _launch.run = lambda *arguments, warps=4, **constants: run(*arguments, warps=count, **constants)
    try:
        one, values, out = One(spec, elements, device), torch.randn(elements, device=device), torch.zeros(elements, device=device)
        for _ in range(2):
            # The first run compiles.
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                for step in range(5):
                    _, encoded = one.encode(values, step)
                    one.add(encoded.forms, out, step)
        for event in profile.key_averages():
            if event.key.startswith("_"):
                found.append({"spec": spec, "kernel": event.key, "warps": count, "us": round(event.self_device_time_total / 5, 1)})
    finally:
        _launch.run = run
    return found


def gpt(small):
    """A GPT of bytes with the layers of GPT-2, 86 million parameters, and its context."""
    from gpt import SYMBOLS, Gpt

    context = 16 if small else 1024
    model = Gpt(1, 2, 32, context) if small else Gpt(12, 12, 768, context)
    return model, lambda device: torch.randint(SYMBOLS, (4, context + 1), device=device)


def throttle():
    """Lets a process send a number of bytes a second; returns a function that sets it."""
    from gradwire.torch._channel import Channel

    send, rate = Channel.send, [float("inf")]

    def throttled(self, peer):
        time.sleep(sum(part.numel() for part in self._posting.parts) / rate[0])
        send(self, peer)

    Channel.send = throttled
    return lambda found: rate.__setitem__(0, found)


def steps(rank, port, small, runs, results):
    """One process of some runs, each of some training steps."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    # Gradients must not depend on the run, so runs with the same messages end alike.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    set_rate = throttle()
    for spec, where in runs:
        found = tried(run, spec, where, rank, small, set_rate)
        if rank == 0:
            results.put(found)
    dist.destroy_process_group()


def run(spec, where, rank, small, set_rate):
    """Some steps on each link. ``where`` is "ddp" for DistributedDataParallel alone, which does not
    use these links."""
    import gradwire.torch

    device = torch.device("cpu" if small else "cuda")
    torch.manual_seed(0)
    module, windows = gpt(small)
    model = torch.nn.parallel.DistributedDataParallel(module.to(device))
    handle = None if where == "ddp" else gradwire.torch.register(model, spec, device=where)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    # Ranks have their own batches.
    torch.manual_seed(1 + rank)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    found = {"spec": spec, "device": where}
    for link, rate in LINKS.items():
        set_rate(rate)
        found[f"{link}_step_s"] = statistics.median(timed(model, optimizer, windows, device) for _ in range(2 if small else 5))
    # The parameters are equal on both only if they were trained with the same means.
    digest = sum(int(one.detach().view(torch.int32).sum(dtype=torch.int64)) for one in model.parameters())
    digests = [None, None]
    dist.all_gather_object(digests, digest)
    found.update(same_replicas=digests[0] == digests[1], parameters=digests[0])
    if device.type == "cuda":
        found["peak_bytes"] = torch.cuda.max_memory_allocated()
    if handle is not None:
        stats = handle.stats()
        found.update({name: stats[name] for name in ("bytes_up", "wait_seconds", "compress_seconds", "wire_seconds") if name in stats})
        handle.close()
    return found


def timed(model, optimizer, windows, device):
    """Seconds of a training step."""
    batch = windows(device)
    start = time.perf_counter()
    model(batch).backward()
    optimizer.step()
    optimizer.zero_grad()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def whole_steps(runs, small, clock):
    """The results of some runs of two processes."""
    context = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = context.Queue()
    processes = [context.Process(target=steps, args=(rank, port, small, runs, results), daemon=True) for rank in range(2)]
    for process in processes:
        process.start()
    for spec, where in runs:
        try:
            yield results.get(timeout=max(1.0, clock.left()))
        except queue.Empty:
            # Later runs in the same processes have no result, either.
            yield {"spec": spec, "device": where, "error": f"no result; exit codes {[process.exitcode for process in processes]}"}
    for process in processes:
        process.kill()


def comparisons(small, device, spec):
    """The comparisons of one compressor, in a process of its own."""
    torch.set_num_threads(1)
    sizes = [1000, 5000] if small else [1000, 1 << 20, 25_000_000]
    plan = [(elements, dtype) for elements in sizes for dtype in DTYPES if elements < 10_000_000 or dtype == torch.float32]
    return [tried(compare, spec, elements, dtype, device) for elements, dtype in plan]


def tried(work, spec, *arguments):
    """The result of some work for a compressor, or its error."""
    try:
        return work(spec, *arguments)
    except Exception as error:
        return {"spec": spec, "error": f"{type(error).__name__}: {error}"}


def in_parallel(small, device, clock, kept, jobs):
    """The comparisons of all compressors, until ``kept`` seconds are left. Triton's compiler takes
    most of the time; later parts need not run it again."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
    waiting = [(spec, pool.submit(comparisons, small, device, spec)) for spec in COMPARED]
    for spec, one in waiting:
        found = tried(lambda _: one.result(max(1.0, clock.left() - kept)), spec)
        yield from found if isinstance(found, list) else [found]
    for process in list(pool._processes.values()):
        # A late one would disturb the next measurement.
        process.terminate()
    pool.shutdown(wait=True, cancel_futures=True)


def table(path):
    """Prints a report as tables."""
    report = json.loads(Path(path).read_text())
    rows = {(one["spec"], one["elements"]): one for one in report["speed"] if "error" not in one}
    lengths = sorted({elements for _, elements in rows})[1:]
    print("| compressor |" + "".join(f" compress, {elements // 1_000_000} M | add | PyTorch |" for elements in lengths))
    print("|---|" + "--:|--:|--:|" * len(lengths))
    for spec in SPECS:
        cells = []
        for elements in lengths:
            one = rows.get((spec, elements), {})
            cells += [one.get(f"{name}_gb_per_s") for name in ("encode", "add", "torch")]
        print(f"| `{spec}` | " + " | ".join("–" if cell is None else f"{cell:.0f}" for cell in cells) + " |")
    print("\n| changed weights | elements | type | find, GB/s | PyTorch | copy |\n|--:|--:|---|--:|--:|--:|")
    for one in [one for one in report.get("weights", []) if one["spec"] == "weights" and "error" not in one]:
        rates = " | ".join(f"{one[f'{name}_gb_per_s']:.0f}" for name in ("changes", "torch", "copy"))
        print(f"| {100 * one['share']:g} % | {one['elements']} | {one['dtype']} | {rates} |")
    print("\n| compressor | where | 1 Gbit/s, s | no limit, s | bytes up, MB | GPU memory, GB |\n|---|---|--:|--:|--:|--:|")
    for one in [one for one in report["steps"] if "error" not in one]:
        times = " | ".join(f"{one[f'{link}_step_s']:.2f}" for link in LINKS)
        sent = f"{one['bytes_up'] / 1e6:.1f}" if "bytes_up" in one else "–"
        name = "DistributedDataParallel" if one["device"] == "ddp" else f"`{one['spec']}`"
        print(f"| {name} | {one['device']} | {times} | {sent} | {one['peak_bytes'] / 1e9:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out")
    parser.add_argument("--table", help="print the tables of this report, and measure nothing")
    parser.add_argument("--small", action="store_true", help="few elements, and a CPU where there is no GPU")
    parser.add_argument("--only", choices=["messages", "speed", "weights", "steps", "warps"], help="one part; warps are only measured alone")
    parser.add_argument("--jobs", type=int, default=max(1, min(12, (os.cpu_count() or 1) - 2)), help="processes that compare messages")
    options = parser.parse_args()
    if options.table:
        return table(options.table)
    if not options.out:
        parser.error("give --out")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not (options.small and os.environ.get("TRITON_INTERPRET") == "1"):
        raise SystemExit("there is no GPU; try the script with TRITON_INTERPRET=1 and --small")
    small, clock = options.small, Clock(SECONDS)
    # Whole steps get the last seconds, however long the earlier parts take.
    kept = LAST_SECONDS if options.only is None else 0
    name = torch.cuda.get_device_name() if device.type == "cuda" else "interpreter"
    report = {"device": name, "torch": torch.__version__, "triton": triton.__version__, "messages": [], "speed": [], "weights": [], "steps": [], "left_out": []}

    def add(part, result):
        report[part].append(result)
        Path(options.out).parent.mkdir(parents=True, exist_ok=True)
        Path(options.out).write_text(json.dumps(report, indent=1))

    if options.only in (None, "messages"):
        for result in in_parallel(small, device, clock, kept, options.jobs):
            add("messages", result)
    far, large = (3, 5003) if small else (FAR, (1 << 30) + 3)
    plan = [("messages", (compare, spec, 5003, torch.float32, device, 1, far)) for spec in COMPARED]
    plan += [("messages", (compare, spec, large, torch.float32, device, 1)) for spec in LARGE]
    lengths = [5000] if small else [1 << 20, 25_000_000, 250_000_000]
    plan += [("speed", (speed, spec, n, device, 1 if small else 7)) for n in lengths for spec in SPECS]
    plan += [("weights", (weights, n, torch.int16, share, device, 1 if small else 7)) for n in lengths for share in (0.001, 0.01, 0.1)]
    plan += [("weights", (weights, 5003 if small else FAR, torch.uint8, 1e-4, device, 1))]
    plan += [("weights", (shipping, 100_000 if small else 250_000_000, share, device, 1 if small else 8)) for share in (0.001, 0.01)]
    for part, work in [one for one in plan if options.only in (None, one[0])]:
        if clock.left() < kept:
            report["left_out"].append(f"{part} of {work[1]}")
            continue
        add(part, tried(*work))
    if options.only == "warps":
        plan = [(spec, 5000 if small else 25_000_000, count, device) for spec in SPECS for count in (4, 8, 16, 32)]
        rows = [row for one in plan for row in kernel_times(*one)]
        Path(options.out).write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
        return
    if device.type == "cuda":
        # The processes need the memory of the measurements.
        torch.cuda.empty_cache()
    runs = [("none", "ddp"), *[(spec, where) for where in ("gpu", "host") for spec in HOOKS], ("none", "host")]
    if small:
        runs = [("none", "ddp"), ("3lc", "gpu"), ("3lc", "host"), ("powersgd", "gpu")]
    if options.only in (None, "steps"):
        for result in whole_steps(runs, small, clock):
            add("steps", result)
    compared = report["messages"]
    differ = ", ".join(f"{sum(not one.get(f'same_{what}') for one in compared)} {what}s" for what in ("message", "sum"))
    kept = sum(not one.get("same_kept") for one in compared)
    replicas = sum(one.get("same_replicas") is False for one in report["steps"])
    places = [{one.get("parameters") for one in report["steps"] if one.get("spec") == spec} for spec in EXACT]
    unlike = sum(len(parameters) > 1 for parameters in places)
    print(
        f"{name}: {len(compared)} comparisons; different: {differ}, {kept} residuals or velocities, {replicas} replicas, "
        f"{unlike} runs on device and host; {options.out}"
    )
    failed = [f"{one['spec']}: {one['error']}" for part in ("messages", "speed", "weights", "steps") for one in report[part] if "error" in one]
    if failed:
        raise SystemExit(f"{len(failed)} did not run: {failed[0]}")
    wrong = sum(not one["same_changes"] for one in report["weights"])
    if wrong:
        raise SystemExit(f"the changes of weights differ from PyTorch's in {wrong} comparisons")
    exact = sum(not one.get("same_message") for one in compared if one["spec"] in EXACT)
    if exact or replicas or unlike:
        raise SystemExit(f"different: {exact} messages of exact compressors, {replicas} replicas, {unlike} runs on device and host")
    if report["left_out"]:
        raise SystemExit(f"no time was left for {len(report['left_out'])} measurements; give --only")


if __name__ == "__main__":
    main()
