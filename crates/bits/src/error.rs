#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError { Truncated, Trailing { extra: usize }, Corrupt(&'static str) }
impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            DecodeError::Truncated => f.write_str("it ends too early"),
            DecodeError::Trailing { extra } => write!(f, "{extra} bytes follow its end"),
            DecodeError::Corrupt(what) => f.write_str(what),
        }
    }
}
impl core::error::Error for DecodeError {}
