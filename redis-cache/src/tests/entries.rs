//! Single entries between two servers.

use std::time::Duration;

use bytes::Bytes;

use super::Redis;
use crate::server::Restored;

const TTL: Duration = Duration::from_secs(600);

#[test]
fn an_entry_moves_with_its_ttl_and_an_older_one_replaces_nothing() {
    let name = "an_entry_moves_with_its_ttl_and_an_older_one_replaces_nothing";
    let Some((one, other)) = Redis::start(name).zip(Redis::start(name)) else {
        return;
    };
    let (from, to) = (one.server(), other.server());
    from.set(b"short", b"v", Some(TTL)).unwrap();
    from.set(b"long", b"w", None).unwrap();
    from.set(b"newer", b"old", None).unwrap();
    to.set(b"newer", b"new", None).unwrap();
    let keys = [b"short".as_slice(), b"long", b"newer", b"absent"].map(Bytes::copy_from_slice);
    let dumped = from.dump(&keys).unwrap();
    assert_eq!(dumped[3], None);
    let entries: Vec<_> = keys
        .iter()
        .cloned()
        .zip(dumped)
        .filter_map(|(key, entry)| Some((key, entry?)))
        .collect();
    let restored = to.restore(&entries).unwrap();
    assert_eq!(
        restored,
        Restored {
            taken: 2,
            unreadable: 0
        }
    );
    assert_eq!(to.get(b"newer").unwrap().as_deref(), Some(&b"new"[..]));
    let there = to.dump(&keys).unwrap();
    let ttl = |at: usize| there[at].as_ref().unwrap().ttl_ms;
    let whole = u64::try_from(TTL.as_millis()).unwrap();
    assert!((1..=whole).contains(&ttl(0)), "{} ms left", ttl(0));
    assert_eq!(ttl(1), 0, "it has no TTL there either");
}

#[test]
fn a_deleted_key_is_not_brought_back_by_an_entry_under_way() {
    let name = "a_deleted_key_is_not_brought_back_by_an_entry_under_way";
    let Some((one, other)) = Redis::start(name).zip(Redis::start(name)) else {
        return;
    };
    let (from, to) = (one.server(), other.server());
    let keys = [b"k".as_slice(), b"kept"].map(Bytes::copy_from_slice);
    for key in &keys {
        from.set(key, b"v", Some(TTL)).unwrap();
    }
    let dumped = from.dump(&keys).unwrap();
    // The invalidation reaches both before the entry arrives.
    for server in [&from, &to] {
        server.delete(b"k", true).unwrap();
    }
    let entries: Vec<_> = keys
        .iter()
        .cloned()
        .zip(dumped.into_iter().flatten())
        .collect();
    assert_eq!(to.restore(&entries).unwrap().taken, 1);
    assert_eq!(to.get(b"k").unwrap(), None);
    assert!(to.get(b"kept").unwrap().is_some());
    // What is written since is served, and the marks are no keys of anybody.
    to.set(b"k", b"again", None).unwrap();
    assert_eq!(to.get(b"k").unwrap().as_deref(), Some(&b"again"[..]));
    let mut seen = Vec::new();
    to.scan(|key| seen.push(key)).unwrap();
    seen.sort();
    assert_eq!(seen, keys);
}

#[test]
fn an_entry_that_a_server_cannot_read_is_a_miss() {
    let name = "an_entry_that_a_server_cannot_read_is_a_miss";
    let Some(redis) = Redis::start(name) else {
        return;
    };
    let server = redis.server();
    let dump = Bytes::from_static(b"written by a version to come");
    let entry = crate::entry::Entry { ttl_ms: 0, dump };
    let restored = server
        .restore(&[(Bytes::from_static(b"k"), entry)])
        .unwrap();
    assert_eq!(
        restored,
        Restored {
            taken: 0,
            unreadable: 1
        }
    );
    assert_eq!(server.get(b"k").unwrap(), None);
    // Moving entries counts as no lookup, or it would pass for a cold gainer.
    let (hits, misses) = server.lookups().unwrap();
    assert_eq!((hits, misses), (0, 1), "the GET above alone");
}
