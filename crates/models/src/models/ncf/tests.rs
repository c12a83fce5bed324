//! Against a scalar twin, finite differences and counts by hand.

use crate::models::Architecture;
use gradwire::Rng;

use crate::models::ncf::{Pairs, Recommender, Widths, cross_entropy};

const SMALL: Widths = Widths { factors: 3, inputs: 2, layers: [5, 4, 3] };

/// Parameters large enough for every unit to matter, some of them beyond its rectifier.
fn parameters(model: &Recommender) -> Vec<Vec<f32>> {
    let mut rng = Rng::new(4, 0, 0, 0, 0);
    let values = |tensor: &gradwire::Tensor, rng: &mut Rng| {
        (0..tensor.elements()).map(|_| rng.uniform() * 1.6 - 0.8).collect()
    };
    model.tensors().iter().map(|tensor| values(tensor, &mut rng)).collect()
}

#[test]
fn sizes_are_those_of_the_survey() {
    let model = Recommender::new("ncf".parse().unwrap(), 138_493, 26_744).unwrap();
    let elements: usize = model.tensors().iter().map(gradwire::Tensor::elements).sum();
    assert_eq!((elements, model.tensors().len()), (31_832_577, 10));
    let shapes: Vec<_> = model.tensors()[2..].iter().map(|t| t.shape().to_vec()).collect();
    let expected: [&[usize]; 8] =
        [&[256, 256], &[256], &[128, 256], &[128], &[64, 128], &[64], &[1, 128], &[1]];
    assert_eq!(shapes, expected);
}

#[test]
fn other_models_are_not_for_ratings() {
    let message = Recommender::new("lenet5".parse().unwrap(), 5, 5).unwrap_err().to_string();
    assert!(message.contains("lenet5") && message.contains("ncf"), "{message}");
}

/// The score of a pair, computed unit by unit in double precision.
fn naive(parameters: &[Vec<f32>], user: usize, item: usize) -> f64 {
    let Widths { factors, inputs, layers } = SMALL;
    let p = |tensor: usize, at: usize| f64::from(parameters[tensor][at]);
    let row = factors + inputs;
    let value = |side: usize, at: usize| p(side, [user, item][side] * row + at);
    let mut x: Vec<f64> = (0..2)
        .flat_map(|side| (0..inputs).map(move |at| (side, at)))
        .map(|(side, at)| value(side, factors + at))
        .collect();
    for (layer, outputs) in layers.into_iter().enumerate() {
        let (weight, bias) = (2 + 2 * layer, 3 + 2 * layer);
        let width = x.len();
        x = (0..outputs)
            .map(|unit| {
                let terms = x.iter().enumerate().map(|(at, x)| x * p(weight, unit * width + at));
                (p(bias, unit) + terms.sum::<f64>()).max(0.0)
            })
            .collect();
    }
    let products = (0..factors).map(|at| value(0, at) * value(1, at));
    let joint = products.chain(x);
    p(9, 0) + joint.enumerate().map(|(at, x)| x * p(8, at)).sum::<f64>()
}

#[test]
fn scores_are_those_of_the_scalar_twin() {
    let model = Recommender::with_widths(SMALL, 4, 6);
    let parameters = parameters(&model);
    let (users, items) = ([0, 3, 1, 3], [5, 0, 2, 2]);
    let scores = model.scores(&parameters, Pairs { users: &users, items: &items });
    for (at, score) in scores.iter().enumerate() {
        let expected = naive(&parameters, users[at] as usize, items[at] as usize);
        assert!((f64::from(*score) - expected).abs() < 1e-5, "{score} is not {expected}");
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let model = Recommender::with_widths(SMALL, 4, 6);
    let mut parameters = parameters(&model);
    // A user and an item twice: their rows' gradients add.
    let (users, items, taken) = ([0, 3, 1, 3], [5, 0, 2, 2], [true, false, false, true]);
    let pairs = Pairs { users: &users, items: &items };
    let mut gradients: Vec<Vec<f32>> = parameters.iter().map(|p| vec![0.5; p.len()]).collect();
    let found = model.add_gradients(&parameters, pairs, &taken, &mut gradients);
    let loss = |parameters: &[Vec<f32>]| -> f64 {
        let each = (0..4).map(|at| {
            let score = naive(parameters, users[at] as usize, items[at] as usize);
            let p = 1.0 / (1.0 + (-score).exp());
            -(if taken[at] { p } else { 1.0 - p }).ln()
        });
        each.sum::<f64>() / 4.0
    };
    assert!((found - loss(&parameters)).abs() < 1e-6);
    let step = 1e-3f32;
    for tensor in 0..parameters.len() {
        for at in 0..parameters[tensor].len() {
            let here = parameters[tensor][at];
            let mut at_offset = |offset: f32| {
                parameters[tensor][at] = here + offset;
                let loss = loss(&parameters);
                parameters[tensor][at] = here;
                loss
            };
            let slope = (at_offset(step) - at_offset(-step)) / f64::from(2.0 * step);
            let gradient = f64::from(gradients[tensor][at]) - 0.5;
            assert!((slope - gradient).abs() < 1e-4, "{tensor}[{at}]: {gradient}, not {slope}");
        }
    }
}

#[test]
fn cross_entropies_by_hand() {
    assert!((cross_entropy(0.0, true) - 2f64.ln()).abs() < 1e-12);
    assert!((cross_entropy(3f32.ln(), true) - (4.0f64 / 3.0).ln()).abs() < 1e-6);
    assert!((cross_entropy(3f32.ln(), false) - 4f64.ln()).abs() < 1e-6);
    assert_eq!(cross_entropy(-1000.0, true), 1000.0);
    assert_eq!(cross_entropy(-1000.0, false), 0.0);
}
