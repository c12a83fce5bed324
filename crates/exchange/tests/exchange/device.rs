//! Averages of tensors that a device compresses. The device of these tests is a host codec behind
//! device forms.

mod rounds;

use std::ops::Range;

use crate::common::{connected, exchange, gradients, tensors};
use gradwire::{Decoder, Encoder, Error, Floats, Spec, Tensor};
use gradwire_exchange::{
    DeviceForms, DeviceGroup, ExchangeError, NonFiniteElement, OnNonFinite, Outcome, Policy,
    Reducer, ReducerConfig, Result, RoundForm,
};

const SIZES: [usize; 3] = [300, 7, 9000];
const SEED: u64 = 3;

fn model(text: &str, name: &str, on_non_finite: OnNonFinite) -> ReducerConfig {
    let mut policy = Policy::new(text.parse::<Spec>().unwrap());
    (policy.raw_vectors, policy.raw_below) = (false, 10);
    let (exchange, tensors) = (exchange(name), tensors(&SIZES));
    ReducerConfig { exchange, policy, tensors, seed: SEED, on_non_finite }
}

/// A device that compresses one step's gradients of all tensors.
struct Device<'a> {
    specs: Vec<Spec>,
    tensors: &'a [Tensor],
    rank: u32,
    step: u64,
    encoder: &'a mut Encoder,
    gradients: Vec<Vec<f32>>,
    forms: Vec<u8>,
    ranges: Vec<Range<usize>>,
    means: Vec<Vec<f32>>,
    skipped: bool,
}

impl Device<'_> {
    fn decoder(&self) -> Decoder {
        let mut decoder = Decoder::new(&Spec::none(), SEED);
        self.tensors.iter().zip(&self.specs).for_each(|(t, spec)| decoder.assign(t.name(), spec));
        decoder
    }
}

impl DeviceGroup for Device<'_> {
    fn forms(&mut self) -> Result<DeviceForms<'_>> {
        let mut non_finite = None;
        if self.ranges.is_empty() {
            let mut decoder = self.decoder();
            for (at, tensor) in self.tensors.iter().enumerate() {
                let bad = self.gradients[at].iter().position(|x| !x.is_finite());
                if let Some(index) = bad {
                    let value = self.gradients[at][index];
                    non_finite = non_finite.or(Some(NonFiniteElement { tensor: at, index, value }));
                    continue;
                }
                let mut message = Vec::new();
                self.encoder.assign(tensor.name(), &self.specs[at]);
                let gradient = Floats::F32(&self.gradients[at]);
                self.encoder.encode(tensor, self.step, gradient, &mut message)?;
                let start = self.forms.len();
                decoder.unpack(tensor, self.step, self.rank, &message, &mut self.forms)?;
                self.ranges.push(start..self.forms.len());
            }
        }
        Ok(DeviceForms { bytes: &self.forms, ranges: &self.ranges, non_finite })
    }

    fn skip(&mut self) -> Result<()> {
        self.skipped = true;
        Ok(())
    }

    fn add(
        &mut self,
        rank: usize,
        weight: f32,
        forms: &[u8],
        ranges: &[Range<usize>],
    ) -> Result<()> {
        let mut decoder = self.decoder();
        for (at, (tensor, range)) in self.tensors.iter().zip(ranges).enumerate() {
            assert!(range.start.is_multiple_of(4), "forms begin where numbers may");
            let mut message = Vec::new();
            let mut packer = Encoder::new(&self.specs[at], SEED, rank as u32);
            packer.pack(tensor, self.step, &forms[range.clone()], &mut message)?;
            let mean = &mut self.means[at];
            decoder.decode_add(tensor, self.step, rank as u32, &message, weight, mean)?;
        }
        Ok(())
    }

    fn addends(&mut self, _: usize, _: &[u8], _: &[Option<RoundForm>]) -> Result<&[u8]> {
        unreachable!("no compressor here has rounds")
    }

    fn add_means(&mut self, forms: &[u8], ranges: &[Range<usize>]) -> Result<()> {
        self.add(0, 1.0, forms, ranges)
    }
}

/// The means of some steps, on a device or on the host, and the bytes of this rank's messages.
fn run(reducer: &mut Reducer, rank: usize, steps: u64, device: bool) -> Vec<(Vec<u32>, usize)> {
    let tensors = reducer.tensors().to_vec();
    let group = reducer.form(&tensors.iter().map(Tensor::name).collect::<Vec<_>>()).unwrap();
    let mut encoder = Encoder::new(&Spec::none(), SEED, rank as u32).with_ranks(3);
    let mut all = Vec::new();
    for step in 0..steps {
        let own = gradients(&tensors, rank, step);
        let means = if device {
            let mut device = device_of(reducer, &tensors, (rank, step), &mut encoder, own);
            assert_eq!(
                reducer.average_device(group, step, &mut device).unwrap(),
                Outcome::Averaged
            );
            device.means.concat()
        } else {
            let mut values = own.concat();
            assert_eq!(reducer.average(group, step, &mut values).unwrap(), Outcome::Averaged);
            values
        };
        all.push((means.iter().map(|mean| mean.to_bits()).collect(), reducer.message_bytes()));
    }
    all
}

fn device_of<'a>(
    reducer: &Reducer,
    tensors: &'a [Tensor],
    (rank, step): (usize, u64),
    encoder: &'a mut Encoder,
    gradients: Vec<Vec<f32>>,
) -> Device<'a> {
    Device {
        specs: (0..tensors.len()).map(|at| reducer.spec_at(at, step).clone()).collect(),
        means: tensors.iter().map(|tensor| vec![0.0; tensor.elements()]).collect(),
        tensors,
        encoder,
        gradients,
        rank: rank as u32,
        step,
        forms: Vec::new(),
        ranges: Vec::new(),
        skipped: false,
    }
}

#[test]
fn a_device_gets_the_means_and_sends_the_bytes_of_the_host() {
    let gathered = ["3lc", "topk:ratio=0.05", "eden", "sbc", "adacomp", "qsgd:s=7,code=huffman"];
    let gathered = gathered.map(|text| (text, "all-gather"));
    for (text, exchange) in gathered.into_iter().chain([("fp16", "all-reduce")]) {
        let of = |on_device: [bool; 3]| {
            connected(3, |rank, transport| {
                let model = model(text, exchange, OnNonFinite::Refuse);
                let mut reducer = Reducer::new(Box::new(transport), model).unwrap();
                run(&mut reducer, rank, 3, on_device[rank])
            })
        };
        let host = of([false; 3]);
        assert!(of([true; 3]) == host, "{text}");
        assert!(of([false, true, false]) == host, "{text}: ranks differ in where they compress");
    }
}

/// The outcome of a step in which the second rank has an infinite element, and whether the device
/// skipped it.
fn poisoned(on_non_finite: OnNonFinite) -> Vec<(Result<Outcome>, bool)> {
    connected(2, |rank, transport| {
        let model = model("3lc", "all-gather", on_non_finite);
        let mut reducer = Reducer::new(Box::new(transport), model).unwrap();
        let tensors = reducer.tensors().to_vec();
        let group = reducer.form(&tensors.iter().map(Tensor::name).collect::<Vec<_>>()).unwrap();
        let mut own = gradients(&tensors, rank, 0);
        if rank == 1 {
            own[2][17] = f32::NEG_INFINITY;
        }
        let mut encoder = Encoder::new(&Spec::none(), SEED, rank as u32);
        let mut device = device_of(&reducer, &tensors, (rank, 0), &mut encoder, own);
        let outcome = reducer.average_device(group, 0, &mut device);
        (outcome, device.skipped)
    })
}

#[test]
fn an_element_that_is_not_finite_is_named_or_skips_the_step_on_all_ranks() {
    let refused = poisoned(OnNonFinite::Refuse);
    assert!(refused[0].0.is_err());
    let Err(ExchangeError::Codec(Error::NonFinite { index, .. })) = &refused[1].0 else {
        panic!("{:?}", refused[1].0)
    };
    assert_eq!(*index, 17);
    for (outcome, skipped) in poisoned(OnNonFinite::Skip) {
        assert!(matches!(outcome, Ok(Outcome::Skipped)) && skipped, "{outcome:?}");
    }
}

#[test]
fn other_exchanges_and_changes_are_refused_in_the_first_step_with_the_remedy() {
    for (text, exchange, remedy) in [
        ("3lc", "scatter-reduce", "all-gather and all-reduce"),
        ("3lc:ef=ef21", "all-gather", "average the group with `average`"),
    ] {
        refused(text, exchange, remedy);
    }
}

fn refused(text: &str, exchange: &str, remedy: &str) {
    let errors = connected(2, |rank, transport| {
        let model = model(text, exchange, OnNonFinite::Refuse);
        let mut reducer = Reducer::new(Box::new(transport), model).unwrap();
        let tensors = reducer.tensors().to_vec();
        let group = reducer.form(&tensors.iter().map(Tensor::name).collect::<Vec<_>>()).unwrap();
        let mut encoder = Encoder::new(&Spec::none(), SEED, rank as u32);
        let own = gradients(&tensors, rank, 0);
        let mut device = device_of(&reducer, &tensors, (rank, 0), &mut encoder, own);
        reducer.average_device(group, 0, &mut device).unwrap_err().to_string()
    });
    // The first rank's error ends the exchange, and the other may notice that.
    assert!(errors.iter().any(|error| error.contains(remedy)), "{errors:?}");
}
