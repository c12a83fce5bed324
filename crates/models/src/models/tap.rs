//! Gradients while back-propagation still runs.
//!
//! A tap is an operation between two parts of a network that changes nothing. The engine runs the steps of a backward
//! pass from the loss to the images, and so comes to a tap when it is done with all operations whose input went through
//! it: the gradients of the parameters that were [taken](super::layers::Pass::take) behind it are final then, and are
//! handed over. A network puts a tap where no later parameter is used by anything that does not depend on it: between
//! the layers of a chain, behind a block and its shortcut.
//!
//! A parameter is flat, and what an operation takes is a tensor of its own that was made of it by giving it a shape.
//! The engine undoes that last of all, so that gradients are read at what was taken, not at the parameter. One that is
//! taken twice is left to the end. Where nobody listens a tap is the tensor itself.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Flex};
use burn::tensor::Tensor;
use gradwire_exchange::GradientSink;

/// A tensor with its place in the engine's record.
type Tracked = FloatTensor<Autodiff<Flex>>;

/// Who follows a pass.
#[derive(Debug, Default)]
pub(crate) enum Watch {
    /// Nobody.
    #[default]
    Nobody,
    /// Who wants to know which parameters are taken between taps.
    Order(RefCell<Vec<Vec<usize>>>),
    /// Who gets gradients early.
    GradientSink(Ear),
}

impl Watch {
    /// Notes parameters tap by tap.
    pub(crate) fn order() -> Self {
        Self::Order(RefCell::new(vec![Vec::new()]))
    }

    /// Hands gradients of so many parameters over as they become known.
    pub(crate) fn early(early: &Arc<dyn GradientSink>, parameters: usize) -> Self {
        let taken = Taken { uses: vec![0; parameters], tensors: Vec::new() };
        Self::GradientSink(Ear { early: Arc::clone(early), taken: Arc::new(Mutex::new(taken)) })
    }

    /// Hears that an operation takes parameter `at` as this tensor.
    pub(super) fn took<const D: usize>(&self, at: usize, tensor: &Tensor<D>) {
        match self {
            Self::Nobody => {}
            Self::Order(parts) => {
                parts.borrow_mut().last_mut().expect("there is a first part").push(at);
            }
            Self::GradientSink(ear) => {
                let mut taken = ear.lock();
                taken.uses[at] += 1;
                taken.tensors.push((at, tracked(tensor.clone())));
            }
        }
    }

    /// Puts a tap behind `x`.
    pub(super) fn tap<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Nobody => x,
            Self::Order(parts) => {
                parts.borrow_mut().push(Vec::new());
                x
            }
            Self::GradientSink(ear) => {
                let before = ear.lock().tensors.len();
                Tensor::from_primitive::<Autodiff<Flex>>(ear.clone().behind(before, tracked(x)))
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
pub(crate) struct Ear {
    early: Arc<dyn GradientSink>,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug)]
struct Taken {
    /// How often each parameter was taken.
    uses: Vec<u32>,
    /// What was taken and has not been handed over, in the order of the forward pass.
    tensors: Vec<(usize, Tracked)>,
}

impl Ear {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a tap behind `x`, `before` which so many tensors were taken.
    fn behind(self, before: usize, x: Tracked) -> Tracked {
        let (values, input) = x.into_parts();
        match Tap.prepare::<NoCheckpointing>([input]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                // The engine keeps what a step holds on to: a pass that is given up must not be held.
                prepared.finish((self.early, Arc::downgrade(&self.taken), before), values)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(values),
        }
    }
}

impl Taken {
    /// Hands over the gradients of all but the first `before` tensors taken.
    fn hand_over(&mut self, early: &dyn GradientSink, before: usize, gradients: &Gradients) {
        let Self { uses, tensors } = self;
        let known = tensors.split_off(before.min(tensors.len()));
        for (at, tensor) in known.into_iter().filter(|(at, _)| uses[*at] == 1) {
            if let Some(found) = gradients.get::<Flex>(&tensor) {
                let found = found.to_contiguous();
                early.ready(at, found.as_slice().expect("a contiguous tensor of f32"));
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
        let (early, taken, before) = ops.state;
        if let Some(taken) = taken.upgrade() {
            let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.hand_over(&*early, before, gradients);
        }
        if let [Some(input)] = ops.parents {
            gradients.register::<Flex>(input.id, gradient);
        }
    }
}
