//! Segmentation: images with a mask each, which tells the class of every pixel.

use super::images::{ImageReplica, check_images};
use super::{Metric, Replica, Task, TaskConfig};
use crate::data::ImageSet;
use crate::models::ModelError;

/// The segmentation of these images.
pub(super) struct Segmentation<'a>(pub(super) &'a ImageSet);

impl<'a> Task<'a> for Segmentation<'a> {
    fn check(&self, config: &TaskConfig) -> Result<(), String> {
        check_images(self.0)?;
        if config.augment {
            return Err("crops and flips would change images but not their masks; leave them off"
                .to_owned());
        }
        Ok(())
    }

    fn metric(&self) -> Metric {
        Metric::Iou
    }

    fn examples(&self) -> usize {
        self.0.train.len()
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
