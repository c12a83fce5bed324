//! An allocator that counts.

#![allow(dead_code, unreachable_pub)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// Allocations of this thread; other tests and the harness have threads of their own.
    pub static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes they asked for.
    pub static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of all threads.
pub static OF_ALL_THREADS: AtomicU64 = AtomicU64::new(0);

fn count(bytes: usize) {
    OF_ALL_THREADS.fetch_add(1, Ordering::Relaxed);
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    ALLOCATED.set(ALLOCATED.get() + bytes as u64);
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
