//! The hot path asks nobody for memory: counted, not believed.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows test functions, not what they share"
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    fs,
};

use annulus_client::Client;
use prost::Message as _;

#[path = "it/rings.rs"]
#[expect(dead_code, reason = "shared with the tests against a server")]
mod rings;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting per thread.
struct Counting;

// SAFETY: every call goes to `System` unchanged; the counter is a plain cell of the thread,
// initialised without allocating. There is no safe way to see an allocation.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as this function's own contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `System.alloc` with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[tokio::test]
async fn a_lookup_allocates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cache.snapshot");
    fs::write(file, rings::bytes(2).encode_to_vec()).unwrap();
    let client = Client::builder(rings::RING)
        .endpoints(["127.0.0.1:1"])
        .cache_dir(dir.path())
        .connect_lazy()
        .unwrap();
    let mut reader = client.reader();
    // The first lookup of a thread registers it with arc-swap.
    let owner = client.lookup(b"key").unwrap().owner().handle;

    let before = ALLOCATIONS.get();
    let mut sum = 0_u64;
    for number in 0..10_000_u64 {
        let key = number.to_be_bytes();
        let route = client.lookup(&key).unwrap();
        sum += u64::from(route.owner().handle.0) + route.members().count() as u64;
        sum += u64::from(reader.lookup(&key).unwrap().owner().handle.0);
    }
    assert_eq!(client.lookup(b"key").unwrap().owner().handle, owner);
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(sum > 20_000, "every list has two members");
    // The counter counts.
    drop(std::hint::black_box(Box::new(sum)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}
