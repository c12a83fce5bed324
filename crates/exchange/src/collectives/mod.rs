//! The collectives: how a group of tensors is averaged over all ranks.
//!
//! A collective owns buffers and nothing else. Compressors and their state are in the rank's
//! codecs, by tensor name. So one collective averages any group of tensors, and new groups change
//! no state.

pub mod all_gather;
pub mod all_reduce;
mod collective;
pub mod gather_shards;
pub mod hierarchical;
mod packed;
mod received;
pub mod reduce_scatter;
mod scatter;
pub mod scatter_reduce;
mod slices;
pub mod sparse;
mod telling;

pub(crate) use self::collective::{Collective, Reduction};
pub(crate) use self::slices::Cut;
use crate::codecs::Codecs;
use crate::error::refuse;
use crate::{Exchange, GroupConfig, Result};

/// The collective of an exchange without servers. A collective that cuts tensors tells the codecs
/// the names of the slices.
pub(crate) fn of(
    config: &GroupConfig<'_>,
    cut: Cut,
    codecs: &mut Codecs,
    rank: usize,
) -> Result<Box<dyn Collective>> {
    Ok(match config.exchange {
        Exchange::AllReduce => Box::new(all_reduce::AllReduce::new(config.workers())),
        Exchange::AllGather => Box::new(all_gather::AllGather::new(config.workers())),
        Exchange::ScatterReduce => {
            Box::new(scatter_reduce::ScatterReduce::new(config, cut, codecs, rank))
        }
        Exchange::ReduceScatter => Box::new(reduce_scatter::ReduceScatter::new(config, codecs)),
        Exchange::GatherShards => Box::new(gather_shards::GatherShards::new(config, codecs)),
        Exchange::SparseAllReduce => Box::<sparse::SparseAllReduce>::default(),
        Exchange::Hierarchical { node } => Box::new(hierarchical::Hierarchical::new(node)),
        Exchange::ParameterServer { .. } => {
            return refuse(format!("'{}' is no collective", config.exchange));
        }
    })
}
