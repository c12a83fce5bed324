//! What single ranks' messages decode to, for compressors that combine them.

use gradwire::Gathered;

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

    pub(crate) fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// Adds a row of zeros.
    pub(crate) fn add(&mut self, weight: f32, elements: usize) -> &mut [f32] {
        let start = self.values.len();
        self.weights.push(weight);
        self.values.resize(start + elements, 0.0);
        &mut self.values[start..]
    }

    pub(crate) fn gathered(&self, elements: usize) -> Gathered<'_> {
        Gathered::new(&self.weights, &self.values, elements)
    }
}
