//! The deep networks: gradients and training of narrow ones.

use super::{go, narrow, norm, zeros};
use crate::models::alexnet::alexnet;
use crate::models::densenet::densenet;
use crate::models::imagenet_resnet::{RESNET18, RESNET50, ResNetConfig, imagenet_resnet};
use crate::models::resnet9::resnet9;
use crate::models::vgg::{VGG16, VGG19, VggConfig, vgg};
use crate::models::*;

/// The shape of the narrow networks' images.
const SMALL: ImageShape = ImageShape { channels: 2, height: 32, width: 34, classes: 5 };
const LABELS: [u16; 4] = [0, 3, 4, 3];

pub(in crate::models) fn all() -> [(&'static str, Model); 7] {
    let small_vgg = |config: VggConfig, hidden| {
        narrow(SMALL, |net| vgg(net, VggConfig { width: 4, hidden, ..config }))
    };
    let small_resnet = |config: ResNetConfig| {
        let shape = ImageShape { height: 64, width: 65, ..SMALL };
        let config = ResNetConfig { blocks: [1, 2, 1, 1], width: 8, ..config };
        narrow(shape, |net| imagenet_resnet(net, config))
    };
    let large = ImageShape { height: 63, width: 80, ..SMALL };
    [
        ("densenet40", narrow(SMALL, |net| densenet(net, [2, 3]))),
        ("resnet9", narrow(SMALL, |net| resnet9(net, 3))),
        ("vgg16", small_vgg(VGG16, &[16])),
        ("vgg19", small_vgg(VGG19, &[16, 16])),
        ("alexnet", narrow(large, |net| alexnet(net, 1))),
        ("resnet18", small_resnet(RESNET18)),
        ("resnet50", small_resnet(RESNET50)),
    ]
}

/// Four images with a little structure.
fn images(model: &Model) -> Vec<f32> {
    (0..LABELS.len() * model.shape().elements())
        .map(|at| (at as f32 * 0.37).sin() + (at as f32 * 0.011).cos())
        .collect()
}

/// The loss, its gradient and the gradient's norm.
fn slope(model: &mut Model, parameters: &[Vec<f32>], images: &[f32]) -> (f64, Vec<Vec<f32>>, f64) {
    let mut gradients = zeros(model.tensors());
    let loss = model.add_gradients(parameters, images, &LABELS, &mut gradients, None);
    let norm = norm(gradients.iter().flatten());
    (loss, gradients, norm)
}

/// Each step would lower a linear loss by a tenth.
#[test]
fn training_lowers_the_loss() {
    for (name, mut model) in all() {
        let mut parameters = model.initial_parameters(2);
        let images = images(&model);
        let mut losses = Vec::new();
        for _ in 0..16 {
            let (loss, gradients, norm) = slope(&mut model, &parameters, &images);
            let gradient = gradients.iter().flatten();
            go(parameters.iter_mut().flatten(), -0.1 * loss / (norm * norm), gradient);
            losses.push(loss);
        }
        assert!(losses[15] < 0.8 * losses[0], "{name}: {losses:?}");
    }
}

/// Along the gradient of all parameters together the loss rises as fast as the gradient's norm
/// says.
#[test]
fn gradients_are_slopes() {
    for (name, mut model) in all() {
        let parameters = model.initial_parameters(1);
        let images = images(&model);
        let (loss, gradients, norm) = slope(&mut model, &parameters, &images);
        for (tensor, gradient) in model.tensors().iter().zip(&gradients) {
            assert!(gradient.iter().any(|&value| value != 0.0), "{name}: {}", tensor.name());
        }
        // Far enough to change the loss by a few ten-thousandths of itself.
        let step = (0.0003 * loss / norm).min(2e-3);
        let mut loss_at = |distance: f64| {
            let (mut there, gradient) = (parameters.clone(), gradients.iter().flatten());
            go(there.iter_mut().flatten(), distance / norm, gradient);
            slope(&mut model, &there, &images).0
        };
        let found = (loss_at(step) - loss_at(-step)) / (2.0 * step);
        assert!((found / norm - 1.0).abs() < 0.03, "{name}: {found} against {norm}");
    }
}

#[test]
fn evaluation_scores_each_image() {
    for (name, mut model) in all() {
        let parameters = model.initial_parameters(1);
        let images = images(&model);
        model.add_gradients(&parameters, &images, &LABELS, &mut zeros(model.tensors()), None);
        let score = model.evaluate(&parameters, model.statistics(), &images, &LABELS);
        assert_eq!(score.examples, LABELS.len());
        assert!(score.loss.is_finite() && score.loss > 0.0, "{name}: {}", score.loss);
    }
}

#[test]
fn observed_statistics_are_means_over_batches() {
    let with_norms = all().into_iter().filter(|(_, model)| !model.statistics().is_empty());
    for (name, mut model) in with_norms {
        let parameters = model.initial_parameters(1);
        let first = images(&model);
        let second: Vec<f32> = first.iter().map(|x| 0.5 - 2.0 * x).collect();
        // From mean 0 and variance 1 training moves by a tenth.
        let fresh = model.statistics().to_vec();
        let mut of_batch = |images: &[f32]| {
            model.set_statistics(fresh.clone());
            model.add_gradients(&parameters, images, &LABELS, &mut zeros(model.tensors()), None);
            model.statistics().to_vec()
        };
        let [a, b] = [of_batch(&first), of_batch(&second)];
        model.observe(&parameters, &first, 1.0);
        model.observe(&parameters, &second, 0.5);
        for (found, (a, b)) in model.statistics().iter().zip(a.iter().zip(&b)) {
            for (channel, mean) in found.mean.iter().enumerate() {
                close(name, *mean, 5.0 * (a.mean[channel] + b.mean[channel]));
                let variances = a.variance[channel] + b.variance[channel] - 1.8;
                close(name, found.variance[channel], 5.0 * variances);
            }
        }
    }
}

fn close(name: &str, found: f32, expected: f32) {
    assert!((found - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{name}: {found} {expected}");
}
