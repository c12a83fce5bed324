//! The deep networks: counts of the papers at full size, gradients and training of narrow ones.

use crate::models::alexnet::AlexNet;
use crate::models::densenet::DenseNet;
use crate::models::imagenet_resnet::{ImageNetResNet, RESNET18, RESNET50, ResNetConfig};
use crate::models::layers::Layout;
use crate::models::network::Network;
use crate::models::resnet9::ResNet9;
use crate::models::vgg::{VGG16, VGG19, Vgg, VggConfig};
use crate::models::*;

const CIFAR: ImageShape = ImageShape { channels: 3, height: 32, width: 32, classes: 10 };
const IMAGENET: ImageShape = ImageShape { channels: 3, height: 224, width: 224, classes: 1000 };
/// The shape of the narrow networks' images.
const SMALL: ImageShape = ImageShape { channels: 2, height: 32, width: 34, classes: 5 };
const LABELS: [u16; 4] = [0, 3, 4, 3];

fn with(classes: usize, shape: ImageShape) -> ImageShape {
    ImageShape { classes, ..shape }
}

#[test]
fn counts_are_those_of_the_survey() {
    // Xu et al. 2020, Table 3; 11 and 1001 classes where it has one for the background.
    for (name, shape, parameters, tensors) in [
        ("densenet40", with(11, CIFAR), 357_491, 158),
        ("resnet9", CIFAR, 6_573_120, 25),
        ("vgg16", with(11, CIFAR), 14_982_987, 30),
        ("resnet50", with(1001, IMAGENET), 25_559_081, 161),
        ("vgg19", with(1001, IMAGENET), 143_671_337, 38),
    ] {
        let model = Model::new(name.parse().unwrap(), shape).unwrap();
        assert_eq!(model.parameters(), parameters, "{name}");
        assert_eq!(model.tensors().len(), tensors, "{name}");
    }
}

#[test]
fn counts_are_those_of_the_docs() {
    for (name, shape, parameters, tensors) in [
        ("densenet40", CIFAR, 357_322, 158),
        ("vgg16", CIFAR, 14_982_474, 30),
        ("resnet18", IMAGENET, 11_689_512, 62),
        ("resnet50", IMAGENET, 25_557_032, 161),
        ("vgg19", IMAGENET, 143_667_240, 38),
        ("alexnet", IMAGENET, 62_378_344, 16),
    ] {
        let model = Model::new(name.parse().unwrap(), shape).unwrap();
        assert_eq!(model.parameters(), parameters, "{name}");
        assert_eq!(model.tensors().len(), tensors, "{name}");
    }
}

#[test]
fn small_images_are_refused() {
    for (name, least) in
        [("densenet40", 4), ("resnet9", 8), ("vgg16", 32), ("vgg19", 32), ("alexnet", 63)]
    {
        let kind: ModelKind = name.parse().unwrap();
        let square = |side| ImageShape { height: side, width: side, ..CIFAR };
        assert!(Model::new(kind, square(least)).is_ok(), "{name}");
        let message = Model::new(kind, square(least - 1)).unwrap_err().to_string();
        assert!(
            message.contains(&format!("{name} needs images of at least {least}×")),
            "{message}"
        );
    }
}

/// A model of the network that `declare` declares for such images.
fn narrow<N: Network + 'static>(
    shape: ImageShape,
    declare: impl FnOnce(&mut Layout, ImageShape) -> N,
) -> Model {
    let mut layout = Layout::default();
    let network = declare(&mut layout, shape);
    Model::with_network(shape, layout, Box::new(network))
}

fn densenet() -> Model {
    narrow(SMALL, |layout, shape| DenseNet::new(layout, [2, 3], shape).unwrap())
}

fn resnet9() -> Model {
    narrow(SMALL, |layout, shape| ResNet9::new(layout, 3, shape).unwrap())
}

fn vgg(config: VggConfig, hidden: &'static [usize]) -> Model {
    let config = VggConfig { width: 4, hidden, ..config };
    narrow(SMALL, |layout, shape| Vgg::new(layout, config, shape).unwrap())
}

fn alexnet() -> Model {
    let shape = ImageShape { height: 63, width: 80, ..SMALL };
    narrow(shape, |layout, shape| AlexNet::new(layout, 1, shape).unwrap())
}

fn resnet(config: ResNetConfig) -> Model {
    let config = ResNetConfig { blocks: [1, 2, 1, 1], width: 8, ..config };
    let shape = ImageShape { height: 64, width: 65, ..SMALL };
    narrow(shape, |layout, shape| ImageNetResNet::new(layout, config, shape))
}

pub(in crate::models) fn all() -> [(&'static str, Model); 7] {
    [
        ("densenet40", densenet()),
        ("resnet9", resnet9()),
        ("vgg16", vgg(VGG16, &[16])),
        ("vgg19", vgg(VGG19, &[16, 16])),
        ("alexnet", alexnet()),
        ("resnet18", resnet(RESNET18)),
        ("resnet50", resnet(RESNET50)),
    ]
}

fn zeros(model: &Model) -> Vec<Vec<f32>> {
    model.tensors().iter().map(|tensor| vec![0.0; tensor.elements()]).collect()
}

/// Four images with a little structure.
fn images(model: &Model) -> Vec<f32> {
    (0..LABELS.len() * model.shape().elements())
        .map(|at| (at as f32 * 0.37).sin() + (at as f32 * 0.011).cos())
        .collect()
}

/// The loss, its gradient and that one's norm.
fn slope(model: &mut Model, parameters: &[Vec<f32>], images: &[f32]) -> (f64, Vec<Vec<f32>>, f64) {
    let mut gradients = zeros(model);
    let loss = model.add_gradients(parameters, images, &LABELS, &mut gradients);
    let squares = gradients.iter().flatten().map(|g| f64::from(*g).powi(2)).sum::<f64>();
    (loss, gradients, squares.sqrt())
}

/// The parameters moved by `distance` along a gradient of norm `norm`.
fn moved(
    parameters: &[Vec<f32>],
    gradients: &[Vec<f32>],
    norm: f64,
    distance: f64,
) -> Vec<Vec<f32>> {
    let mut moved = parameters.to_vec();
    for (value, gradient) in moved.iter_mut().flatten().zip(gradients.iter().flatten()) {
        *value += (distance / norm) as f32 * gradient;
    }
    moved
}

/// Steps of which each would lower a straight loss by a tenth.
#[test]
fn training_lowers_the_loss() {
    for (name, mut model) in all() {
        let mut parameters = model.initial_parameters(2);
        let images = images(&model);
        let mut losses = Vec::new();
        for _ in 0..16 {
            let (loss, gradients, norm) = slope(&mut model, &parameters, &images);
            parameters = moved(&parameters, &gradients, norm, -0.1 * loss / norm);
            losses.push(loss);
        }
        assert!(losses[15] < 0.8 * losses[0], "{name}: {losses:?}");
    }
}

/// Along the gradient of all parameters together the loss rises as fast as the gradient's norm says.
#[test]
fn gradients_are_slopes() {
    for (name, mut model) in all() {
        let parameters = model.initial_parameters(1);
        let images = images(&model);
        let (loss, gradients, norm) = slope(&mut model, &parameters, &images);
        for (tensor, gradient) in model.tensors().iter().zip(&gradients) {
            assert!(gradient.iter().any(|&value| value != 0.0), "{name}: {}", tensor.name());
        }
        // As far as changes the loss by a few ten-thousandths of itself.
        let step = (0.0003 * loss / norm).min(2e-3);
        let mut loss_at = |distance: f64| {
            let there = moved(&parameters, &gradients, norm, distance);
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
        model.add_gradients(&parameters, &images, &LABELS, &mut zeros(&model));
        let score = model.evaluate(&parameters, &images, &LABELS);
        assert_eq!(score.examples, LABELS.len());
        assert!(score.loss.is_finite() && score.loss > 0.0, "{name}: {}", score.loss);
    }
}

#[test]
fn pooling_by_hand() {
    use crate::models::layers::{floats, global_mean, max_pool_padded, mean_pool};
    use burn::tensor::{Device, Tensor, TensorData};
    let values: Vec<f32> = (0..16).map(|at| at as f32).collect();
    let x = Tensor::<4>::from_data(TensorData::new(values, [1, 1, 4, 4]), &Device::flex());
    assert_eq!(floats(&mean_pool(x.clone(), 2).into_data()), [2.5, 4.5, 10.5, 12.5]);
    assert_eq!(floats(&global_mean(x.clone()).into_data()), [7.5]);
    // Windows at −1, 1 of rows and columns 0..3.
    assert_eq!(floats(&max_pool_padded(x, 3, 2, 1).into_data()), [5.0, 7.0, 13.0, 15.0]);
}
