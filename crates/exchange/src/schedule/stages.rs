//! A schedule whose steps are known.

use gradwire::Spec;

/// The compressor of every step: one at first, others from later steps on.
///
/// A single spec is a schedule.
/// [`CompressionSchedule::resolve`](super::CompressionSchedule::resolve) makes one from a user's
/// text.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The compressor from step 0 on.
    pub first: Spec,
    /// The other compressors, each with its first step, ascending and above 0.
    pub later: Vec<(u64, Spec)>,
}

impl From<Spec> for Schedule {
    fn from(first: Spec) -> Self {
        Self { first, later: Vec::new() }
    }
}

impl From<&Spec> for Schedule {
    fn from(spec: &Spec) -> Self {
        spec.clone().into()
    }
}

impl Schedule {
    /// The schedule of these compressors, each with its first step. The first one starts at step 0.
    pub(super) fn from_stages(mut stages: Vec<(u64, Spec)>) -> Self {
        let (_, first) = stages.remove(0);
        Self { first, later: stages }
    }

    /// The compressor of a step.
    pub fn at(&self, step: u64) -> &Spec {
        self.stage(self.stage_at(step))
    }

    /// All compressors in order, each with its first step.
    pub fn stages(&self) -> impl Iterator<Item = (u64, &Spec)> {
        std::iter::once((0, &self.first)).chain(self.later.iter().map(|(step, spec)| (*step, spec)))
    }

    /// All compressors in order.
    pub fn specs(&self) -> impl Iterator<Item = &Spec> + Clone {
        std::iter::once(&self.first).chain(self.later.iter().map(|(_, spec)| spec))
    }

    /// The schedule of the steps from `from` on and below `until`, with the same numbers of steps.
    pub(crate) fn between(&self, from: u64, until: u64) -> Self {
        let later = self.later.iter().filter(|(step, _)| (from + 1..until).contains(step));
        Self { first: self.at(from).clone(), later: later.cloned().collect() }
    }

    /// The number of the compressor of a step, from 0.
    pub(crate) fn stage_at(&self, step: u64) -> usize {
        self.later.iter().take_while(|(from, _)| *from <= step).count()
    }

    /// The compressor with this number.
    pub(crate) fn stage(&self, stage: usize) -> &Spec {
        stage.checked_sub(1).map_or(&self.first, |at| &self.later[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressors_take_over_at_their_steps() {
        let spec = |text: &str| text.parse::<Spec>().unwrap();
        let later = vec![(10, spec("topk:ratio=0.1")), (20, spec("topk:ratio=0.2"))];
        let schedule = Schedule { first: spec("topk"), later };
        let at = |step| schedule.at(step).to_string();
        assert_eq!([at(0), at(9)], ["topk", "topk"]);
        assert_eq!(
            [at(10), at(19), at(20)],
            ["topk:ratio=0.1", "topk:ratio=0.1", "topk:ratio=0.2"]
        );
    }
}
