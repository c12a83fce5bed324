//! Published gains of compression between GPUs, beside simulated ones.

use gradwire_exchange::{Exchange, Link, Result};

use super::hardware::Hardware;
use super::method::Method;
use super::picture::{NODES, PCIE, Picture};
use super::plan::{Levels, Plan, Transport};
use super::simulation::{BUCKET, Simulation, model};

/// A published figure beside a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The publication.
    pub work: &'static str,
    /// What it measured.
    pub figure: &'static str,
    /// What the simulation gives.
    pub simulated: String,
    /// Why they may differ.
    pub difference: &'static str,
}

/// Published figures beside simulated ones. Takes about a second.
///
/// # Errors
/// None with the compressors that it names.
pub fn published() -> Result<Vec<Published>> {
    Ok(vec![cgx()?, loong_forge()?, sharded()?])
}

/// A two-shot exchange between all ranks, on GPUs.
const TWO_SHOT: Plan =
    Plan { exchange: Exchange::ScatterReduce, levels: Levels::Flat, transport: Transport::Device };

fn method(spec: &str) -> Result<Method> {
    Method::of(&spec.parse().expect("it is in the registry"))
}

/// Seconds of a step without compression and with a method by a plan.
fn steps(
    picture: &Picture,
    size: [usize; 2],
    method: &Method,
    plan: Plan,
) -> Vec<(Link, [f64; 2])> {
    let recording = picture.recording();
    let simulation = Simulation::new(&recording, picture.topology(size), picture.hardware);
    let on = |link| {
        let on = simulation.at(simulation.topology.over(link));
        let plain = on.step_seconds(&Method::none(32.0), &Plan::PLAIN);
        (link, [plain, on.step_seconds(method, &plan)])
    };
    picture.compared().into_iter().map(on).collect()
}

fn cgx() -> Result<Published> {
    let four = method("int4:block=1024,ef=off")?;
    let at = steps(&PCIE, [1, 8], &four, TWO_SHOT).into_iter().map(|(link, [plain, seconds])| {
        format!(
            "{:.2} × at {} GB/s ({:.0} % of ideal scaling, none {:.0} %)",
            plain / seconds,
            link.bits_per_second / 8e9,
            100.0 * PCIE.step_seconds / seconds,
            100.0 * PCIE.step_seconds / plain
        )
    });
    let at: Vec<_> = at.collect();
    Ok(Published {
        work: "CGX (Markov et al. 2022, arXiv 2111.08617), 4 bits in buckets of 1024, 8 RTX 3090",
        figure: "1.6 × NCCL with Transformer-XL (ilmarkov.github.io/projects/CGX), up to 2 × and up to 90 % of ideal \
                 scaling (pytorch-cgx.github.io/benchmarks), up to 3 × (the paper's abstract)",
        simulated: format!(
            "`int4:block=1024,ef=off`, as if its kernels were those of `int8`: {}",
            at.join(", ")
        ),
        difference: "The gain follows from the speed of the bus, which is assumed here: 2 × and 90 % mean that NCCL \
                     reached 45 %, as at little more than 5 GB/s. That compression costs a tenth of the step is the only \
                     part that agrees by itself. 3 × needs a slower bus, or a model with more parameters for its \
                     computation; that it was one of these is a guess. CGX also quantizes layers differently, and at random",
    })
}

fn loong_forge() -> Result<Published> {
    // 2 bytes · 2 · 7/8 of the elements at 10 GB/s take 557 ms.
    let parameters = (0.557 * 10e9 / 3.5) as usize;
    let recording = model(parameters, BUCKET, 1.5 * 0.336, 0.336);
    let link = Link { bits_per_second: 80e9, ..PCIE.compared()[0] };
    let topology = PCIE.topology([1, 8]).over(link);
    let simulation = Simulation::new(&recording, topology, Hardware::RTX_3090);
    let (halves, eight) = (method("bf16")?, method("int8")?);
    let bytes = simulation.bytes(&eight, &TWO_SHOT)[0] / simulation.bytes(&halves, &Plan::PLAIN)[0];
    let [before, after] = [(&halves, Plan::PLAIN), (&eight, TWO_SHOT)]
        .map(|(method, plan)| simulation.step_seconds(method, &plan));
    Ok(Published {
        work: "LoongForge PR 223 (2026, github.com/baidu-baige/LoongForge/pull/223), 8-bit floats by all-to-all and all-gather, 8 GPUs without NVLink",
        figure: "the bf16 all-reduce takes 557 ms of a step whose backward pass takes 336 ms; 0.508 of its bytes",
        simulated: format!(
            "`int8` by scatter-reduce instead of bf16, {:.2} billion parameters at 10 GB/s: {bytes:.3} of the bytes, \
             a step of {:.0} instead of {:.0} ms, {:.2} ×",
            parameters as f64 / 1e9,
            1e3 * after,
            1e3 * before,
            before / after
        ),
        difference: "The bytes differ by the scales of blocks, of which `int8` has one a slice. The size of the model, \
                     the GPU and a forward pass of half of the backward pass are guesses; the gain is not compared, \
                     because the PR's was not at hand",
    })
}

fn sharded() -> Result<Published> {
    let four = method("int4:hadamard=on,ef=off")?;
    let two_levels = Plan { levels: Levels::Two, ..TWO_SHOT };
    let at =
        steps(&NODES, [16, 8], &four, two_levels).into_iter().map(|(link, [plain, seconds])| {
            format!("{:.2} × at {} Gbit/s", plain / seconds, link.bits_per_second / 1e9)
        });
    let at: Vec<_> = at.collect();
    Ok(Published {
        work: "ZeRO++ (Wang et al. 2023, arXiv 2306.10209) and SDP4Bit (Jia et al. 2024, arXiv 2410.15526)",
        figure: "up to 2.16 × on 384 GPUs; up to 4.08 × on 128 GPUs",
        simulated: format!(
            "`int4:hadamard=on,ef=off` on two levels, on 128 GPUs in 16 nodes, with messages that stay on the GPU, as if its \
             kernels were those of `eden:bits=4`, gradients only: {}",
            at.join(", ")
        ),
        difference: "Both shard the model and compress weights, too, which is not simulated; their links and models \
                     differ. The figures show the size of gains, and cannot confirm the model",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulation_has_the_bytes_of_the_publications() {
        let all = published().unwrap();
        assert_eq!(all.len(), 3);
        // 557 ms of communication after the forward pass; the last bucket alone is not hidden.
        let loong = &all[1].simulated;
        assert!(loong.contains("0.500 of the bytes"), "{loong}");
        assert!(all[0].simulated.contains(" × at 5 GB/s ("), "{}", all[0].simulated);
        assert!(all[2].simulated.contains(" × at 10 Gbit/s"), "{}", all[2].simulated);
    }
}
