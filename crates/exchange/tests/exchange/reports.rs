//! The message lengths, sent positions and residuals that an exchange reports after a step.

use crate::common::{RATE, Run, gradients};
use gradwire::{Encoder, Floats};
use gradwire_exchange::StepInput;

const SIZES: [usize; 3] = [5000, 0, 900];

#[test]
fn lengths_and_residuals_are_those_of_an_encoder_of_ones_own() {
    for name in ["all-gather", "sparse-all-reduce", "server", "all-reduce"] {
        let text = if name == "all-reduce" { "randomk:ratio=0.1" } else { "topk" };
        let mut run = Run::of(name, 2, text, &SIZES);
        run.policy.raw_below = 0;
        run.each(|rank, exchange| {
            let mut encoder = Encoder::new(&run.policy.push.first, 7, rank as u32).with_ranks(2);
            let mut parameters = run.initial.clone();
            for step in 0..3 {
                let gradients = gradients(&run.tensors, rank, step);
                run.step(rank, step, exchange, &mut parameters);
                for (index, tensor) in run.tensors.iter().enumerate() {
                    let mut message = Vec::new();
                    let gradient = Floats::F32(&gradients[index]);
                    encoder.encode(tensor, step, gradient, &mut message).unwrap();
                    assert_eq!(exchange.message_bytes(index), message.len(), "{name}, {index}");
                    let mut left = Vec::new();
                    exchange.residual(index, &mut |piece| left.extend_from_slice(piece));
                    assert_eq!(left, encoder.residual(tensor.name()).unwrap(), "{name}, {index}");
                }
            }
        });
    }
}

#[test]
fn slices_make_up_the_tensor() {
    let mut run = Run::of("scatter-reduce", 3, "topk", &SIZES);
    run.policy.raw_below = 0;
    run.each(|rank, exchange| {
        let gradients = gradients(&run.tensors, rank, 0);
        run.step(rank, 0, exchange, &mut run.initial.clone());
        for (index, gradient) in gradients.iter().enumerate() {
            let mut left = Vec::new();
            exchange.residual(index, &mut |piece| left.extend_from_slice(piece));
            let sent = exchange.sent(index).unwrap();
            // After the first step what was sent is 0, and the rest is the gradient.
            assert_eq!(left.len(), gradient.len());
            for (at, (left, gradient)) in left.iter().zip(gradient).enumerate() {
                let expected = if sent.contains(&(at as u32)) { 0.0 } else { *gradient };
                assert_eq!(*left, expected);
            }
            // Values of four bytes and, but for none, positions.
            assert!(exchange.message_bytes(index) >= 4 * sent.len());
        }
    });
}

#[test]
fn squares_reach_the_compressor_whole_or_in_slices() {
    for name in ["all-gather", "scatter-reduce", "server", "hierarchical:node=1"] {
        let mut run = Run::of(name, 2, "variance", &SIZES);
        run.policy.raw_below = 0;
        run.each(|rank, exchange| {
            assert!(exchange.needs_squares());
            let mut parameters = run.initial.clone();
            let gradients = gradients(&run.tensors, rank, 0);
            // The parts agree in the first half of each tensor; in the rest, the gradient is
            // smaller than its parts.
            let squares: Vec<Vec<f32>> = gradients
                .iter()
                .map(|gradient| {
                    let square = |(at, g): (usize, &f32)| {
                        g * g * if 2 * at < gradient.len() { 0.25 } else { 4.0 }
                    };
                    gradient.iter().enumerate().map(square).collect()
                })
                .collect();
            let input =
                StepInput { squares: Some(&squares), ..StepInput::new(0, RATE, &gradients) };
            exchange.step(input, &mut parameters).unwrap();
            for (index, gradient) in gradients.iter().enumerate() {
                let sent = exchange.sent(index).unwrap();
                assert!(sent.iter().all(|&at| 2 * (at as usize) < gradient.len()), "{name}");
                // All elements except those far below the largest.
                assert!(sent.len() * 50 >= gradient.len() * 24, "{name}: {}", sent.len());
            }
        });
    }
}

#[test]
fn the_mean_of_a_node_is_a_single_part() {
    let mut run = Run::of("hierarchical:node=2", 4, "variance", &SIZES);
    run.policy.raw_below = 0;
    run.each(|rank, exchange| {
        let gradients = gradients(&run.tensors, rank, 0);
        // Of the leader's own gradient; by them all elements would be sent.
        let squares: Vec<Vec<f32>> = gradients.iter().map(|one| vec![0.0; one.len()]).collect();
        let input = StepInput { squares: Some(&squares), ..StepInput::new(0, RATE, &gradients) };
        exchange.step(input, &mut run.initial.clone()).unwrap();
        // The square of a single part is not above its variance. Only leaders send.
        let sent = |index| exchange.sent(index).is_some_and(<[u32]>::is_empty);
        assert!(rank % 2 == 1 || (0..SIZES.len()).all(sent));
    });
}

#[test]
fn integers_take_the_bits_of_their_largest_sum() {
    const ELEMENTS: u64 = 1 << 16;
    for (ranks, bits_of_sums) in [(2, 6), (4, 7), (8, 8)] {
        let mut run = Run::of("all-reduce", ranks, "thc", &[ELEMENTS as usize]);
        run.policy.raw_vectors = false;
        let parts = ranks as u64;
        let expected = (parts - 1) * ELEMENTS / parts * (4 + bits_of_sums) / 8;
        for end in run.steps(1) {
            let sent = end.reports[0].traffic.bytes_up;
            // Norms of 16 pieces, and the headers of four messages to each rank.
            assert!((expected..expected + 160 + 200 * parts).contains(&sent), "{ranks}: {sent}");
        }
    }
}
