//! Which weights an end holds: the run that made them, their version, and the hash of their bits.

use crate::StateHash;

/// The name of a trainer's run: 16 bytes that no other run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub [u8; 16]);

impl RunId {
    /// Draws a name from the randomness of the operating system.
    ///
    /// # Panics
    /// If the operating system has none.
    pub fn random() -> Self {
        let mut id = [0; 16];
        getrandom::fill(&mut id).expect("the operating system has random numbers");
        Self(id)
    }
}

/// 32 hexadecimal digits.
impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The weights that an end holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The run that made the weights; none yet if they are a base model that nobody has updated.
    pub run: Option<RunId>,
    /// The number of updates of the run.
    pub version: u64,
    /// The hash of all tensors: names, types, shapes and bits.
    pub hash: StateHash,
}

impl State {
    /// A base model that no run has updated: version 0.
    pub fn base(hash: StateHash) -> Self {
        Self { run: None, version: 0, hash }
    }
}

/// Version, run and hash.
impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.run {
            Some(run) => write!(f, "version {} of run {run} (hash {})", self.version, self.hash),
            None => write!(f, "a base model (hash {})", self.hash),
        }
    }
}
