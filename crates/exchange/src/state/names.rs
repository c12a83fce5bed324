//! The keys of saved states.
//!
//! For every tensor, an exchange saves its compressor as the setting `push/spec/fc.weight`, and its
//! arrays: `push/residual/fc.weight`, and likewise `velocity` and `kept`. Scatter-reduce has
//! entries of slices, `fc.weight[0..512]`, and entries of the owners' averages under `reduce/`. If
//! messages carry changes (`ef=ef21`), `push/sum/fc.weight` is their sum.

use std::ops::Range;

use gradwire::Encoder;

use crate::Exchange;

/// The prefix of the state of a rank's gradients.
pub(crate) const PUSH: &str = "push/";
/// The prefix of the state of an owner's averages.
pub(crate) const REDUCE: &str = "reduce/";

/// The name under which an exchange saves its state. Only the same exchange with the same number of
/// workers restores it. Overlap does not change the name, except for scatter-reduce, which then
/// cuts each tensor separately and has another state.
pub fn saved_as(exchange: Exchange, workers: usize, overlap: bool) -> String {
    let by_tensor = overlap && exchange == Exchange::ScatterReduce;
    let cut = if by_tensor { " of each tensor" } else { "" };
    format!("{exchange}{cut} with {workers} workers")
}

/// The key of the sum of a tensor's changes. The sum is the same on all ranks, for any number of
/// ranks.
pub(crate) fn sum_key(prefix: &str, name: &str) -> String {
    format!("{prefix}sum/{name}")
}

/// The key of an array that is kept for a tensor or a slice of one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArrayKey<'a> {
    /// [`PUSH`] or [`REDUCE`].
    pub(crate) owner: &'a str,
    /// `residual`, `velocity` or `kept`.
    pub(crate) kind: &'a str,
    /// The tensor.
    pub(crate) name: &'a str,
    /// The slice of it; `None` for all.
    pub(crate) range: Option<Range<usize>>,
}

/// The name of a slice.
pub(crate) fn slice_name(name: &str, range: &Range<usize>) -> String {
    format!("{name}[{}..{}]", range.start, range.end)
}

/// Reads the name of a slice: the name of the tensor, and the elements of the slice in it.
pub(crate) fn read_slice(text: &str) -> Option<(&str, Range<usize>)> {
    let (name, range) = text.strip_suffix(']')?.rsplit_once('[')?;
    let (start, end) = range.split_once("..")?;
    Some((name, start.parse().ok()?..end.parse().ok()?))
}

/// The name of the tensor whose slice has this name; `None` for the name of a whole tensor.
pub(crate) fn slice_of(name: &str) -> Option<&str> {
    read_slice(name).map(|(whole, _)| whole)
}

impl<'a> ArrayKey<'a> {
    /// Reads an array's key; `None` for other keys.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        let owner = [PUSH, REDUCE].into_iter().find(|owner| text.starts_with(owner))?;
        let (kind, name) = text[owner.len()..].split_once('/')?;
        let kind = Encoder::KINDS.into_iter().find(|known| *known == kind)?;
        let (name, range) = match read_slice(name) {
            Some((name, range)) => (name, Some(range)),
            None => (name, None),
        };
        Some(Self { owner, kind, name, range })
    }

    /// Whether it is a `kept` array of a whole tensor under [`PUSH`].
    pub(super) fn is_kept_of_pushes(&self) -> bool {
        self.kind == "kept" && self.range.is_none() && self.owner == PUSH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scatter_reduce_has_another_name_with_overlap() {
        let names = |exchange: &str| {
            [false, true].map(|overlap| saved_as(exchange.parse().unwrap(), 4, overlap))
        };
        assert_eq!(names("all-gather"), ["all-gather with 4 workers"; 2]);
        let cut = ["scatter-reduce with 4 workers", "scatter-reduce of each tensor with 4 workers"];
        assert_eq!(names("scatter-reduce"), cut);
    }

    #[test]
    fn entries_are_read_with_their_slices() {
        let read = |text| ArrayKey::read(text).map(|e| (e.owner, e.kind, e.name, e.range));
        assert_eq!(read("push/residual/a.b"), Some(("push/", "residual", "a.b", None)));
        assert_eq!(
            read("reduce/velocity/w[3..10]"),
            Some(("reduce/", "velocity", "w", Some(3..10)))
        );
        // Names that look like something else.
        assert_eq!(read("push/kept/x/residual/y"), Some(("push/", "kept", "x/residual/y", None)));
        assert_eq!(read("push/kept/w[a..b]"), Some(("push/", "kept", "w[a..b]", None)));
        assert_eq!([read("optimizer/residual/x"), read("push/spec/x")], [None, None]);
    }
}
