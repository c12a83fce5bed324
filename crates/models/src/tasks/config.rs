//! The settings of a task.

/// The settings of a run that its task depends on.
#[derive(Debug, Clone, Copy)]
pub struct TaskConfig {
    /// Number of workers, at least 1.
    pub workers: usize,
    /// Examples per worker and step; for text, windows of a transformer, or streams that an LSTM
    /// reads in parallel. At least 1.
    pub batch: usize,
    /// Whether training images are randomly cropped, flipped or shifted.
    pub augment: bool,
    /// Seeds the order of the examples and every other draw of the task.
    pub seed: u64,
}
