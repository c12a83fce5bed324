//! Specs and tensors that the law tests share.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod custom;

use gradwire::registry::REGISTRY;
use gradwire::{Decoder, Encoder, Error, Floats, Rng, Spec, Tensor};

pub(crate) const SEED: u64 = 11;
pub(crate) const RANK: u32 = 2;

/// Every registered compressor with its defaults and with error feedback switched, and what else
/// takes another path through the code.
pub(crate) fn specs() -> Vec<Spec> {
    let variants = [
        "3lc:s=1.75",
        "3lc:zre=off",
        "3lc:beta=0.5,gamma=0.25",
        "terngrad:clip=0",
        "terngrad:code=huffman",
        "terngrad:clip=0,code=huffman,ef=on",
        "natural:code=huffman",
        "8bit:code=huffman",
        "inceptionn:b=1",
        "inceptionn:b=126,ef=on",
        "inceptionn:code=huffman",
        "inceptionn:b=126,code=huffman,ef=on",
        "lpc-svrg:w=3,lambda=0.5,code=huffman",
        "lpc-svrg:w=16,ef=on",
        "qsgd:s=7,bucket=0,code=elias",
        "qsgd:s=1,norm=max,code=huffman",
        "qsgd:s=1000,bucket=9000,norm=max",
        "topk:ratio=0.25,select=sampled,positions=bitmap",
        "topk:ratio=0.05,select=sampled",
        "topk:positions=rice",
        "topk:positions=raw",
        "topk:ratio=1",
        "threshold:v=0.5",
        "gradient-dropping:select=sampled",
        "dgc:ratio=0.05,clip=1,warmup=3",
        "sgc:ratio=0.3",
        "adaptive:ratio=0.4",
        "adaptive:ratio=1,ef=on",
        "atomo:atoms=entries,s=100",
        "atomo:atoms=entries,budget=l2",
        "atomo:atoms=entries,budget=max,ef=on",
        "atomo:budget=l2",
        "strom:tau=2",
        "variance:alpha=0.5,code=huffman",
        "sbc:p=0.3",
        "sbc:p=0.05,select=sampled",
        "sbc1:golomb=derived",
        "sbc2:mean=bf16",
        "sketched-sgd:ratio=0.03,rows=2,width=3",
        "powersgd:rank=1",
        "gradiveq:slice=8,keep=2,refresh=2",
        "qsparse-local:ratio=0.3,s=1,bucket=0,scale=off",
        "qsparse-local:ratio=0.05,quantizer=sign",
        "qsparse-local:ratio=0.1,select=randomk,code=huffman",
        "qsparse-local:ratio=0.02,code=huffman",
        "qsparse-local:select=randomk,quantizer=sign",
        "sketchml:buckets=40,groups=1,rows=4,load=1",
        "sketchml:groups=64,rows=1,keys=bytes",
        "sketchml:code=huffman",
        "sketchml:groups=1,rows=1,load=2,code=huffman",
        "randomk:ratio=0.6",
        "randomk:indices=independent",
        "randomk:unbiased=on,ef=off",
    ];
    let switched =
        |id| ["on", "off"].into_iter().map(move |ef| format!("{id}:ef={ef}").parse().unwrap());
    let defaults = REGISTRY.iter().flat_map(|entry| switched(entry.id));
    defaults.chain(variants.iter().map(|text| text.parse().unwrap())).collect()
}

pub(crate) const SIZES: [usize; 9] = [0, 1, 2, 4, 5, 6, 7, 1023, 100_000];

/// A vector, and of some sizes a matrix or more, which low-rank methods tell apart.
pub(crate) fn shapes(elements: usize) -> Vec<Vec<usize>> {
    let mut shapes = vec![vec![elements]];
    match elements {
        0 => shapes.extend([vec![3, 0], vec![0, usize::MAX, 2]]),
        1023 => shapes.push(vec![33, 31]),
        100_000 => shapes.push(vec![100, 10, 100]),
        _ => {}
    }
    shapes
}

/// Finite tensors of every kind that has ever been trouble.
pub(crate) fn tensors(elements: usize) -> Vec<(&'static str, Vec<f32>)> {
    let noise = gaussian(elements, elements as u64);
    let map = |f: &dyn Fn(usize, f32) -> f32| -> Vec<f32> {
        noise.iter().enumerate().map(|(i, &x)| f(i, x)).collect()
    };
    vec![
        ("gaussian", noise.clone()),
        ("zeros", vec![0.0; elements]),
        ("negative zeros", map(&|i, _| if i % 2 == 0 { -0.0 } else { 0.0 })),
        ("constant", vec![0.1; elements]),
        ("one hot", map(&|i, _| if i == elements / 2 { -3.0 } else { 0.0 })),
        ("subnormal", map(&|_, x| f32::from_bits((x.abs() * 100.0) as u32).copysign(x))),
        ("huge", map(&|i, x| if i % 3 == 0 { f32::MAX.copysign(x) } else { x * 1e37 })),
        ("sparse", map(&|_, x| if x.abs() > 2.0 { x * 1e-3 } else { 0.0 })),
    ]
}

/// Normal values by sums of twelve uniform ones: enough tail for tests, and the same everywhere.
pub(crate) fn gaussian(elements: usize, seed: u64) -> Vec<f32> {
    let mut words = vec![0; 12 * elements];
    Rng::new(seed, 1, 2, 3, 4).fill(&mut words);
    let uniform = |&word: &u32| word as f32 / 4_294_967_296.0;
    words.chunks(12).map(|twelve| twelve.iter().map(uniform).sum::<f32>() - 6.0).collect()
}

pub(crate) fn encoder(spec: &Spec) -> Encoder {
    Encoder::new(spec, SEED, RANK)
}

pub(crate) fn encode(
    encoder: &mut Encoder,
    tensor: &Tensor,
    step: u64,
    gradient: &[f32],
) -> Result<Vec<u8>, Error> {
    let mut message = Vec::new();
    encoder.encode(tensor, step, Floats::F32(gradient), &mut message)?;
    Ok(message)
}

pub(crate) fn decode(
    spec: &Spec,
    tensor: &Tensor,
    step: u64,
    message: &[u8],
) -> Result<Vec<f32>, Error> {
    let mut out = vec![0.0; tensor.elements()];
    Decoder::new(spec, SEED).decode_add(tensor, step, RANK, message, 1.0, &mut out)?;
    Ok(out)
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}
