//! Random states of a model, and shorthands.

#![allow(dead_code, reason = "each test uses its part")]

use gradwire_delta::{
    Buffer, DiffOptions, ElementType, Error, Mirror, Receiver, RunId, Sender, Source, State, Tensor,
};

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

pub(crate) const RUN: RunId = RunId([7; 16]);

/// Tensors as names to descriptions and bytes: the naive state that tests compare with.
pub(crate) type Model = Vec<(Tensor, Vec<u8>)>;

pub(crate) fn tensor(name: &str, element: ElementType, shape: &[u64]) -> Tensor {
    Tensor::new(name, element, shape).unwrap()
}

/// bf16 values of different exponents.
fn weights(random: &mut Random, element: ElementType, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let bits = random.next();
        match element {
            ElementType::Bf16 => {
                let exponent = 110 + (bits >> 32 & 0xffff).trailing_ones().min(12) as u16;
                let value = exponent << 7 | (bits & 0x807f) as u16;
                bytes.extend_from_slice(&value.to_le_bytes());
            }
            _ => bytes.extend_from_slice(&bits.to_le_bytes()),
        }
    }
    bytes.truncate(len);
    bytes
}

/// A small model: large and small tensors, every width of elements, an empty tensor and a scalar.
pub(crate) fn model(seed: u64) -> Model {
    let mut random = Random(seed);
    let shapes: [(&str, ElementType, &[u64]); 9] = [
        ("embed", ElementType::Bf16, &[300, 100]),
        ("layer.0.bias", ElementType::Bf16, &[33]),
        ("layer.0.weight", ElementType::Bf16, &[130, 129]),
        ("layer.1.bias", ElementType::Bf16, &[7]),
        ("layer.1.scale", ElementType::F32, &[5, 3]),
        ("layer.1.weight", ElementType::F8E4m3, &[129, 131]),
        ("none", ElementType::U8, &[0, 4]),
        ("step", ElementType::I64, &[]),
        ("table", ElementType::F64, &[3, 3]),
    ];
    let make = |(name, element, shape): (&str, ElementType, &[u64])| {
        let tensor = tensor(name, element, shape);
        let bytes = weights(&mut random, element, tensor.byte_len());
        (tensor, bytes)
    };
    shapes.into_iter().map(make).collect()
}

/// Changes about one of `rarity` elements, mostly by one unit in the last place.
pub(crate) fn step(model: &Model, seed: u64, rarity: u64) -> Model {
    let mut random = Random(seed);
    let mut model = model.clone();
    for (tensor, bytes) in &mut model {
        let width = tensor.element().width();
        for element in bytes.chunks_exact_mut(width) {
            if random.below(rarity) == 0 {
                element[0] = match random.below(8) {
                    0 => random.next() as u8,
                    1..4 => element[0].wrapping_sub(1),
                    _ => element[0].wrapping_add(1),
                };
            }
        }
    }
    model
}

pub(crate) fn mirror(model: &Model) -> Mirror {
    let pairs = model.iter().map(|(tensor, bytes)| (tensor.clone(), Buffer::from(&bytes[..])));
    Mirror::new(pairs).unwrap()
}

pub(crate) fn content(mirror: &Mirror) -> Model {
    mirror.iter().map(|(tensor, bytes)| (tensor.clone(), bytes.to_vec())).collect()
}

pub(crate) fn sender(model: &Model, options: DiffOptions, threads: usize) -> Sender {
    Sender::new(mirror(model), RUN, options, threads).unwrap()
}

pub(crate) fn receiver(model: &Model) -> Receiver<Mirror> {
    Receiver::new(mirror(model), 1).unwrap()
}

/// The stream from the sender's weights to `new`, which is not committed.
pub(crate) fn diff(sender: &mut Sender, new: &Model) -> Vec<u8> {
    let mut stream = Vec::new();
    sender.diff(&mirror(new), &mut collect(&mut stream)).unwrap();
    stream
}

pub(crate) fn snapshot(sender: &mut Sender) -> Vec<u8> {
    let mut stream = Vec::new();
    sender.snapshot(&mut collect(&mut stream)).unwrap();
    stream
}

pub(crate) fn collect(stream: &mut Vec<u8>) -> impl FnMut(&[u8]) -> std::io::Result<()> {
    |frame| {
        stream.extend_from_slice(frame);
        Ok(())
    }
}

/// The stream from `old`, version 0, to `new`.
pub(crate) fn delta(old: &Model, new: &Model) -> Vec<u8> {
    diff(&mut sender(old, DiffOptions::default(), 1), new)
}

pub(crate) fn apply(receiver: &mut Receiver<Mirror>, stream: &[u8]) -> Result<State, Error> {
    let mut update = receiver.stage([stream])?;
    receiver.commit(&mut update)
}

pub(crate) fn has(receiver: &Receiver<Mirror>, model: &Model) -> bool {
    content(receiver.tensors()) == *model && receiver.verify().is_ok()
}

pub(crate) fn names(source: &dyn Source) -> Vec<&str> {
    source.tensors().iter().map(Tensor::name).collect()
}

/// Two versions of a few tensors, of which one gets another type and shape.
pub(crate) fn small() -> [Model; 2] {
    let first = vec![
        (tensor("a", ElementType::Bf16, &[130, 130]), vec![0x3c; 33_800]),
        (tensor("b", ElementType::F32, &[9]), vec![1; 36]),
        (tensor("c", ElementType::F32, &[9]), vec![2; 36]),
    ];
    let mut second = step(&first, 1, 400);
    second[2] = (tensor("c", ElementType::F16, &[2, 9]), vec![3; 36]);
    second[1].1[4] = 77;
    [first, second]
}
