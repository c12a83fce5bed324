//! Counts against hand calculations, gradients against finite differences.

pub(super) mod deep;

use super::*;

const MNIST: ImageShape = ImageShape { channels: 1, height: 28, width: 28, classes: 10 };
const FRAMES: ImageShape = ImageShape { channels: 1, height: 11, width: 40, classes: 5999 };
const CIFAR: ImageShape = ImageShape { channels: 3, height: 32, width: 32, classes: 10 };
const IMAGENET: ImageShape = ImageShape { channels: 3, height: 224, width: 224, classes: 1000 };
const LENET5: ModelKind = ModelKind::LeNet5 { rectified: false };

pub(super) fn model(name: &str, shape: ImageShape) -> Model {
    Model::new(name.parse().unwrap(), shape).unwrap()
}

/// A model of the network that `declare` adds, in sizes without a name.
pub(super) fn narrow(shape: ImageShape, declare: impl FnOnce(&mut network::Builder)) -> Model {
    let mut net = network::Builder::new(shape);
    declare(&mut net);
    let (layout, network) = net.finish();
    Model::with_network(shape, layout, network)
}

pub(super) fn zeros(tensors: &[gradwire::Tensor]) -> Vec<Vec<f32>> {
    tensors.iter().map(|tensor| vec![0.0; tensor.elements()]).collect()
}

pub(super) fn elements(tensors: &[gradwire::Tensor]) -> usize {
    tensors.iter().map(gradwire::Tensor::elements).sum()
}

pub(super) fn norm<'a>(values: impl IntoIterator<Item = &'a f32>) -> f64 {
    values.into_iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}

/// Adds `factor` times the gradient to these parameters.
pub(super) fn go<'a>(
    parameters: impl IntoIterator<Item = &'a mut f32>,
    factor: f64,
    gradient: impl IntoIterator<Item = &'a f32>,
) {
    for (value, gradient) in parameters.into_iter().zip(gradient) {
        *value += factor as f32 * gradient;
    }
}

/// Images without structure, from a small generator of the test's own.
fn noise(count: usize) -> Vec<f32> {
    let mut x = 12345u32;
    (0..count)
        .map(|_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

#[test]
fn models_that_do_not_fit_into_memory_are_refused() {
    let side = 1 << 24;
    let shape = ImageShape { channels: 3, height: side, width: side, classes: 10 };
    let error = Model::new("mlp".parse().unwrap(), shape).unwrap_err();
    // 300 weights per value, and 300 + 30 100 + 1010.
    let parameters = 300 * 3 * (1 << 48) + 300 + 30_100 + 1010;
    assert_eq!(error, ModelError::TooLarge { parameters });
    assert!(error.to_string().contains("253327479039621810 parameters"), "{error}");
}

#[test]
fn counts_are_those_worked_out_by_hand() {
    let with = |classes, shape| ImageShape { classes, ..shape };
    let grey = ImageShape { channels: 1, classes: 2, height: 512, width: 512 };
    for (name, shape, parameters, tensors) in [
        ("mlp", MNIST, 266_610, 6),
        ("mlp:392-50,tanh", MNIST, 327_880, 6),
        ("mlp:1024-1024-1024-1024-1024", FRAMES, 10_798_959, 12),
        ("lenet5", MNIST, 431_080, 8),
        ("lenet5:relu", MNIST, 431_080, 8),
        ("cifar-cnn", CIFAR, 89_578, 8),
        ("resnet20", CIFAR, 269_722, 59),
        ("resnet32", CIFAR, 464_154, 95),
        ("resnet56", CIFAR, 853_018, 167),
        ("resnet110", CIFAR, 1_727_962, 329),
        ("densenet40", CIFAR, 357_322, 158),
        ("vgg16", CIFAR, 14_982_474, 30),
        ("resnet18", IMAGENET, 11_689_512, 62),
        ("resnet50", IMAGENET, 25_557_032, 161),
        ("vgg19", IMAGENET, 143_667_240, 38),
        ("alexnet", IMAGENET, 62_378_344, 16),
        ("unet:4", grey, 116_017, 46),
        // Xu et al. 2020, Table 3; 11 and 1001 classes if it has one for the background.
        ("densenet40", with(11, CIFAR), 357_491, 158),
        ("resnet9", CIFAR, 6_573_120, 25),
        ("vgg16", with(11, CIFAR), 14_982_987, 30),
        ("resnet50", with(1001, IMAGENET), 25_559_081, 161),
        ("vgg19", with(1001, IMAGENET), 143_671_337, 38),
        ("unet", grey, 1_850_305, 46),
    ] {
        let model = model(name, shape);
        let found = (elements(model.tensors()), model.tensors().len());
        assert_eq!(found, (parameters, tensors), "{name}");
    }
    // One input channel instead of three.
    assert_eq!(elements(model("resnet20", MNIST).tensors()), 269_722 - 2 * 16 * 9);
}

#[test]
fn names_are_paths_and_unique() {
    let model = model("resnet20", CIFAR);
    let mut names: Vec<_> = model.tensors().iter().map(|t| t.name().to_owned()).collect();
    assert_eq!(names[..3], ["conv.weight", "norm.scale", "norm.shift"]);
    assert!(names.contains(&"stage2.block1.conv2.weight".to_owned()));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 59);
}

#[test]
fn kinds_parse_and_print() {
    let names = "mlp mlp:7 mlp:392-50,tanh mlp:392-50,tanh,squared gpt gpt:context=32 lenet5 lenet5:relu cifar-cnn resnet8 resnet20 resnet1202 resnet9 densenet40 \
                 vgg16 vgg19 alexnet resnet18 resnet50 unet unet:4 charlstm charlstm:hidden=512,unroll=100,dropout=0.25,embedding=off wordlstm wordlstm:dropout=0 ncf";
    for name in names.split(' ') {
        assert_eq!(name.parse::<ModelKind>().unwrap().to_string(), name);
    }
    let unknown =
        "mlp: mlp:x mlp:5,sin mlp:5,squared gpts resnet resnet-20 vgg unet:x unet4 vgg16:1";
    for name in unknown.split(' ').chain([""]) {
        let message = name.parse::<ModelKind>().unwrap_err().to_string();
        assert!(message.contains("lenet5, lenet5:relu") && message.contains(name), "{message}");
    }
    for (name, says) in [
        ("mlp:0", "out of range: give 1 to 8 hidden layers of 1 to 65536 units"),
        ("mlp:99999999999999999999999", "1 to 65536 units"),
        ("mlp:1-2-3-4-5-6-7-8-9", "1 to 8 hidden layers"),
        ("unet:0", "1 to 256 channels"),
        ("unet:257", "1 to 256 channels"),
        ("resnet2", "6n+2 from 8 to 1202 except 50"),
        ("resnet050", "6n+2"),
        ("resnet34", "6n+2"),
        ("resnet1208", "6n+2"),
        ("gpt:layers=0", "1 to 256"),
        ("gpt:heads=3", "heads=3 is not allowed; give a number that divides the width"),
        ("gpt:width=130", "width=130 is not allowed; give a multiple of 4, the number of heads"),
        ("gpt:depth=3", "layers, heads"),
        ("charlstm:hidden=0", "1 to 4096"),
        ("charlstm:64", "'64' does not have the form key=value"),
        ("wordlstm:dropout=0.125", "a multiple of 0.01 from 0 to 0.9"),
        ("wordlstm:embedding=no", "off or on"),
    ] {
        let message = name.parse::<ModelKind>().unwrap_err().to_string();
        assert!(message.contains(says), "{name}: {message}");
    }
}

#[test]
fn impossible_shapes_are_refused() {
    let small = ImageShape { height: 15, ..MNIST };
    let message = Model::new(LENET5, small).unwrap_err().to_string();
    assert!(message.contains("at least 16×16") && message.contains("28×15×1"), "{message}");
    assert!(Model::new(LENET5, ImageShape { height: 16, width: 16, ..MNIST }).is_ok());
    let mlp = "mlp".parse().unwrap();
    assert!(Model::new(mlp, ImageShape { channels: 0, ..MNIST }).is_err());
    assert!(Model::new(mlp, ImageShape { classes: 1, ..MNIST }).is_err());
    for (name, least) in
        [("densenet40", 4), ("resnet9", 8), ("vgg16", 32), ("vgg19", 32), ("alexnet", 63)]
    {
        let kind: ModelKind = name.parse().unwrap();
        let square = |side| ImageShape { height: side, width: side, ..CIFAR };
        assert!(Model::new(kind, square(least)).is_ok(), "{name}");
        let message = Model::new(kind, square(least - 1)).unwrap_err().to_string();
        let says = format!("{name} needs images of at least {least}×");
        assert!(message.contains(&says), "{message}");
    }
    let grey = ImageShape { classes: 2, height: 32, width: 16, ..MNIST };
    for bad in [
        ImageShape { height: 500, ..grey },
        ImageShape { width: 8, ..grey },
        ImageShape { classes: 3, ..grey },
    ] {
        let message = Model::new("unet".parse().unwrap(), bad).unwrap_err().to_string();
        assert!(message.contains("unet") && message.contains("multiples of 16"), "{message}");
    }
}

#[test]
fn initial_parameters_have_their_distribution() {
    let model = model("lenet5", MNIST);
    let parameters = model.initial_parameters(7);
    assert_eq!(parameters, model.initial_parameters(7));
    assert_ne!(parameters, model.initial_parameters(8));
    let moments = |values: &[f32]| {
        let n = values.len() as f64;
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let square = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n;
        (mean, square)
    };
    for (name, variance) in [("fc1.weight", 2.0 / 800.0), ("conv2.weight", 1.0 / 500.0)] {
        let at = model.tensors().iter().position(|t| t.name() == name).unwrap();
        let (mean, square) = moments(&parameters[at]);
        assert!(mean.abs() < 0.02 * f64::sqrt(variance), "{name}: mean {mean}");
        assert!((square / variance - 1.0).abs() < 0.03, "{name}: variance {square}");
        let bound = f64::sqrt(3.0 * variance) as f32;
        assert!(parameters[at].iter().all(|v| v.abs() <= bound), "{name}");
    }
    assert!(parameters[1].iter().all(|&bias| bias == 0.0));
}

#[test]
fn equal_scores_cost_the_logarithm_of_the_number_of_classes() {
    let mut model = model("mlp", MNIST);
    let (parameters, mut gradients) = (zeros(model.tensors()), zeros(model.tensors()));
    let loss = model.add_gradients(&parameters, &noise(2 * 784), &[3, 3], &mut gradients, None);
    assert!((loss - f64::ln(10.0)).abs() < 1e-6, "{loss}");
    // With all parameters zero only the last bias has a gradient: softmax − target.
    let expected: Vec<f32> = (0..10).map(|class| if class == 3 { -0.9 } else { 0.1 }).collect();
    for (found, expected) in gradients[5].iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
    assert!(gradients[..5].iter().flatten().all(|&g| g == 0.0));
    let score = model.evaluate(&parameters, model.statistics(), &noise(3 * 784), &[0, 3, 0]);
    assert_eq!((score.correct, score.examples), (2, 3));
    assert!((score.loss - 3.0 * f64::ln(10.0)).abs() < 1e-5);
}

#[test]
fn squared_errors_are_distances_from_one_and_minus_one() {
    let mut model = model("mlp:4,tanh,squared", MNIST);
    let (parameters, mut gradients) = (zeros(model.tensors()), zeros(model.tensors()));
    let loss = model.add_gradients(&parameters, &noise(2 * 784), &[3, 3], &mut gradients, None);
    // All outputs are 0: ten distances of 1, and tanh has the slope 1.
    assert!((loss - 5.0).abs() < 1e-6, "{loss}");
    let expected: Vec<f32> = (0..10).map(|class| if class == 3 { -1.0 } else { 1.0 }).collect();
    assert_eq!(gradients[3], expected);
    let score = model.evaluate(&parameters, model.statistics(), &noise(3 * 784), &[0, 3, 0]);
    assert_eq!((score.correct, score.examples, score.loss), (2, 3, 15.0));
}

#[test]
fn scores_begin_small_behind_pooled_rectifiers() {
    for (name, shape) in [("cifar-cnn", CIFAR), ("lenet5:relu", MNIST)] {
        let mut model = model(name, shape);
        let images =
            noise(32 * shape.elements()).iter().map(|x| x * 3.0f32.sqrt()).collect::<Vec<_>>();
        let labels: Vec<u16> = (0..32).map(|at| at % 10).collect();
        let parameters = model.initial_parameters(3);
        let loss =
            model.add_gradients(&parameters, &images, &labels, &mut zeros(model.tensors()), None);
        assert!((2.2..3.0).contains(&loss), "{name} begins with a loss of {loss}");
    }
}

/// The directional derivative of the loss, by gradient and by differences.
fn check_gradient(name: &str, shape: ImageShape) {
    let mut model = model(name, shape);
    let parameters = model.initial_parameters(1);
    let images = noise(4 * shape.elements());
    let labels = [0, 3, 9, 3];
    let mut gradients = zeros(model.tensors());
    model.add_gradients(&parameters, &images, &labels, &mut gradients, None);
    for at in 0..parameters.len() {
        // Along the gradient itself: there the derivative is its norm.
        let norm = norm(&gradients[at]);
        if norm < 1e-3 {
            continue;
        }
        let step = 2e-3;
        let mut loss_at = |distance: f64| {
            let mut moved = parameters.clone();
            go(&mut moved[at], distance / norm, &gradients[at]);
            model.add_gradients(&moved, &images, &labels, &mut zeros(model.tensors()), None)
        };
        let difference = (loss_at(step) - loss_at(-step)) / (2.0 * step);
        let name = model.tensors()[at].name();
        assert!((difference / norm - 1.0).abs() < 0.05, "{name}: {difference} against {norm}");
    }
}

#[test]
fn gradients_are_slopes() {
    check_gradient("mlp", MNIST);
    check_gradient("mlp:20-5,tanh", MNIST);
    check_gradient("mlp:20-5,tanh,squared", MNIST);
    check_gradient("lenet5:relu", MNIST);
    check_gradient("cifar-cnn", CIFAR);
    check_gradient("lenet5", MNIST);
    check_gradient("resnet8", ImageShape { channels: 2, height: 9, width: 9, classes: 10 });
}

#[test]
fn gradients_are_added() {
    let mut model = model("mlp", MNIST);
    let parameters = model.initial_parameters(1);
    let images = noise(2 * 784);
    let mut once = zeros(model.tensors());
    model.add_gradients(&parameters, &images, &[1, 2], &mut once, None);
    let mut twice = once.clone();
    model.add_gradients(&parameters, &images, &[1, 2], &mut twice, None);
    for (once, twice) in once.iter().flatten().zip(twice.iter().flatten()) {
        assert!((2.0 * once - twice).abs() <= 1e-5 * (1.0 + twice.abs()), "{once} and {twice}");
    }
}

#[test]
fn running_statistics_follow_the_batches() {
    let shape = ImageShape { channels: 1, height: 8, width: 8, classes: 2 };
    let mut model = model("resnet8", shape);
    let mut parameters = zeros(model.tensors());
    // A convolution that copies the image to every channel.
    for kernel in parameters[0].chunks_exact_mut(9) {
        kernel[4] = 1.0;
    }
    // Mean 1, variance 4.
    let images: Vec<f32> = (0..64).map(|i| if i % 2 == 0 { 3.0 } else { -1.0 }).collect();
    model.add_gradients(&parameters, &images, &[0], &mut zeros(model.tensors()), None);
    let seen = &model.statistics()[0];
    assert!(seen.mean.iter().all(|mean| (mean - 0.1).abs() < 1e-6), "{:?}", seen.mean);
    assert!(seen.variance.iter().all(|v| (v - (0.9 + 0.4)).abs() < 1e-5), "{:?}", seen.variance);

    let mut state = gradwire::State::new();
    model.save("norm/", &mut state);
    let mut other = Model::new("resnet8".parse().unwrap(), shape).unwrap();
    other.restore("norm/", &state).unwrap();
    assert_eq!(other.statistics(), model.statistics());
    let message = other.restore("other/", &state).unwrap_err().to_string();
    assert!(message.contains("other/norm.mean"), "{message}");
}
