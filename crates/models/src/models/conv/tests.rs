//! The operation against the engine's own convolution and its gradients.

use crate::burn::tensor::ops::ConvOptions;
use crate::burn::tensor::{Device, Tensor, TensorData, module};

use super::conv;
use crate::models::layers::{Window, floats};

fn values(shape: [usize; 4], step: f32, device: &Device) -> Tensor<4> {
    let values = (0..shape.iter().product()).map(|at: usize| (at as f32 * step).sin()).collect();
    Tensor::from_data(TensorData::new::<f32, _>(values, shape), device)
}

fn close(found: Tensor<4>, expected: Tensor<4>) {
    assert_eq!(found.dims(), expected.dims());
    let (found, expected) = (found.into_data(), expected.into_data());
    for (found, expected) in floats(&found).iter().zip(floats(&expected)) {
        assert!((found - expected).abs() < 1e-3, "{found} for {expected}");
    }
}

#[test]
fn values_and_gradients_are_those_of_the_engine() {
    let cases = [
        (1, 1, 4, 5, 0),
        (3, 1, 6, 6, 1),
        (3, 2, 8, 7, 1),
        (3, 2, 7, 8, 1),
        (5, 1, 9, 7, 0),
        (5, 1, 6, 40, 2),
        (1, 2, 5, 5, 0),
        (1, 3, 6, 7, 0),
        (2, 2, 5, 4, 0),
        (4, 3, 11, 9, 2),
        (7, 2, 12, 10, 3),
        (11, 4, 20, 23, 2),
        (2, 3, 8, 9, 1),
        (4, 2, 5, 5, 2),
        (5, 3, 7, 4, 3),
        (6, 2, 4, 9, 4),
    ];
    // 34 images are no whole number of stacks.
    let each = cases.into_iter().flat_map(|case| [1, 34].map(|batch| (batch, case)));
    for (batch, (kernel, stride, height, width, padding)) in each {
        let device = Device::flex().autodiff();
        let images = values([batch, 5, height, width], 0.7, &device).require_grad();
        let weight = values([9, 5, kernel, kernel], 1.3, &device).require_grad();
        let run = |own: bool| {
            let (x, w) = (images.clone(), weight.clone());
            let maps = if own {
                conv(x, w, Window { kernel, stride, padding })
            } else {
                let options = ConvOptions::new([stride; 2], [padding; 2], [1, 1], 1);
                module::conv2d(x, w, None, options)
            };
            let down = values(maps.dims(), 0.3, &device);
            let gradients = (maps.clone() * down).sum().backward();
            let of = |tensor: &Tensor<4>| tensor.grad(&gradients).expect("it was tracked");
            (maps, of(&images), of(&weight))
        };
        let (found, expected) = (run(true), run(false));
        close(found.0, expected.0);
        close(found.1, expected.1);
        close(found.2, expected.2);
    }
}
