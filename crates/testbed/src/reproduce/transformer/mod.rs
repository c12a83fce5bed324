//! What a small transformer with AdamW loses when workers send less.

mod families;
mod frontier;
mod setting;
mod setups;

pub(super) use frontier::FRONTIER;
pub(super) use setups::SET_UPS;
