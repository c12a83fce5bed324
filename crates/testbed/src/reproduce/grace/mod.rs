//! The survey of compressed communication, whose framework is called GRACE.

mod feedback;
mod figure_6;
mod figure_8;
mod latency;
mod paper;
mod plain_sgd;

pub(super) use feedback::FEEDBACK;
pub(super) use figure_6::FIGURE_6;
pub(super) use figure_8::FIGURE_8;
pub(super) use latency::FIGURE_9;
pub(super) use plain_sgd::PLAIN_SGD;
