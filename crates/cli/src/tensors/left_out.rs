//! The tensors that a command leaves out, for a note to the user.

use gradwire::printable;

/// Names of tensors by the reason for leaving them out.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(Vec<(String, Vec<String>)>);

/// The most names shown for a reason.
const SHOWN: usize = 6;

impl LeftOut {
    /// Adds a tensor.
    pub(crate) fn add(&mut self, name: &str, reason: String) {
        let name = format!("'{}'", printable(name));
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => self.0.push((reason, vec![name])),
        }
    }

    /// The tensors and reasons in a line, such as `'ids', 'step' (type i64), 'mask' (with -inf)`;
    /// `None` if there are none.
    pub(crate) fn text(&self) -> Option<String> {
        let group = |(reason, names): &(String, Vec<String>)| {
            let shown = names[..names.len().min(SHOWN)].join(", ");
            match names.len().saturating_sub(SHOWN) {
                0 => format!("{shown} ({reason})"),
                more => format!("{shown} and {more} more ({reason})"),
            }
        };
        let groups: Vec<String> = self.0.iter().map(group).collect();
        (!groups.is_empty()).then(|| groups.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_grouped_by_reason_and_long_lists_are_cut() {
        let mut left_out = LeftOut::default();
        assert_eq!(left_out.text(), None);
        left_out.add("mask", "with -inf".to_owned());
        (0..8).for_each(|layer| left_out.add(&format!("n{layer}"), "type i64".to_owned()));
        let text = "'mask' (with -inf), 'n0', 'n1', 'n2', 'n3', 'n4', 'n5' and 2 more (type i64)";
        assert_eq!(left_out.text().as_deref(), Some(text));
    }
}
