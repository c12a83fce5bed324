//! The parameters that every compressor has besides its own.

use std::ops::Bound::{Excluded, Included};

use super::{Kind, Param, real, whole};

/// The parameters that every compressor has.
pub(crate) const COMMON: &[Param] = &[
    Param {
        key: "ef",
        kind: Kind::Choice { options: &["off", "on", "ef21"] },
        help: "error feedback: keep what a message leaves out and add it to the next gradient; ef21: send changes of an \
               estimate of the gradient, which receivers add up",
    },
    Param {
        key: "beta",
        kind: real(1.0, Included(0.0), Included(1.0)),
        help: "weight of the residual when it is fed back; beta or gamma turns error feedback on, and is an error with ef=off, \
               with ef=ef21 or for a method that has a memory of its own",
    },
    Param {
        key: "gamma",
        kind: real(1.0, Included(1e-6), Included(1e6)),
        help: "weight of the gradient when the residual is fed back",
    },
    Param {
        key: "momentum",
        kind: real(0.0, Included(0.0), Excluded(1.0)),
        help: "compress a running mean of gradients, in which the earlier mean has this weight",
    },
    Param {
        key: "every",
        kind: whole(1, 1..=1_000_000),
        help: "local steps: number of steps between two exchanges of the accumulated change",
    },
];
