//! Two steps of each rule, computed by hand, and states saved and restored.

use gradwire::{State, StateError, Tensor};

use super::*;

/// The parameters after each of two gradients, 1 and −2, on a tensor of one element that starts at
/// 1.
fn path(kind: &str, decay: f32) -> [f32; 2] {
    let tensors = [Tensor::new("a", &[2]), Tensor::new("b", &[1])];
    let mut optimizer = kind.parse::<OptimizerKind>().unwrap().build(&tensors, decay);
    let mut parameter = [1.0];
    [1.0, -2.0].map(|gradient| {
        // Another tensor in between has a state of its own.
        optimizer.update(0, 0.5, &[3.0, -3.0], &mut [7.0, 7.0]);
        optimizer.update(1, 0.5, &[gradient], &mut parameter);
        parameter[0]
    })
}

#[test]
fn two_steps_by_hand() {
    for (kind, decay, expected) in [
        // 1 − 0.5·1; 0.5 − 0.5·(−2).
        ("sgd", 0.0, [0.5, 1.5]),
        // 1 − 0.5·(1 + 0.1·1) = 0.45; 0.45 − 0.5·(−2 + 0.1·0.45) = 1.4275.
        ("sgd", 0.1, [0.45, 1.4275]),
        // v = 1, then 0.9 − 2 = −1.1.
        ("momentum", 0.0, [0.5, 1.05]),
        // v = 1, then 0.5 − 2 = −1.5.
        ("momentum:m=0.5", 0.0, [0.5, 1.25]),
        // v = 1.1, p = 0.45; v = 0.99 − 2 + 0.045 = −0.965, p = 0.9325.
        ("momentum", 0.1, [0.45, 0.9325]),
        // v = 1, p = 1 − 0.5·(1 + 0.9); v = −1.1, p = 0.05 − 0.5·(−2 − 0.99).
        ("nesterov", 0.0, [0.05, 1.545]),
        // The first step is lr·sign(g): m̂ = g, v̂ = g².
        // Second: m = 0.09 − 0.2 = −0.11, m̂ = −0.11/0.19 = −0.5789474;
        // v = 0.000999 + 0.004 = 0.004999, v̂ = 0.004999/0.001999 = 2.5007504, √ = 1.5813761;
        // p = 0.5 + 0.5·0.5789474/1.5813761 = 0.6830515.
        ("adam", 0.0, [0.5, 0.683_051_5]),
        // v stays 0.001 with a correction of 0.001: p = 0.5 + 0.5·0.5789474/1.
        ("adam:freeze=1", 0.0, [0.5, 0.789_473_7]),
        // β₁ = β₂ = 0 leaves lr·sign(g).
        ("adam:beta1=0,beta2=0", 0.0, [0.5, 1.0]),
        // s = 0.1, p = 1 − 0.5/√0.1 = −0.5811388; s = 0.09 + 0.4 = 0.49, p = −0.5811388 +
        // 0.5·2/0.7.
        ("rmsprop", 0.0, [-0.581_138_8, 0.847_432_6]),
        // s = 0.75, v = 1.1547005, p = 1 − 0.5·v; s = 0.1875 + 3 = 3.1875, √ = 1.7853571,
        // v = 0.5·1.1547005 − 1.1202241 = −0.5428738, p = 0.4226497 − 0.5·v.
        ("rmsprop:rho=0.25,m=0.5", 0.0, [0.422_649_7, 0.694_086_6]),
        // With ρ = 0 and ε = 1: 1 − 0.5·1.1/2.1; 0.7380952 + 0.5·1.9261905/2.9261905.
        ("rmsprop:rho=0,eps=1", 0.1, [0.738_095_2, 1.067_224_6]),
        // s = 1, p = 1 − 0.5; s = 5, p = 0.5 + 0.5·2/√5.
        ("adagrad", 0.0, [0.5, 0.947_213_6]),
        // g = 1.1, p = 1 − 0.5·1.1/2.1; g = −1.9261905, s = 1.21 + 3.7102098 = 4.9202098,
        // √ = 2.2181546, p = 0.7380952 + 0.5·1.9261905/3.2181546.
        ("adagrad:eps=1", 0.1, [0.738_095_2, 1.037_364_4]),
    ] {
        for (found, expected) in path(kind, decay).into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{kind}: {found} is not {expected}");
        }
    }
}

#[test]
fn momentum_is_exchanged_after_the_freeze() {
    let tensors = [Tensor::new("a", &[1, 1])];
    for kind in ["adam:freeze=1,exchange=momentum", "adamw:freeze=1,exchange=momentum"] {
        let kind: OptimizerKind = kind.parse().unwrap();
        assert!(!kind.exchanges_gradients());
        let mut optimizer = kind.build(&tensors, 0.1);
        let mut parameters = [1.0];
        // Before the freeze it is the gradient: m = 0.1·(1 + its penalty).
        let mut values = [1.0];
        optimizer.to_exchange(0, &parameters, &mut values);
        assert_eq!(values, [1.0]);
        optimizer.update(0, 0.5, &values, &mut parameters);
        let penalty = if kind.to_string().starts_with("adamw") { 0.0 } else { 0.1 };
        let mean = 0.1 * (1.0 + penalty);
        // Then 0.9·m + 0.1·(g + penalty), of two ranks with gradients −2 and 4.
        let sent = [-2.0, 4.0].map(|gradient| {
            let mut values = [gradient];
            optimizer.to_exchange(0, &parameters, &mut values);
            let expected = 0.9 * mean + 0.1 * (gradient + penalty * parameters[0]);
            assert!((values[0] - expected).abs() < 1e-6, "{values:?} is not {expected}");
            values[0]
        });
        // m is their mean; v stays 0.001·(1 + penalty)², and both are corrected.
        let (before, mean) = (parameters[0], 0.5 * (sent[0] + sent[1]));
        let kept = if penalty == 0.0 { 1.0 - 0.5 * 0.1 } else { 1.0 };
        optimizer.update(0, 0.5, &[mean], &mut parameters);
        let root = if penalty == 0.0 { 1.0 } else { 1.1 };
        let expected = kept * before - 0.5 * (mean / 0.19) / root;
        assert!((parameters[0] - expected).abs() < 1e-5, "{parameters:?} is not {expected}");
    }
    let error = "adam:exchange=momentum".parse::<OptimizerKind>().unwrap_err().to_string();
    assert!(error.contains("give freeze=N"), "{error}");
}

/// The parameters after two updates before the freeze and two after it. After the freeze all
/// elements but the first get noise, as from compression.
fn around_the_freeze<const N: usize>(kind: &str, gradients: [[f32; N]; 4], noise: f32) -> [f32; N] {
    let tensors = [Tensor::new("a", &[1, N])];
    let mut optimizer = kind.parse::<OptimizerKind>().unwrap().build(&tensors, 0.1);
    let mut parameters = [1.0; N];
    for (step, mut values) in gradients.into_iter().enumerate() {
        optimizer.to_exchange(0, &parameters, &mut values);
        if step >= 2 {
            values[1..].iter_mut().for_each(|value| *value += noise);
        }
        optimizer.update(0, 0.5, &values, &mut parameters);
    }
    parameters
}

#[test]
fn elements_that_had_no_gradient_before_the_freeze_only_decay() {
    for exchanged in ["gradient", "momentum"] {
        let kind = format!("adamw:freeze=2,exchange={exchanged}");
        let alone = around_the_freeze(&kind, [[1.0], [-2.0], [0.5], [1.5]], 0.0);
        // The second element gets its first gradient after the freeze, beside the noise.
        let gradients = [[1.0, 0.0], [-2.0, 0.0], [0.5, 0.0], [1.5, 3.0]];
        let [seen, unseen] = around_the_freeze(&kind, gradients, 1e-3);
        assert_eq!(seen.to_bits(), alone[0].to_bits(), "{kind}");
        assert!((unseen - 0.95f32.powi(4)).abs() < 1e-6, "{kind}: {unseen}");
    }
}

#[test]
fn a_momentum_that_is_sent_is_zero_where_no_gradient_was_before_the_freeze() {
    let kind: OptimizerKind = "adamw:freeze=1,exchange=momentum".parse().unwrap();
    let mut optimizer = kind.build(&[Tensor::new("a", &[1, 3])], 0.0);
    let mut parameters = [1.0; 3];
    optimizer.update(0, 0.5, &[1.0, 0.0, 0.0], &mut parameters);
    // 0.9·0.1 + 0.1·2. A NaN stays a NaN, so it is found.
    let mut values = [2.0, 2.0, f32::NAN];
    optimizer.to_exchange(0, &parameters, &mut values);
    assert!(
        (values[0] - 0.29).abs() < 1e-6 && values[1] == 0.0 && values[2].is_nan(),
        "{values:?}"
    );
}

#[test]
fn no_update_after_the_freeze_is_larger_than_any_of_adam() {
    // The gradients for the largest possible update of Adam: each is β₂/β₁ times the previous one.
    let kind: OptimizerKind = "adam:beta2=0.99".parse().unwrap();
    let mut optimizer = kind.build(&[Tensor::new("a", &[1])], 0.0);
    let (mut largest, mut gradient) = (0f32, 1e-30f32);
    while gradient < 1e15 {
        let mut parameter = [0.0];
        optimizer.update(0, 1.0, &[gradient], &mut parameter);
        largest = largest.max(parameter[0].abs());
        gradient *= 0.99 / 0.9;
    }
    // √(0.1²/0.01/(1 − 0.9²/0.99)).
    assert!((2.32..2.346).contains(&largest), "{largest}");
    // After the freeze: an element whose gradients were 10⁻⁶ before it.
    for kind in ["adam:beta2=0.99,freeze=1", "adam:beta2=0.99,freeze=1,exchange=momentum"] {
        let kind: OptimizerKind = kind.parse().unwrap();
        let mut optimizer = kind.build(&[Tensor::new("a", &[1])], 0.0);
        optimizer.update(0, 1.0, &[1e-6], &mut [0.0]);
        for (gradient, rate) in [(1.0, 1.0), (-1e3, 0.5), (-1.0, 0.0)] {
            let mut parameter = [0.0];
            optimizer.update(0, rate, &[gradient], &mut parameter);
            let expected = -gradient.signum() * rate * 2.3452;
            assert!((parameter[0] - expected).abs() < 1e-3, "{kind}: {parameter:?}");
        }
    }
    // With β₂ ≤ β₁² there is no largest update: m = 0.1·10⁻³ + 0.05, v = 10⁻⁶·0.2, both corrected.
    let unlimited: OptimizerKind = "adam:beta2=0.8,freeze=1".parse().unwrap();
    let mut optimizer = unlimited.build(&[Tensor::new("a", &[1])], 0.0);
    optimizer.update(0, 1.0, &[1e-3], &mut [0.0]);
    let mut parameter = [0.0];
    optimizer.update(0, 1.0, &[1.0], &mut parameter);
    let expected = -(0.09 * 1e-3 + 0.1) / 0.19 / 1e-3;
    assert!((parameter[0] - expected).abs() < 0.1, "{parameter:?} is not {expected}");
}

#[test]
fn adamw_decays_matrices_beside_the_gradient() {
    let tensors = [Tensor::new("matrix", &[1, 1]), Tensor::new("vector", &[1])];
    let mut optimizer = "adamw".parse::<OptimizerKind>().unwrap().build(&tensors, 0.1);
    let mut step = |index, gradient: f32, mut parameter: [f32; 1]| {
        optimizer.update(index, 0.5, &[gradient], &mut parameter);
        parameter[0]
    };
    // 1 − 0.5·0.1 is left of the matrix; then, as without decay, 0.5 less and 0.1830515 more.
    let first = step(0, 1.0, [1.0]);
    assert!((first - 0.45).abs() < 1e-6, "{first}");
    let second = step(0, -2.0, [first]);
    assert!((second - (0.45 * 0.95 + 0.183_051_5)).abs() < 1e-6, "{second}");
    assert!((step(1, 1.0, [1.0]) - 0.5).abs() < 1e-6);
}

#[test]
fn masked_rmsprop_forgets_its_velocity_alone() {
    let kind: OptimizerKind = "rmsprop:m=0.5".parse().unwrap();
    let step = |masked: bool, momentum: OptimizerKind| {
        let mut optimizer = momentum.build(&[Tensor::new("a", &[2])], 0.0);
        let mut parameters = [1.0, 1.0];
        optimizer.update(0, 0.1, &[1.0, 1.0], &mut parameters);
        if masked {
            optimizer.mask(0, &[1]);
        }
        let before = parameters;
        optimizer.update(0, 0.1, &[-2.0, -2.0], &mut parameters);
        [parameters[0] - before[0], parameters[1] - before[1]]
    };
    let (whole, masked) = (step(false, kind), step(true, kind));
    let still = step(false, "rmsprop".parse().unwrap());
    assert_eq!(masked[0], whole[0]);
    assert!(masked[1] != whole[1] && (masked[1] - still[1]).abs() < 1e-6, "{masked:?} {still:?}");
}

#[test]
fn momentum_is_said_of_those_that_have_it() {
    for (kind, has) in [
        ("sgd", false),
        ("momentum", true),
        ("nesterov", true),
        ("adam", true),
        ("adamw", true),
        ("muon", true),
        ("rmsprop", false),
        ("rmsprop:m=0.8", true),
        ("adagrad", false),
    ] {
        assert_eq!(kind.parse::<OptimizerKind>().unwrap().has_momentum(), has, "{kind}");
    }
}

#[test]
fn restored_optimizers_go_on_as_if_never_stopped() {
    let tensors = [Tensor::new("a", &[1, 3])];
    for kind in [
        "sgd",
        "momentum",
        "nesterov",
        "adam",
        "adamw:freeze=2",
        "muon",
        "rmsprop:m=0.5",
        "adagrad",
    ] {
        let kind: OptimizerKind = kind.parse().unwrap();
        let gradients = [[1.0, -2.0, 0.5], [0.25, 0.0, 3.0], [-1.0, 1.0, -1.0]];
        let mut whole = kind.build(&tensors, 0.01);
        let mut expected = [1.0, 2.0, 3.0];
        for gradient in &gradients {
            whole.update(0, 0.1, gradient, &mut expected);
        }

        let mut first = kind.build(&tensors, 0.01);
        let mut found = [1.0, 2.0, 3.0];
        first.update(0, 0.1, &gradients[0], &mut found);
        let mut state = State::new();
        first.save("optimizer/", &mut state);
        let mut second = kind.build(&tensors, 0.01);
        second.restore("optimizer/", &state).unwrap();
        for gradient in &gradients[1..] {
            second.update(0, 0.1, gradient, &mut found);
        }
        assert_eq!(found.map(f32::to_bits), expected.map(f32::to_bits), "{kind}");
    }
}

#[test]
fn state_of_another_model_is_refused() {
    let momentum: OptimizerKind = "momentum".parse().unwrap();
    let mut state = State::new();
    momentum.build(&[Tensor::new("a", &[3])], 0.0).save("", &mut state);
    let mut longer = momentum.build(&[Tensor::new("a", &[4])], 0.0);
    assert!(matches!(
        longer.restore("", &state),
        Err(StateError::WrongSize { found: 3, expected: 4, .. })
    ));
    let mut other = momentum.build(&[Tensor::new("b", &[3])], 0.0);
    assert!(
        matches!(other.restore("", &state), Err(StateError::Missing(entry)) if entry == "b/velocity")
    );
}

#[test]
fn kinds_parse_and_print() {
    for text in [
        "sgd",
        "momentum",
        "momentum:m=0.5",
        "nesterov",
        "adam",
        "adam:beta2=0.99,eps=0.001",
        "adamw",
        "adamw:beta1=0.95,freeze=100",
        "adamw:freeze=100,exchange=momentum",
        "muon",
        "muon:m=0.9,beta2=0.95",
        "rmsprop",
        "rmsprop:rho=0.99,m=0.5,eps=0.001",
        "adagrad",
        "adagrad:eps=0.001",
    ] {
        assert_eq!(text.parse::<OptimizerKind>().unwrap().to_string(), text);
    }
    assert_eq!("momentum:m=0.9".parse::<OptimizerKind>().unwrap().to_string(), "momentum");
    for (text, part) in [
        ("lion", "known ones: sgd, momentum, nesterov, adam, adamw, muon, rmsprop, adagrad"),
        ("sgd:m=0.9", "no setting 'm'; it has: none"),
        ("momentum:m=1", "m=1 is not allowed; give a number in [0, 1)"),
        ("momentum:m=nan", "is not allowed"),
        ("adam:beta3=0", "it has: beta1, beta2, eps, freeze, exchange"),
        ("adam:beta1=0.99999999999", "is not allowed"),
        ("adam:eps=0", "positive"),
        ("rmsprop:rho=1", "rho=1 is not allowed; give a number in [0, 1)"),
        ("adagrad:eps=-1", "positive"),
    ] {
        let message = text.parse::<OptimizerKind>().unwrap_err().to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
}
