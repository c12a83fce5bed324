//! Any number of threads writes the same bytes.

mod common;

use common::*;
use gradwire_delta::{DiffOptions, ElementType};

#[test]
fn a_full_pool_behind_a_large_tensor() {
    // A batch of one thread ends with the large tensor, a batch of more threads does not. The small
    // ones behind it fill a pool.
    let large = tensor("a", ElementType::U8, &[64 << 20]);
    let small = (0..65).map(|index| tensor(&format!("b{index:02}"), ElementType::U8, &[16_383]));
    let zeros = |tensor: gradwire_delta::Tensor| (tensor.clone(), vec![0; tensor.byte_len()]);
    let old: Model = std::iter::once(large).chain(small).map(zeros).collect();
    let mut new = old.clone();
    new.iter_mut().for_each(|(_, bytes)| bytes[5] = 1);
    let write = |threads| diff(&mut sender(&old, DiffOptions::default(), threads), &new);
    let stream = write(1);
    for threads in [2, 3, 8] {
        assert!(write(threads) == stream, "{threads} threads");
    }
    let mut receiver = receiver(&old);
    apply(&mut receiver, &stream).unwrap();
    assert!(has(&receiver, &new));
}
