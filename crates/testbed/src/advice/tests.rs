use std::ops::ControlFlow;

use gradwire::{Floats, Rng, Tensor};
use gradwire_advice::topology::{BUCKET, Comparison, Hardware, Method, Simulation, Topology};
use gradwire_advice::topology::{advise_topology, model};
use gradwire_advice::{Candidate, Cluster, OptimizerFamily, Recording, Situation, advise};
use gradwire_exchange::Link;

use super::nodes::shown_between_nodes;
use super::*;

/// Advice for two ranks with a model of two tensors, at 1 Mbit/s with a latency and at 100 Gbit/s.
fn advice() -> Advice {
    let tensors = vec![Tensor::new("weight", &[512, 512]), Tensor::new("bias", &[512])];
    let mut rng = Rng::new(0, 0, 0, 0, 0);
    let mut drawn =
        |tensor: &Tensor| -> Vec<f32> { (0..tensor.elements()).map(|_| rng.normal()).collect() };
    let gradients: Vec<Vec<f32>> = tensors.iter().map(&mut drawn).collect();
    let gradients = vec![gradients.iter().map(|values| Floats::F32(values)).collect()];
    let recording = Recording::untimed(tensors, gradients, 0.1, 0.0);
    let slow = Link { latency: Duration::from_micros(1500), ..Link::mbit(1.0) };
    let links = [slow, Link::mbit(100_000.0)];
    let candidates = ["fp16", "3lc", "eden:every=10"].map(|s| Candidate::new(s.parse().unwrap()));
    let at = Situation {
        recording: &recording,
        cluster: Cluster::of(2),
        optimizer: OptimizerFamily::Adaptive,
        links: &links,
        measured: None,
    };
    advise(&at, &candidates, &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn the_text_says_what_to_do_on_each_link() {
    let advice = advice();
    let shown = shown(&advice);
    let line =
        |start: &str| shown.conclusions.lines().find(|line| line.starts_with(start)).unwrap();
    assert!(line("At 1 Mbit/s with 1.5ms latency:").contains("fp16 (1.9"), "{shown:?}");
    assert!(line("At 1 Mbit/s").contains("local steps, eden:every=10"), "{shown:?}");
    assert!(line("Compression of gradients pays below").contains(" with 1.5ms latency,"));
    assert_eq!(line("At 100 Gbit/s"), "At 100 Gbit/s: do not compress");
    let gains = line("At 1 Mbit/s with 1.5ms latency, 1 of 2 tensors");
    assert!(gains.contains("from fp16") && gains.contains("0.19 %"), "{gains}");
    assert!(line("- 3lc").contains("Adam"));
    let row = &shown.table.rows[2];
    assert_eq!([&*row[0], &*row[1]], ["3lc *", "all-gather"]);
    // 262 144 elements of two bytes, 512 of four, and headers.
    assert_eq!(shown.table.rows[1][2], "526 kB");
    let text = shown.text(80);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("Not shown, for lack of width: sent per step"), "{text}");
}

#[test]
fn programs_get_a_line_for_each_candidate_and_link() {
    let advice = advice();
    let lines = lines(&advice);
    assert_eq!(lines.len(), 4 * 2);
    let of = |at: usize| {
        let Line { candidate, mbit, recommended, recommended_local, .. } = lines[at];
        (candidate, mbit, [recommended, recommended_local])
    };
    assert_eq!(of(0), ("no compression", 1.0, [false, false]));
    assert_eq!(of(1), ("no compression", 100_000.0, [true, false]));
    assert_eq!(of(2), ("fp16", 1.0, [true, false]));
    assert_eq!(of(6), ("eden:every=10", 1.0, [false, true]));
    assert_eq!(of(7), ("eden:every=10", 100_000.0, [false, false]));
    assert_eq!((lines[0].latency_ms, lines[2].speedup > 1.9), (1.5, true));
    assert!(lines[4].doubt.is_some() && lines[6].error.is_none());
}

#[test]
fn machines_are_described_with_the_call_of_each_recommendation() {
    let recording = model(1_000_000_000, BUCKET, 0.2, 0.1);
    let [inside, between] = [1.6e6, 1e3].map(Link::mbit);
    let topology = Topology { nodes: 16, ranks_per_node: 8, inside, between };
    let simulation = Simulation::new(&recording, topology, Hardware::H200);
    let links = [Link::mbit(1e3), Link::mbit(1e8)];
    let (optimizer, sharded) = (OptimizerFamily::Adaptive, false);
    let comparison = Comparison { simulation, links: &links, optimizer, sharded };
    let methods =
        ["eden", "3lc", "efsignsgd"].map(|spec| Method::of(&spec.parse().unwrap()).unwrap());
    let shown = shown_between_nodes(&advise_topology(&comparison, &methods).unwrap());
    assert!(shown.situation.starts_with("16 nodes of 8 ranks (H200), 1600 Gbit/s inside;"));
    let call = "\n  gradwire.torch.register(model, \"eden\", exchange=\"scatter-reduce\", transport=\"device\", nodes=16)\n";
    assert!(shown.conclusions.contains(call), "{shown:?}");
    assert!(shown.conclusions.contains("At 100000 Gbit/s: do not compress"), "{shown:?}");
    assert!(shown.conclusions.contains("\n- 3lc, efsignsgd: late residuals"), "{shown:?}");
    let text = shown.text(80);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn crossovers_are_ranges_where_times_vary() {
    let of = |least, likely, most| range(Crossover { least, likely, most });
    let (slow, fast, any) = (Some(9e8), Some(1.8e9), Some(ANY_LINK));
    assert_eq!(of(fast, fast, fast), "1.8 Gbit/s");
    assert_eq!(of(slow, slow, Some(1e9)), "900 Mbit/s");
    assert_eq!(of(slow, fast, fast), "900 Mbit/s to 1.8 Gbit/s");
    assert_eq!(of(slow, fast, any), "900 Mbit/s or more");
    assert_eq!(of(None, slow, fast), "1.8 Gbit/s or less");
    assert_eq!(of(None, None, any), "an unclear bandwidth");
    assert_eq!(of(None, None, None), "–");
    assert_eq!(of(any, any, any), "any");
}

#[test]
fn bandwidths_are_short() {
    let all = [1e9, 2.5e8, 1.5e6, 12_345.0, 10.0].map(bandwidth);
    assert_eq!(all, ["1 Gbit/s", "250 Mbit/s", "1.5 Mbit/s", "12.3 kbit/s", "10 bit/s"]);
}
