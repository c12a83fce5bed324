//! The verbs of the command line.

pub(crate) mod advise;
pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod compress;
pub(crate) mod data;
pub(crate) mod decompress;
pub(crate) mod delta;
pub(crate) mod env;
pub(crate) mod fold;
pub(crate) mod inspect;
pub(crate) mod inspect_delta;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod pack;
pub(crate) mod patch;
pub(crate) mod repeat;
pub(crate) mod reproduce;
pub(crate) mod train;
pub(crate) mod unpack;
