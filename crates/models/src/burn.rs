//! burn, under the paths that the code made by `backend_extension` names. The crate `burn` has them too, with modules,
//! layers and optimizers that nothing here uses and that take long to compile.

pub(crate) use burn_tensor as tensor;

pub(crate) mod backend {
    pub(crate) use burn_backend::*;
    pub(crate) use burn_backend_extension::backend_extension;
    pub(crate) use burn_dispatch::backends::{Autodiff, Flex, autodiff};
    pub(crate) use burn_dispatch::{backend::*, device::*, tensor::*};
}
