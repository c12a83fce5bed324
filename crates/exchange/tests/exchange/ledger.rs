//! The ledger counts what the formulas of docs/exchanges.md say.

use crate::common::{Run, exchange, zeros};
use gradwire_exchange::{StepInput, Traffic};

/// Bytes before every message.
const HEADER: u64 = 12;

/// What each worker sent and received in its second step.
fn traffic(run: &Run) -> Vec<Traffic> {
    run.steps(2).iter().map(|rank| rank.reports[1].traffic).collect()
}

fn total(ranks: Vec<Traffic>) -> Traffic {
    let mut total = Traffic::default();
    ranks.into_iter().for_each(|rank| total += rank);
    total
}

#[test]
fn the_worked_example_of_the_documentation_is_measured() {
    // Long numbers have a space between thousands there.
    let document = include_str!("../../../../docs/exchanges.md").replace(' ', "");
    for name in ["all-reduce", "all-gather", "scatter-reduce", "server", "server:servers=2"] {
        // Two servers need two tensors.
        let sizes: &[usize] = if name == "server:servers=2" { &[12_000, 0] } else { &[12_000] };
        let mut run = Run::of(name, 4, "none", sizes);
        run.policy.raw_below = 0;
        for traffic in traffic(&run) {
            let row = format!("|`{name}`|{}|{}|", traffic.bytes_up, traffic.bytes_down);
            assert!(document.contains(&row), "docs/exchanges.md lacks '{row}'");
        }
    }
}

#[test]
fn all_reduce_moves_every_byte_twice_less_the_own_share() {
    for n in 1..=5 {
        // 16-bit messages for the large tensor, raw 32-bit ones for the small.
        let run = Run::of("all-reduce", n, "fp16", &[3, 1001]);
        let (n, bytes) = (n as u64, 3 * 4 + 1001 * 2);
        let all = total(traffic(&run));
        assert_eq!(all.bytes_up, 2 * (n - 1) * bytes + 2 * n * (n - 1) * HEADER);
        assert_eq!(all.bytes_down, all.bytes_up);
        assert_eq!(all.messages_up, 2 * n * (n - 1));
    }
}

#[test]
fn rounds_move_both_factors_as_all_reduce_does() {
    // 33 × 31, factors of two columns, and a raw tensor beside the first round.
    let run = Run::of("all-reduce", 3, "powersgd:rank=2", &[3, 1023]);
    let bytes = 4 * (3 + 2 * (33 + 31));
    let all = total(traffic(&run));
    // Two rounds of two phases, each from everyone to both others.
    assert_eq!(all.messages_up, 2 * 2 * 3 * 2);
    assert_eq!(all.bytes_up, 2 * 2 * bytes + 24 * HEADER);
    assert_eq!(all.bytes_down, all.bytes_up);
}

#[test]
fn an_all_zero_model_under_3lc_costs_next_to_nothing() {
    let mut run = Run::of("server", 2, "3lc", &[70_000]);
    run.initial = zeros(&run.tensors);
    let gradients = zeros(&run.tensors);
    let (results, servers) = run.workers(|_, exchange| {
        let mut parameters = run.initial.clone();
        exchange.step(StepInput::new(0, 1.0, &gradients), &mut parameters).unwrap().traffic
    });
    // A scale, and 70 000 / 5 quartic bytes in runs of 14.
    let message = 4 + 70_000 / 5 / 14;
    for traffic in results.into_iter().map(Result::unwrap) {
        assert_eq!(traffic.bytes_up, 2 * HEADER + 12 + message);
        assert_eq!(traffic.bytes_down, HEADER + message);
    }
    // The server counted the same, and the handshake on top.
    assert!(servers.unwrap()[0].traffic.bytes_down >= 2 * (2 * HEADER + 12 + message));
}

/// Bytes of a varint, from its definition.
fn varint(value: u64) -> u64 {
    (1..).find(|&bytes| bytes == 10 || value < 1 << (7 * bytes)).unwrap()
}

/// The length of a packed message, given the lengths of the tensors' messages.
fn fused(messages: &[u64]) -> u64 {
    messages.iter().map(|&bytes| varint(bytes) + bytes).sum()
}

/// Elements of the formulas' tensors: messages of `none` and `fp16` need varints of one to three
/// bytes.
const TENSORS: [usize; 4] = [9, 0, 50, 9000];

/// Bytes of an element under the two compressors of fixed size.
const FIXED: [(&str, u64); 2] = [("none", 4), ("fp16", 2)];

/// Every worker's second step.
fn measured(name: &str, spec: &str, workers: usize) -> Vec<Traffic> {
    let mut run = Run::of(name, workers, spec, &TENSORS);
    run.policy.raw_below = RAW as usize;
    traffic(&run)
}

/// Tensors with fewer elements are raw.
const RAW: u64 = 10;

/// Bytes of an element of a tensor that is compressed to `element` bytes each, unless it is raw.
fn width(elements: u64, element: u64) -> u64 {
    if elements < RAW { 4 } else { element }
}

fn messages(element: u64) -> Vec<u64> {
    TENSORS.map(|elements| width(elements as u64, element) * elements as u64).to_vec()
}

#[test]
fn gathered_and_served_bytes_are_those_of_the_table() {
    for (spec, element) in FIXED {
        let messages = messages(element);
        let (all, tensors) = (messages.iter().sum::<u64>(), messages.len() as u64);
        for workers in 1..=5 {
            let others = workers as u64 - 1;
            for rank in measured("all-gather", spec, workers) {
                assert_eq!(rank.messages_up, others);
                assert_eq!(rank.bytes_up, others * (HEADER + fused(&messages)));
                assert_eq!(
                    (rank.bytes_up, rank.messages_up),
                    (rank.bytes_down, rank.messages_down)
                );
            }
            for servers in 1..=2 {
                for rank in measured(&format!("server:servers={servers}"), spec, workers) {
                    assert_eq!(
                        (rank.messages_up, rank.messages_down),
                        (tensors + servers, tensors)
                    );
                    assert_eq!(rank.bytes_down, tensors * HEADER + all);
                    assert_eq!(rank.bytes_up, rank.bytes_down + servers * (HEADER + 12));
                }
            }
        }
    }
}

#[test]
fn reduced_bytes_are_those_of_the_table() {
    for (spec, element) in FIXED {
        let all = messages(element).iter().sum::<u64>();
        for workers in 1..=5 {
            let (n, others) = (workers as u64, workers as u64 - 1);
            let ranks = measured("all-reduce", spec, workers);
            assert!(ranks.iter().all(|rank| rank.messages_up == 2 * others));
            let sum = total(ranks);
            assert_eq!(sum.bytes_up, 2 * n * others * HEADER + 2 * all * others);
            // For each owner, the length of its slices as a packed message; an empty tensor stays
            // whole.
            let (mut owned, mut before) = (vec![0; workers], 0);
            let total: u64 = TENSORS.iter().map(|&elements| elements as u64).sum();
            for elements in TENSORS.map(|elements| elements as u64) {
                for (owner, owned) in owned.iter_mut().enumerate() {
                    let border = |part| total * part as u64 / n;
                    let start = before.max(border(owner));
                    let end = (before + elements).min(border(owner + 1));
                    let empty =
                        elements == 0 && (border(owner)..border(owner + 1)).contains(&before);
                    if start < end || empty {
                        let bytes = width(elements, element) * end.saturating_sub(start);
                        *owned += fused(&[bytes]);
                    }
                }
                before += elements;
            }
            for (rank, found) in measured("scatter-reduce", spec, workers).iter().enumerate() {
                let whole: u64 = owned.iter().sum();
                let up = whole - owned[rank] + others * owned[rank];
                assert_eq!(found.bytes_up, 2 * others * HEADER + up, "{workers} workers, {rank}");
                assert_eq!(found.messages_up, 2 * others);
            }
        }
    }
}

#[test]
fn a_hierarchy_moves_the_model_inside_and_messages_between() {
    for (spec, element) in FIXED {
        let (model, fused) = (messages(4).iter().sum::<u64>(), fused(&messages(element)));
        for (workers, node) in (1..=9).flat_map(|workers| (1..=4).map(move |node| (workers, node)))
        {
            let name = format!("hierarchical:node={node}");
            for (rank, found) in measured(&name, spec, workers).into_iter().enumerate() {
                let members = (workers - (rank - rank % node)).min(node) as u64 - 1;
                let leaders = workers.div_ceil(node) as u64 - 1;
                let (inside, between) = if rank % node == 0 { (members, leaders) } else { (1, 0) };
                let bytes = inside * (HEADER + model) + between * (HEADER + fused);
                assert_eq!(
                    (found.messages_up, found.bytes_up),
                    (inside + between, bytes),
                    "{name}"
                );
                assert_eq!((found.messages_down, found.bytes_down), (inside + between, bytes));
            }
        }
    }
}

/// Messages that a rank of a sparse all-reduce sends, and receives.
fn doublings(rank: usize, workers: usize) -> u64 {
    let pairs = 1 << workers.ilog2();
    match rank {
        rank if rank >= pairs => 1,
        rank if rank + pairs < workers => workers.ilog2() as u64 + 1,
        _ => workers.ilog2() as u64,
    }
}

#[test]
fn sums_of_dense_tensors_are_swapped_with_one_byte_each() {
    for workers in 1..=9 {
        let mut run = Run::of("sparse-all-reduce", workers, "topk", &TENSORS);
        run.policy.raw_below = usize::MAX;
        let sum: u64 = TENSORS.iter().map(|&elements| 1 + 4 * elements as u64).sum();
        for (rank, found) in traffic(&run).into_iter().enumerate() {
            let count = doublings(rank, workers);
            assert_eq!((found.messages_up, found.bytes_up), (count, count * (HEADER + sum)));
            assert_eq!((found.messages_down, found.bytes_down), (count, count * (HEADER + sum)));
        }
    }
}

#[test]
fn sums_of_the_same_positions_do_not_grow() {
    for workers in 1..=9 {
        let spec = "randomk:ratio=0.05".parse().unwrap();
        let run = Run::new(exchange("sparse-all-reduce"), workers, &spec, &[9000]);
        let ends = run.each(|rank, exchange| {
            let report = run.step(rank, 0, exchange, &mut run.initial.clone());
            let positions = exchange.sent(0).unwrap();
            // Of 9000 places 450: p = 0.05, b = 1 + ⌊log2(0.4812 / 0.0513)⌋ = 4, so a position
            // takes five bits and one for each 16 places of its gap.
            let mut next = 0;
            let bits = positions.iter().map(|&at| {
                let gap = at - std::mem::replace(&mut next, at + 1);
                u64::from(5 + gap / 16)
            });
            let places = bits.sum::<u64>().div_ceil(8);
            assert_eq!(positions.len(), 450);
            (report.traffic, 1 + 2 + places + 4 * 450)
        });
        for (rank, end) in ends.into_iter().enumerate() {
            let (found, sum) = end;
            let count = doublings(rank, workers);
            assert_eq!((found.messages_up, found.bytes_up), (count, count * (HEADER + sum)));
        }
    }
}

#[test]
fn sums_grow_no_further_than_dense_tensors() {
    // A quarter of the elements each: two ranks' are cheaper with their positions, eight ranks' are
    // not.
    let spec = "topk:ratio=0.25".parse().unwrap();
    let up = |workers| {
        let run = Run::new(exchange("sparse-all-reduce"), workers, &spec, &[9000]);
        traffic(&run)[0].bytes_up
    };
    let dense = 1 + 4 * 9000;
    assert!(up(2) < HEADER + dense / 3, "a message of a quarter");
    assert!((HEADER + dense / 3..HEADER + dense).contains(&(up(4) - up(2))), "a sum of two");
    let last = up(16) - up(8);
    assert!(last <= HEADER + dense, "{last}");
    assert!(last > dense * 9 / 10, "{last}");
}
