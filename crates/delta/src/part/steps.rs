//! Sizes of differences: how many units in the last place a weight moved.
//!
//! Most differences are 1. In a class in which the others are rare, they are a list of positions
//! among the class's changes, and their sizes, less 2, are in exponential Golomb code. In another
//! class, all sizes, less 1, are in Rice code; an octave lower in the class a unit is half as
//! large, so the parameter is one more.

use gradwire_bits::kernels::CLASSES;
use gradwire_bits::{BitReader, BitWriter, DecodeError, rice};

use super::elias::{gamma, golomb, golomb_len, put_gamma, put_golomb, put_rice, put_signed};
use super::elias::{rice as read_rice, signed};
use super::segments::{ListReader, ListWriter, MAX_PARAMETER, Segment};

/// How the sizes of a class are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Sizes above 1 are a list with this Rice parameter, at least 1.
    Rare(u32),
    /// All are in Rice code with this parameter plus the shift of the element.
    All(u32),
}

/// The Golomb parameters that are tried.
const PARAMETERS: usize = 8;
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

/// The differences of a class.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moves<'a> {
    /// As zigzag numbers.
    pub(super) moves: &'a [u64],
    /// By difference: how many octaves the element is below the last one of its class, at most
    /// [`MOST_SHIFT`].
    pub(super) shifts: &'a [u8],
}

/// The rule of each class, and the Golomb parameter of sizes in lists.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: [Option<Rule>; CLASSES],
    parameter: u32,
}

impl Rules {
    /// The rules that take the fewest bits, nearly.
    pub(super) fn fit<'a>(classes: impl Iterator<Item = Moves<'a>>) -> Self {
        let mut rules = Self::default();
        let mut bits = [0; PARAMETERS];
        for (rule, Moves { moves, shifts }) in rules.rules.iter_mut().zip(classes) {
            let rare = moves.iter().filter(|&&zigzag| zigzag > ONE).count();
            let parameter = match rare {
                0 => moves.len().max(2).next_power_of_two().ilog2(),
                _ => rice::optimal_parameter(rare, moves.len()),
            };
            *rule = Some(if parameter > 0 {
                for &zigzag in moves.iter().filter(|&&zigzag| rare > 0 && zigzag > ONE) {
                    for (parameter, bits) in (0..).zip(&mut bits) {
                        *bits += golomb_len(less(zigzag) - 1, parameter);
                    }
                }
                Rule::Rare(parameter.min(MAX_PARAMETER))
            } else {
                let shifted = moves.iter().zip(shifts);
                let shifted = shifted.map(|(&zigzag, &shift)| less(zigzag) >> shift);
                let sum = shifted.fold(0u64, u64::saturating_add);
                Rule::All(mean_parameter(moves.len(), sum).min(MOST))
            });
        }
        let best = (0..PARAMETERS).min_by_key(|&parameter| bits[parameter]);
        rules.parameter = best.unwrap_or(0) as u32;
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
                parameter if parameter < PARAMETERS as u64 => parameter as u32,
                _ => return Err(DecodeError::Corrupt("a parameter is out of range")),
            };
        }
        Ok(rules)
    }

    /// By class: the list of the sizes above 1.
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
        classes: impl Iterator<Item = Moves<'a>> + Clone,
    ) {
        let lists = self.lists(counts);
        let mut list = ListWriter::new(&lists);
        let large = |&(_, &zigzag): &(usize, &u64)| zigzag > ONE;
        for (class, Moves { moves, .. }) in classes.clone().enumerate() {
            if lists[class].size > 0 {
                let places = moves.iter().enumerate().filter(large);
                list.put_each(writer, class, places.map(|(at, _)| at as u32));
            }
        }
        list.finish(writer);
        for (rule, Moves { moves, shifts }) in self.rules.iter().zip(classes) {
            match *rule {
                Some(Rule::All(parameter)) => {
                    for (&zigzag, &shift) in moves.iter().zip(shifts) {
                        put_rice(writer, less(zigzag), parameter + u32::from(shift));
                    }
                }
                _ => {
                    let large = moves.iter().enumerate().filter(large);
                    large.for_each(|(_, &zigzag)| {
                        put_golomb(writer, less(zigzag) - 1, self.parameter);
                    });
                }
            }
        }
    }

    /// Reads sizes, class by class, and adds them less one to zigzag numbers of 1 or −1. `ends` are
    /// where classes end.
    pub(super) fn take(
        &self,
        reader: &mut BitReader<'_>,
        ends: &[u32; CLASSES],
        shifts: &[u8],
        moves: &mut [u64],
    ) -> Result<(), DecodeError> {
        let start = |class: usize| if class == 0 { 0 } else { ends[class - 1] };
        let lists = self.lists(&core::array::from_fn(|class| ends[class] - start(class)));
        let mut list = ListReader::new(&lists);
        while let Some(place) = list.read(reader)? {
            moves[(start(place.segment) + place.position) as usize] += 2;
        }
        for (class, rule) in self.rules.iter().enumerate() {
            let range = start(class) as usize..ends[class] as usize;
            let moves = &mut moves[range.clone()];
            match *rule {
                Some(Rule::All(parameter)) => {
                    for (zigzag, &shift) in moves.iter_mut().zip(&shifts[range]) {
                        enlarge(zigzag, read_rice(reader, parameter + u32::from(shift))?)?;
                    }
                }
                _ => {
                    for zigzag in moves.iter_mut().filter(|zigzag| **zigzag > ONE) {
                        enlarge(zigzag, golomb(reader, self.parameter)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The largest zigzag number of a difference of one unit.
const ONE: u64 = 2;

/// The size of a difference that is not 0, less 1.
#[inline(always)]
fn less(zigzag: u64) -> u64 {
    (zigzag - 1) >> 1
}

/// Makes a difference larger by this number of units.
#[inline(always)]
fn enlarge(zigzag: &mut u64, units: u64) -> Result<(), DecodeError> {
    let sum = units.checked_mul(2).and_then(|twice| zigzag.checked_add(twice));
    *zigzag = sum.ok_or(DecodeError::Corrupt("a difference is too large"))?;
    Ok(())
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
        let signs = |at: usize, size: u64| 2 * (size - 1) + 1 + (at % 3 / 2) as u64;
        let all: Vec<u64> = all.iter().enumerate().map(|(at, &size)| signs(at, size)).collect();
        let mut moved = &all[..];
        let shifts: Vec<u8> = (0..all.len()).map(|at| (at % 7 / 3) as u8).collect();
        let mut rest = &shifts[..];
        let classes: Vec<Moves<'_>> = classes
            .iter()
            .map(|&sizes| {
                let moves = moved.split_off(..sizes.len()).expect("there are as many");
                Moves { moves, shifts: rest.split_off(..sizes.len()).expect("there are as many") }
            })
            .collect();
        let rules = Rules::fit(classes.iter().copied());
        let mut out = vec![];
        let mut writer = BitWriter::new(&mut out);
        rules.write(&mut writer);
        rules.put(&mut writer, &counts, classes.iter().copied());
        writer.finish();
        let mut back: Vec<u64> = all.iter().map(|zigzag| 1 + (zigzag - 1) % 2).collect();
        let mut reader = BitReader::new(&out);
        let read = Rules::read(&mut reader, classes.len()).expect("the rules are valid");
        read.take(&mut reader, &ends, &shifts, &mut back).expect("the sizes are valid");
        assert_eq!(reader.finish(), Ok(out.len()));
        assert_eq!(back, all);
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
        round_trip(&[&[1 << 62, 1, 5], &[1, 1, 1, 1, 1, 1 << 62]]);
    }
}
