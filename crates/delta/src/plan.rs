//! From records to parts that threads decode.

use crate::part::PART;
use crate::pieces::{PartPlace, Pieces};
use crate::record::{Check, Parts, Record, Reference};
use crate::source::find;
use crate::update::Elements;
use crate::{ElementType, Error, Source, Tensor};

/// The parts of a batch of records.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    pub(crate) tasks: Vec<Task<'a>>,
    pub(crate) records: Vec<Planned>,
    /// Where the tasks of new tensors write, in order.
    pub(crate) places: Vec<PartPlace>,
}

/// A part to decode.
#[derive(Debug)]
pub(crate) enum Task<'a> {
    /// Elements of a tensor of the base.
    Part { elements: Elements, bytes: &'a [u8] },
    /// Small tensors of the base, as one part.
    Pool { element: ElementType, tensors: Vec<Elements>, bytes: &'a [u8] },
    /// Elements of a new tensor; `place` is the number among [`Plan::places`].
    Written { place: usize, bytes: &'a [u8] },
}

/// A record, for which `tasks` tasks were made.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) tasks: usize,
    pub(crate) check: Check,
    /// The name of the tensor, or of the first tensor of a pool.
    pub(crate) name: String,
    /// The new tensor.
    pub(crate) piece: Option<usize>,
}

/// Makes tasks of records, and keeps account of what they cover.
pub(crate) struct Planner<'a> {
    base: &'a dyn Source,
    /// The number of elements of each tensor of the base that records have covered.
    covered: Vec<usize>,
    pub(crate) pieces: Pieces,
    pub(crate) removed: Vec<usize>,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(base: &'a dyn Source) -> Self {
        let covered = vec![0; base.tensors().len()];
        Self { base, covered, pieces: Pieces::new(), removed: Vec::new() }
    }

    /// Adds the tasks of a record.
    pub(crate) fn add<'b>(
        &mut self,
        record: Record<'b>,
        limit: u64,
        plan: &mut Plan<'b>,
    ) -> Result<(), Error> {
        let before = plan.tasks.len();
        let (check, name, piece) = match record {
            Record::Changed { tensor, first_part, check, parts } => {
                let elements = self.resolve(&tensor)?;
                self.add_changed(&elements, first_part, &parts, plan)?;
                (check, self.name(elements.tensor), None)
            }
            Record::Pool { element, tensors, check, part } => {
                let tensors = self.resolve_pool(element, &tensors)?;
                let name =
                    tensors.first().map_or_else(String::new, |first| self.name(first.tensor));
                plan.tasks.push(Task::Pool { element, tensors, bytes: part });
                (check, name, None)
            }
            Record::Written { tensor, first_part, check, parts } => {
                let name = tensor.name().to_owned();
                let piece = self.add_written(tensor, first_part, &parts, limit, plan)?;
                (check, name, Some(piece))
            }
            Record::Layout(_) => return Ok(()),
            Record::Removed { tensor } => {
                let elements = self.resolve(&tensor)?;
                self.cover(elements.tensor, elements.len)?;
                self.removed.push(elements.tensor);
                return Ok(());
            }
        };
        plan.records.push(Planned { tasks: plan.tasks.len() - before, check, name, piece });
        Ok(())
    }

    fn name(&self, index: usize) -> String {
        self.base.tensors()[index].name().to_owned()
    }

    fn add_changed<'b>(
        &mut self,
        elements: &Elements,
        first_part: u64,
        parts: &Parts<'b>,
        plan: &mut Plan<'b>,
    ) -> Result<(), Error> {
        // Each record then covers elements, so the base limits the number of records.
        if parts.len() == 0 {
            return Err(Error::Damaged("a record of changes has no parts"));
        }
        let Elements { tensor, first: start, len } = *elements;
        for ((first, len), bytes) in part_lens(len, first_part, parts.len())?.zip(parts.iter()) {
            self.cover(tensor, len)?;
            if !bytes.is_empty() {
                let elements = Elements { tensor, first: start + first, len };
                plan.tasks.push(Task::Part { elements, bytes });
            }
        }
        Ok(())
    }

    fn add_written<'b>(
        &mut self,
        tensor: Tensor,
        first_part: u64,
        parts: &Parts<'b>,
        limit: u64,
        plan: &mut Plan<'b>,
    ) -> Result<usize, Error> {
        let lens = part_lens(tensor.elements(), first_part, parts.len())?;
        let piece = self.pieces.open(tensor, limit)?;
        for ((first, _), bytes) in lens.zip(parts.iter()) {
            let place = PartPlace { piece, part: first / PART };
            self.pieces.claim(place)?;
            plan.tasks.push(Task::Written { place: plan.places.len(), bytes });
            plan.places.push(place);
        }
        Ok(piece)
    }

    fn resolve(&self, reference: &Reference<'_>) -> Result<Elements, Error> {
        let tensors = self.base.tensors();
        let unknown = |name: String| Error::Unknown { name };
        match reference {
            Reference::Index(index) => {
                let index = usize::try_from(*index).ok().filter(|&index| index < tensors.len());
                let index = index.ok_or_else(|| unknown(format!("{reference:?}")))?;
                Ok(Elements { tensor: index, first: 0, len: tensors[index].elements() })
            }
            Reference::Named(name, rows) => {
                let unknown = || unknown(format!("{name} rows {rows:?}"));
                let index = find(tensors, name, rows).ok_or_else(unknown)?;
                let holder = &tensors[index];
                let (element, shape) = (holder.element(), holder.shape());
                let shard = Tensor::shard(*name, element, shape, rows.clone())?;
                let first = (shard.first_element() - holder.first_element()) as usize;
                Ok(Elements { tensor: index, first, len: shard.elements() })
            }
        }
    }

    /// The tensors of a pool: of one type, and together a part at most.
    fn resolve_pool(
        &mut self,
        element: ElementType,
        references: &[Reference<'_>],
    ) -> Result<Vec<Elements>, Error> {
        let mut sum = 0usize;
        let mut tensors = Vec::with_capacity(references.len());
        for reference in references {
            let elements = self.resolve(reference)?;
            sum = sum.saturating_add(elements.len);
            let is_other = self.base.tensors()[elements.tensor].element() != element;
            if is_other || elements.len == 0 || sum > PART {
                return Err(Error::Damaged("a pool has tensors that do not belong there"));
            }
            self.cover(elements.tensor, elements.len)?;
            tensors.push(elements);
        }
        Ok(tensors)
    }

    /// Refuses a second record for the same elements, before it costs memory.
    fn cover(&mut self, tensor: usize, len: usize) -> Result<(), Error> {
        self.covered[tensor] += len;
        if self.covered[tensor] > self.base.tensors()[tensor].elements() {
            return Err(Error::Twice { name: self.name(tensor) });
        }
        Ok(())
    }
}

/// The first tensor of which some elements occur twice in a sorted list.
pub(crate) fn find_twice(sorted: impl Iterator<Item = Elements>) -> Option<usize> {
    let mut before = Elements { tensor: usize::MAX, first: 0, len: 0 };
    for elements in sorted {
        if before.tensor == elements.tensor && before.first + before.len > elements.first {
            return Some(before.tensor);
        }
        before = elements;
    }
    None
}

/// First element and number of elements of `count` parts from `first_part` on, of `elements`
/// elements.
fn part_lens(
    elements: usize,
    first_part: u64,
    count: usize,
) -> Result<impl Iterator<Item = (usize, usize)>, Error> {
    let all = elements.div_ceil(PART);
    let first_part = usize::try_from(first_part).unwrap_or(usize::MAX);
    if first_part.saturating_add(count) > all {
        return Err(Error::Damaged("a record has parts behind the end of its tensor"));
    }
    let first = (first_part..first_part + count).map(|part| part * PART);
    Ok(first.map(move |first| (first, PART.min(elements - first))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{write_changed, write_parts, write_pool, write_removed};
    use crate::{Slices, StateHash};

    #[test]
    fn records_that_cover_no_elements_are_refused() {
        let tensor = |name, len| Tensor::new(name, ElementType::U8, [len]).unwrap();
        let base = Slices::new([(tensor("a", 0), &[][..]), (tensor("b", 2), &[1, 2])]).unwrap();
        let pool = |tensors: &[u64]| {
            let tensors: Vec<_> = tensors.iter().map(|&at| Reference::Index(at)).collect();
            let mut record = Vec::new();
            write_pool(ElementType::U8, &tensors, StateHash::default(), &[0], &mut record);
            record
        };
        let changed = |parts: &[&[u8]]| {
            let mut record = Vec::new();
            write_changed(&Reference::Index(1), &mut record);
            write_parts(0, StateHash::default(), parts, &mut record);
            record
        };
        for (record, is_right) in [
            (pool(&[1]), true),
            (pool(&[1, 0]), false),
            (changed(&[&[0]]), true),
            (changed(&[]), false),
        ] {
            let record = Record::read(&mut &record[..], false).unwrap();
            let added = Planner::new(&base).add(record, 0, &mut Plan::default());
            assert_eq!(added.is_ok(), is_right, "{added:?}");
            assert!(is_right || matches!(added, Err(Error::Damaged(_))));
        }
    }
    #[test]
    fn a_tensor_is_removed_once() {
        let tensor = Tensor::new("a", ElementType::U8, [2]).unwrap();
        let base = Slices::new([(tensor, &[1, 2][..])]).unwrap();
        let (mut planner, mut record) = (Planner::new(&base), Vec::new());
        write_removed(&Reference::Index(0), &mut record);
        let mut remove = || {
            let record = Record::read(&mut &record[..], false).unwrap();
            planner.add(record, 0, &mut Plan::default())
        };
        remove().unwrap();
        assert!(matches!(remove(), Err(Error::Twice { .. })));
    }
}
