//! The parameters that every compressor has besides its own.

use std::ops::Bound::{Excluded, Included};

use super::{Kind, Param, real, whole};

/// The parameters that every compressor has.
pub(crate) const COMMON: &[Param] = &[
    Param {
        key: "ef",
        kind: Kind::Choice { options: &["off", "on", "ef21"] },
        help: "error feedback: add the part of a gradient that its message leaves out to the next \
            gradient; ef21: send changes of an estimate of the gradient, which receivers add up",
    },
    Param {
        key: "beta",
        kind: real(1.0, Included(0.0), Included(1.0)),
        help: "weight of the residual in error feedback; beta or gamma turns error feedback on, \
            and is refused with ef=off, with ef=ef21 and for methods that have their own memory",
    },
    Param {
        key: "gamma",
        kind: real(1.0, Included(1e-6), Included(1e6)),
        help: "weight of the gradient in error feedback",
    },
    Param {
        key: "momentum",
        kind: real(0.0, Included(0.0), Excluded(1.0)),
        help: "compress a running mean of gradients, with this weight for the previous mean",
    },
    Param {
        key: "every",
        kind: whole(1, 1..=1_000_000),
        help: "local steps: the number of steps per exchange of the accumulated change",
    },
];
