//! The mean and the variance of unbiased messages over draws, beside the papers' formulas.

use crate::common::*;
use gradwire::{Spec, Tensor};

#[test]
fn unbiased_messages_have_the_gradient_as_expectation() {
    let gradient = [0.0, 1.0, -0.5, 0.25, 0.125, -0.75, 0.01, -0.9, 0.3, 0.6, -0.2, 0.05];
    let terngrad = |x: f32| x.abs() * (1.0 - x.abs());
    let natural = |x: f32| {
        if x == 0.0 {
            return 0.0;
        }
        let power = x.abs().log2().floor().exp2();
        (x.abs() - power) * (2.0 * power - x.abs())
    };
    let square: f32 = gradient.iter().map(|x| x * x).sum();
    let levels = |x: f32, step: f32| {
        let part = x / step - (x / step).floor();
        step * step * part * (1.0 - part)
    };
    let qsgd = |x: f32| levels(x, square.sqrt() / 3.0);
    let qsgd_max = |x: f32| levels(x, 1.0 / 3.0);
    // The largest is 1: seven steps of three bits and a bit for the sign.
    let lpc = |x: f32| levels(x, 1.0 / 7.0);
    let randomk = |x: f32| (12.0 / 3.0 - 1.0) * x * x;
    // Six in the mean, of which 1, 0.9 and 0.75 are certain: M is a third of the sum of the others.
    let adaptive = |x: f32| x.abs() * (2.035 / 3.0 - x.abs()).max(0.0);
    // One level: the norm, or nothing.
    let qsgd_one = |x: f32| x.abs() * (square.sqrt() - x.abs());
    let none = |_: f32| 0.0;
    let cases: [(&str, &dyn Fn(f32) -> f32); 13] = [
        ("terngrad:clip=0", &terngrad),
        ("natural:ef=off", &natural),
        ("lpc-svrg:w=4", &lpc),
        ("qsgd:s=3", &qsgd),
        ("qsgd:s=3,norm=max,code=elias", &qsgd_max),
        ("randomk:ratio=0.25,unbiased=on,ef=off", &randomk),
        ("randomk:ratio=0.25,unbiased=on,indices=independent,ef=off", &randomk),
        ("adaptive:ratio=0.5", &adaptive),
        ("atomo:atoms=entries,s=6", &adaptive),
        ("atomo:atoms=entries,budget=l2", &qsgd_one),
        ("atomo:atoms=entries,budget=max", &terngrad),
        ("atomo", &none),
        ("none", &none),
    ];
    let draws = 20_000;
    for (text, variance) in cases {
        let spec: Spec = text.parse().unwrap();
        let tensor = Tensor::new("t", &[gradient.len()]);
        let moments = means_and_variances(&spec, &tensor, &gradient, draws);
        for (&x, [mean, found]) in gradient.iter().zip(moments) {
            let expected = f64::from(variance(x));
            let spread = (expected / draws as f64).sqrt();
            assert!((mean - f64::from(x)).abs() <= 5.0 * spread + 1e-6, "{text}, {x}: mean {mean}");
            assert!(
                (found - expected).abs() <= 0.1 * expected + 1e-6,
                "{text}, {x}: variance {found}"
            );
        }
    }
}
