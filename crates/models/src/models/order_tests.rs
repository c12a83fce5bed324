//! Gradients passed to a sink are final, and come in the order that `gradient_order` returns.

use std::sync::{Arc, Mutex};

use gradwire_exchange::GradientSink;

use super::tests::{model, zeros};
use super::*;

/// The received gradients, in order.
#[derive(Debug, Default)]
struct Collected(Mutex<Vec<(usize, Vec<f32>)>>);

impl GradientSink for Collected {
    fn ready(&self, index: usize, gradient: &[f32]) {
        self.0.lock().unwrap().push((index, gradient.to_vec()));
    }
}

/// Every network of images, the large ones narrow.
fn models() -> Vec<(&'static str, Model)> {
    let model = |name: &str, [channels, height, width]: [usize; 3]| {
        model(name, ImageShape { channels, height, width, classes: 5 })
    };
    let mut models = vec![
        ("mlp", model("mlp:20-10-5", [1, 6, 6])),
        ("lenet5", model("lenet5", [1, 16, 18])),
        ("lenet5:relu", model("lenet5:relu", [2, 16, 18])),
        ("cifar-cnn", model("cifar-cnn", [3, 16, 16])),
        ("resnet8", model("resnet8", [3, 8, 10])),
        ("resnet20", model("resnet20", [3, 8, 8])),
        ("unet", unet::tests::narrow()),
    ];
    models.extend(tests::deep::all());
    models
}

/// Loss and gradients of a batch.
fn step(model: &mut Model, sink: Option<&Arc<dyn GradientSink>>) -> (f64, Vec<Vec<f32>>) {
    let shape = model.shape();
    let parameters = model.initial_parameters(3);
    let images: Vec<f32> = (0..2 * shape.elements())
        .map(|at| (at as f32 * 0.37).sin() + 0.3 * (at as f32 * 1.7).cos())
        .collect();
    let each = if shape.classes == 2 { shape.height * shape.width } else { 1 };
    let labels: Vec<u16> = (0..2 * each).map(|at| (at % shape.classes) as u16).collect();
    let mut gradients = zeros(model.tensors());
    let loss = model.add_gradients(&parameters, &images, &labels, &mut gradients, sink);
    (loss, gradients)
}

#[test]
fn a_sink_gets_final_gradients_in_the_order_that_was_said_and_changes_nothing() {
    for (name, mut model) in models() {
        let plain = step(&mut model, None);
        let collected = Arc::new(Collected::default());
        let sink: Arc<dyn GradientSink> = collected.clone();
        assert!(step(&mut model, Some(&sink)) == plain, "{name}: a sink has changed something");
        let collected = collected.0.lock().unwrap();
        let order: Vec<usize> = collected.iter().map(|(index, _)| *index).collect();
        assert_eq!(order, model.gradient_order().concat(), "{name}");
        for (index, gradient) in collected.iter() {
            assert!(*gradient == plain.1[*index], "{name}: {}", model.tensors()[*index].name());
        }
        let mut all = order;
        all.sort_unstable();
        assert!(all.into_iter().eq(0..model.tensors().len()), "{name}");
        assert!(plain.1.iter().flatten().any(|&value| value != 0.0), "{name}");
    }
}

#[test]
fn the_layers_of_lenet5_come_from_back_to_front() {
    let shape = ImageShape { channels: 1, height: 16, width: 16, classes: 5 };
    let order = model("lenet5", shape).gradient_order();
    assert_eq!(order, [[6, 7], [4, 5], [2, 3], [0, 1]]);
}

#[test]
fn a_block_comes_before_its_shortcut() {
    let shape = ImageShape { channels: 2, height: 8, width: 8, classes: 5 };
    let model = tests::narrow(shape, |net| {
        let body = |net: &mut network::Builder| {
            net.conv("a", 3, window::Window::same(3), layout::Next::Relu).relu();
            net.conv("b", 3, window::Window::same(3), layout::Next::Relu);
        };
        let shortcut = |net: &mut network::Builder| {
            net.conv("c", 3, window::Window::of(1), layout::Next::Relu);
        };
        net.residual(body, shortcut).classifier("d");
    });
    assert_eq!(model.gradient_order(), [[6, 7], [2, 3], [0, 1], [4, 5]]);
}
