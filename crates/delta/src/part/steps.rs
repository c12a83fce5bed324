//! Sizes of differences: how many units in the last place a weight moved.
//!
//! Most differences are 1. In a class in which the others are rare, they are a list of positions
//! among the class's changes, and their sizes, less 2, are in Rice code. In another class, all
//! sizes, less 1, are; an octave lower in the class, a unit is half as large, so the parameter is one more.

use gradwire_bits::kernels::CLASSES;
use gradwire_bits::{BitReader, BitWriter, DecodeError, rice};

use super::elias::{gamma, put_gamma, put_rice, put_signed, rice as read_rice, signed};
use super::segments::{ListReader, ListWriter, MAX_PARAMETER, Segment};

/// How the sizes of a class are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Sizes above 1 are a list with this Rice parameter, at least 1.
    Rare(u32),
    /// All are in Rice code with this parameter plus the shift of the element.
    All(u32),
}

/// The largest parameter of a rule, and the largest shift: together less than 64.
const MOST: u32 = 40;
pub(super) const MOST_SHIFT: u32 = 23;

impl Rule {
    /// Parameters of lists are negative.
    fn number(self) -> i32 {
        match self {
            Rule::Rare(parameter) => -(parameter as i32),
            Rule::All(parameter) => parameter as i32,
        }
    }

    fn from_number(number: i32) -> Result<Self, DecodeError> {
        match (number, number.unsigned_abs()) {
            (..0, parameter @ ..=MAX_PARAMETER) => Ok(Rule::Rare(parameter)),
            (0.., parameter @ ..=MOST) => Ok(Rule::All(parameter)),
            _ => Err(DecodeError::Corrupt("a parameter is out of range")),
        }
    }
}

/// The sizes of the differences of a class.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes<'a> {
    pub(super) sizes: &'a [u64],
    /// By difference: how many octaves the element is below the last one of its class, at most
    /// [`MOST_SHIFT`].
    pub(super) shifts: &'a [u8],
}

/// The rule of each class, and the Rice parameter of sizes in lists.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: [Option<Rule>; CLASSES],
    parameter: u32,
}

impl Rules {
    /// The rules that take the fewest bits, nearly.
    pub(super) fn fit<'a>(classes: impl Iterator<Item = Sizes<'a>>) -> Self {
        let mut rules = Self::default();
        let (mut listed, mut sum) = (0, 0);
        for (rule, Sizes { sizes, shifts }) in rules.rules.iter_mut().zip(classes) {
            let rare = sizes.iter().filter(|&&size| size > 1).count();
            let more = sizes.iter().fold(0u64, |sum, &size| sum.saturating_add(size - 1));
            let parameter = rice::optimal_parameter(rare, sizes.len());
            *rule = Some(match (rare, parameter) {
                (0, _) => {
                    Rule::Rare(MAX_PARAMETER.min(sizes.len().max(2).next_power_of_two().ilog2()))
                }
                (_, 0) => {
                    let shifted =
                        sizes.iter().zip(shifts).map(|(&size, &shift)| (size - 1) >> shift);
                    let sum = shifted.fold(0u64, u64::saturating_add);
                    Rule::All(mean_parameter(sizes.len(), sum).min(MOST))
                }
                _ => {
                    listed += rare;
                    sum = more.saturating_sub(rare as u64).saturating_add(sum);
                    Rule::Rare(parameter.min(MAX_PARAMETER))
                }
            });
        }
        rules.parameter = mean_parameter(listed, sum);
        rules
    }

    fn has_lists(&self) -> bool {
        self.rules.iter().flatten().any(|rule| matches!(rule, Rule::Rare(_)))
    }

    /// Appends the rules: the first one, then the difference of each to the one before.
    pub(super) fn write(&self, writer: &mut BitWriter<'_>) {
        let mut before = 0;
        for rule in self.rules.iter().flatten() {
            put_signed(writer, rule.number() - before);
            before = rule.number();
        }
        if self.has_lists() {
            put_gamma(writer, u64::from(self.parameter) + 1);
        }
    }

    /// Reads the rules of this number of classes.
    pub(super) fn read(reader: &mut BitReader<'_>, classes: usize) -> Result<Self, DecodeError> {
        let (mut rules, mut number) = (Self::default(), 0);
        for rule in &mut rules.rules[..classes] {
            number += signed(reader)?;
            *rule = Some(Rule::from_number(number)?);
        }
        if rules.has_lists() {
            rules.parameter = match gamma(reader)? - 1 {
                parameter @ ..64 => parameter as u32,
                _ => return Err(DecodeError::Corrupt("a parameter is out of range")),
            };
        }
        Ok(rules)
    }

    /// By class: the list of the sizes above 1 of so many sizes.
    fn lists(&self, counts: &[u32; CLASSES]) -> [Segment; CLASSES] {
        core::array::from_fn(|class| match self.rules[class] {
            Some(Rule::Rare(parameter)) => Segment { size: counts[class], parameter },
            _ => Segment::default(),
        })
    }

    /// Appends sizes, class by class.
    pub(super) fn put<'a>(
        &self,
        writer: &mut BitWriter<'_>,
        counts: &[u32; CLASSES],
        classes: impl Iterator<Item = Sizes<'a>> + Clone,
    ) {
        let lists = self.lists(counts);
        let mut list = ListWriter::new(&lists);
        let large = |&(_, &size): &(usize, &u64)| size > 1;
        for (class, Sizes { sizes, .. }) in classes.clone().enumerate() {
            if lists[class].size > 0 {
                let places = sizes.iter().enumerate().filter(large);
                places.for_each(|(at, _)| list.put(writer, class, at as u32));
            }
        }
        list.finish(writer);
        for (rule, Sizes { sizes, shifts }) in self.rules.iter().zip(classes) {
            match *rule {
                Some(Rule::All(parameter)) => {
                    for (&size, &shift) in sizes.iter().zip(shifts) {
                        put_rice(writer, size - 1, parameter + u32::from(shift));
                    }
                }
                _ => {
                    let large = sizes.iter().enumerate().filter(large);
                    large.for_each(|(_, &size)| put_rice(writer, size - 2, self.parameter));
                }
            }
        }
    }

    /// Reads sizes less 1, class by class; they are 0 before. `ends` are where classes end.
    pub(super) fn take(
        &self,
        reader: &mut BitReader<'_>,
        ends: &[u32; CLASSES],
        shifts: &[u8],
        sizes: &mut [u64],
    ) -> Result<(), DecodeError> {
        let start = |class: usize| if class == 0 { 0 } else { ends[class - 1] };
        let lists = self.lists(&core::array::from_fn(|class| ends[class] - start(class)));
        let mut list = ListReader::new(&lists);
        while let Some(place) = list.read(reader)? {
            sizes[(start(place.segment) + place.position) as usize] = 1;
        }
        for (class, rule) in self.rules.iter().enumerate() {
            let range = start(class) as usize..ends[class] as usize;
            let sizes = &mut sizes[range.clone()];
            match *rule {
                Some(Rule::All(parameter)) => {
                    for (size, &shift) in sizes.iter_mut().zip(&shifts[range]) {
                        *size = read_rice(reader, parameter + u32::from(shift))?;
                    }
                }
                _ => {
                    for size in sizes.iter_mut().filter(|size| **size > 0) {
                        *size = read_rice(reader, self.parameter)?.saturating_add(1);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The Rice parameter for `count` numbers with this sum.
fn mean_parameter(count: usize, sum: u64) -> u32 {
    // Numbers of a geometric distribution: each is the gap before one of `count` positions.
    rice::optimal_parameter(count, usize::try_from(sum).unwrap_or(usize::MAX).saturating_add(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(classes: &[&[u64]]) -> Vec<u8> {
        let (mut counts, mut ends) = ([0; CLASSES], [0; CLASSES]);
        for (class, sizes) in classes.iter().enumerate() {
            counts[class] = sizes.len() as u32;
            ends[class..].iter_mut().for_each(|end| *end += counts[class]);
        }
        let all = classes.concat();
        let shifts: Vec<u8> = (0..all.len()).map(|at| (at % 7 / 3) as u8).collect();
        let mut rest = &shifts[..];
        let classes: Vec<Sizes<'_>> = classes
            .iter()
            .map(|&sizes| {
                let (shifts, after) = rest.split_at(sizes.len());
                rest = after;
                Sizes { sizes, shifts }
            })
            .collect();
        let rules = Rules::fit(classes.iter().copied());
        let mut out = vec![];
        let mut writer = BitWriter::new(&mut out);
        rules.write(&mut writer);
        rules.put(&mut writer, &counts, classes.iter().copied());
        writer.finish();
        let mut back = vec![0; all.len()];
        let mut reader = BitReader::new(&out);
        let read = Rules::read(&mut reader, classes.len()).expect("the rules are valid");
        read.take(&mut reader, &ends, &shifts, &mut back).expect("the sizes are valid");
        assert_eq!(reader.finish(), Ok(out.len()));
        assert!(back.iter().zip(&all).all(|(back, size)| back + 1 == *size), "{all:?}");
        out
    }

    #[test]
    fn sizes_return() {
        // Two classes of ones: a parameter each, and a list that ends at once.
        assert_eq!(round_trip(&[&[1; 1000], &[1; 900]]).len(), 2);
        round_trip(&[]);
        round_trip(&[&[], &[]]);
        let rare: Vec<u64> = (0..500).map(|at| 1 + u64::from(at % 37 == 0) * at).collect();
        let large: Vec<u64> = (0..300).map(|at| 1 + at * at % 1009).collect();
        round_trip(&[&large, &rare, &[], &[1, 1, 2], &[1; 70]]);
        round_trip(&[&[1 << 63, 1, 5], &[1, 1, 1, 1, 1, 1 << 63]]);
    }
}
