//! What single ranks' messages decode to, for compressors that combine them.

/// One tensor of every rank that takes part, one behind the other. Empty where the mean of them all serves.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    weights: Vec<f32>,
    values: Vec<f32>,
}

impl Rows {
    pub(crate) fn clear(&mut self) {
        self.weights.clear();
        self.values.clear();
    }
}
