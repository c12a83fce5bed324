//! The assumptions of the simulation, in sentences.

use std::time::Duration;

use gradwire_advice::topology::Picture;

use crate::format::{bytes, seconds};

/// The first paragraph of the page.
pub(super) const INTRODUCTION: &str = "Simulated, not measured: no cluster ran any of these steps. The kernels' speeds were measured on \
    one H200, the host's on one core of a Zen 5, and bytes are those of the messages; machines, links, models and the \
    times of messages between GPUs are stated below. Read a factor as \"about\", and measure before you decide.";

/// The machines, links and model of a picture.
pub(super) fn of(picture: &Picture) -> String {
    let (name, model, milliseconds) = (picture.name, picture.model, 1e3 * picture.step_seconds);
    let micros = |latency: Duration| seconds(latency.as_secs_f64());
    let inside = match picture.sizes.iter().all(|[nodes, _]| *nodes == 1) {
        true => String::new(),
        false => format!(
            "Inside, a rank sends {} GB/s with a latency of {}. ",
            picture.inside / 8e9,
            micros(picture.inside_latency)
        ),
    };
    format!(
        "Assumed: {name}; {model}. {inside}The compared links have a latency of {}. A step without communication takes \
         {milliseconds} ms, two thirds of it the backward pass; gradients are float32 in buckets of {}.",
        micros(picture.latency),
        bytes(4.0 * picture.bucket as f64)
    )
}

/// The assumptions that all pictures share.
pub(super) const LIST: &str = "\
- **Exchanges.** Bytes and latencies are those of [`gradwire_advice::topology`](../../crates/advice/src/topology/mod.rs). \
NCCL gets the benefit of the doubt: its all-reduce reduces inside a node before anything leaves the node, its gathers send \
along a ring, and both wait as a tree. An all-to-all sends each message on its own, from all ranks of a node through its link. On two levels NCCL reduces and gathers \
float32 inside a node, and messages between nodes travel by the host or stay on the GPU; those of local steps travel by the host.
- **Overlap.** Buckets are exchanged one after the other as they become ready, as in `advise`. Kernels delay the backward \
pass by their own time; NCCL's kernels delay nothing, and launches run ahead of the GPU. A round of local steps is hidden by \
nothing.
- **Kernels.** Speeds with 250 million elements, and launches of a million ([measured](../gpu)), of whole tensors: kernels of \
slices, and one launch for the messages of all ranks, are assumed to be as fast. `eden:bits=2` is taken to be as fast as `eden`. \
The kernels of `int4` were not measured; they are taken to be as fast as those of `eden:bits=4` with the transform, and of \
`int8` without it. An RTX 3090 is slower by the ratio of the \
memory's bandwidths, 5.1.
- **Messages.** From GPU to GPU they are forms without lossless codes; by the host they are coded, and a core for each rank \
compresses at the speed of [one core of a Zen 5](../bench), behind copies of the gradients over PCIe. \
With kernels gradwire compresses on the GPU and copies only the messages, so steps by the host are too long here: `eden` took 0.46 ns an \
element in [whole steps](../gpu), here 0.65 and the copies. Bytes are of normally distributed elements; \
a message takes 2 µs between GPUs and 30 µs between hosts apart from its bytes, which are guesses.
- **Errors**, which decide between equally fast compressors, are those of normally distributed elements: independent between ranks, and \
once more for the second compression of a scatter-reduce. With one bit this second error is 0.75 of the mean; its effect on \
training was measured for 4 bits and more only ([runs](../exchange-quality)).
- **Left out.** Compressors that gradwire's measurements doubt with Adam (`3lc`, signs, sparse and low-rank methods), \
slow ranks, congestion between nodes, several links a node other than as their sum, memory, and FSDP2's own traffic inside a \
site.
";
