//! The task of classifying every pixel.

use super::images::{ImageReplica, check_sizes};
use super::task::refuse_augmentation;
use super::{Metric, Replica, Task, TaskConfig};
use crate::data::ImageSet;
use crate::models::ModelError;

/// Images with masks.
pub(super) struct Segmentation<'a>(pub(super) &'a ImageSet);

impl<'a> Task<'a> for Segmentation<'a> {
    fn metric(&self) -> Metric {
        Metric::Iou
    }

    fn examples(&self) -> usize {
        self.0.train.len()
    }

    fn check(&self, config: &TaskConfig) -> Result<(), String> {
        let reason = "crops and flips would change images but not their masks; give --augment off";
        refuse_augmentation(config, reason)?;
        check_sizes(self.0)
    }

    fn replica(
        &self,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Box<dyn Replica + 'a>, ModelError> {
        Ok(Box::new(ImageReplica::new(self.0, config, rank, shard)?))
    }
}
