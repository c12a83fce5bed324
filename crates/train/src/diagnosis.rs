//! Gradients and residuals of a worker, layer by layer: the figures with which the authors of
//! AdaComp explain why a method diverges (Chen et al. 2018, figures 5 and 6).

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::DistributedOptimizer;
use serde::{Deserialize, Serialize};

/// Cells of a histogram.
const CELLS: usize = 41;
/// The percentile that is reported.
const PERCENTILE: f64 = 0.95;

/// A tensor of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
}

impl Layer {
    pub(crate) fn of(tensor: &Tensor) -> Self {
        Self { name: tensor.name().to_owned(), shape: tensor.shape().to_vec() }
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it holds the kernels of a convolution, which have more than two dimensions.
    pub fn is_convolution(&self) -> bool {
        self.shape.len() > 2
    }
}

/// The figures of all layers after an exchange.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Steps done.
    pub step: u64,
    /// Exchanges since the last diagnosis.
    pub exchanges: u64,
    /// The layers, in the model's order.
    pub layers: Vec<LayerDiagnosis>,
}

/// The figures of one layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerDiagnosis {
    /// The 95th percentile of the absolute values of the last compressed gradient, update or
    /// weights, without the residual.
    pub gradient: f32,
    /// The 95th percentile of the residual's absolute values; 0 without a residual.
    pub residual: f32,
    /// Bytes of the messages since the last diagnosis, without headers; a message to several ranks
    /// counts once.
    pub bytes: u64,
    /// The residual's distribution; `None` without a residual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Histogram>,
}

/// How often values occur.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// The largest absolute value: cells of equal width cover the range from minus this value to
    /// this value.
    pub largest: f32,
    /// Values in each cell. The number of cells is odd, so zero lies in the middle of one.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// The histogram of some values; `None` if all are zero.
    fn of(values: &[f32]) -> Option<Self> {
        let largest = values.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        if largest == 0.0 {
            return None;
        }
        let mut counts = vec![0; CELLS];
        for value in values {
            let place = (f64::from(*value) / f64::from(largest) + 1.0) / 2.0 * CELLS as f64;
            counts[(place as usize).min(CELLS - 1)] += 1;
        }
        Some(Self { largest, counts })
    }
}

/// Diagnoses one worker.
pub(crate) struct Diagnoser {
    names: Vec<String>,
    /// Bytes of each layer's messages since the last diagnosis.
    bytes: Vec<u64>,
    /// Exchanges since the last diagnosis with messages of this worker.
    exchanges: u64,
    /// Whether a diagnosis is overdue: the worker did not take part in the round when it was due.
    overdue: bool,
    values: Vec<f32>,
}

impl Diagnoser {
    pub(crate) fn new(tensors: &[Tensor]) -> Self {
        Self {
            names: tensors.iter().map(|tensor| tensor.name().to_owned()).collect(),
            bytes: vec![0; tensors.len()],
            exchanges: 0,
            overdue: false,
            values: Vec::new(),
        }
    }

    /// Counts the messages of an exchange.
    pub(crate) fn count(&mut self, exchange: &dyn DistributedOptimizer) {
        let mut any = false;
        for (index, bytes) in self.bytes.iter_mut().enumerate() {
            let sent = exchange.message_bytes(index) as u64;
            any |= sent > 0;
            *bytes = bytes.saturating_add(sent);
        }
        self.exchanges = self.exchanges.saturating_add(u64::from(any));
    }

    /// Whether to diagnose now: a diagnosis is due or overdue, and the worker has taken part in the
    /// round.
    pub(crate) fn is_due(&mut self, due: bool, present: bool) -> bool {
        self.overdue |= due;
        present && std::mem::take(&mut self.overdue)
    }

    /// Diagnoses all layers after `step` steps.
    pub(crate) fn diagnose(
        &mut self,
        step: u64,
        gradients: &[Vec<f32>],
        exchange: &dyn DistributedOptimizer,
    ) -> Diagnosis {
        let values = &mut self.values;
        let layers = gradients.iter().zip(&mut self.bytes).enumerate();
        let layers = layers.map(|(index, (gradient, bytes))| {
            values.clear();
            values.extend_from_slice(gradient);
            let of_gradient = percentile(values);
            values.clear();
            exchange.residual(index, &mut |piece| values.extend_from_slice(piece));
            let histogram = Histogram::of(values);
            let residual = percentile(values);
            let bytes = std::mem::take(bytes);
            LayerDiagnosis { gradient: of_gradient, residual, bytes, histogram }
        });
        let layers = layers.collect();
        Diagnosis { step, exchanges: std::mem::take(&mut self.exchanges), layers }
    }

    /// Adds the counts since the last diagnosis to `state`.
    pub(crate) fn save(&self, state: &mut State) {
        state.set_number("diagnosis exchanges", self.exchanges);
        state.set_number("diagnosis overdue", self.overdue.into());
        for (name, bytes) in self.names.iter().zip(&self.bytes) {
            state.set_number(&format!("diagnosis/{name}"), *bytes);
        }
    }

    /// Restores the state that [`save`](Self::save) wrote; a state without diagnoses changes
    /// nothing.
    pub(crate) fn restore(&mut self, state: &State) -> Result<(), StateError> {
        self.exchanges = match state.number("diagnosis exchanges") {
            Err(StateError::Missing(_)) => return Ok(()),
            exchanges => exchanges?,
        };
        self.overdue = state.number("diagnosis overdue")? != 0;
        for (name, bytes) in self.names.iter().zip(&mut self.bytes) {
            *bytes = state.number(&format!("diagnosis/{name}"))?;
        }
        Ok(())
    }
}

/// The 95th percentile of the absolute values; 0 of none. Replaces the values with their absolute
/// values, in another order.
fn percentile(values: &mut [f32]) -> f32 {
    values.iter_mut().for_each(|x| *x = x.abs());
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let rank = (PERCENTILE * last as f64).round() as usize;
    *values.select_nth_unstable_by(rank, f32::total_cmp).1
}

/// Detects residuals that grow without bound.
///
/// Error feedback keeps a residual at some multiple of the gradient: it grows at first and then
/// levels off. A residual diverges if it has risen in each of the last diagnoses, to many times its
/// value in the first part of the run.
pub(crate) struct Growth {
    names: Vec<String>,
    /// The percentiles of each layer so far, with their steps.
    past: Vec<Vec<(u64, f32)>>,
    told: Vec<bool>,
}

impl Growth {
    /// Diagnoses before the first warning.
    const DIAGNOSES: usize = 8;
    /// Diagnoses in a row in which the residual has risen.
    const RISING: usize = 4;
    /// The factor by which it must exceed the largest residual of the first quarter of the
    /// diagnoses.
    const TIMES: f32 = 10.0;

    /// Continues from the diagnoses on record.
    pub(crate) fn new(tensors: &[Tensor], diagnoses: &[Diagnosis]) -> Self {
        let mut growth = Self {
            names: tensors.iter().map(|tensor| tensor.name().to_owned()).collect(),
            past: vec![Vec::new(); tensors.len()],
            told: vec![false; tensors.len()],
        };
        diagnoses.iter().for_each(|diagnosis| drop(growth.watch(diagnosis)));
        growth
    }

    /// Takes a diagnosis and returns a warning for each layer whose residual grows without bound;
    /// once per layer.
    pub(crate) fn watch(&mut self, diagnosis: &Diagnosis) -> Vec<String> {
        let mut warnings = Vec::new();
        for (index, layer) in diagnosis.layers.iter().enumerate() {
            let Some(past) = self.past.get_mut(index) else { break };
            past.push((diagnosis.step, layer.residual));
            if self.told[index] || !grows(past) {
                continue;
            }
            self.told[index] = true;
            let (first, then) = past[past.len() / 4];
            warnings.push(format!(
                "step {}: the residual of {} grows without bound: 95 % of its elements were below \
                 {then:.1e} after step {first}, and are below {:.1e} now; send more (a larger \
                 fraction, smaller bins) or lower the learning rate",
                diagnosis.step, self.names[index], layer.residual
            ));
        }
        warnings
    }
}

fn grows(past: &[(u64, f32)]) -> bool {
    let Some(&(_, now)) = past.last() else { return false };
    if past.len() < Growth::DIAGNOSES {
        return false;
    }
    let rising = past[past.len() - 1 - Growth::RISING..].windows(2).all(|two| two[0].1 < two[1].1);
    let first = past[..=past.len() / 4].iter().fold(0.0, |most: f32, &(_, x)| most.max(x));
    rising && now > Growth::TIMES * first && first > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_absolute_values() {
        let mut values: Vec<f32> =
            (0..=100).map(|x| if x % 2 == 0 { -(x as f32) } else { x as f32 }).collect();
        assert_eq!(percentile(&mut values), 95.0);
        assert_eq!(percentile(&mut [-3.0]), 3.0);
        assert_eq!(percentile(&mut []), 0.0);
    }

    #[test]
    fn histograms_have_zero_in_the_middle_cell() {
        let histogram = Histogram::of(&[-2.0, 0.0, 0.01, 2.0, 2.0]).unwrap();
        assert_eq!((histogram.largest, histogram.counts.len()), (2.0, 41));
        assert_eq!((histogram.counts[0], histogram.counts[20], histogram.counts[40]), (1, 2, 2));
        assert_eq!(Histogram::of(&[0.0; 3]), None);
        assert_eq!(Histogram::of(&[]), None);
    }

    fn warnings(residuals: impl Iterator<Item = f32>) -> Vec<String> {
        let tensors = [Tensor::new("fc.weight", &[3])];
        let mut growth = Growth::new(&tensors, &[]);
        let looks = residuals.zip(1..).flat_map(|(residual, step)| {
            let layer = LayerDiagnosis { gradient: 1.0, residual, bytes: 0, histogram: None };
            growth.watch(&Diagnosis { step, exchanges: 1, layers: vec![layer] })
        });
        looks.collect()
    }

    #[test]
    fn exponential_growth_is_reported_once() {
        let found = warnings((0..30).map(|step| 1.5f32.powi(step)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("fc.weight grows without bound"), "{found:?}");
    }

    #[test]
    fn growth_that_slows_down_is_not_reported() {
        assert!(warnings((0..60).map(|step| step as f32)).is_empty());
        assert!(warnings((0..60).map(|step| (step as f32).sqrt())).is_empty());
        assert!(warnings((0..60).map(|step| 1.0 - 0.5f32.powi(step))).is_empty());
        assert!(warnings((0..60).map(|_| 0.0)).is_empty());
    }
}
