//! A majority vote: a tie does not depend on the order in which votes are added.

use crate::common::{RATE, Run};
use gradwire::Spec;
use gradwire_exchange::StepInput;

/// For each element, half of the ranks vote for and half against; which ranks differs by element.
fn tied(rank: usize, ranks: usize) -> Vec<f32> {
    let sign = |element| if (rank + element) % ranks < ranks / 2 { 0.5 } else { -2.0 };
    (0..64).map(sign).collect()
}

/// How far a step with these gradients moves each element, in every worker.
fn moved(exchange: &str, ranks: usize, gradient: impl Fn(usize) -> Vec<f32> + Sync) -> Vec<f32> {
    let spec: Spec = "signsgd".parse().unwrap();
    let mut run = Run::new(crate::common::exchange(exchange), ranks, &spec, &[64]);
    run.initial = vec![vec![0.0; 64]];
    let mut results = run.each(|rank, exchange| {
        let mut parameters = run.initial.clone();
        exchange.step(StepInput::new(0, RATE, &[gradient(rank)]), &mut parameters).unwrap();
        parameters.remove(0)
    });
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    results.remove(0)
}

#[test]
fn a_tie_moves_nothing() {
    for ranks in [2, 4, 6, 10, 12, 14] {
        let tied = |rank| tied(rank, ranks);
        assert_eq!(moved("all-gather", ranks, tied), [0.0; 64], "{ranks} ranks");
        assert_eq!(moved("server", ranks, tied), [0.0; 64], "{ranks} ranks");
        // Owners send signs, of which none stands for a tie.
        assert_eq!(moved("scatter-reduce", ranks, tied), [-RATE; 64], "{ranks} ranks");
    }
}

#[test]
fn one_vote_decides() {
    for ranks in [3, 5, 7, 11] {
        // With an odd number of ranks, the rank that has half of them before it tips the scales.
        let tipped = |rank| tied(rank, ranks);
        for exchange in ["all-gather", "scatter-reduce"] {
            assert_eq!(moved(exchange, ranks, tipped), [RATE; 64], "{exchange}, {ranks} ranks");
        }
    }
}
