//! Laws of parameters: a value outside its range is refused with the parameter's name; values
//! inside the range work, including its ends.

use std::ops::Bound::{Excluded, Included, Unbounded};

use super::samples::{decode, encode, encoder, gaussian};
use super::subjects::parse;
use crate::parameters::Kind;
use crate::{Entry, Spec, SpecError, Tensor};

/// A parameter's values around the ends of its range, as in spec strings.
struct Values {
    outside: Vec<String>,
    inside: Vec<String>,
}

fn texts<T: ToString>(values: impl IntoIterator<Item = T>) -> Vec<String> {
    values.into_iter().map(|value| value.to_string()).collect()
}

fn values(kind: Kind) -> Values {
    match kind {
        Kind::Real { min, max, .. } => {
            let least = match min {
                Included(x) => x,
                Excluded(x) => x.next_up(),
                Unbounded => f64::MIN,
            };
            let most = match max {
                Included(x) => x,
                Excluded(x) => x.next_down(),
                Unbounded => f64::MAX,
            };
            let mut outside = texts([least.next_down(), most.next_up(), f64::NAN, f64::INFINITY]);
            outside.extend(texts(["-inf", "", "0x1p-3", "half", "1..2"]));
            Values { outside, inside: texts([least, most]) }
        }
        Kind::Whole { min, max, .. } => {
            let mut outside = texts([i128::from(min) - 1, i128::from(max) + 1]);
            outside.extend(texts(["", "1.5", "NaN", "inf", "two", "18446744073709551616"]));
            Values { outside, inside: texts([min, max]) }
        }
        Kind::Choice { options } => {
            let mut outside = texts(["", "0", "another"]);
            outside.extend(options.iter().map(|word| format!("{word}s")));
            Values { outside, inside: texts(options) }
        }
    }
}

pub(super) fn ends_work_and_nothing_beyond(entry: &'static Entry) {
    let (tensor, gradient) = (Tensor::new("t", &[33, 31]), gaussian(1023, 5));
    for parameter in entry.all_parameters() {
        let Values { outside, inside } = values(parameter.kind);
        for value in outside {
            let item = format!("{}={value}", parameter.key);
            let error = Spec::with_parameters(entry, &item).expect_err(&item).to_string();
            let expected = format!(
                "'{}': {item} is not allowed; give {}",
                entry.id,
                parameter.kind.expected()
            );
            assert_eq!(error, expected);
        }
        for value in inside {
            let text = format!("{}={value}", parameter.key);
            let spec = match Spec::with_parameters(entry, &text) {
                // Compressors with their own memory refuse some common parameters.
                Err(SpecError::Impossible { .. }) => continue,
                Err(SpecError::Feedback { .. }) => parse(entry, &format!("{text},ef=off")),
                parsed => parsed.unwrap_or_else(|error| panic!("{error}")),
            };
            let printed = spec.to_string();
            let printed = printed.split_once(':').map_or("", |(_, items)| items);
            assert_eq!(Spec::with_parameters(entry, printed).as_ref(), Ok(&spec), "{text}");
            let mut encoder = encoder(&spec);
            for step in 0..3 {
                let message = encode(&mut encoder, &tensor, step, &gradient).unwrap();
                assert!(message.len() <= spec.compressor().max_len(1023), "{text}");
                let decoded = decode(&spec, &tensor, step, &message).unwrap();
                assert!(decoded.iter().all(|x| x.is_finite()), "{text}");
            }
        }
    }
}
