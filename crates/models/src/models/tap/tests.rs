//! Gradients handed to a sink are the final ones, come in the order of back-propagation, and change nothing.

use std::sync::{Arc, Mutex};

use crate::burn::backend::autodiff::checkpoint::base::Checkpointer;
use crate::burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use crate::burn::backend::autodiff::grads::Gradients;
use crate::burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use crate::burn::backend::{Autodiff, Flex};
use gradwire_exchange::GradientSink;

use crate::burn::tensor::Tensor;

use crate::models::layers::Pass;
use crate::models::network::Network;
use crate::models::tests::{model, zeros};
use crate::models::*;

/// What came, in the order in which it came.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<(usize, Vec<f32>)>>);

impl GradientSink for Heard {
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

/// Loss and gradients of a step from zero, and the batch-norm statistics after it.
fn step(
    model: &mut Model,
    early: Option<Arc<dyn GradientSink>>,
) -> (u64, Vec<Vec<u32>>, Vec<Statistics>) {
    let shape = model.shape();
    let parameters = model.initial_parameters(3);
    let images: Vec<f32> = (0..2 * shape.elements())
        .map(|at| (at as f32 * 0.37).sin() + 0.3 * (at as f32 * 1.7).cos())
        .collect();
    let each = if shape.classes == 2 { shape.height * shape.width } else { 1 };
    let labels: Vec<u16> = (0..2 * each).map(|at| (at % shape.classes) as u16).collect();
    let mut gradients = zeros(model.tensors());
    let before = model.statistics().to_vec();
    let loss = model.add_gradients(&parameters, &images, &labels, &mut gradients, early.as_ref());
    let after = model.statistics().to_vec();
    model.set_statistics(before);
    (loss.to_bits(), gradients.iter().map(|values| bits(values)).collect(), after)
}

fn bits(values: &[f32]) -> Vec<u32> {
    // A gradient is added to nothing, which leaves no zero with a sign.
    values.iter().map(|value| (0.0 + value).to_bits()).collect()
}

#[test]
fn early_gradients_are_the_final_ones_and_taps_change_nothing() {
    for (name, mut model) in models() {
        let plain = step(&mut model, None);
        let heard = Arc::new(Heard::default());
        let tapped = step(&mut model, Some(heard.clone()));
        assert!(plain == tapped, "{name}: a tap has changed something");
        assert!(plain.1.iter().flatten().any(|&bits| bits != 0), "{name}: there is no gradient");
        let heard = heard.0.lock().unwrap();
        for (at, gradient) in heard.iter() {
            assert!(bits(gradient) == plain.1[*at], "{name}: {}", model.tensors()[*at].name());
        }
    }
}

#[test]
fn gradients_come_part_by_part_and_all_but_the_last_part_early() {
    for (name, mut model) in models() {
        let order = model.gradient_order();
        let mut all: Vec<usize> = order.concat();
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..model.tensors().len()), "{name}: {order:?}");
        assert!(order.len() > 2, "{name}: {order:?}");
        let heard = Arc::new(Heard::default());
        step(&mut model, Some(heard.clone()));
        let heard: Vec<usize> = heard.0.lock().unwrap().iter().map(|(at, _)| *at).collect();
        assert_eq!(heard, order[..order.len() - 1].concat(), "{name}");
    }
}

#[test]
fn the_layers_of_lenet5_come_from_back_to_front() {
    let shape = ImageShape { channels: 1, height: 16, width: 16, classes: 5 };
    let order = model("lenet5", shape).gradient_order();
    assert_eq!(order, [[6, 7], [4, 5], [2, 3], [0, 1]]);
}

/// Three layers, of which the first is followed by a step of back-propagation that says when it runs.
#[derive(Debug)]
struct Marked([layers::Linear; 3], Arc<Heard>);

/// In the place of a tensor: back-propagation has come to the first layer.
const FIRST: usize = usize::MAX;

#[derive(Debug)]
struct Mark;

impl Backward<Flex, 1> for Mark {
    type State = Arc<Heard>;

    fn backward(self, ops: Ops<Arc<Heard>, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        ops.state.ready(FIRST, &[]);
        let gradient = gradients.consume::<Flex>(&ops.node);
        let [input] = ops.parents;
        gradients.register::<Flex>(input.expect("the first layer is learned").id, gradient);
    }
}

impl Network for Marked {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        let Self([first, second, third], heard) = self;
        let mut x = first.forward(pass, images.flatten::<2>(1, 3));
        if let Ok(tracked) = x.clone().try_into_primitive::<Autodiff<Flex>>() {
            let (values, input) = tracked.into_parts();
            let mark = Mark.prepare::<NoCheckpointing>([input]).compute_bound().stateful();
            let OpsKind::Tracked(mark) = mark else { panic!("the first layer is learned") };
            x = Tensor::from_primitive::<Autodiff<Flex>>(mark.finish(heard.clone(), values));
        }
        let x = second.forward(pass, pass.tap(x));
        third.forward(pass, pass.tap(x))
    }
}

#[test]
fn gradients_are_handed_over_before_back_propagation_comes_to_the_layers_before() {
    let shape = ImageShape { channels: 1, height: 1, width: 5, classes: 5 };
    let (mut layout, heard) = (layers::Layout::default(), Arc::new(Heard::default()));
    let layers = ["a", "b", "c"]
        .map(|name| layers::Linear::new(&mut layout, name, [5, 5], layers::Next::Linear));
    let network = Box::new(Marked(layers, heard.clone()));
    let mut model = Model::with_network(shape, layout, network);
    step(&mut model, Some(heard.clone()));
    let order: Vec<usize> = heard.0.lock().unwrap().iter().map(|(at, _)| *at).collect();
    assert_eq!(order, [4, 5, 2, 3, FIRST]);
}

/// A network that uses its first layer again behind a tap, and another only there.
#[derive(Debug)]
struct Again([layers::Linear; 2]);

impl Network for Again {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        let [first, second] = &self.0;
        let x = first.forward(pass, images.flatten::<2>(1, 3));
        let x = first.forward(pass, pass.tap(x));
        let x = pass.tap(second.forward(pass, x));
        first.forward(pass, x)
    }
}

#[test]
fn what_is_used_twice_is_left_to_the_end() {
    let shape = ImageShape { channels: 1, height: 1, width: 5, classes: 5 };
    let mut layout = layers::Layout::default();
    let network = Again(
        ["a", "b"].map(|name| layers::Linear::new(&mut layout, name, [5, 5], layers::Next::Linear)),
    );
    let mut model = Model::with_network(shape, layout, Box::new(network));
    assert_eq!(model.gradient_order(), [[2, 3], [0, 1]]);
    let heard = Arc::new(Heard::default());
    let plain = step(&mut model, None);
    assert!(plain == step(&mut model, Some(heard.clone())));
    let heard = heard.0.lock().unwrap();
    assert_eq!(heard.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [2, 3]);
    assert!(heard.iter().all(|(at, gradient)| bits(gradient) == plain.1[*at]));
}
