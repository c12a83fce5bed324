//! The loss of a small transformer with AdamW if workers send fewer bytes.

mod families;
mod frontier;
mod setting;
mod setups;

pub(super) use frontier::FRONTIER;
pub(super) use setups::SET_UPS;
