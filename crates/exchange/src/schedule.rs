//! Which compressor serves from which step on.

use gradwire::Spec;

/// Compressors by step: one at first, others in its place from later steps on.
///
/// Made of a user's text by [`Plan::resolve`](crate::plan::Plan::resolve), or of a single spec.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The compressor from step 0 on.
    pub first: Spec,
    /// The steps at which others take over, ascending and above 0, and what takes over.
    pub later: Vec<(u64, Spec)>,
}

impl From<Spec> for Schedule {
    fn from(first: Spec) -> Self {
        Self { first, later: Vec::new() }
    }
}

impl Schedule {
    /// The compressor of a step.
    pub fn at(&self, step: u64) -> &Spec {
        self.stage(self.stage_at(step))
    }

    /// All compressors, in their order.
    pub fn specs(&self) -> impl Iterator<Item = &Spec> + Clone {
        std::iter::once(&self.first).chain(self.later.iter().map(|(_, spec)| spec))
    }

    /// How many compressors have been taken over from by a step.
    pub(crate) fn stage_at(&self, step: u64) -> usize {
        self.later.iter().take_while(|(from, _)| *from <= step).count()
    }

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
