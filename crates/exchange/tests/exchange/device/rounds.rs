//! Methods in rounds whose gradients a device has. The device of these tests multiplies in plain
//! loops.

use std::ops::Range;

use gradwire::{Decoder, Kept, Spec, Tensor};
use gradwire_exchange::{
    DeviceForms, DeviceGroup, KeptArray, KeptFor, NonFiniteElement, OnNonFinite, Outcome, Policy,
    Reducer, ReducerConfig, Result, RoundForm,
};

use super::SEED;
use crate::common::{connected, exchange, gradients, tensors};

/// A vector, which is not compressed, and matrices of 30 × 30 and 90 × 100.
const SIZES: [usize; 4] = [300, 900, 7, 9000];
/// The tensors of each group.
const GROUPS: [[usize; 2]; 2] = [[3, 0], [2, 1]];
const RANKS: usize = 3;

fn model(text: &str) -> ReducerConfig {
    let policy = Policy::new(text.parse::<Spec>().unwrap());
    let (exchange, tensors) = (exchange("all-reduce"), tensors(&SIZES));
    let on_non_finite = OnNonFinite::Skip;
    ReducerConfig { exchange, policy, tensors, seed: SEED, on_non_finite }
}

/// What a device keeps for all tensors.
#[derive(Clone)]
struct Residuals {
    now: Vec<Vec<f32>>,
    before: Vec<Vec<f32>>,
}

/// A group on the device, in one step.
struct Group<'a> {
    tensors: &'a [Tensor],
    specs: &'a [Spec],
    members: [usize; 2],
    step: u64,
    gradients: &'a [Vec<f32>],
    residuals: &'a mut Residuals,
    /// The corrected gradients; in the end, the residuals.
    corrected: Vec<Vec<f32>>,
    forms: Vec<u8>,
    ranges: Vec<Range<usize>>,
    addends: Vec<u8>,
    means: Vec<Vec<f32>>,
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// `C·Q` for a matrix of rows of this length, or `Cᵀ·P`; factors are stored column by column.
fn product(c: &[f32], columns: usize, factor: &[f32], transposed: bool) -> Vec<f32> {
    let rows = c.len() / columns;
    let (length, others) = if transposed { (rows, columns) } else { (columns, rows) };
    let element = |i: usize, j: usize| c[i * columns + j];
    let at = |x: usize, y: usize| if transposed { element(y, x) } else { element(x, y) };
    let column = |column: &[f32]| -> Vec<f32> {
        (0..others).map(|x| (0..length).map(|y| at(x, y) * column[y]).sum()).collect()
    };
    factor.chunks_exact(length).flat_map(column).collect()
}

/// Adds `scale` times `P·Qᵀ`; products are added in order of the columns.
fn add_product(p: &[f32], q: &[f32], columns: usize, scale: f32, out: &mut [f32]) {
    let rows = out.len() / columns;
    for (at, out) in out.iter_mut().enumerate() {
        let pairs = p.chunks_exact(rows).zip(q.chunks_exact(columns));
        let terms = pairs.map(|(p, q)| p[at / columns] * q[at % columns]);
        *out += scale * terms.fold(0.0, |sum, term| sum + term);
    }
}

impl Group<'_> {
    fn feedback(&self, member: usize) -> bool {
        self.specs[member].feedback().is_some()
    }

    fn has_rounds(&self, member: usize) -> bool {
        self.specs[member].compressor().rounds().is_some()
    }

    /// The addend of a tensor in a round.
    fn addend(&mut self, at: usize, round: usize, form: &[f32]) -> Vec<f32> {
        let member = self.members[at];
        let (columns, feedback) = (self.tensors[member].shape()[1], self.feedback(member));
        let c = &mut self.corrected[at];
        let (Some(limit), rows) = (form.first(), c.len() / columns) else {
            let whole = c.clone();
            c.fill(0.0);
            return whole;
        };
        let in_range = |mut addend: Vec<f32>| {
            if !addend.iter().all(|x| x.abs() <= *limit) {
                addend.fill(0.0);
            }
            addend
        };
        if round == 0 {
            return in_range(product(c, columns, &form[1..], false));
        }
        let rank = self.specs[member].to_string();
        let rank: usize = rank.split(['=', ',']).nth(1).unwrap().parse().unwrap();
        let (p, other) = form[1..].split_at(rows * rank);
        let q = in_range(product(c, columns, if other.is_empty() { p } else { other }, true));
        if feedback {
            add_product(p, &q, columns, -1.0, c);
        }
        q
    }
}

impl DeviceGroup for Group<'_> {
    fn forms(&mut self) -> Result<DeviceForms<'_>> {
        let mut non_finite = None;
        if self.corrected.is_empty() {
            let mut decoder = Decoder::new(&Spec::none(), SEED);
            for (at, member) in self.members.into_iter().enumerate() {
                let mut corrected = self.gradients[member].clone();
                if let Some(index) = corrected.iter().position(|x| !x.is_finite()) {
                    let value = corrected[index];
                    non_finite = Some(NonFiniteElement { tensor: at, index, value });
                }
                if self.feedback(member) {
                    let residual = &self.residuals.now[member];
                    corrected.iter_mut().zip(residual).for_each(|(x, left)| *x += left);
                }
                let start = self.forms.len();
                if !self.has_rounds(member) && non_finite.is_none() {
                    let message = bytes(&corrected);
                    let tensor = &self.tensors[member];
                    decoder.unpack(tensor, self.step, 0, &message, &mut self.forms)?;
                }
                self.ranges.push(start..self.forms.len());
                self.corrected.push(corrected);
            }
        }
        Ok(DeviceForms { bytes: &self.forms, ranges: &self.ranges, non_finite })
    }

    fn skip(&mut self) -> Result<()> {
        self.residuals.now.clone_from(&self.residuals.before);
        Ok(())
    }

    fn add(&mut self, _: usize, _: f32, _: &[u8], _: &[Range<usize>]) -> Result<()> {
        panic!("all-reduce gathers no messages")
    }

    fn addends(
        &mut self,
        round: usize,
        forms: &[u8],
        tensors: &[Option<RoundForm>],
    ) -> Result<&[u8]> {
        self.addends.clear();
        for (at, tensor) in tensors.iter().enumerate() {
            assert!(self.has_rounds(self.members[at]) || tensor.is_none());
            let Some(RoundForm { form, addend }) = tensor else { continue };
            assert_eq!((form.start % 4, addend.start), (0, self.addends.len()));
            let found = self.addend(at, round, &numbers(&forms[form.clone()]));
            self.addends.extend(bytes(&found));
            assert_eq!(addend.end, self.addends.len());
        }
        Ok(&self.addends)
    }

    fn add_means(&mut self, forms: &[u8], ranges: &[Range<usize>]) -> Result<()> {
        for (at, range) in ranges.iter().enumerate() {
            let (member, form) = (self.members[at], numbers(&forms[range.clone()]));
            let tensor = &self.tensors[member];
            let mean = &mut self.means[member];
            if form.len() == tensor.elements() {
                mean.iter_mut().zip(&form).for_each(|(mean, x)| *mean += x);
            } else {
                let [rows, columns] = tensor.shape() else { panic!("a vector has no factors") };
                let (p, q) = form.split_at(form.len() / (rows + columns) * rows);
                add_product(p, q, *columns, 1.0, mean);
            }
            if self.feedback(member) {
                self.residuals.now[member].clone_from(&self.corrected[at]);
            }
        }
        Ok(())
    }
}

/// A rank that averages all groups, step by step.
struct Rank {
    reducer: Reducer,
    tensors: Vec<Tensor>,
    groups: Vec<usize>,
    /// `None` on the host.
    residuals: Option<Residuals>,
}

impl Rank {
    fn new(
        text: &str,
        transport: impl gradwire_exchange::Transport + 'static,
        device: bool,
    ) -> Self {
        let mut reducer = Reducer::new(Box::new(transport), model(text)).unwrap();
        let tensors = reducer.tensors().to_vec();
        let names = |group: [usize; 2]| group.map(|member| tensors[member].name().to_owned());
        let groups = GROUPS.map(|group| reducer.form(&names(group)).unwrap()).to_vec();
        let zeros: Vec<_> = tensors.iter().map(|tensor| vec![0.0; tensor.elements()]).collect();
        let residuals = device.then(|| Residuals { now: zeros.clone(), before: zeros });
        Self { reducer, tensors, groups, residuals }
    }

    /// The means of all tensors; `None` if the step is skipped.
    fn step(&mut self, step: u64, gradients: &[Vec<f32>]) -> Option<Vec<Vec<f32>>> {
        let Self { reducer, tensors, groups, residuals } = self;
        let specs: Vec<_> =
            (0..tensors.len()).map(|at| reducer.spec_at(at, step).clone()).collect();
        let mut means: Vec<_> = tensors.iter().map(|t| vec![0.0; t.elements()]).collect();
        let mut outcome = Outcome::Averaged;
        if let Some(Residuals { now, before }) = residuals {
            before.clone_from(now);
        }
        for (&group, members) in groups.iter().zip(GROUPS) {
            if let Some(residuals) = residuals {
                let mut device = Group {
                    tensors,
                    specs: &specs,
                    members,
                    step,
                    gradients,
                    residuals,
                    corrected: Vec::new(),
                    forms: Vec::new(),
                    ranges: Vec::new(),
                    addends: Vec::new(),
                    means: std::mem::take(&mut means),
                };
                outcome = reducer.average_device(group, step, &mut device).unwrap();
                means = device.means;
            } else {
                let mut values = members.map(|member| gradients[member].clone()).concat();
                outcome = reducer.average(group, step, &mut values).unwrap();
                for member in members {
                    let others = values.split_off(means[member].len());
                    means[member] = std::mem::replace(&mut values, others);
                }
            }
        }
        (outcome == Outcome::Averaged).then_some(means)
    }

    fn residual(&self, member: usize) -> Vec<f32> {
        match &self.residuals {
            Some(residuals) => residuals.now[member].clone(),
            None => {
                let name = self.tensors[member].name();
                let (kind, of) = (Kept::Residual, KeptFor::Gradients);
                let array = self.reducer.array(KeptArray { name, kind, of });
                array.map_or_else(|| vec![0.0; self.tensors[member].elements()], <[f32]>::to_vec)
            }
        }
    }
}

/// The means of each step on one rank, all residuals after it, and the bytes of the rank's
/// messages.
type Steps = Vec<(Vec<Vec<f32>>, Vec<Vec<f32>>, usize)>;

fn run(text: &str, on_device: [bool; RANKS], steps: u64) -> Vec<Steps> {
    connected(RANKS, |at, transport| {
        let mut rank = Rank::new(text, transport, on_device[at]);
        let each = |step| {
            let own = gradients(&rank.tensors, at, step);
            let means = rank.step(step, &own).unwrap();
            let residuals = (0..SIZES.len()).map(|member| rank.residual(member)).collect();
            (means, residuals, rank.reducer.message_bytes())
        };
        (0..steps).map(each).collect()
    })
}

fn bits(means: &[Vec<f32>]) -> Vec<u32> {
    means.concat().iter().map(|mean| mean.to_bits()).collect()
}

/// Whether numbers differ by rounding errors only.
fn near(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 2e-4)
}

#[test]
fn all_ranks_get_the_same_bits_wherever_they_multiply() {
    // Of rank 16, the smaller matrix is sent uncompressed, in the first round.
    for text in ["powersgd:rank=2", "powersgd:rank=16", "powersgd:rank=2,ef=off", "gradzip:rank=2"]
    {
        let host = run(text, [false; RANKS], 3);
        for on_device in [[true; RANKS], [false, true, false]] {
            let found = run(text, on_device, 3);
            for (rank, steps) in found.iter().enumerate() {
                for (step, (means, _, bytes)) in steps.iter().enumerate() {
                    let (expected, _, host_bytes) = &host[rank][step];
                    assert!(bits(means) == bits(&found[0][step].0), "{text}: replicas differ");
                    assert!(near(&means.concat(), &expected.concat()), "{text}, step {step}");
                    assert_eq!(bytes, host_bytes, "{text}");
                }
            }
        }
    }
}

#[test]
fn residuals_add_up_to_what_the_means_left_out() {
    let found = run("powersgd:rank=2", [true, false, true], 3);
    let tensors = tensors(&SIZES);
    let mut before = tensors.iter().map(|t| vec![0.0; t.elements()]).collect::<Vec<_>>();
    for step in 0..3 {
        let own: Vec<_> = (0..RANKS).map(|rank| gradients(&tensors, rank, step as u64)).collect();
        for (member, before) in before.iter_mut().enumerate() {
            let mut left = before.clone();
            for (at, left) in left.iter_mut().enumerate() {
                *left += own.iter().map(|own| own[member][at]).sum::<f32>();
                *left -= RANKS as f32 * found[0][step].0[member][at];
            }
            let residuals = found.iter().map(|rank| &rank[step].1[member]);
            before.fill(0.0);
            residuals.for_each(|own| before.iter_mut().zip(own).for_each(|(sum, x)| *sum += x));
            assert!(near(before, &left), "step {step}");
        }
    }
}

#[test]
fn a_skipped_step_leaves_no_trace() {
    let of = |poisoned: Option<usize>| {
        connected(RANKS, move |at, transport| {
            let mut rank = Rank::new("powersgd:rank=2", transport, at > 0);
            let mut all = Vec::new();
            for step in 0..3 {
                let mut own = gradients(&rank.tensors, at, step);
                if step == 1 {
                    let Some(tensor) = poisoned else { continue };
                    own[tensor][5] = if at == 1 { f32::INFINITY } else { own[tensor][5] };
                    assert!(rank.step(step, &own).is_none());
                } else {
                    all.extend(bits(&rank.step(step, &own).unwrap()));
                }
            }
            all
        })
    };
    // In the first group, and in the second, before which the first has been averaged.
    for tensor in [3, 1] {
        assert!(of(Some(tensor)) == of(None), "{tensor}");
    }
}

#[test]
fn products_that_overflow_send_zeros() {
    let found = connected(RANKS, |at, transport| {
        let mut rank = Rank::new("powersgd:rank=2", transport, at > 0);
        let mut own = gradients(&rank.tensors, at, 0);
        own[3].fill(3e38);
        let means = rank.step(0, &own).unwrap();
        (means[3].clone(), rank.residual(3) == own[3])
    });
    for (mean, kept) in found {
        assert!(kept && mean.iter().all(|x| *x == 0.0));
    }
}
