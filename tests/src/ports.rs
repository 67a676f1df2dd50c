//! Loopback ports for processes that are killed and started again on the same port.

use std::{collections::BTreeSet, net::TcpListener, sync::Mutex};

/// Below the ports that systems give to outgoing connections, so that none is taken by chance
/// while a killed process is down.
const RANGE: std::ops::Range<u16> = 12_000..32_000;
const TRIES: usize = 1_000;

/// Given out by this process already: tests run side by side.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that nobody listens on, and that no other test of this process gets.
///
/// # Panics
/// If none is found.
#[must_use]
pub fn free() -> u16 {
    let mut given = GIVEN.lock().expect("nobody panics while holding it");
    let mut random = std::iter::repeat_with(|| fastrand::u16(RANGE)).take(TRIES);
    random
        .find(|port| {
            !given.contains(port)
                && TcpListener::bind(("127.0.0.1", *port)).is_ok()
                && given.insert(*port)
        })
        .expect("a loopback port is free")
}

/// `127.0.0.1:PORT` of [`free`].
#[must_use]
pub fn free_endpoint() -> String {
    format!("127.0.0.1:{}", free())
}
