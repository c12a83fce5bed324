//! Segmentation: images with a mask each, which tells the class of every pixel.

use super::images::{ImageReplica, check_images};
use super::{Metric, Replica, Task, TaskConfig};
use crate::Split;
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

    fn shards(
        &self,
        split: &Split,
        workers: usize,
        seed: u64,
    ) -> Result<Option<Vec<Vec<u32>>>, String> {
        if split.is_by_class() {
            return Err(format!(
                "the split '{split}' sorts examples by class, and an image with a mask has pixels of several; take \
                 shared or shards"
            ));
        }
        split.shards(&vec![0; self.0.train.len()], workers, seed)
    }

    fn steps_per_epoch(&self, workers: usize, batch: usize) -> f64 {
        self.0.train.len() as f64 / (workers * batch) as f64
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
