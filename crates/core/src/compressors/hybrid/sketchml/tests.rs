use super::*;
use crate::compressors::testing::{encode, refused, residual, round_trip};
use crate::{Rng, Spec, Tensor};

const ONE: [u8; 4] = [0, 0, 0x80, 0x3f];

#[test]
fn a_message_worked_by_hand() {
    // Above zero 1 and 3 at 1 and 4, one bucket of mean 2; below, 4 at 2. Groups of one bucket have
    // no bins. Positions as bitmaps.
    let gradient = [0.0, 1.0, -4.0, 0.0, 3.0];
    let expected = [1, 0, 0, 0, 0x40, 0, 2, 0b1_0010, 1, 0, 0, 0x80, 0x40, 0, 1, 0b100];
    assert_eq!(encode("sketchml", &gradient), expected);
    assert_eq!(round_trip("sketchml", &gradient), [0.0, 2.0, -4.0, 0.0, 2.0]);
    assert_eq!(residual("sketchml", &gradient), [0.0, -1.0, 0.0, 0.0, 1.0]);
    assert_eq!(encode("sketchml", &[0.0; 9]), [0, 0]);
    assert!(encode("sketchml", &[]).is_empty());
}

#[test]
fn a_sketch_worked_by_hand() {
    // Nine elements at 0 to 8, two buckets in one group: five times 1 and four times 2. The single
    // bin of a row keeps the smaller bucket's 0; two rows take two bits.
    let gradient = [2.0, 1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 2.0, 1.0];
    let spec = "sketchml:groups=1,load=64,keys=bytes";
    let means = [ONE, [0, 0, 0, 0x40]].concat();
    let keys = [9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(encode(spec, &gradient), [&[2], &means[..], &keys, &[0], &[0]].concat());
    assert_eq!(round_trip(spec, &gradient), [1.0; 9]);
    let left: Vec<f32> = gradient.iter().map(|x| x - 1.0).collect();
    assert_eq!(residual(spec, &gradient), left);
    // In separate groups the buckets stay apart, without any bins.
    assert_eq!(round_trip("sketchml:load=64", &gradient), gradient);
    assert_eq!(residual("sketchml:load=64", &gradient), [0.0; 9]);
}

fn noise(len: usize) -> Vec<f32> {
    let mut words = vec![0; len];
    Rng::new(8, 0, 0, 0, 0).fill(&mut words);
    // Every third element is zero; the logarithms of the others are uniform.
    let value = |(at, word): (usize, &u32)| {
        let size = (f64::from(word >> 1) / f64::from(1u32 << 31) * 10.0).exp() as f32;
        if at % 3 == 0 { 0.0 } else { size.copysign(*word as i32 as f32 - (1 << 30) as f32) }
    };
    words.iter().enumerate().map(value).collect()
}

#[test]
fn no_value_leaves_its_group_or_exceeds_its_buckets_mean() {
    let gradient = noise(50_000);
    let mut cells = Vec::new();
    let values: Vec<f32> = gradient.iter().copied().filter(|x| *x != 0.0).collect();
    let buckets = Buckets::new(&values, 256, &mut cells);
    assert_eq!(buckets.sides, [256, 256]);
    let means = buckets.means(&values);
    for groups in [1, 8, 64] {
        let spec = format!("sketchml:groups={groups}");
        let decoded = round_trip(&spec, &gradient);
        let mut short = 0;
        for (&x, &y) in gradient.iter().zip(&decoded) {
            if x == 0.0 {
                assert_eq!(y, 0.0);
                continue;
            }
            let bucket = buckets.of(x);
            let size = 256 / groups;
            let first = bucket / size * size;
            assert_eq!(y.is_sign_negative(), x.is_sign_negative());
            assert!((means[first]..=means[bucket]).contains(&y.abs()), "{x} as {y}");
            short += usize::from(y.abs() < means[bucket]);
        }
        // Five elements share a bin: most, but not all, decode below their bucket.
        assert!((10_000..33_000).contains(&short), "{short}");
        assert_eq!(decoded, round_trip(&format!("{spec},keys=bytes"), &gradient));
    }
    // Many bins and rows: few elements share all of theirs.
    let decoded = round_trip("sketchml:rows=4,load=1", &gradient);
    let own = gradient
        .iter()
        .zip(&decoded)
        .filter(|(x, y)| **x != 0.0 && y.abs() == means[buckets.of(**x)]);
    assert!(own.count() > 30_000);
}

#[test]
fn entropy_coded_keys_are_shorter_than_bytes() {
    let gradient = noise(100_000);
    let [entropy, bytes] = ["sketchml", "sketchml:keys=bytes"].map(|s| encode(s, &gradient).len());
    assert!(entropy < bytes * 3 / 4, "{entropy} and {bytes}");
    // Bytes: 10 bits per key, 2 bits of bins, and 512 means.
    let expected = 66_667 * 12 / 8 + 2048;
    assert!((bytes as i64 - expected).abs() < expected / 50, "{bytes}");
}

#[test]
fn coded_bins_are_shorter_and_answer_the_same() {
    let gradient = noise(100_000);
    for plain in ["sketchml:rows=1", "sketchml:groups=1", "sketchml:groups=64"] {
        let coded = format!("{plain},code=huffman");
        assert!(round_trip(&coded, &gradient) == round_trip(plain, &gradient));
        assert!(residual(&coded, &gradient) == residual(plain, &gradient));
        assert!(encode(&coded, &gradient).len() < encode(plain, &gradient).len(), "{plain}");
    }
    // The minimum of five (Poisson) of 32 uniform numbers has 4.1 bits; there are two fifths of a
    // bin per element.
    let [fixed, coded] =
        ["sketchml", "sketchml:code=huffman"].map(|spec| 8 * encode(spec, &gradient).len());
    let saved = (fixed - coded) as f64 / 66_667.0;
    assert!((0.30..0.38).contains(&saved), "{saved}");
    // For two bins of 0, code lengths do not pay: one byte says so, and one has both bins.
    let nine = [2.0, 1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 2.0, 1.0];
    let message = encode("sketchml:groups=1,load=64,keys=bytes,code=huffman", &nine);
    assert_eq!(message[message.len() - 3..], [0, 0, 0]);
    assert_eq!(message.len(), 1 + encode("sketchml:groups=1,load=64,keys=bytes", &nine).len());
}

#[test]
fn malformed_messages_are_refused() {
    let good = [1, 0, 0, 0, 0x40, 0, 2, 0b1_0010, 1, 0, 0, 0x80, 0x40, 0, 1, 0b100];
    let refused = |at: usize, byte: u8| {
        let mut bad = good;
        bad[at] = byte;
        refused("sketchml:buckets=2", 5, &bad)
    };
    let corrupt = DecodeError::Corrupt;
    assert_eq!(refused(0, 3), corrupt("there are more buckets than configured"));
    assert_eq!(refused(4, 0xc0), corrupt("the means are not positive and increasing"));
    assert_eq!(refused(4, 0), corrupt("the means are not positive and increasing"));
    assert_eq!(refused(6, 6), corrupt("there are more positions than the configuration allows"));
    assert_eq!(refused(15, 0b10), corrupt("an element is sent twice"));
    assert_eq!(refused(12, 0x7f), corrupt("a level is not finite"));
}

#[test]
fn groups_cover_the_buckets() {
    let spec: Spec = "sketchml:groups=8".parse().unwrap();
    assert!(spec.compressor().max_elements(0) == 0 && Tensor::new("t", &[1]).elements() == 1);
    let sketch =
        SketchMl { rows: 2, load: 5, buckets: 256, groups: 8, huffman: false, bytes: false };
    let sizes = |buckets| sketch.groups(1, buckets).map(|group| group.size).collect::<Vec<_>>();
    assert_eq!(sizes(256), [32; 8]);
    assert_eq!(sizes(9), [2, 2, 2, 2, 1]);
    assert_eq!(sizes(1), [1]);
    assert!(sizes(0).is_empty());
    assert_eq!(sketch.groups(1, 9).last(), Some(BucketGroup { first: MOST + 8, size: 1 }));
}
