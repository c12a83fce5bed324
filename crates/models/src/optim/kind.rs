//! The optimizers by name: `sgd`, `momentum:m=0.9`, `nesterov`, `adam:beta1=0.9,beta2=0.999`,
//! `adamw:freeze=100,exchange=momentum`, `muon:m=0.95`, `rmsprop:rho=0.9,m=0.8`, `adagrad`.

use std::fmt;
use std::str::FromStr;

use gradwire::Tensor;
use gradwire_exchange::Optimizer;

use super::per_tensor::{PerTensor, Rule};
use super::{AdaGradConfig, AdamConfig, MomentumConfig, MuonConfig, RmsPropConfig, sgd::Sgd};
use crate::options::{Options, OptionsError, Printer};

/// An optimizer with its settings. Prints only settings that differ from the defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OptimizerKind {
    /// Plain gradient descent.
    Sgd,
    /// Momentum, with or without Nesterov's look-ahead; m = 0.9 by default.
    Momentum(MomentumConfig),
    /// Adam or AdamW; β₁ = 0.9, β₂ = 0.999, ε = 1e-8 by default, and no freeze; also 1-bit Adam.
    Adam(AdamConfig),
    /// Muon; m = 0.95 by default, and AdamW's defaults for vectors and embeddings.
    Muon(MuonConfig),
    /// RMSProp; ρ = 0.9, no momentum, ε = 1e-8 by default.
    RmsProp(RmsPropConfig),
    /// AdaGrad; ε = 1e-10 by default.
    AdaGrad(AdaGradConfig),
}

const NAMES: [&str; 8] =
    ["sgd", "momentum", "nesterov", "adam", "adamw", "muon", "rmsprop", "adagrad"];

const MOMENTUM: f32 = 0.9;
const ADAM: AdamConfig = AdamConfig {
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    decoupled: false,
    freeze: None,
    exchanges_momentum: false,
};
const MUON: MuonConfig =
    MuonConfig { momentum: 0.95, others: AdamConfig { decoupled: true, ..ADAM } };
const RMSPROP: RmsPropConfig = RmsPropConfig { rho: 0.9, momentum: 0.0, epsilon: 1e-8 };
const ADAGRAD: AdaGradConfig = AdaGradConfig { epsilon: 1e-10 };

impl OptimizerKind {
    /// Whether an update includes updates of earlier steps.
    pub fn has_momentum(self) -> bool {
        match self {
            Self::Sgd | Self::AdaGrad(_) => false,
            Self::RmsProp(config) => config.momentum > 0.0,
            Self::Momentum(_) | Self::Adam(_) | Self::Muon(_) => true,
        }
    }

    /// The vectors kept for a tensor, each as long as the tensor. A tensor that Muon updates like
    /// Adam has one more.
    pub fn vectors(self) -> usize {
        fn of<R: Rule>(_: R) -> usize {
            R::STATE.len()
        }
        match self {
            Self::Sgd => of(Sgd),
            Self::Momentum(config) => of(config),
            Self::Adam(config) => of(config),
            Self::Muon(_) => 1,
            Self::RmsProp(config) => of(config),
            Self::AdaGrad(config) => of(config),
        }
    }

    /// Whether ranks exchange gradients at every step, as servers, overlap and local steps require.
    pub fn exchanges_gradients(self) -> bool {
        !matches!(self, Self::Adam(config) if config.exchanges_momentum)
    }

    /// An optimizer for the tensors of a model, with weight decay.
    pub fn build(self, tensors: &[Tensor], weight_decay: f32) -> Box<dyn Optimizer> {
        fn of(
            rule: impl Rule + 'static,
            tensors: &[Tensor],
            weight_decay: f32,
        ) -> Box<dyn Optimizer> {
            Box::new(PerTensor::new(rule, tensors, weight_decay))
        }
        match self {
            Self::Sgd => of(Sgd, tensors, weight_decay),
            Self::Momentum(config) => of(config, tensors, weight_decay),
            Self::Adam(config) => of(config, tensors, weight_decay),
            Self::Muon(config) => of(config, tensors, weight_decay),
            Self::RmsProp(config) => of(config, tensors, weight_decay),
            Self::AdaGrad(config) => of(config, tensors, weight_decay),
        }
    }
}

impl FromStr for OptimizerKind {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Self, OptionsError> {
        let mut options = Options::parse(text)?;
        let kind = match options.id() {
            "sgd" => Self::Sgd,
            id @ ("momentum" | "nesterov") => {
                let nesterov = id == "nesterov";
                Self::Momentum(MomentumConfig {
                    momentum: decay(&mut options, "m", MOMENTUM)?,
                    nesterov,
                })
            }
            id @ ("adam" | "adamw") => adam(AdamConfig {
                decoupled: id == "adamw",
                beta1: decay(&mut options, "beta1", ADAM.beta1)?,
                beta2: decay(&mut options, "beta2", ADAM.beta2)?,
                epsilon: epsilon(&mut options, ADAM.epsilon)?,
                freeze: options.take(
                    "freeze",
                    ADAM.freeze,
                    "a number of updates from 1",
                    |value| value.parse().ok().filter(|&updates| updates > 0).map(Some),
                )?,
                exchanges_momentum: options.take(
                    "exchange",
                    ADAM.exchanges_momentum,
                    "gradient or momentum",
                    |value| match value {
                        "gradient" => Some(false),
                        "momentum" => Some(true),
                        _ => None,
                    },
                )?,
            })?,
            "muon" => Self::Muon(MuonConfig {
                momentum: decay(&mut options, "m", MUON.momentum)?,
                others: AdamConfig {
                    beta1: decay(&mut options, "beta1", ADAM.beta1)?,
                    beta2: decay(&mut options, "beta2", ADAM.beta2)?,
                    epsilon: epsilon(&mut options, ADAM.epsilon)?,
                    ..MUON.others
                },
            }),
            "rmsprop" => Self::RmsProp(RmsPropConfig {
                rho: decay(&mut options, "rho", RMSPROP.rho)?,
                momentum: decay(&mut options, "m", RMSPROP.momentum)?,
                epsilon: epsilon(&mut options, RMSPROP.epsilon)?,
            }),
            "adagrad" => {
                Self::AdaGrad(AdaGradConfig { epsilon: epsilon(&mut options, ADAGRAD.epsilon)? })
            }
            unknown => {
                return Err(OptionsError::unknown("optimizer", unknown, &NAMES));
            }
        };
        options.finish()?;
        Ok(kind)
    }
}

/// Adam with compatible settings.
fn adam(config: AdamConfig) -> Result<OptimizerKind, OptionsError> {
    if config.exchanges_momentum && config.freeze.is_none() {
        return Err(OptionsError::Unknown(
            "exchange=momentum begins when second moments are frozen; give freeze=N, a number of updates".to_owned(),
        ));
    }
    Ok(OptimizerKind::Adam(config))
}

/// A setting in [0, 1).
fn decay(options: &mut Options, key: &'static str, default: f32) -> Result<f32, OptionsError> {
    let below_one = |x: f64| (0.0..1.0).contains(&(x as f32));
    Ok(options.number(key, f64::from(default), "a number in [0, 1)", below_one)? as f32)
}

/// The setting `eps`.
fn epsilon(options: &mut Options, default: f32) -> Result<f32, OptionsError> {
    let positive = |x: f64| (x as f32).is_normal() && x > 0.0;
    Ok(options.number("eps", f64::from(default), "a positive number", positive)? as f32)
}

impl fmt::Display for OptimizerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Sgd => f.write_str("sgd"),
            Self::Momentum(MomentumConfig { momentum, nesterov }) => {
                let id = if nesterov { "nesterov" } else { "momentum" };
                Printer::new(f, id)?.unless("m", momentum, MOMENTUM)
            }
            Self::Adam(config) => {
                let AdamConfig { beta1, beta2, epsilon, decoupled, freeze, .. } = config;
                let mut printer = Printer::new(f, if decoupled { "adamw" } else { "adam" })?;
                printer.unless("beta1", beta1, ADAM.beta1)?;
                printer.unless("beta2", beta2, ADAM.beta2)?;
                printer.unless("eps", epsilon, ADAM.epsilon)?;
                freeze.map_or(Ok(()), |updates| printer.item("freeze", updates))?;
                if config.exchanges_momentum {
                    printer.item("exchange", "momentum")
                } else {
                    Ok(())
                }
            }
            Self::Muon(MuonConfig { momentum, others }) => {
                let mut printer = Printer::new(f, "muon")?;
                printer.unless("m", momentum, MUON.momentum)?;
                printer.unless("beta1", others.beta1, ADAM.beta1)?;
                printer.unless("beta2", others.beta2, ADAM.beta2)?;
                printer.unless("eps", others.epsilon, ADAM.epsilon)
            }
            Self::RmsProp(RmsPropConfig { rho, momentum, epsilon }) => {
                let mut printer = Printer::new(f, "rmsprop")?;
                printer.unless("rho", rho, RMSPROP.rho)?;
                printer.unless("m", momentum, RMSPROP.momentum)?;
                printer.unless("eps", epsilon, RMSPROP.epsilon)
            }
            Self::AdaGrad(AdaGradConfig { epsilon }) => {
                Printer::new(f, "adagrad")?.unless("eps", epsilon, ADAGRAD.epsilon)
            }
        }
    }
}
