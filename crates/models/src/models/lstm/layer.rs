//! A layer of long short-term memory: its forward and backward pass over a sequence.
//!
//! With x the inputs and h, c the outputs and cells (h₋₁ and c₋₁ carried from before), at each time
//!
//! ```text
//! [i j f o] = [x h₋₁]·W + b
//! c = σ(f)·c₋₁ + σ(i)·tanh(j)
//! h = σ(o)·tanh(c)
//! ```
//!
//! (Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000, no peepholes.) The
//! rows of W for x come first. Sequences are stored time by time: row t·streams + s is stream s at
//! time t. The contribution of x is one product for all times, the contribution of h one per time.
//! The gradient of W is one product over all times.

use super::super::layout::{Init, Layout};
use super::super::tanh::tanh;
use crate::matmul::{Matrix, multiply};

/// The initial values of all parameters but the gates' biases: uniform in ±0.05.
pub(super) const INIT: Init = Init::Uniform { variance: 0.05 * 0.05 / 3.0 };

/// One layer.
#[derive(Debug)]
pub(super) struct Layer {
    weight: usize,
    bias: usize,
    inputs: usize,
    hidden: usize,
}

/// Outputs and cells at the end of a sequence, stream by stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerState {
    /// h.
    pub(crate) hidden: Vec<f32>,
    /// c.
    pub(crate) cell: Vec<f32>,
}

/// The values of a forward pass that the backward pass needs.
#[derive(Debug)]
pub(super) struct Trace {
    /// σ(i), tanh(j), σ(f), σ(o).
    gates: Vec<f32>,
    /// The cells carried in, then the cells of each time.
    cells: Vec<f32>,
    /// The outputs carried in, then the outputs of each time.
    outputs: Vec<f32>,
    streams: usize,
}

impl Layer {
    /// Declares a layer in `layout`.
    pub(super) fn new(layout: &mut Layout, name: &str, inputs: usize, hidden: usize) -> Self {
        let weight = layout.parameter(name, "weight", &[inputs + hidden, 4 * hidden], INIT);
        let bias = layout.bias(name, 4 * hidden);
        Self { weight, bias, inputs, hidden }
    }

    /// Computes the outputs of a sequence; `state` is the initial state, and becomes the final one.
    pub(super) fn forward(
        &self,
        parameters: &[Vec<f32>],
        x: &[f32],
        state: &mut LayerState,
    ) -> Trace {
        let (hidden, width) = (self.hidden, 4 * self.hidden);
        let streams = state.hidden.len() / hidden;
        let rows = x.len() / self.inputs;
        let (from_x, from_h) = self.weights(parameters);
        let mut gates = parameters[self.bias].repeat(rows);
        multiply(Matrix::new(x, self.inputs), from_x, true, &mut gates);
        let after = |carried: &[f32]| {
            let mut values = Vec::with_capacity((rows + streams) * hidden);
            values.extend_from_slice(carried);
            values.resize((rows + streams) * hidden, 0.0);
            values
        };
        let (mut cells, mut outputs) = (after(&state.cell), after(&state.hidden));
        let step = streams * hidden;
        for (time, gates) in gates.chunks_exact_mut(streams * width).enumerate() {
            let (before, now) = outputs[time * step..][..2 * step].split_at_mut(step);
            multiply(Matrix::new(before, hidden), from_h, true, gates);
            let (cells_before, cells) = cells[time * step..][..2 * step].split_at_mut(step);
            for stream in 0..streams {
                let of = stream * hidden..(stream + 1) * hidden;
                activate(
                    &mut gates[stream * width..][..width],
                    &cells_before[of.clone()],
                    &mut cells[of.clone()],
                    &mut now[of],
                );
            }
        }
        state.hidden.copy_from_slice(&outputs[rows * hidden..]);
        state.cell.copy_from_slice(&cells[rows * hidden..]);
        Trace { gates, cells, outputs, streams }
    }

    /// Back-propagates the gradient of the outputs: adds the parameters' gradients and returns the
    /// inputs' gradient. Truncates at the first time.
    pub(super) fn backward(
        &self,
        parameters: &[Vec<f32>],
        x: &[f32],
        trace: Trace,
        outputs_gradient: &[f32],
        gradients: &mut [Vec<f32>],
    ) -> Vec<f32> {
        let (hidden, width, streams) = (self.hidden, 4 * self.hidden, trace.streams);
        let (from_x, from_h) = self.weights(parameters);
        let step = streams * hidden;
        let Trace { mut gates, cells, outputs, .. } = trace;
        let mut carried = vec![0.0; step];
        let mut cell_carried = vec![0.0; step];
        for (time, gates) in gates.chunks_exact_mut(streams * width).enumerate().rev() {
            let (cells_before, cells) = cells[time * step..][..2 * step].split_at(step);
            add(&mut carried, &outputs_gradient[time * step..][..step]);
            for stream in 0..streams {
                let of = stream * hidden..(stream + 1) * hidden;
                deactivate(
                    &mut gates[stream * width..][..width],
                    &cells_before[of.clone()],
                    &cells[of.clone()],
                    &carried[of.clone()],
                    &mut cell_carried[of],
                );
            }
            multiply(Matrix::new(gates, width), from_h.transposed(), false, &mut carried);
        }

        let gates_gradient = Matrix::new(&gates, width);
        let before = Matrix::new(&outputs[..outputs.len() - step], hidden);
        let (x_part, h_part) = gradients[self.weight].split_at_mut(self.inputs * width);
        multiply(Matrix::new(x, self.inputs).transposed(), gates_gradient, true, x_part);
        multiply(before.transposed(), gates_gradient, true, h_part);
        gates.chunks_exact(width).for_each(|row| add(&mut gradients[self.bias], row));
        let mut inputs_gradient = vec![0.0; x.len()];
        multiply(gates_gradient, from_x.transposed(), false, &mut inputs_gradient);
        inputs_gradient
    }

    /// The weights of x and of h.
    fn weights<'a>(&self, parameters: &'a [Vec<f32>]) -> (Matrix<'a>, Matrix<'a>) {
        let width = 4 * self.hidden;
        let (x, h) = parameters[self.weight].split_at(self.inputs * width);
        (Matrix::new(x, width), Matrix::new(h, width))
    }
}

impl LayerState {
    /// Zeros for `streams` streams.
    pub(super) fn zeros(streams: usize, hidden: usize) -> Self {
        Self { hidden: vec![0.0; streams * hidden], cell: vec![0.0; streams * hidden] }
    }
}

impl Trace {
    /// The outputs at each time.
    pub(super) fn outputs(&self, hidden: usize) -> &[f32] {
        &self.outputs[self.streams * hidden..]
    }
}

/// `sum += terms`, element by element.
pub(super) fn add(sum: &mut [f32], terms: &[f32]) {
    for (sum, term) in sum.iter_mut().zip(terms) {
        *sum += term;
    }
}

/// Turns one stream's gates at one time into their activations, and computes cells and outputs.
fn activate(gates: &mut [f32], before: &[f32], cells: &mut [f32], outputs: &mut [f32]) {
    let hidden = before.len();
    let (i, rest) = gates.split_at_mut(hidden);
    let (j, rest) = rest.split_at_mut(hidden);
    let (f, o) = rest.split_at_mut(hidden);
    for gate in [&mut *i, &mut *f, &mut *o] {
        gate.iter_mut().for_each(|x| *x = sigmoid(*x));
    }
    j.iter_mut().for_each(|x| *x = tanh(*x));
    for (at, cell) in cells.iter_mut().enumerate() {
        *cell = f[at] * before[at] + i[at] * j[at];
    }
    for (output, (&cell, &o)) in outputs.iter_mut().zip(cells.iter().zip(&*o)) {
        *output = o * tanh(cell);
    }
}

/// Turns one stream's activations at one time into the gradients before activation. `carried` is
/// the gradient of the outputs. `cell_carried` is the gradient of the cells from the next time; the
/// gradient for the previous time replaces it.
fn deactivate(
    gates: &mut [f32],
    before: &[f32],
    cells: &[f32],
    carried: &[f32],
    cell_carried: &mut [f32],
) {
    let hidden = before.len();
    let (i, rest) = gates.split_at_mut(hidden);
    let (j, rest) = rest.split_at_mut(hidden);
    let (f, o) = rest.split_at_mut(hidden);
    for at in 0..hidden {
        let (input, new, forget, out) = (i[at], j[at], f[at], o[at]);
        let squashed = tanh(cells[at]);
        let cell = cell_carried[at] + carried[at] * out * (1.0 - squashed * squashed);
        i[at] = cell * new * input * (1.0 - input);
        j[at] = cell * input * (1.0 - new * new);
        f[at] = cell * before[at] * forget * (1.0 - forget);
        o[at] = carried[at] * squashed * out * (1.0 - out);
        cell_carried[at] = cell * forget;
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
