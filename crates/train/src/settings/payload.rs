//! The values that travel between workers.

use std::fmt;
use std::str::FromStr;

/// The values that workers send each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Payload {
    /// Gradients, summed over the local steps of a round; the optimizer runs on their mean.
    #[default]
    Gradients,
    /// Changes of parameters: each worker runs its own optimizer for the local steps of a round,
    /// and the mean change is added to the common parameters (McMahan et al. 2017; Sattler et al.
    /// 2018, Algorithm 1).
    Updates,
    /// The parameters themselves, from the same local steps; their mean replaces the common ones
    /// (Øland and Raj 2015).
    Weights,
}

impl Payload {
    /// Whether each worker has its own optimizer.
    pub(crate) fn is_local(self) -> bool {
        self != Payload::Gradients
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Payload::Gradients => "gradients",
            Payload::Updates => "updates",
            Payload::Weights => "weights",
        })
    }
}

impl FromStr for Payload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "gradients" => Ok(Payload::Gradients),
            "updates" => Ok(Payload::Updates),
            "weights" => Ok(Payload::Weights),
            _ => Err(format!("'{text}' cannot be sent; give gradients, updates or weights")),
        }
    }
}
