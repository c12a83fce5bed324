//! The role of a rank in a run, over any transport.

use std::fmt;

use crate::{
    DistributedOptimizer, Exchange, GroupConfig, Optimizer, ReplicatedOptimizer, Result, Server,
    ServerWorker, Transport,
};

/// The role of a rank in a run: a worker or a server. The servers' ranks come after the workers'.
pub enum Role {
    /// Computes gradients, and steps.
    Worker(Box<dyn DistributedOptimizer>),
    /// [Serves](Server::run) until every worker has left.
    Server(Box<Server>),
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Worker(_) => "Worker",
            Role::Server(_) => "Server",
        })
    }
}

impl Role {
    /// Joins the other ranks. All ranks call this at the same time, each with its own end of the
    /// transport. `optimizer` is called if this rank runs one: a worker of an exchange without
    /// servers, or a server.
    ///
    /// # Errors
    /// `Config` if the configuration cannot work or differs between ranks; the errors of the
    /// transport.
    pub fn join(
        transport: Box<dyn Transport>,
        config: &GroupConfig<'_>,
        optimizer: impl FnOnce() -> Box<dyn Optimizer>,
    ) -> Result<Self> {
        let serves = transport.rank() >= config.workers();
        Ok(match config.exchange {
            Exchange::ParameterServer { .. } if serves => {
                Self::Server(Box::new(Server::new(transport, config, optimizer())?))
            }
            Exchange::ParameterServer { .. } => {
                Self::Worker(Box::new(ServerWorker::new(transport, config)?))
            }
            _ => Self::Worker(Box::new(ReplicatedOptimizer::new(transport, config, optimizer())?)),
        })
    }
}
