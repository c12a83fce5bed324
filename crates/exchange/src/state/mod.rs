//! Saved states: the names of their entries, checks, and redistribution over ranks.

mod check;
mod names;
mod reshard;

pub use check::check_arrays;
pub use names::saved_as;
pub(crate) use names::{PUSH, REDUCE, read_slice, slice_name, slice_of, sum_key};
pub use reshard::reshard;
pub(crate) use reshard::{join, keep, split, take_kept};
