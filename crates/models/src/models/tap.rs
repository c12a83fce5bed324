//! Gradients while back-propagation still runs.
//!
//! A tap is an identity operation between two parts of a network. The engine runs the backward pass from the loss to the
//! images, and reaches a tap once it has finished all operations after it: the gradients of the parameters that were
//! [taken](super::layers::Pass::take) after the tap are final then, and are passed to the sink. A network puts a tap
//! where everything that uses later parameters depends on it: between the layers of a chain, after a block and its
//! shortcut.
//!
//! A parameter is flat, and an operation takes a reshaped copy of it. The engine undoes the reshape last, so gradients
//! are read at the copy, not at the parameter. The gradient of a parameter that is taken twice waits for the end of the
//! pass. Without a sink a tap is the tensor itself.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::burn::backend::autodiff::checkpoint::base::Checkpointer;
use crate::burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use crate::burn::backend::autodiff::grads::Gradients;
use crate::burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use crate::burn::backend::tensor::FloatTensor;
use crate::burn::backend::{Autodiff, Flex};
use crate::burn::tensor::Tensor;
use gradwire_exchange::GradientSink;

#[cfg(test)]
mod tests;

/// A tensor with its place in the engine's record.
type Tracked = FloatTensor<Autodiff<Flex>>;

/// What a pass records.
#[derive(Debug, Default)]
pub(crate) enum Watch {
    /// Nothing.
    #[default]
    Nothing,
    /// Which parameters are taken between taps.
    Order(RefCell<Vec<Vec<usize>>>),
    /// What a sink needs to get gradients as they become final.
    Sink(Listener),
}

impl Watch {
    /// Records which parameters are taken between taps.
    pub(crate) fn order() -> Self {
        Self::Order(RefCell::new(vec![Vec::new()]))
    }

    /// Passes the gradients of `parameters` parameters to `sink` as they become final.
    pub(crate) fn sink(sink: &Arc<dyn GradientSink>, parameters: usize) -> Self {
        let taken = Taken { uses: vec![0; parameters], tensors: Vec::new() };
        Self::Sink(Listener { sink: Arc::clone(sink), taken: Arc::new(Mutex::new(taken)) })
    }

    /// Records that an operation takes parameter `at` as this tensor.
    pub(super) fn took<const D: usize>(&self, at: usize, tensor: &Tensor<D>) {
        match self {
            Self::Nothing => {}
            Self::Order(parts) => {
                parts.borrow_mut().last_mut().expect("there is a first part").push(at);
            }
            Self::Sink(listener) => {
                let mut taken = listener.lock();
                taken.uses[at] += 1;
                taken.tensors.push((at, tracked(tensor.clone())));
            }
        }
    }

    /// Puts a tap after `x`.
    pub(super) fn tap<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Nothing => x,
            Self::Order(parts) => {
                parts.borrow_mut().push(Vec::new());
                x
            }
            Self::Sink(listener) => {
                let before = listener.lock().tensors.len();
                Tensor::from_primitive::<Autodiff<Flex>>(listener.clone().after(before, tracked(x)))
            }
        }
    }
}

fn tracked<const D: usize>(tensor: Tensor<D>) -> Tracked {
    let tracked = tensor.try_into_primitive::<Autodiff<Flex>>();
    tracked.expect("gradients are computed by the engine's Flex")
}

/// What the taps of a pass share.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    sink: Arc<dyn GradientSink>,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug)]
struct Taken {
    /// How often each parameter was taken.
    uses: Vec<u32>,
    /// Tensors whose gradients have not been passed on, in the order of the forward pass.
    tensors: Vec<(usize, Tracked)>,
}

impl Listener {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a tap after `x`, `before` which this number of tensors was taken.
    fn after(self, before: usize, x: Tracked) -> Tracked {
        let (values, input) = x.into_parts();
        match Tap.prepare::<NoCheckpointing>([input]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                // The engine keeps the state of its operations: a weak reference frees an abandoned pass.
                prepared.finish((self.sink, Arc::downgrade(&self.taken), before), values)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(values),
        }
    }
}

impl Taken {
    /// Passes on the gradients of all but the first `before` tensors taken.
    fn hand_over(&mut self, sink: &dyn GradientSink, before: usize, gradients: &Gradients) {
        let Self { uses, tensors } = self;
        let known = tensors.split_off(before.min(tensors.len()));
        for (at, tensor) in known.into_iter().filter(|(at, _)| uses[*at] == 1) {
            if let Some(found) = gradients.get::<Flex>(&tensor) {
                let found = found.to_contiguous();
                sink.ready(at, found.as_slice().expect("a contiguous tensor of f32"));
            }
        }
    }
}

#[derive(Debug)]
struct Tap;

impl Backward<Flex, 1> for Tap {
    type State = (Arc<dyn GradientSink>, Weak<Mutex<Taken>>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let (sink, taken, before) = ops.state;
        if let Some(taken) = taken.upgrade() {
            let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.hand_over(&*sink, before, gradients);
        }
        if let [Some(input)] = ops.parents {
            gradients.register::<Flex>(input.id, gradient);
        }
    }
}
