//! Forming the groups of a reducer.

use gradwire::{Dtype, Tensor};

use super::{OnNonFinite, Reducer};
use crate::collectives::Cut;
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
        self.form_of(names, Dtype::F32)
    }

    /// As [`form`](Self::form), for gradients of this element type: every value that is averaged
    /// must be a number of this type. Tensors that `none` sends without momentum and error feedback
    /// then travel in this type, exactly. Their mean is computed in `f32`, and rounded once to this
    /// type.
    ///
    /// # Errors
    /// As for [`form`](Self::form); `Config` also if another rank has another element type.
    pub fn form_of(&mut self, names: &[impl AsRef<str>], dtype: Dtype) -> Result<usize> {
        self.alive()?;
        let formed = self.try_form(names, dtype);
        self.or_abort(formed)
    }

    fn try_form(&mut self, names: &[impl AsRef<str>], dtype: Dtype) -> Result<usize> {
        let find = |name: &str| match self.by_name.get(name) {
            Some(&index) => Ok(index),
            None => refuse(format!("there is no tensor '{name}' in this model")),
        };
        let indices =
            names.iter().map(|name| find(name.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let group = Group::new(indices, &self.config.tensors, dtype);
        let described = self.check_group(&group.tensors)?;
        let on_non_finite = match self.config.on_non_finite {
            OnNonFinite::Refuse => "error",
            OnNonFinite::Skip => "skip",
        };
        let settings = format!(
            "{described}on_nonfinite '{on_non_finite}'\nelement type of gradients {dtype:?}\n"
        );
        control::agree(&mut *self.transport, &settings)?;
        self.groups.push(group);
        Ok(self.groups.len() - 1)
    }

    /// Adds a tensor to the model, whose tensors become known one after the other. Returns false,
    /// and does nothing, if the model has it. Ranks compare it when they [form](Self::form) a group
    /// with it.
    ///
    /// # Errors
    /// `Config` if the model has a tensor of this name with another shape, if the exchange does not
    /// take the tensor, or for the reducer of a whole model that is cut at once; nothing has
    /// changed then.
    pub fn add(&mut self, tensor: Tensor) -> Result<bool> {
        self.alive()?;
        if let Some(&known) = self.by_name.get(tensor.name()) {
            let shape = self.config.tensors[known].shape();
            if shape == tensor.shape() {
                return Ok(false);
            }
            return refuse(format!(
                "tensor '{}' has the shape {shape:?}, not {:?}; give another tensor another name",
                tensor.name(),
                tensor.shape()
            ));
        }
        if self.cut == Cut::WholeModel {
            return refuse("the tensors of a model that is cut at once cannot change");
        }
        self.check_group(std::slice::from_ref(&tensor))?;
        self.codecs.add(&tensor, self.config.policy.push_of(&tensor));
        self.collective.add(&tensor, &mut self.codecs);
        self.by_name.insert(tensor.name().to_owned(), self.config.tensors.len());
        self.config.tensors.push(tensor);
        Ok(true)
    }

    /// Forgets the residual and everything else that is kept for a tensor, on this rank. Returns
    /// whether something was kept.
    ///
    /// # Errors
    /// `Config` for a tensor that the model does not have.
    pub fn forget(&mut self, name: &str) -> Result<bool> {
        match self.by_name.get(name) {
            Some(&index) => Ok(self.codecs.forget(index)),
            None => refuse(format!("there is no tensor '{name}' in this model")),
        }
    }

    /// Adds a group of tensors, given by their places in the model, without comparing
    /// configurations.
    pub(crate) fn add_group(&mut self, indices: Vec<usize>) -> usize {
        self.groups.push(Group::new(indices, &self.config.tensors, Dtype::F32));
        self.groups.len() - 1
    }

    /// The number of the group of these tensors in this order, [formed](Self::form) if there is
    /// none yet.
    ///
    /// # Errors
    /// As for [`form`](Self::form).
    pub fn group_of(&mut self, names: &[impl AsRef<str>]) -> Result<usize> {
        self.group_of_type(names, Dtype::F32)
    }

    /// The number of the group of these tensors in this order with gradients of this element type,
    /// [formed](Self::form_of) if there is none yet.
    ///
    /// # Errors
    /// As for [`form_of`](Self::form_of).
    pub fn group_of_type(&mut self, names: &[impl AsRef<str>], dtype: Dtype) -> Result<usize> {
        let is = |group: &Group| {
            let own = group.tensors.iter().map(Tensor::name);
            group.dtype == dtype && own.eq(names.iter().map(AsRef::as_ref))
        };
        match self.groups.iter().position(is) {
            Some(at) => Ok(at),
            None => self.form_of(names, dtype),
        }
    }
}
