//! The parameters of compressors: their names, ranges and defaults, and the structs that hold their
//! values.
//!
//! [`parameters!`](crate::parameters!) declares each parameter once, as a field of the compressor's
//! own struct. The macro generates the struct, the table for lists and error messages, and the
//! conversion of checked values.

pub(crate) mod common;

use std::fmt;
use std::ops::Bound::{self, Excluded, Included};
use std::ops::RangeInclusive;

/// One parameter of a compressor.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// The key in a spec string.
    pub key: &'static str,
    /// Its allowed values and the default.
    pub kind: Kind,
    /// What it does, in a phrase.
    pub help: &'static str,
}

/// The allowed values of a parameter, and its default.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A real number in an interval.
    Real {
        /// The lower end.
        min: Bound<f64>,
        /// The upper end.
        max: Bound<f64>,
        /// The default.
        default: f64,
    },
    /// A whole number, both ends included.
    Whole {
        /// The least value.
        min: u64,
        /// The greatest value.
        max: u64,
        /// The default.
        default: u64,
    },
    /// One of a few words.
    Choice {
        /// The words; the first is the default.
        options: &'static [&'static str],
    },
}

/// The value of one parameter, in the range of its [`Kind`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// The value of a [`Kind::Real`].
    Real(f64),
    /// The value of a [`Kind::Whole`].
    Whole(u64),
    /// The value of a [`Kind::Choice`].
    Choice(&'static str),
}

/// Formats a value as in a spec string.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Real(x) => x.fmt(f),
            Value::Whole(n) => n.fmt(f),
            Value::Choice(word) => f.write_str(word),
        }
    }
}

/// A real number between two bounds: `real(0.01, Excluded(0.0), Included(1.0))`.
pub const fn real(default: f64, min: Bound<f64>, max: Bound<f64>) -> Kind {
    Kind::Real { min, max, default }
}

/// A whole number in a range: `whole(4, 1..=32)`.
pub const fn whole(default: u64, range: RangeInclusive<u64>) -> Kind {
    Kind::Whole { min: *range.start(), max: *range.end(), default }
}

/// One of two words; the first is the default. [`Parameter`] says which of them makes a `bool`
/// true.
pub const fn either(options: &'static [&'static str; 2]) -> Kind {
    Kind::Choice { options }
}

/// One of the words of an enum; the first is the default.
pub const fn choice<T: Choice>() -> Kind {
    Kind::Choice { options: T::WORDS }
}

impl Kind {
    /// The default value.
    pub const fn default(&self) -> Value {
        match *self {
            Kind::Real { default, .. } => Value::Real(default),
            Kind::Whole { default, .. } => Value::Whole(default),
            Kind::Choice { options } => Value::Choice(options[0]),
        }
    }

    /// The allowed values in words, for error messages and lists.
    pub fn expected(&self) -> String {
        match *self {
            Kind::Real { min, max, .. } => {
                let (open, least) = end(min, ["[", "("]);
                let (close, most) = end(max, ["]", ")"]);
                format!("a number in {open}{least}, {most}{close}")
            }
            Kind::Whole { min, max, .. } => format!("a whole number from {min} to {max}"),
            Kind::Choice { options } => options.join(" or "),
        }
    }

    /// Parses a value; `None` if it is not allowed.
    pub(crate) fn parse(&self, text: &str) -> Option<Value> {
        match *self {
            Kind::Real { min, max, .. } => {
                let x: f64 = text.parse().ok()?;
                std::ops::RangeBounds::contains(&(min, max), &x).then_some(Value::Real(x))
            }
            Kind::Whole { min, max, .. } => {
                let n: u64 = text.parse().ok()?;
                (min..=max).contains(&n).then_some(Value::Whole(n))
            }
            Kind::Choice { options } => {
                options.iter().find(|option| **option == text).map(|word| Value::Choice(word))
            }
        }
    }
}

/// The bracket and the number at an end of an interval; very large or small numbers are powers of
/// ten.
fn end(bound: Bound<f64>, [closed, open]: [&'static str; 2]) -> (&'static str, String) {
    let (bracket, x) = match bound {
        Included(x) => (closed, x),
        Excluded(x) => (open, x),
        Bound::Unbounded => (open, f64::INFINITY),
    };
    let plain = x == 0.0 || x.is_infinite() || (1e-4..1e6).contains(&x.abs());
    (bracket, if plain { x.to_string() } else { format!("{x:e}") })
}

/// The type of a parameter's field in a compressor's struct: `f64`, `f32`, `u16`, `u32`, `u64`,
/// `usize`, `bool`, and enums that implement [`Choice`].
///
/// A `bool` is true for `on`, or for the second of two other words.
pub trait Parameter: Sized {
    /// The values that the type can hold.
    const HOLDS: Holds;

    /// Converts a value of a kind that the type can hold, inside its range.
    ///
    /// # Panics
    /// If the value is of another kind.
    fn of(value: Value, kind: &Kind) -> Self;
}

/// The values that a field's type can hold.
#[derive(Debug, Clone, Copy)]
pub enum Holds {
    /// The values of a [`Kind::Real`].
    Real,
    /// The values of a [`Kind::Whole`] up to this one.
    Whole(u64),
    /// The values of a [`Kind::Choice`].
    Choice,
}

/// An enum whose values have names in spec strings.
pub trait Choice: Copy + 'static {
    /// The names; the first is the default.
    const WORDS: &'static [&'static str];
    /// The values, in the order of their names.
    const VALUES: &'static [Self];
}

impl<T: Choice> Parameter for T {
    const HOLDS: Holds = Holds::Choice;

    fn of(value: Value, _: &Kind) -> Self {
        let at = T::WORDS.iter().position(|word| value == Value::Choice(word));
        T::VALUES[at.unwrap_or_else(|| panic!("{value} names no value"))]
    }
}

impl Parameter for bool {
    const HOLDS: Holds = Holds::Choice;

    fn of(value: Value, kind: &Kind) -> Self {
        let first_is_true = kind.default() == Value::Choice("on");
        (value == kind.default()) == first_is_true
    }
}

impl Parameter for f64 {
    const HOLDS: Holds = Holds::Real;

    fn of(value: Value, _: &Kind) -> Self {
        match value {
            Value::Real(x) => x,
            other => panic!("{other} is not a real number"),
        }
    }
}

/// Rounds to the nearest `f32` inside the range: a number just below 1 would round to 1, which may
/// be excluded.
impl Parameter for f32 {
    const HOLDS: Holds = Holds::Real;

    fn of(value: Value, kind: &Kind) -> Self {
        let x = <f64 as Parameter>::of(value, kind) as f32;
        match *kind {
            Kind::Real { max: Excluded(max), .. } if f64::from(x) >= max => x.next_down(),
            Kind::Real { min: Excluded(min), .. } if f64::from(x) <= min => x.next_up(),
            _ => x,
        }
    }
}

macro_rules! whole_parameters {
    ($($type:ty),*) => {
        $(impl Parameter for $type {
            const HOLDS: Holds = Holds::Whole(<$type>::MAX as u64);

            fn of(value: Value, _: &Kind) -> Self {
                match value {
                    Value::Whole(n) => n as $type,
                    other => panic!("{other} is not a whole number"),
                }
            }
        })*
    };
}

whole_parameters!(u16, u32, u64, usize);

/// A parameter in a field of type `T`. For [`parameters!`](crate::parameters!).
///
/// # Panics
/// If the type cannot hold it; in a constant, at compile time.
pub const fn param<T: Parameter>(key: &'static str, kind: Kind, help: &'static str) -> Param {
    match (kind, T::HOLDS) {
        (Kind::Real { .. }, Holds::Real) | (Kind::Choice { .. }, Holds::Choice) => {}
        (Kind::Whole { max, .. }, Holds::Whole(most)) if max <= most => {}
        _ => panic!("the field's type cannot hold all values of the parameter"),
    }
    Param { key, kind, help: help.trim_ascii() }
}

/// A struct whose fields are parameters of a compressor. [`parameters!`](crate::parameters!)
/// implements it.
pub trait Parameters {
    /// The parameters, in the order they are printed.
    const PARAMETERS: &'static [Param];

    /// The struct with these parameter values, in their order and inside their ranges.
    fn new(values: &[Value]) -> Self;
}

/// Declares a compressor's struct, whose fields are its parameters.
///
/// ```
/// use std::ops::Bound::{Excluded, Included};
///
/// use gradwire::parameters::{Parameters, Value, either, real, whole};
///
/// gradwire::parameters! {
///     /// Sparsification by absolute value.
///     pub struct Largest {
///         /// fraction of elements to send
///         pub ratio: f64 = real(0.01, Excluded(0.0), Included(1.0)),
///         /// bits of a value
///         pub bits: u32 = whole(8, 2..=32),
///         /// all of them, or those above a threshold from a sample
///         pub sampled("select"): bool = either(&["exact", "sampled"]),
///     }
/// }
///
/// assert_eq!(Largest::PARAMETERS[0].help, "fraction of elements to send");
/// assert_eq!(Largest::PARAMETERS[2].key, "select");
/// let values = [Value::Real(0.5), Value::Whole(4), Value::Choice("sampled")];
/// assert_eq!(Largest::new(&values), Largest { ratio: 0.5, bits: 4, sampled: true });
/// ```
///
/// The comment of a field is the parameter's help. Its key in spec strings is the field's name, or
/// the string in parentheses after it. The struct implements [`Parameters`]. A range that the
/// field's type cannot hold does not compile:
///
/// ```compile_fail
/// use gradwire::parameters::Parameters;
///
/// gradwire::parameters! {
///     struct TooLarge {
///         /// a number of 17 bits
///         bits: u16 = gradwire::parameters::whole(1, 1..=65_536),
///     }
/// }
/// assert_eq!(TooLarge::PARAMETERS.len(), 1);
/// ```
#[macro_export]
macro_rules! parameters {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $help:literal])+
                $field_vis:vis $field:ident $(($key:literal))? : $type:ty = $kind:expr
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        $vis struct $name {
            $($(#[doc = $help])+ $field_vis $field: $type),*
        }

        impl $crate::parameters::Parameters for $name {
            const PARAMETERS: &'static [$crate::parameters::Param] = &[
                $($crate::parameters::param::<$type>(
                    $crate::parameters!(@key $field $($key)?),
                    $kind,
                    concat!($($help),+),
                )),*
            ];

            fn new(values: &[$crate::parameters::Value]) -> Self {
                let mut values = Self::PARAMETERS.iter().zip(values).map(|(p, value)| (*value, &p.kind));
                let mut next = || values.next().expect("there is a value for each parameter");
                Self {
                    $($field: {
                        let (value, kind) = next();
                        <$type as $crate::parameters::Parameter>::of(value, kind)
                    }),*
                }
            }
        }
    };
    (@key $field:ident $key:literal) => { $key };
    (@key $field:ident) => { stringify!($field) };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::parameters! {
        /// One of each type.
        struct Sample {
            /// below one
            below: f32 = real(0.5, Excluded(0.0), Excluded(1.0)),
            /// of one width
            whole: u16 = whole(3, 0..=65_535),
            /// the second word
            second("which"): bool = either(&["first", "second"]),
            /// the first word
            on: bool = either(&["on", "off"]),
        }
    }

    #[test]
    fn a_field_has_its_key_its_help_and_its_default() {
        let keys: Vec<_> = Sample::PARAMETERS.iter().map(|parameter| parameter.key).collect();
        assert_eq!(keys, ["below", "whole", "which", "on"]);
        assert_eq!(Sample::PARAMETERS[2].help, "the second word");
        let defaults: Vec<_> = Sample::PARAMETERS.iter().map(|p| p.kind.default()).collect();
        let expected = Sample { below: 0.5, whole: 3, second: false, on: true };
        assert_eq!(Sample::new(&defaults), expected);
    }

    #[test]
    fn the_nearest_f32_stays_inside_open_ends() {
        for (value, nearest) in [(1.0 - 1e-12, 1f32.next_down()), (1e-60, 0f32.next_up())] {
            let kind = Sample::PARAMETERS[0].kind;
            assert_eq!(<f32 as Parameter>::of(Value::Real(value), &kind), nearest);
        }
    }

    #[test]
    fn a_bool_is_the_second_of_two_words_or_on() {
        let read = |field: usize, word: &str| {
            let kind = Sample::PARAMETERS[field].kind;
            <bool as Parameter>::of(kind.parse(word).unwrap(), &kind)
        };
        assert_eq!([read(2, "first"), read(2, "second")], [false, true]);
        assert_eq!([read(3, "off"), read(3, "on")], [false, true]);
    }
}
