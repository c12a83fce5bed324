//! What holds for every registered compressor beside the laws, in one program, which is compiled
//! faster than one for each file.

#[path = "../common/mod.rs"]
mod common;
mod page;

mod by_name;
mod corpus;
mod custom;
mod docs;
mod golden;
mod means;
mod memories;
mod ranges;
mod refusals;
mod specs;
