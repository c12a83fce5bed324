//! The purpose of a message: as text for people, and as the twelve bytes of the header.

use std::fmt;

/// Bytes of the header before every payload.
pub const HEADER_BYTES: usize = 12;

/// The tensor field of a header whose message is about the whole model.
const WHOLE: u32 = 0xff_ffff;

/// The purpose of a message. The numbers are part of the wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Comparison of the configuration at the start.
    Handshake = 1,
    /// Comparison of parameters in the middle of a run; or whether a rank's values are finite.
    Check = 2,
    /// Waiting for all.
    Barrier = 3,
    /// One rank's bytes to all.
    Broadcast = 4,
    /// Each rank's part to the owner of that part.
    Scatter = 5,
    /// Each rank's result to all.
    Gather = 6,
    /// A worker's announcement of a step and its learning rate to a server.
    Begin = 7,
    /// A worker's gradient to a server.
    Push = 8,
    /// A server's model delta to a worker.
    Pull = 9,
    /// The global model.
    Model = 10,
    /// A server's state on its way to a checkpoint.
    Save = 11,
    /// A server's state on its way back.
    Restore = 12,
    /// The sum of some ranks' messages, to a rank that has the sum of others.
    Merge = 13,
    /// A message between workers apart from the exchange of tensors.
    Report = 14,
}

impl Phase {
    const ALL: [Phase; 14] = [
        Phase::Handshake,
        Phase::Check,
        Phase::Barrier,
        Phase::Broadcast,
        Phase::Scatter,
        Phase::Gather,
        Phase::Begin,
        Phase::Push,
        Phase::Pull,
        Phase::Model,
        Phase::Save,
        Phase::Restore,
        Phase::Merge,
        Phase::Report,
    ];

    fn word(self) -> &'static str {
        match self {
            Phase::Handshake => "handshake",
            Phase::Check => "check",
            Phase::Barrier => "barrier",
            Phase::Broadcast => "broadcast",
            Phase::Scatter => "scatter",
            Phase::Gather => "gather",
            Phase::Begin => "begin",
            Phase::Push => "push",
            Phase::Pull => "pull",
            Phase::Model => "request of the global model",
            Phase::Save => "save",
            Phase::Restore => "restore",
            Phase::Merge => "merge",
            Phase::Report => "report",
        }
    }
}

/// The current operation of a rank: prints as `push of 'conv1.weight' at step 12`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The purpose.
    pub phase: Phase,
    /// Index and name of the tensor; `None` for the whole model.
    pub tensor: Option<(usize, &'a str)>,
    /// The training step.
    pub step: u64,
}

impl<'a> Operation<'a> {
    /// An operation on the whole model.
    pub fn whole(phase: Phase, step: u64) -> Self {
        Self { phase, tensor: None, step }
    }

    /// An operation on tensor `index`, called `name`.
    pub fn tensor(phase: Phase, index: usize, name: &'a str, step: u64) -> Self {
        Self { phase, tensor: Some((index, name)), step }
    }

    fn tensor_field(&self) -> u32 {
        self.tensor.map_or(WHOLE, |(index, _)| index as u32 & WHOLE)
    }
}

impl fmt::Display for Operation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.phase.word())?;
        if let Some((_, name)) = self.tensor {
            write!(f, " of '{name}'")?;
        }
        match self.phase {
            Phase::Handshake | Phase::Barrier | Phase::Report => Ok(()),
            _ => write!(f, " at step {}", self.step),
        }
    }
}

/// The header of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The purpose.
    pub phase: Phase,
    /// The tensor's index; `None` for the whole model.
    pub tensor: Option<usize>,
    /// The lower half of the step.
    pub step: u32,
    /// Bytes of the payload.
    pub length: u32,
}

impl Header {
    /// The header of an operation with a payload of `length` bytes; `None` from 4 GiB on.
    pub fn new(operation: Operation<'_>, length: usize) -> Option<Self> {
        let tensor = operation.tensor_field();
        Some(Self {
            phase: operation.phase,
            tensor: (tensor != WHOLE).then_some(tensor as usize),
            step: operation.step as u32,
            length: u32::try_from(length).ok()?,
        })
    }

    /// Whether this is the header of `operation`, whatever its length.
    pub fn matches(&self, operation: Operation<'_>) -> bool {
        Header::new(operation, 0) == Some(Header { length: 0, ..*self })
    }

    /// The header's bytes: phase (1 byte), tensor (3), step (4), length (4), little-endian.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let first = u32::from(self.phase as u8) | self.tensor.map_or(WHOLE, |t| t as u32) << 8;
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&first.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.step.to_le_bytes());
        bytes[8..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Reads a header; `None` if its phase is unknown.
    pub fn from_bytes(bytes: [u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let tensor = word(0) >> 8;
        Some(Self {
            phase: Phase::ALL.into_iter().find(|&phase| phase as u8 == bytes[0])?,
            tensor: (tensor != WHOLE).then_some(tensor as usize),
            step: word(4),
            length: word(8),
        })
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message for '{}'", self.phase.word())?;
        if let Some(tensor) = self.tensor {
            write!(f, " for tensor {tensor}")?;
        }
        write!(f, " at step {} with {} bytes", self.step, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_these_twelve_bytes() {
        let push = Operation::tensor(Phase::Push, 0x0001_0203, "w", 0x9_0000_000a);
        let header = Header::new(push, 0x0504).unwrap();
        assert_eq!(header.to_bytes(), [8, 3, 2, 1, 10, 0, 0, 0, 4, 5, 0, 0]);
        assert_eq!(Header::from_bytes(header.to_bytes()), Some(header));
        let whole = Header::new(Operation::whole(Phase::Gather, 1), 0).unwrap();
        assert_eq!(whole.to_bytes(), [6, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Header::from_bytes(whole.to_bytes()), Some(whole));
    }

    #[test]
    fn every_phase_is_read_back_and_no_other() {
        for first in 0..=255 {
            let mut bytes = [0; HEADER_BYTES];
            bytes[0] = first;
            let header = Header::from_bytes(bytes);
            assert_eq!(header.map(|h| h.phase as u8), (1..=14).contains(&first).then_some(first));
        }
    }

    #[test]
    fn an_operation_prints_what_a_person_wants_to_know() {
        let push = Operation::tensor(Phase::Push, 3, "conv1.weight", 12);
        assert_eq!(push.to_string(), "push of 'conv1.weight' at step 12");
        assert_eq!(Operation::whole(Phase::Gather, 0).to_string(), "gather at step 0");
        assert_eq!(Operation::whole(Phase::Handshake, 0).to_string(), "handshake");
    }

    #[test]
    fn a_payload_of_four_gibibytes_has_no_header() {
        let gather = Operation::whole(Phase::Gather, 0);
        assert!(Header::new(gather, u32::MAX as usize).is_some());
        assert!(Header::new(gather, u32::MAX as usize + 1).is_none());
    }
}
