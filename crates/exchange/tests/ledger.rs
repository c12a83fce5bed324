//! The ledger counts what the formulas of docs/exchanges.md say.

mod common;

use common::{Run, strategy, zeros};
use gradwire_exchange::Traffic;

/// Bytes before every message.
const HEADER: u64 = 12;

/// What each worker sent and received in its second step.
fn traffic(run: &Run) -> Vec<Traffic> {
    run.steps(2).iter().map(|rank| rank.reports[1].traffic).collect()
}

#[test]
fn the_worked_example_of_the_documentation_is_measured() {
    let document = include_str!("../../../docs/exchanges.md");
    for name in ["all-reduce", "all-gather", "scatter-reduce", "server", "server:servers=2"] {
        // Two servers need two tensors.
        let sizes: &[usize] = if name == "server:servers=2" { &[12_000, 0] } else { &[12_000] };
        let mut run = Run::new(strategy(name), 4, &"none".parse().unwrap(), sizes);
        run.policy.raw_below = 0;
        for traffic in traffic(&run) {
            let row = format!("| `{name}` | {} | {} |", traffic.bytes_up, traffic.bytes_down);
            assert!(document.contains(&row), "docs/exchanges.md lacks '{row}'");
        }
    }
}

#[test]
fn all_reduce_moves_every_byte_twice_less_the_own_share() {
    for n in 1..=5 {
        // 16-bit messages for the large tensor, raw 32-bit ones for the small.
        let run = Run::new(strategy("all-reduce"), n, &"fp16".parse().unwrap(), &[3, 1001]);
        let (n, bytes) = (n as u64, 3 * 4 + 1001 * 2);
        let all = traffic(&run).into_iter().fold(Traffic::default(), |sum, rank| sum + rank);
        assert_eq!(all.bytes_up, 2 * (n - 1) * bytes + 2 * n * (n - 1) * HEADER);
        assert_eq!(all.bytes_down, all.bytes_up);
        assert_eq!(all.messages_up, 2 * n * (n - 1));
    }
}

#[test]
fn rounds_move_both_factors_as_all_reduce_does() {
    // 33 × 31, factors of two columns, and a raw tensor beside the first round.
    let run = Run::new(strategy("all-reduce"), 3, &"powersgd:rank=2".parse().unwrap(), &[3, 1023]);
    let bytes = 4 * (3 + 2 * (33 + 31));
    let all = traffic(&run).into_iter().fold(Traffic::default(), |sum, rank| sum + rank);
    // Two rounds of two phases, each from everyone to both others.
    assert_eq!(all.messages_up, 2 * 2 * 3 * 2);
    assert_eq!(all.bytes_up, 2 * 2 * bytes + 24 * HEADER);
    assert_eq!(all.bytes_down, all.bytes_up);
}

#[test]
fn all_gather_sends_every_message_to_everyone() {
    let run = Run::new(strategy("all-gather"), 3, &"none".parse().unwrap(), &[3, 1001]);
    let bytes = (1 + 3 * 4) + (2 + 1001 * 4);
    for rank in traffic(&run) {
        assert_eq!(rank.bytes_up, 2 * (HEADER + bytes));
        assert_eq!(rank.bytes_down, 2 * (HEADER + bytes));
        assert_eq!((rank.messages_up, rank.messages_down), (2, 2));
    }
}

#[test]
fn a_worker_pushes_and_pulls_every_tensor_once() {
    for servers in 1..=2 {
        let name = format!("server:servers={servers}");
        let run = Run::new(strategy(&name), 3, &"fp16".parse().unwrap(), &[3, 1001, 0]);
        let bytes = 3 * HEADER + 3 * 4 + 1001 * 2;
        for rank in traffic(&run) {
            assert_eq!(rank.bytes_up, servers * (HEADER + 12) + bytes);
            assert_eq!(rank.bytes_down, bytes);
            assert_eq!((rank.messages_up, rank.messages_down), (3 + servers, 3));
        }
    }
}

#[test]
fn an_all_zero_model_under_3lc_costs_next_to_nothing() {
    let mut run = Run::new(strategy("server"), 2, &"3lc".parse().unwrap(), &[70_000]);
    run.initial = zeros(&run.tensors);
    let gradients = zeros(&run.tensors);
    let (results, servers) = run.workers(|_, exchange| {
        let mut parameters = run.initial.clone();
        exchange.step(0, 1.0, &gradients, &mut parameters).unwrap().traffic
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
