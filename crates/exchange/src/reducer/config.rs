//! The configuration of a reducer, and the outcome of an average.

use gradwire::{Family, Tensor};

use crate::error::refuse;
use crate::group_config::adds;
use crate::{Exchange, GroupConfig, Participation, Policy, Result};

/// The configuration of a reducer, the same on all ranks.
#[derive(Debug, Clone)]
pub struct ReducerConfig {
    /// How ranks average: all-reduce, all-gather or scatter-reduce; reduce-scatter or gather-shards
    /// if each rank has a shard of the model.
    pub exchange: Exchange,
    /// The compressor of each tensor.
    pub policy: Policy,
    /// The tensors of the model; names are unique.
    pub tensors: Vec<Tensor>,
    /// The run's seed.
    pub seed: u64,
    /// The reaction to gradients that are not finite.
    pub on_non_finite: OnNonFinite,
}

/// The reaction to a step with gradients that are not finite on some rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnNonFinite {
    /// Fail with an error that names the tensor, or the scale of the loss.
    Refuse,
    /// Skip the step: roll back the residuals on all ranks and return NaN, for a trainer that then
    /// scales its losses down. All values of a buffer count, including padding and the places of
    /// other ranks' shards: set them to zero. If a compressed gradient and its residual add up to a
    /// number that is not finite, the step is skipped, too, except by all-reduces. Costs a second
    /// copy of the residuals and, with other exchanges than all-gather, scatter-reduce and
    /// reduce-scatter, a message of one byte between any two ranks for each group.
    Skip,
}

/// The outcome of an average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The values are the mean.
    Averaged,
    /// The step is skipped on all ranks: the values are NaN, and all residuals are as they were
    /// before it.
    Skipped,
}

impl ReducerConfig {
    /// The exchange that suits a policy: all-reduce if messages can be added, otherwise all-gather
    /// or scatter-reduce.
    ///
    /// In an all-gather each rank sends its message to n − 1 others; in a scatter-reduce it sends
    /// two of about this size, but the mean is compressed again. Scatter-reduce suits more than
    /// eight ranks. It also suits more than two ranks with large messages: those of a quantizer
    /// with b bits per element, if b·n ≥ 32, such as `int8` from four ranks on, and those of
    /// baselines such as `none`, if messages with other compressors keep them from all-reduce. For
    /// these, an all-gather sends at least half as many bytes as an uncompressed all-reduce. The
    /// last compressor of a schedule decides whether messages are large; rules do not. See
    /// [`suitable_stages`](Self::suitable_stages) for the other compressors of a schedule.
    pub fn suitable(policy: &Policy, ranks: usize) -> Exchange {
        // An all-gather sends b·(n − 1) bits per element, an uncompressed all-reduce 2·32·(n −
        // 1)/n.
        let saves_little = |bits| ranks > 2 && ranks * bits as usize >= 32;
        match policy.pushes().all(adds) {
            true => Exchange::AllReduce,
            false if ranks > 8 || bits_per_element(policy).is_some_and(saves_little) => {
                Exchange::ScatterReduce
            }
            false => Exchange::AllGather,
        }
    }

    /// The configuration of one group of tensors.
    pub(super) fn of_group<'a>(
        &'a self,
        tensors: &'a [Tensor],
        participation: &'a Participation,
    ) -> GroupConfig<'a> {
        GroupConfig {
            exchange: self.exchange,
            policy: &self.policy,
            participation,
            tensors,
            seed: self.seed,
            initial: &[],
        }
    }
}

/// The bits per element in the messages of a schedule's last compressor, if it sends a value of
/// fixed width for each element, as quantization does; 32 for a lossless code of all elements.
/// Messages that stay on a device may have wider symbols, which count.
fn bits_per_element(policy: &Policy) -> Option<u32> {
    let last = policy.push.specs().last()?;
    if last.entry().lossless {
        return Some(32);
    }
    match last.entry().family {
        Family::Quantization | Family::Baseline => {
            let form = last.compressor().device_form().and_then(|form| form.value_bits());
            form.or(last.properties().value_bits)
        }
        _ => None,
    }
}

/// Refuses exchanges that need the whole model at once.
pub(crate) fn check_by_groups(exchange: Exchange) -> Result<()> {
    if exchange.facts().averages_groups {
        return Ok(());
    }
    refuse(format!(
        "'{exchange}' cannot average groups of tensors; use all-reduce, all-gather or scatter-reduce, or in Rust \
         Role::join or launch, which exchange whole models"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schedule;
    use gradwire::Spec;

    #[test]
    fn all_gather_suits_small_messages_and_few_ranks() {
        let spec = |text: &str| text.parse::<Spec>().unwrap();
        let suits = |text, ranks| ReducerConfig::suitable(&Policy::new(spec(text)), ranks);
        for (spec, most) in [
            ("int8", 3),
            ("qsgd", 3),
            // Symbols of two bytes on a device, which take nine bits from a host.
            ("qsgd:s=128", 2),
            ("int4", 7),
            ("eden:bits=4", 7),
            ("eden", 8),
            ("3lc", 8),
            ("onebit", 8),
            ("topk:ratio=0.5", 8),
        ] {
            for ranks in 2..20 {
                let gathers = suits(spec, ranks) == Exchange::AllGather;
                assert_eq!(gathers, ranks <= most, "{spec}, {ranks} ranks");
                assert!(gathers || suits(spec, ranks) == Exchange::ScatterReduce);
            }
        }
        // The last compressor of a schedule counts.
        let changes = Schedule { first: spec("eden"), later: vec![(10, spec("int8"))] };
        let suits_last = ReducerConfig::suitable(&Policy::new(changes), 4);
        assert_eq!(suits_last, Exchange::ScatterReduce);
        assert_eq!(suits("none", 2), Exchange::AllReduce);
        assert_eq!(suits("powersgd", 20), Exchange::AllReduce);
    }
}
