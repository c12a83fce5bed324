//! One rank's end of a run, over any transport.

use crate::{
    AllGather, AllReduce, Average, Collective, DistributedOptimizer, Exchange, ExchangeError,
    GroupConfig, Hierarchical, Optimizer, ScatterReduce, Server, SparseAllReduce, Transport,
    Worker,
};

/// What a rank is in a run: one of the workers, or behind them one of the servers.
pub enum End {
    /// Computes gradients, and steps.
    Worker(Box<dyn DistributedOptimizer>),
    /// [Serves](Server::run) until every worker has left.
    Server(Box<Server>),
}

impl End {
    /// Joins the other ranks, all of which call this at the same time, each with its own end of the
    /// transport. `optimizer` is called if this rank runs one: a worker of a collective strategy, or
    /// a server.
    ///
    /// # Errors
    /// `Config` if the setup cannot work or is not that of the other ranks; those of the transport.
    pub fn join(
        transport: Box<dyn Transport>,
        setup: &GroupConfig<'_>,
        optimizer: impl FnOnce() -> Box<dyn Optimizer>,
    ) -> Result<Self, ExchangeError> {
        let serves = transport.rank() >= setup.workers;
        match setup.exchange {
            Exchange::AllReduce => collective::<AllReduce>(transport, setup, optimizer()),
            Exchange::AllGather => collective::<AllGather>(transport, setup, optimizer()),
            Exchange::ScatterReduce => collective::<ScatterReduce>(transport, setup, optimizer()),
            Exchange::SparseAllReduce => {
                collective::<SparseAllReduce>(transport, setup, optimizer())
            }
            Exchange::Hierarchical { .. } => {
                collective::<Hierarchical>(transport, setup, optimizer())
            }
            Exchange::ParameterServer { .. } if serves => {
                Ok(End::Server(Box::new(Server::new(transport, setup, optimizer())?)))
            }
            Exchange::ParameterServer { .. } => {
                Ok(End::Worker(Box::new(Worker::new(transport, setup)?)))
            }
        }
    }
}

fn collective<A: Average + 'static>(
    transport: Box<dyn Transport>,
    setup: &GroupConfig<'_>,
    optimizer: Box<dyn Optimizer>,
) -> Result<End, ExchangeError> {
    Ok(End::Worker(Box::new(Collective::<A>::new(transport, setup, optimizer)?)))
}
