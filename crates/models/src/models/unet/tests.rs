//! The U-Net: losses and scores by hand, slopes and training of a narrow one.

use crate::models::tests::{go, norm, zeros};
use crate::models::*;
use crate::optim::OptimizerKind;

const GREY: ImageShape = ImageShape { channels: 1, height: 32, width: 16, classes: 2 };

pub(in crate::models) fn narrow() -> Model {
    tests::narrow(GREY, |net| unet::unet(net, 2))
}

/// Two images, and masks of their bright parts.
fn pictures() -> (Vec<f32>, Vec<u16>) {
    let images: Vec<f32> = (0..2 * GREY.elements())
        .map(|at| (at as f32 * 0.013).sin() + 0.3 * (at as f32 * 0.7).cos())
        .collect();
    let masks = images.iter().map(|&value| u16::from(value > 0.6)).collect();
    (images, masks)
}

/// Without parameters both classes of each pixel are equally likely, and a tie goes to the first.
#[test]
fn equal_scores_cost_the_logarithm_of_two() {
    let mut model = narrow();
    let (images, masks) = pictures();
    let (parameters, mut gradients) = (zeros(model.tensors()), zeros(model.tensors()));
    let loss = model.add_gradients(&parameters, &images, &masks, &mut gradients, None);
    assert!((loss - f64::ln(2.0)).abs() < 1e-6, "{loss}");
    let marked = masks.iter().filter(|&&label| label == 1).count();
    // The last bias moves all pixels: the mean of probability minus label.
    let expected = 0.5 - marked as f32 / masks.len() as f32;
    let last = gradients.last().unwrap();
    assert!((last[0] - expected).abs() < 1e-6, "{last:?} is not {expected}");
    let score = model.evaluate(&parameters, model.statistics(), &images, &masks);
    assert_eq!((score.examples, score.correct), (masks.len(), masks.len() - marked));
    assert_eq!((score.both, score.either), (0, marked));
}

/// With only the last bias positive, all pixels are predicted as the second class.
#[test]
fn overlaps_by_hand() {
    let model = narrow();
    let (images, masks) = pictures();
    let mut parameters = zeros(model.tensors());
    parameters.last_mut().unwrap()[0] = 1.0;
    let marked = masks.iter().filter(|&&label| label == 1).count();
    let score = model.evaluate(&parameters, model.statistics(), &images, &masks);
    assert_eq!((score.correct, score.both, score.either), (marked, marked, masks.len()));
    let expected =
        marked as f64 * (-1f64).exp().ln_1p() + (masks.len() - marked) as f64 * 1f64.exp().ln_1p();
    assert!((score.loss - expected).abs() < 1e-3, "{} is not {expected}", score.loss);
}

/// The score of a pixel depends on the image around that pixel, not on another's.
#[test]
fn rows_are_pixels_in_order() {
    let model = narrow();
    let parameters = model.initial_parameters(4);
    let (images, masks) = pictures();
    let one = GREY.elements();
    let parts = [0, 1].map(|at| {
        let range = at * one..(at + 1) * one;
        model.evaluate(&parameters, model.statistics(), &images[range.clone()], &masks[range])
    });
    let whole = model.evaluate(&parameters, model.statistics(), &images, &masks);
    assert_eq!(whole.both, parts[0].both + parts[1].both);
    assert!((whole.loss - parts[0].loss - parts[1].loss).abs() < 1e-3);
}

#[test]
fn gradients_are_slopes() {
    let mut model = narrow();
    let parameters = model.initial_parameters(1);
    let (images, masks) = pictures();
    let mut gradients = zeros(model.tensors());
    model.add_gradients(&parameters, &images, &masks, &mut gradients, None);
    assert!(gradients.iter().all(|gradient| gradient.iter().any(|&value| value != 0.0)));
    let norm = norm(gradients.iter().flatten());
    let mut loss_at = |distance: f64| {
        let mut moved = parameters.clone();
        go(moved.iter_mut().flatten(), distance / norm, gradients.iter().flatten());
        model.add_gradients(&moved, &images, &masks, &mut zeros(model.tensors()), None)
    };
    let step = 5e-4;
    let slope = (loss_at(step) - loss_at(-step)) / (2.0 * step);
    assert!((slope / norm - 1.0).abs() < 0.03, "{slope} against {norm}");
}

#[test]
fn training_finds_the_bright_parts() {
    let mut model = narrow();
    let mut parameters = model.initial_parameters(3);
    let (images, masks) = pictures();
    let overlap = |model: &Model, parameters: &[Vec<f32>]| {
        let score = model.evaluate(parameters, model.statistics(), &images, &masks);
        (score.loss, score.both as f64 / score.either as f64)
    };
    let (before, _) = overlap(&model, &parameters);
    let adam: OptimizerKind = "adam".parse().unwrap();
    let mut optimizer = adam.build(model.tensors(), 0.0);
    for _ in 0..100 {
        let mut gradients = zeros(model.tensors());
        model.add_gradients(&parameters, &images, &masks, &mut gradients, None);
        for (at, (values, gradient)) in parameters.iter_mut().zip(&gradients).enumerate() {
            optimizer.update(at, 0.02, gradient, values);
        }
    }
    let (after, iou) = overlap(&model, &parameters);
    assert!(after < 0.6 * before && iou > 0.5, "{before} to {after}, overlap {iou}");
}
