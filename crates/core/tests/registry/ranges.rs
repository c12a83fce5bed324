//! The ranges of parameters, compared with the values that make sense by the definition of each
//! method. The [laws](gradwire::laws) check that values at the ends work.

use crate::common::*;
use gradwire::{Floats, Spec, Tensor};

/// For each numeric parameter: values just outside the sensible ones, and the outermost sensible
/// ones.
const RANGES: &[(&str, &[&str], &[&str])] = &[
    // One level up to the norm at least; level + s is a symbol of 16 bits.
    ("qsgd:s", &["0", "32768"], &["1", "32767"]),
    ("qsgd:bucket", &["-1", "1073741825"], &["0", "1", "1073741824"]),
    // One bit leaves no step; λ = 0 would clip everything to nothing, and above 1 there is nothing
    // to clip.
    ("lpc-svrg:w", &["1", "17"], &["2", "16"]),
    ("lpc-svrg:lambda", &["0", "-0.5", "1.0001"], &["1e-300", "1"]),
    ("terngrad:clip", &["-0.1", "1000001"], &["0", "1000000"]),
    // With δ = 1 no gradient would come into the mean.
    ("signum:momentum", &["-0.1", "1"], &["0", "0.9999"]),
    // Exponents are counted from 127: 127 − b is that of a normal number.
    ("inceptionn:b", &["0", "127"], &["1", "126"]),
    // At s = 2 even the largest element would round to zero.
    ("3lc:s", &["0.999", "2"], &["1", "1.999"]),
    ("entropy-bits:c", &["-1", "16.5"], &["0", "16"]),
    ("entropy-bits:m", &["0", "13"], &["1", "12"]),
    ("entropy-bits:f", &["0", "1.01"], &["0.000001", "1"]),
    ("entropy-bits:bits", &["17"], &["0", "1", "16"]),
    ("topk:ratio", &["0", "1.01"], &["1e-9", "1"]),
    ("randomk:ratio", &["0", "1.01"], &["1e-9", "1"]),
    ("threshold:v", &["-0.1", "1e31"], &["0", "1e30"]),
    ("gradient-dropping:ratio", &["0", "1.01"], &["1e-9", "1"]),
    ("dgc:ratio", &["0", "1.01"], &["1e-9", "1"]),
    ("dgc:momentum", &["-0.1", "1"], &["0", "0.9999"]),
    ("dgc:clip", &["-1", "1e31"], &["0", "1e30"]),
    ("dgc:warmup", &["-1", "1000000001"], &["0", "1000000000"]),
    ("sgc:ratio", &["0", "1.01"], &["1e-9", "1"]),
    ("sgc:epsilon", &["0", "-1", "1000001"], &["0.000001", "1000000"]),
    ("sgc:alpha", &["-0.1", "1"], &["0", "0.9999"]),
    ("sgc:warmup", &["-1", "1000000001"], &["0", "1000000000"]),
    ("adaptive:ratio", &["0", "1.01"], &["1e-9", "1"]),
    ("variance:alpha", &["-0.1", "1000001"], &["0", "1000000"]),
    // With ζ = 0 a variance would be forgotten at once, and above 1 an undecided element would wait
    // for ever.
    ("variance:zeta", &["0", "1.01"], &["0.001", "1"]),
    ("sketched-sgd:ratio", &["0", "1.01"], &["1e-9", "1"]),
    ("sketched-sgd:rows", &["0", "16"], &["1", "15"]),
    ("sketched-sgd:width", &["0", "1001"], &["1", "1000"]),
    ("sketched-sgd:candidates", &["0", "1001"], &["1", "1000"]),
    // With τ = 0 elements would be sent as nothing.
    ("strom:tau", &["0", "-1", "1e-31", "1e31"], &["1e-30", "1e30"]),
    ("sbc:p", &["0", "1"], &["1e-9", "0.999"]),
    ("dryden:ratio", &["0", "1.01"], &["1e-9", "1"]),
    ("adacomp:conv", &["0", "16777217"], &["1", "16777216"]),
    ("adacomp:fc", &["0", "16777217"], &["1", "16777216"]),
    ("adacomp:factor", &["0.99", "10.1"], &["1", "10"]),
    ("local-selection:conv", &["0", "16777217"], &["1", "16777216"]),
    ("local-selection:fc", &["0", "16777217"], &["1", "16777216"]),
    ("sketchml:buckets", &["0", "257"], &["1", "256"]),
    ("sketchml:groups", &["0", "65"], &["1", "64"]),
    ("sketchml:rows", &["0", "5"], &["1", "4"]),
    ("sketchml:load", &["0", "65"], &["1", "64"]),
    ("qsparse-local:ratio", &["0", "1.01"], &["1e-9", "1"]),
    ("qsparse-local:s", &["0", "32768"], &["1", "32767"]),
    ("qsparse-local:bucket", &["-1", "1073741825"], &["0", "1", "1073741824"]),
    ("powersgd:rank", &["0", "33"], &["1", "32"]),
    ("gradzip:rank", &["0", "33"], &["1", "32"]),
    // With λ = 0 the inverse of a singular matrix would be asked for.
    ("gradzip:lambda", &["0", "-0.1", "1e-10", "1.01"], &["1e-9", "1"]),
    ("atomo:s", &["0", "0.009", "1000000001"], &["0.01", "1000000000"]),
    ("atomo:rank", &["0", "4097"], &["1", "4096"]),
    // A slice of one element has one component, itself.
    ("gradiveq:slice", &["1", "4097"], &["2", "4096"]),
    ("gradiveq:keep", &["0", "4097"], &["1", "4096"]),
    ("gradiveq:refresh", &["0", "16777217"], &["1", "16777216"]),
    ("3lc:beta", &["-0.1", "1.01"], &["0", "1"]),
    ("3lc:gamma", &["0", "-1", "1000001"], &["0.000001", "1000000"]),
    ("3lc:every", &["0", "1000001"], &["1", "1000000"]),
];

#[test]
fn ranges_are_those_of_the_methods() {
    for (parameter, outside, inside) in RANGES {
        let parse = |value: &&str| format!("{parameter}={value}").parse::<Spec>();
        for value in *outside {
            assert!(parse(value).is_err(), "{parameter}={value} is allowed");
        }
        for value in *inside {
            parse(value).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

/// The nearest f32 of 1 − 10⁻⁹ is 1, which none of these ranges holds.
#[test]
fn momenta_just_below_one_stay_below_it() {
    for text in ["signum:momentum", "dgc:momentum", "sgc:alpha"] {
        let spec: Spec = format!("{text}=0.999999999").parse().unwrap();
        let printed = format!("{:?}", spec.compressor());
        let largest = format!("{:?}", 1f32.next_down());
        assert!(printed.contains(&largest), "{text}: {printed}");
    }
    // z = −(1 − δ): the sign of a mean that gradients reach.
    let spec: Spec = "signum:momentum=0.999999999".parse().unwrap();
    let tensor = Tensor::new("t", &[1]);
    assert_eq!(encode(&mut encoder(&spec), &tensor, 0, &[-1.0]).unwrap(), [0]);
}

#[test]
fn slices_of_no_more_elements_than_coefficients_travel_as_they_are() {
    let (tensor, gradient) = (Tensor::new("t", &[41]), gaussian(41, 6));
    let raw: Vec<u8> = gradient.iter().flat_map(|x| x.to_le_bytes()).collect();
    for keep in [8, 9, 4096] {
        let spec: Spec = format!("gradiveq:slice=8,keep={keep}").parse().unwrap();
        let mut alone = encoder(&spec);
        for step in 0..2 {
            assert_eq!(encode(&mut alone, &tensor, step, &gradient).unwrap(), raw, "{spec}");
            assert_eq!(alone.residual("t").unwrap(), [0.0; 41]);
        }
        assert_eq!(decode(&spec, &tensor, 0, &raw).unwrap(), gradient);
        // Under all-reduce there is one round, and what it adds up are the elements.
        let (mut encoder, mut addend) = (encoder(&spec), Vec::new());
        let floats = Floats::F32(&gradient);
        assert!(encoder.contribute(&tensor, 0, 0, floats, &[], &mut addend).unwrap().is_some());
        assert_eq!(addend, gradient);
        let means = addend.clone();
        assert!(encoder.contribute(&tensor, 0, 1, floats, &means, &mut addend).unwrap().is_none());
    }
    // One coefficient for each of five slices, a basis of eight numbers and a rest of one.
    let spec: Spec = "gradiveq:slice=8,keep=1".parse().unwrap();
    assert_eq!(encode(&mut encoder(&spec), &tensor, 0, &gradient).unwrap().len(), 4 * (5 + 8 + 1));
}
