//! Forming the groups of a reducer.

use gradwire::Tensor;

use super::{OnNonFinite, Reducer};
use crate::error::refuse;
use crate::group::Group;
use crate::{Result, control};

impl Reducer {
    /// Forms a group of tensors and returns its number. `names` is the order of the tensors in the
    /// group's buffer. All ranks form the same groups in the same order, and compare their
    /// configurations here.
    ///
    /// # Errors
    /// `Config` for a tensor that the model does not have, or if another rank has another
    /// configuration; the error names both.
    pub fn form(&mut self, names: &[impl AsRef<str>]) -> Result<usize> {
        self.alive()?;
        let formed = self.try_form(names);
        self.or_abort(formed)
    }

    fn try_form(&mut self, names: &[impl AsRef<str>]) -> Result<usize> {
        let find = |name: &str| match self.by_name.get(name) {
            Some(&index) => Ok(index),
            None => refuse(format!("there is no tensor '{name}' in this model")),
        };
        let indices =
            names.iter().map(|name| find(name.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let group = Group::new(indices, &self.config.tensors);
        let config = self.config.of_group(&group.tensors, &self.participation);
        config.validate_group()?;
        let on_non_finite = match self.config.on_non_finite {
            OnNonFinite::Refuse => "error",
            OnNonFinite::Skip => "skip",
        };
        let settings = format!("{}on_nonfinite '{on_non_finite}'\n", config.describe());
        control::agree(&mut *self.transport, &settings)?;
        self.groups.push(group);
        Ok(self.groups.len() - 1)
    }

    /// Adds a group of tensors, given by their places in the model, without comparing
    /// configurations.
    pub(crate) fn add_group(&mut self, indices: Vec<usize>) -> usize {
        self.groups.push(Group::new(indices, &self.config.tensors));
        self.groups.len() - 1
    }

    /// The number of the group of these tensors in this order, [formed](Self::form) if there is
    /// none yet.
    ///
    /// # Errors
    /// As for [`form`](Self::form).
    pub fn group_of(&mut self, names: &[impl AsRef<str>]) -> Result<usize> {
        let is = |group: &Group| {
            let own = group.tensors.iter().map(Tensor::name);
            own.eq(names.iter().map(AsRef::as_ref))
        };
        match self.groups.iter().position(is) {
            Some(at) => Ok(at),
            None => self.form(names),
        }
    }
}
