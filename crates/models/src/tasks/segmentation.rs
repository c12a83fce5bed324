//! The task of classifying every pixel.

use super::images::{ImageReplica, check_sizes};
use super::task::refuse_augmentation;
use super::{Metric, Replica, Task, TaskConfig};
use crate::data::ImageSet;
use crate::models::{ModelError, ModelKind};

/// Images with masks.
pub(super) struct Segmentation<'a> {
    pub(super) model: ModelKind,
    pub(super) images: &'a ImageSet,
}

impl<'a> Task<'a> for Segmentation<'a> {
    fn metric(&self) -> Metric {
        Metric::Iou
    }

    fn examples(&self) -> usize {
        self.images.train.len()
    }

    fn check(&self, config: &TaskConfig) -> Result<(), String> {
        let reason = "crops and flips would change images but not their masks; give --augment off";
        refuse_augmentation(config, reason)?;
        check_sizes(self.images)
    }

    fn replica(
        &self,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Box<dyn Replica + 'a>, ModelError> {
        Ok(Box::new(ImageReplica::new(self.model, self.images, config, rank, shard)?))
    }
}
