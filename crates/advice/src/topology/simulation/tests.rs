use std::time::Duration;

use gradwire::Floats;
use gradwire_exchange::Link;

use super::*;
use crate::topology::kernels::{Kernel, Kernels};
use crate::topology::method::Codec;
use crate::topology::phases::Message;

const FAST: Link = Link { bits_per_second: f64::INFINITY, latency: Duration::ZERO };

/// Messages of 8 bits; a million elements take 10 ms to compress and 5 ms to add.
fn method() -> Method {
    let kernel = |rate| Kernel { launch: 0.0, rate };
    Method {
        spec: "int8".parse().unwrap(),
        error: 0.01,
        host: Codec { message: Message::plain(8.0), compress: 1e-8, add: 5e-9 },
        form: Message::plain(8.0),
        kernels: Some(Kernels { compress: kernel(0.4e9), add: kernel(0.8e9) }),
    }
}

fn none() -> Method {
    Method::none(32.0)
}

/// Free messages, and no copies.
const FREE: Hardware = Hardware {
    name: "free",
    slower: 1.0,
    copy: f64::INFINITY,
    device_message: 0.0,
    host_message: 0.0,
};

fn plan(exchange: Exchange, levels: Levels, transport: Transport) -> Plan {
    Plan { exchange, levels, transport }
}

/// A step of 1 s with one bucket of a million elements, which is ready at its end.
fn seconds(topology: Topology, method: &Method, plan: Plan) -> f64 {
    let recording = Recording::untimed(vec![Tensor::new("w", &[1_000_000])], vec![], 1.0, 0.0);
    let simulation = Simulation::new(&recording, topology, FREE);
    simulation.step_seconds(method, &plan)
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9 * expected.max(1.0), "{found} {expected}");
}

use Exchange::{AllGather, ScatterReduce};
use Levels::{Flat, Sites, Two};
use Transport::{Device, Host};

#[test]
fn steps_of_two_nodes_of_four_ranks_by_hand() {
    // 1 GB/s inside, 10 MB/s between.
    let at = Topology {
        nodes: 2,
        ranks_per_node: 4,
        inside: Link::mbit(8000.0),
        between: Link::mbit(80.0),
    };
    // 4 MB · 2 · 1/2 at 10 MB/s.
    near(seconds(at, &none(), Plan::PLAIN), 1.4);
    // Compresses 1 and adds 8 million elements; each of 4 ranks sends 1 MB to each of 4 others.
    near(seconds(at, &method(), plan(AllGather, Flat, Host)), 1.0 + 0.01 + 0.04 + 1.6);
    // 9/8 million compressed, 2 million added; 4 · 4 slices of 125 kB, twice.
    near(seconds(at, &method(), plan(ScatterReduce, Flat, Host)), 1.0 + 0.01125 + 0.01 + 0.4);
    // A quarter of the elements: compressed, and half of them again; added twice. 4 MB · 3/4 inside
    // twice, and two halves of 250 kB of four ranks between.
    let work = 0.25 * (0.015 + 0.01);
    near(seconds(at, &method(), plan(ScatterReduce, Two, Device)), 1.0 + work + 0.006 + 0.1);
    near(seconds(at, &method(), plan(ScatterReduce, Sites, Device)), 1.0 + work + 0.1);
    // Ten local steps share a round of 0.15 s: two messages added, of a quarter.
    let local = Method { spec: "int8:every=10".parse().unwrap(), ..method() };
    let round = 0.25 * (0.01 + 0.01) + 0.1;
    near(seconds(at, &local, plan(AllGather, Sites, Device)), 1.0 + round / 10.0);
}

#[test]
fn gradients_of_16_bits_by_hand() {
    // 1 GB/s inside, and between GPU and main memory; 10 MB/s between.
    let at = Topology {
        nodes: 2,
        ranks_per_node: 4,
        inside: Link::mbit(8000.0),
        between: Link::mbit(80.0),
    };
    let (bits, tensors) = (vec![0; 1_000_000], vec![Tensor::new("w", &[1_000_000])]);
    let recording = Recording::untimed(tensors, vec![vec![Floats::Bf16(&bits)]], 1.0, 0.0);
    let simulation = Simulation::new(&recording, at, Hardware { copy: 1e9, ..FREE });
    let seconds = |plan| simulation.step_seconds(&method(), &plan);
    // Copies of 2 MB; the rest as above.
    near(seconds(plan(AllGather, Flat, Host)), 1.0 + 0.004 + 0.01 + 0.04 + 1.6);
    // 2 MB · 3/4 inside twice. The means of a quarter of the elements have 1 MB in f32.
    let work = 0.25 * (0.015 + 0.01);
    near(seconds(plan(ScatterReduce, Two, Device)), 1.0 + work + 0.003 + 0.1);
    near(seconds(plan(ScatterReduce, Two, Host)), 1.0 + 0.002 + work + 0.003 + 0.1);
    near(seconds(plan(ScatterReduce, Sites, Host)), 1.0 + 0.001 + work + 0.1);
}

#[test]
fn kernels_delay_the_backward_pass_and_cores_do_not() {
    // Two buckets, ready after 0.5 and 1 s, on links without a bound.
    let tensors = vec![Tensor::new("a", &[1 << 23]), Tensor::new("b", &[1 << 23])];
    let recording = Recording::untimed(tensors, vec![], 1.0, 1.0);
    let at = Topology { nodes: 1, ranks_per_node: 2, inside: FAST, between: FAST };
    let simulation = Simulation::new(&recording, at, FREE);
    // 8.4 million elements: compressed once and a half, added twice.
    let work = 8.388_608 * (0.015 + 0.01);
    let of = |transport| simulation.step_seconds(&method(), &plan(ScatterReduce, Flat, transport));
    near(of(Device), 1.0 + 2.0 * work);
    near(of(Host), 1.0 + work);
    let plan = plan(ScatterReduce, Flat, Device);
    near(simulation.codec_seconds(&method(), &plan), 2.0 * work);
}

#[test]
fn launches_run_ahead_of_the_gpu() {
    let kernel = |rate| Kernel { launch: 0.05, rate };
    let kernels = Kernels { compress: kernel(0.4e9), add: kernel(0.8e9) };
    let launched = Method { kernels: Some(kernels), ..method() };
    let gather = plan(AllGather, Flat, Device);
    let on =
        |mbit| Topology { nodes: 1, ranks_per_node: 2, inside: Link::mbit(mbit), between: FAST };
    // 20 ms of kernels and 1 MB: 10 ms at 100 MB/s, less than two launches; 100 ms at 10 MB/s.
    near(seconds(on(800.0), &launched, gather), 1.1);
    near(seconds(on(80.0), &launched, gather), 1.12);
    let card = Hardware { slower: 5.0, ..FREE };
    let recording = Recording::untimed(vec![Tensor::new("w", &[1_000_000])], vec![], 1.0, 0.0);
    let simulation = Simulation::new(&recording, on(80.0), card);
    near(simulation.step_seconds(&launched, &gather), 1.2);
}

#[test]
fn bytes_are_those_of_all_buckets() {
    let recording = model(100_000_000, BUCKET, 1.0, 0.5);
    // 25 MiB each, and a rest.
    assert_eq!((recording.tensors.len(), recording.elements()), (16, 100_000_000));
    assert_eq!(recording.buckets().len(), 16);
    let at = Topology { nodes: 4, ranks_per_node: 2, inside: FAST, between: FAST };
    let simulation = Simulation::new(&recording, at, FREE);
    let [inside, between] = simulation.bytes(&method(), &plan(ScatterReduce, Two, Device));
    near(inside / 4e8, 1.0);
    near(between / 1.5e8, 1.0);
}

/// The fastest step of a method.
fn fastest(at: Topology, method: &Method) -> f64 {
    let plans = Plan::all(&at, method.adds(), method.on_device());
    plans.into_iter().map(|plan| seconds(at, method, plan)).fold(f64::INFINITY, f64::min)
}

#[test]
fn slower_links_never_make_a_step_shorter() {
    for (nodes, ranks_per_node) in [(1, 8), (2, 1), (16, 8)] {
        for method in [none(), method()] {
            let of = |mbit| {
                let link = Link::mbit(mbit);
                let at = Topology { nodes, ranks_per_node, inside: link, between: link };
                fastest(at, &method)
            };
            let all = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6].map(of);
            assert!(all.is_sorted_by(|a, b| a >= b), "{all:?}");
        }
    }
}

#[test]
fn links_without_a_bound_need_no_compression_and_slow_ones_the_shortest_messages() {
    let small = Method { form: Message::plain(1.0), ..method() };
    for (nodes, ranks_per_node) in [(1, 8), (16, 8), (1250, 8)] {
        let on = |link| Topology { nodes, ranks_per_node, inside: link, between: link };
        assert_eq!(fastest(on(FAST), &none()), 1.0);
        assert!(fastest(on(FAST), &method()) > 1.0);
        // Of several nodes the slow links are those between them.
        let slow = on(FAST).over(Link::mbit(1.0));
        let [plain, eight, one] = [&none(), &method(), &small].map(|of| fastest(slow, of));
        assert!(one < eight && eight < plain, "{plain} {eight} {one}");
    }
}
