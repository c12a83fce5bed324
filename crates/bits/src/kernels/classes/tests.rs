use super::*;
use alloc::vec;

/// Classes of bytes with an octave of three bits: below 2, 2 to 4, and from 5 up.
const OCTAVES: Octaves = Octaves { width: 1, shift: 4, last: [1, 4, 255, 255, 255, 255, 255] };

#[test]
fn ranks_by_hand() {
    // Octaves 0, 2, 7, 1, 5, 4, 0; the sign does not count.
    let base = [0x0f, 0x2f, 0xff, 0x90, 0x50, 0x4f, 0x80];
    let mut counts = [9];
    assert_eq!(class_counts(&OCTAVES, &base, &mut counts), [3, 2, 2, 0, 0, 0, 0, 0]);
    assert_eq!(counts, [0x02_02_03]);
    // 0x90, 0x50, 0x4f and 0x80 have the ranks 1, 1, 1 and 2 in the classes 0, 2, 1 and 0.
    let (mut ranks, mut before) = ([9; 4], [0, 100, 0, 0, 0, 0, 0, 0]);
    class_ranks(&OCTAVES, &base, 50, &[53, 54, 55, 56], &mut before, &mut ranks);
    assert_eq!(before, [3, 102, 2, 0, 0, 0, 0, 0]);
    assert_eq!(ranks, [1, 1, 101, 2]);
    let mut changed = [9];
    let mut ranked = Ranked::new(&[1, 2, 1, 1], [2, 3, 4, 4, 4, 4, 4, 4]);
    class_places(&OCTAVES, &base, &counts, &mut ranked, &mut changed);
    assert_eq!(changed, [0b111_1000]);
}

#[test]
#[should_panic(expected = "positions increase")]
fn positions_that_decrease_are_refused() {
    let base = [0; 9000];
    class_ranks(&OCTAVES, &base, 0, &[8000, 3], &mut [0; CLASSES], &mut [0; 2]);
}

#[test]
fn octaves_of_floats() {
    for (width, shift, one, octave) in
        [(2, 7, 0x3f80, 127), (2, 10, 0x3c00, 15), (4, 23, 0x3f80_0000, 127)]
    {
        let octaves = Octaves { width, shift, last: [255; 7] };
        assert_eq!(octaves.of(one), octave);
        assert_eq!(octaves.of(one | 1 << (8 * width - 1)), octave);
    }
}

#[test]
fn ranks_that_are_wrong_do_no_harm() {
    let base = vec![0x20; 1000];
    let (mut counts, mut changed) = (vec![0; 16], vec![0; 16]);
    class_counts(&OCTAVES, &base, &mut counts);
    for ranks in [[5, 5, 3], [0, u32::MAX, 7], [2000, 1, 0]] {
        let mut ranked = Ranked::new(&ranks, [1, 3, 3, 3, 3, 3, 3, 3]);
        class_places(&OCTAVES, &base, &counts, &mut ranked, &mut changed);
    }
}
