//! Multi-layer perceptrons: fully connected layers with an activation after each except the last;
//! with squared errors also after the last.
//!
//! `mlp` has hidden layers of 300 and 100 units (LeCun et al. 1998, "Gradient-based learning
//! applied to document recognition", LeNet-300-100) with relu: 266 610 parameters in 6 tensors on
//! 28×28×1 images and 10 classes, 784·300 + 300, 300·100 + 100, 100·10 + 10.
//! `mlp:392-50,tanh,squared` is the network of Øland and Raj 2015 (327 880 parameters).
//! `mlp:1024-1024-1024-1024-1024` on 440 features and 5999 classes is AdaComp's BN50-DNN (10 798
//! 959 parameters; Chen et al. 2018).

use std::fmt;
use std::str::FromStr;

use super::layout::Next;
use super::network::Builder;
use super::operations::{relu, tanh};

/// The most hidden layers.
const MOST_LAYERS: usize = 8;
/// The most units of a hidden layer.
const MOST_UNITS: u32 = 1 << 16;

/// The hidden layers of a perceptron, and its loss. Strings: `300-100`, `392-50,tanh`,
/// `392-50,tanh,squared`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hidden {
    /// Units, layer by layer; 0 after the last.
    units: [u32; MOST_LAYERS],
    /// Whether the activation is the hyperbolic tangent instead of the rectifier.
    tanh: bool,
    /// Whether the outputs are activated, too, and the loss is their squared error.
    pub(super) squared: bool,
}

impl Hidden {
    /// The allowed sizes, for errors.
    pub(super) fn allowed() -> String {
        format!(
            "give 1 to {MOST_LAYERS} hidden layers of 1 to {MOST_UNITS} units, optionally \
             followed by ',tanh' or ',tanh,squared'"
        )
    }

    /// Units of each hidden layer.
    fn units(&self) -> impl Iterator<Item = usize> + '_ {
        self.units.iter().take_while(|&&units| units > 0).map(|&units| units as usize)
    }
}

/// 300 and 100 units, rectified.
impl Default for Hidden {
    fn default() -> Self {
        let mut units = [0; MOST_LAYERS];
        units[..2].copy_from_slice(&[300, 100]);
        Self { units, tanh: false, squared: false }
    }
}

impl FromStr for Hidden {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (sizes, [tanh, squared]) = match text.split_once(',') {
            Some((sizes, "tanh")) => (sizes, [true, false]),
            Some((sizes, "tanh,squared")) => (sizes, [true, true]),
            Some(_) => return Err(()),
            None => (text, [false, false]),
        };
        let mut hidden = Self { units: [0; MOST_LAYERS], tanh, squared };
        for (at, size) in sizes.split('-').enumerate() {
            let size = size.parse().ok().filter(|size| (1..=MOST_UNITS).contains(size));
            *hidden.units.get_mut(at).ok_or(())? = size.ok_or(())?;
        }
        Ok(hidden)
    }
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units: Vec<String> = self.units().map(|units| units.to_string()).collect();
        f.write_str(&units.join("-"))?;
        f.write_str(if self.tanh { ",tanh" } else { "" })?;
        f.write_str(if self.squared { ",squared" } else { "" })
    }
}

/// Declares the network.
pub(super) fn mlp(net: &mut Builder, hidden: Hidden) {
    let next = if hidden.tanh { Next::Linear } else { Next::Relu };
    for (at, units) in (1..).zip(hidden.units()) {
        net.linear(&format!("fc{at}"), units, next);
        net.apply(if hidden.tanh { tanh } else { relu });
    }
    net.classifier(&format!("fc{}", hidden.units().count() + 1));
    if hidden.squared {
        net.apply(tanh);
    }
}
