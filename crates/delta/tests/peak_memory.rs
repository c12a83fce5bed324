//! Memory that streaming takes: the peak of what is allocated, for models that are larger.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::Random;
use gradwire_delta::on_disk::{self, Input};
use gradwire_delta::safetensors::Checkpoint;
use gradwire_delta::{DiffOptions, Mirror, Receiver, RunId, Sender, Workers};

/// Bytes that are allocated, and the most since the last [`peak_of`] began.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

impl Counting {
    fn grow(bytes: usize) {
        let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(live, Ordering::Relaxed);
    }
}

#[allow(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::grow(layout.size());
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::grow(layout.size());
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both exist for a moment.
        Self::grow(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The MiB that an operation allocates at most at a time, and its result.
fn peak_of<R>(operation: impl FnOnce() -> R) -> (R, usize) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = operation();
    (result, (PEAK.load(Ordering::Relaxed) - before) >> 20)
}

/// bfloat16 elements of a file: 160 MiB.
const HALVES: usize = 80 << 20;
/// Every `RARITY`th element changes by one unit in the last place.
const RARITY: usize = 128;

/// A file with two tensors.
fn write(path: &Path, is_new: bool) {
    let json = format!(
        r#"{{"a":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{}]}},"b":{{"dtype":"BF16","shape":[{}],"data_offsets":[{},{}]}}}}"#,
        HALVES / 2,
        HALVES,
        HALVES / 2,
        HALVES,
        2 * HALVES
    );
    let mut file = BufWriter::new(fs::File::create(path).unwrap());
    file.write_all(&(json.len() as u64).to_le_bytes()).unwrap();
    file.write_all(json.as_bytes()).unwrap();
    let mut random = Random(1);
    for at in 0..HALVES / 4 {
        let mut bits = random.next() & 0x83ff_83ff_83ff_83ff | 0x3c00_3c00_3c00_3c00;
        if is_new && at % (RARITY / 4) == 0 {
            bits ^= 1;
        }
        file.write_all(&bits.to_le_bytes()).unwrap();
    }
    file.into_inner().unwrap();
}

#[test]
fn streaming_takes_64_mebibytes_a_thread_whatever_the_size_of_the_model() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    write(&at("old"), false);
    write(&at("new"), true);
    let [old, new] = ["old", "new"].map(|name| Checkpoint::open(&at(name)).unwrap());
    for threads in [1, 2] {
        let most = 64 * threads;
        let mut stream = Vec::with_capacity(16 << 20);
        let (_, peak) = peak_of(|| {
            let mut sink = |frame: &[u8]| stream.write_all(frame);
            on_disk::delta(&old, &new, false, &mut Workers::new(threads), &mut sink).unwrap()
        });
        assert!(peak <= most, "delta: {peak} MiB with {threads} threads");
        assert!(stream.len() < 3 * HALVES / RARITY, "{} bytes", stream.len());
        let input = [Input::Bytes("d".into(), stream.clone())];
        let (_, peak) = peak_of(|| {
            on_disk::patch(&old, &input, &at("c"), None, &mut Workers::new(threads)).unwrap()
        });
        assert!(peak <= most, "patch: {peak} MiB with {threads} threads");
        fs::copy(at("old"), at("d")).unwrap();
        let (_, peak) = peak_of(|| {
            on_disk::patch_in_place(&at("d"), &input, &mut Workers::new(threads)).unwrap()
        });
        assert!(peak <= most, "patch --in-place: {peak} MiB with {threads} threads");
        let [written, patched] = ["new", "c"].map(|name| fs::read(at(name)).unwrap());
        assert!(written == patched && written == fs::read(at("d")).unwrap());
        drop((written, patched));

        // In memory, beside the weights: the stream, and 8 bytes a change.
        let base = Mirror::copy_of(&old).unwrap();
        let ((mut sender, mut receiver), peak) = peak_of(|| {
            let receiver = Receiver::new(base.clone(), threads).unwrap();
            let options = DiffOptions::default();
            (Sender::new(base, RunId([7; 16]), options, threads).unwrap(), receiver)
        });
        let model = (2 * HALVES) >> 20;
        assert!(peak <= model + most, "hashing: {peak} MiB beside a copy of {model} MiB");
        let mut stream = Vec::with_capacity(16 << 20);
        let (_, peak) =
            peak_of(|| sender.diff(&new, &mut |frame| stream.write_all(frame)).unwrap());
        let kept = stream.len() >> 20;
        assert!(peak <= most + 2 * kept, "diff: {peak} MiB with {threads} threads");
        let changes = (8 * (HALVES / RARITY)) >> 20;
        let (mut update, peak) = peak_of(|| receiver.stage([&stream[..]]).unwrap());
        assert!(peak <= most + changes, "stage: {peak} MiB with {threads} threads");
        let (_, peak) = peak_of(|| receiver.commit(&mut update).unwrap());
        assert!(peak <= 1, "commit: {peak} MiB with {threads} threads");
    }
}
