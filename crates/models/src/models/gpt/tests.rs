//! Losses and gradients against an independent forward pass in f64, written from the formulas one
//! token at a time, and its differences.

use std::sync::{Arc, Mutex};

use super::*;

const VOCABULARY: usize = 7;
const CONFIG: GptConfig = GptConfig { layers: 2, heads: 2, width: 6, context: 5 };

type Values = Vec<Vec<f64>>;

/// A model with asymmetric parameters, and two windows.
fn example() -> (Gpt, Values, Vec<u32>, Vec<u32>) {
    let gpt = Gpt::new(CONFIG, VOCABULARY).unwrap();
    let mut rng = gradwire::Rng::new(4, 0, 0, 0, 0);
    let mut draw = || (rng.below(2000) as f64 / 1000.0 - 1.0) * 0.5;
    let parameters = gpt.tensors().iter().map(|tensor| {
        let one = if tensor.name().ends_with("scale") { 1.0 } else { 0.0 };
        (0..tensor.elements()).map(|_| one + draw()).collect()
    });
    let parameters = parameters.collect();
    (gpt, parameters, vec![0, 3, 6, 1, 1, 2, 5, 4], vec![3, 6, 1, 0, 2, 5, 4, 2])
}

fn rounded(values: &Values) -> Vec<Vec<f32>> {
    values.iter().map(|values| values.iter().map(|&value| value as f32).collect()).collect()
}

/// `x·W + b`.
fn dense(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let product = |column: usize| -> f64 {
        x.iter().enumerate().map(|(row, x)| x * weight[row * bias.len() + column]).sum()
    };
    bias.iter().enumerate().map(|(column, bias)| bias + product(column)).collect()
}

fn normalised(x: &[f64], scale: &[f64], shift: &[f64]) -> Vec<f64> {
    let count = x.len() as f64;
    let mean = x.iter().sum::<f64>() / count;
    let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
    let row = |(x, (scale, shift)): (&f64, (&f64, &f64))| {
        (x - mean) / (variance + 1e-5).sqrt() * scale + shift
    };
    x.iter().zip(scale.iter().zip(shift)).map(row).collect()
}

fn probabilities(scores: &[f64]) -> Vec<f64> {
    let total: f64 = scores.iter().map(|score| score.exp()).sum();
    scores.iter().map(|score| score.exp() / total).collect()
}

/// The mean loss over windows of four tokens, with parameters by name.
fn reference(gpt: &Gpt, parameters: &Values, inputs: &[u32], targets: &[u32]) -> f64 {
    let GptConfig { layers, heads, width, .. } = CONFIG;
    let of = |name: &str| -> &[f64] {
        let at = gpt.tensors().iter().position(|tensor| tensor.name() == name);
        &parameters[at.unwrap_or_else(|| panic!("no parameter {name}"))]
    };
    let row = |name: &str, at: usize| of(name)[at * width..][..width].to_vec();
    let plus = |x: &[f64], y: &[f64]| -> Vec<f64> { x.iter().zip(y).map(|(x, y)| x + y).collect() };
    let mut loss = 0.0;
    for (inputs, targets) in inputs.chunks(4).zip(targets.chunks(4)) {
        let embedded = |(time, &token): (usize, &u32)| {
            plus(&row("tokens.weight", token as usize), &row("positions.weight", time))
        };
        let mut x: Vec<Vec<f64>> = inputs.iter().enumerate().map(embedded).collect();
        for block in 1..=layers {
            let of = |name: &str| of(&format!("block{block}.{name}"));
            let layer = |x: &[f64], name: &str| {
                dense(x, of(&format!("{name}.weight")), of(&format!("{name}.bias")))
            };
            let norm = |x: &[f64], name: &str| {
                normalised(x, of(&format!("{name}.scale")), of(&format!("{name}.shift")))
            };
            let projected: Vec<Vec<f64>> =
                x.iter().map(|x| layer(&norm(x, "norm1"), "attention.qkv")).collect();
            let size = width / heads;
            for (time, x) in x.iter_mut().enumerate() {
                let mut joined = Vec::new();
                for head in 0..heads {
                    let part = |time: usize, part: usize| {
                        &projected[time][part * width + head * size..][..size]
                    };
                    let score = |other: usize| -> f64 {
                        let pairs = part(time, 0).iter().zip(part(other, 1));
                        pairs.map(|(query, key)| query * key).sum::<f64>() / (size as f64).sqrt()
                    };
                    let weights = probabilities(&(0..=time).map(score).collect::<Vec<_>>());
                    joined.extend((0..size).map(|at| -> f64 {
                        weights.iter().enumerate().map(|(other, w)| w * part(other, 2)[at]).sum()
                    }));
                }
                *x = plus(x, &layer(&joined, "attention.out"));
            }
            for x in &mut x {
                let gelu = |x: f64| {
                    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                    0.5 * x * (1.0 + inner.tanh())
                };
                let expanded = layer(&norm(x, "norm2"), "mlp.fc1");
                let activated: Vec<f64> = expanded.into_iter().map(gelu).collect();
                *x = plus(x, &layer(&activated, "mlp.fc2"));
            }
        }
        for (x, &target) in x.iter().zip(targets) {
            let x = normalised(x, of("norm.scale"), of("norm.shift"));
            let score = |symbol| -> f64 {
                row("tokens.weight", symbol).iter().zip(&x).map(|(w, x)| w * x).sum()
            };
            let scores: Vec<f64> = (0..VOCABULARY).map(score).collect();
            loss -= probabilities(&scores)[target as usize].ln() / 8.0;
        }
    }
    loss
}

#[test]
fn losses_and_gradients_are_those_of_the_formulas() {
    let (gpt, parameters, inputs, targets) = example();
    let windows = Windows { inputs: &inputs, targets: &targets, length: 4 };
    let expected = reference(&gpt, &parameters, &inputs, &targets);
    let mut gradients: Vec<Vec<f32>> =
        parameters.iter().map(|values| vec![0.0; values.len()]).collect();
    let found = gpt.add_gradients(&rounded(&parameters), windows, &mut gradients, None);
    assert!((found - expected).abs() < 1e-6, "a loss of {found}, not {expected}");
    let score = gpt.evaluate(&rounded(&parameters), windows);
    assert!((score.loss / 8.0 - expected).abs() < 1e-6 && score.examples == 8, "{score:?}");

    for (index, tensor) in gpt.tensors().iter().enumerate() {
        for at in 0..tensor.elements() {
            let moved = |by: f64| {
                let mut parameters = parameters.clone();
                parameters[index][at] += by;
                reference(&gpt, &parameters, &inputs, &targets)
            };
            let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            let found = f64::from(gradients[index][at]);
            let near = (found - expected).abs() < 1e-5 + 1e-4 * expected.abs();
            assert!(near, "{}[{at}]: {found}, not {expected}", tensor.name());
        }
    }
}

#[test]
fn later_tokens_change_no_prediction() {
    let (gpt, parameters, mut inputs, targets) = example();
    let first = |inputs: &[u32]| {
        let windows = Windows { inputs, targets: &targets[..4], length: 4 };
        let x = gpt.embed(&rounded(&parameters), windows);
        gpt.blocks[0].forward(&rounded(&parameters), x, 4).0[..3 * CONFIG.width].to_vec()
    };
    let before = first(&inputs[..4]);
    inputs[3] = 6;
    assert_eq!(before, first(&inputs[..4]));
    inputs[2] = 0;
    assert_ne!(before, first(&inputs[..4]));
}

#[test]
fn sizes_of_gpts() {
    for (text, vocabulary, parameters) in [
        // 65·128 + 64·128 + 4·(12·128² + 13·128) + 2·128.
        ("gpt", 65, 809_856),
        // GPT-2 small: 124 439 808 parameters (50 257 symbols, context 1 024).
        ("gpt:layers=12,heads=12,width=768,context=1024", 50_257, 124_439_808),
    ] {
        let gpt = Gpt::new(text.parse().unwrap(), vocabulary).unwrap();
        let elements: usize = gpt.tensors().iter().map(gradwire::Tensor::elements).sum();
        assert_eq!(elements, parameters, "{text}");
        assert_eq!(text.parse::<GptConfig>().unwrap().to_string(), text);
    }
    assert!(Gpt::new(CONFIG, 1).is_err());
}

#[derive(Debug)]
struct Collected(Mutex<Vec<(usize, Vec<f32>)>>);

impl GradientSink for Collected {
    fn ready(&self, index: usize, gradient: &[f32]) {
        self.0.lock().unwrap().push((index, gradient.to_vec()));
    }
}

#[test]
fn a_sink_gets_final_gradients_in_the_order_that_was_said() {
    let (gpt, parameters, inputs, targets) = example();
    let windows = Windows { inputs: &inputs, targets: &targets, length: 4 };
    let mut gradients: Vec<Vec<f32>> =
        parameters.iter().map(|values| vec![0.0; values.len()]).collect();
    let collected = Arc::new(Collected(Mutex::default()));
    let sink: Arc<dyn GradientSink> = collected.clone();
    gpt.add_gradients(&rounded(&parameters), windows, &mut gradients, Some(&sink));
    let collected = collected.0.lock().unwrap();
    let order: Vec<usize> = collected.iter().map(|(index, _)| *index).collect();
    assert_eq!(order, gpt.gradient_order().concat());
    assert_eq!(order.len(), gpt.tensors().len());
    assert!(collected.iter().all(|(index, gradient)| *gradient == gradients[*index]));
}
