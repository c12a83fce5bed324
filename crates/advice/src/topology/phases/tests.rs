use super::*;

const LINK: Link = Link { bits_per_second: 8e6, latency: std::time::Duration::from_millis(10) };

fn at(nodes: usize, ranks_per_node: usize) -> Topology {
    Topology { nodes, ranks_per_node, inside: LINK, between: LINK }
}

fn plan(exchange: Exchange, levels: Levels, transport: Transport) -> Plan {
    Plan { exchange, levels, transport }
}

/// The bytes inside and between of all phases of a bucket of 9600 elements of 8 bits.
fn bytes(plan: Plan, at: &Topology) -> [f64; 2] {
    let phases = plan.phases(at, Message::plain(8.0), 9600.0, 38_400.0);
    phases
        .iter()
        .fold([0.0; 2], |[inside, between], phase| [inside + phase.inside, between + phase.between])
}

fn near(found: [f64; 2], expected: [f64; 2]) {
    let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6 * b.max(1.0));
    assert!(close, "{found:?} {expected:?}");
}

use Exchange::{AllGather, ScatterReduce};
use Levels::{Flat, Sites, Two};
use Transport::{Device, Host};

#[test]
fn bytes_of_three_nodes_of_four_ranks_by_hand() {
    let at = &at(3, 4);
    // Twelve ranks: 2 · 9600 · 11/12; three nodes: 2 · 9600 · 2/3.
    near(bytes(Plan::PLAIN, at), [17_600.0, 12_800.0]);
    // Eleven messages of 9600 bytes along a ring; to each of 3 others, and of 8 from 4 ranks.
    near(bytes(plan(AllGather, Flat, Device), at), [105_600.0; 2]);
    near(bytes(plan(AllGather, Flat, Host), at), [28_800.0, 307_200.0]);
    // Slices of 800 bytes: to the owners 3 and 4 · 8 of them; to all the same, or a ring of 11.
    near(bytes(plan(ScatterReduce, Flat, Host), at), [4800.0, 51_200.0]);
    near(bytes(plan(ScatterReduce, Flat, Device), at), [2400.0 + 8800.0, 25_600.0 + 8800.0]);
    // 38 400 bytes in f32, three quarters of it twice; four columns of three ranks with 2400 bytes.
    near(bytes(plan(AllGather, Two, Device), at), [57_600.0, 19_200.0]);
    near(bytes(plan(AllGather, Two, Host), at), [57_600.0, 19_200.0]);
    near(bytes(plan(ScatterReduce, Two, Device), at), [57_600.0, 12_800.0]);
    near(bytes(plan(ScatterReduce, Sites, Host), at), [0.0, 12_800.0]);
    near(bytes(Plan { levels: Sites, ..Plan::PLAIN }, at), [0.0, 12_800.0]);
    // Half of the bytes inside if gradients have 16 bits: 19 200 bytes, three quarters of it twice.
    let phases = plan(AllGather, Two, Device).phases(at, Message::plain(8.0), 9600.0, 19_200.0);
    assert_eq!([phases[0].inside, phases[2].inside], [14_400.0; 2]);
}

#[test]
fn two_levels_send_a_kth_of_the_bytes_of_flat_messages_through_a_nodes_link() {
    for (nodes, k) in [(2, 2), (2, 4), (5, 8), (1250, 8)] {
        for exchange in [AllGather, ScatterReduce] {
            let [_, flat] = bytes(plan(exchange, Flat, Host), &at(nodes, k));
            let [_, two] = bytes(plan(exchange, Two, Host), &at(nodes, k));
            let fewer = match exchange {
                // k · (n − k) messages instead of N − 1.
                AllGather => (k * k) as f64,
                _ => k as f64,
            };
            assert!((flat / two / fewer - 1.0).abs() < 1e-9, "{nodes} {k} {exchange}");
        }
    }
}

#[test]
fn one_rank_a_node_sends_the_bytes_of_docs_exchanges() {
    for n in [2_usize, 3, 8] {
        let (b, others) = (9600.0, (n - 1) as f64);
        for transport in [Device, Host] {
            for levels in [Flat, Two, Sites] {
                let of = |exchange| bytes(plan(exchange, levels, transport), &at(n, 1));
                near(of(AllGather), [0.0, b * others]);
                near(of(ScatterReduce), [0.0, 2.0 * b * others / n as f64]);
            }
            // The same ranks in one node.
            let of = |exchange| bytes(plan(exchange, Flat, transport), &at(1, n));
            near(of(AllGather), [b * others, 0.0]);
            near(of(ScatterReduce), [2.0 * b * others / n as f64, 0.0]);
        }
        near(bytes(Plan::PLAIN, &at(n, 1)), [0.0, 2.0 * b * others / n as f64]);
    }
}

#[test]
fn a_phase_takes_the_slower_link_and_its_latencies() {
    let at = Topology { between: Link { bits_per_second: 16e6, ..LINK }, ..at(3, 4) };
    let seconds = |phases: Vec<Phase>| -> Vec<f64> {
        phases.iter().map(|phase| phase.seconds(&at, 1e-3)).collect()
    };
    // 17.6 kB at 1 MB/s; two latencies up and down a tree of four, and two of three nodes.
    let found = seconds(Plan::PLAIN.phases(&at, Message::plain(8.0), 9600.0, 38_400.0));
    assert!((found[0] - (0.0176 + 0.08)).abs() < 1e-9, "{found:?}");
    // 2.4 kB inside take less time than 25.6 kB at 2 MB/s; one latency each, eleven messages. Then
    // 8.8 kB inside, and two latencies each.
    let plan = plan(ScatterReduce, Flat, Device);
    let found = seconds(plan.phases(&at, Message::plain(8.0), 9600.0, 38_400.0));
    assert!((found[0] - (0.0128 + 0.02 + 0.011)).abs() < 1e-9, "{found:?}");
    assert!((found[1] - (0.0088 + 0.04)).abs() < 1e-9, "{found:?}");
}

#[test]
fn each_slice_has_the_constant_part_of_a_message() {
    let message = Message { bits: 4.0, constant: 4.0 }.with_header();
    assert_eq!(message.bytes(100.0), 66.0);
    let phases = plan(ScatterReduce, Flat, Host).phases(&at(4, 1), message, 400.0, 1600.0);
    assert_eq!([phases[0].between, phases[1].between], [198.0; 2]);
    assert_eq!((phases[0].messages, depth(1), depth(4), depth(5)), (3.0, 0.0, 2.0, 3.0));
}
