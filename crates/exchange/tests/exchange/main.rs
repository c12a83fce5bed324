//! The tests of the exchanges. They are one program, because linking takes longer than most of
//! them.

#[path = "../common/mod.rs"]
mod common;

mod adding;
mod asynchronous;
mod backups;
mod custom;
mod device;
mod ef21;
mod failures;
mod gathered;
mod global_model;
mod identical;
mod kept_arrays;
mod laws;
mod ledger;
mod mean;
mod overlap;
mod participation;
mod reducer;
mod reports;
mod resume;
mod rules;
mod schedules;
mod setup;
mod shards;
mod sixteen_bits;
mod skipping;
mod stages;
mod throttle;
mod votes;
