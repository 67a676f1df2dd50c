//! Lookup time: ours through the handles that clients hold, the bare tables, the peers.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use annulus_client::Client;
use annulus_ring::{
    Candidate, Handle, HashName, Lookup, NodeId, RangeTable, SlotTable, TokenIndex,
    tokens::{TokenNode, TokenTable, tokens},
};
use arc_swap::{ArcSwapOption, Cache};
use prost::Message as _;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    bound::Spec,
    peers,
    place::{candidate, founded},
    report::{Goal, Report},
    setup::{equal, next, scattered, snapshot},
    timing::{Contender, Key, contender, median, race, thread_ns},
};

const SEED: u64 = 42;
/// Keys of a batch's pass: enough that large tables do not stay in the nearest cache.
const KEYS: usize = 1 << 15;
/// Keys of a single lookup's pass: over before another program is let in.
const SHORT: usize = 1 << 13;
const TOKENS: u32 = 256;

fn keys() -> Vec<Key> {
    let mut state = 1;
    let mut key = || {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&next(&mut state).to_le_bytes());
        key[8..].copy_from_slice(&next(&mut state).to_le_bytes());
        key
    };
    (0..KEYS).map(|_| key()).collect()
}

#[inline]
fn ends(list: &[Handle]) -> u64 {
    match list {
        [first, .., last] => u64::from(first.0) + u64::from(last.0),
        [only] => u64::from(only.0) * 2,
        [] => 0,
    }
}

/// The least that a table of slots can be.
struct BareSlots {
    shift: u32,
    table: Vec<[u16; 4]>,
}

impl BareSlots {
    fn new(table: &SlotTable) -> Self {
        let list = |slot| {
            let list = table.list(slot);
            [list[0].0, list[1].0, list[2].0, 0]
        };
        Self {
            shift: 64 - u32::from(table.bits()),
            table: table.slots().map(list).collect(),
        }
    }

    #[inline]
    fn find(&self, key: &[u8]) -> u64 {
        let list = &self.table[(xxh3_64_with_seed(key, SEED) >> self.shift) as usize];
        u64::from(list[0]) + u64::from(list[2])
    }
}

/// The least that a bucket index of tokens can be.
struct BareTokens {
    shift: u32,
    buckets: Vec<u32>,
    tokens: Vec<(u64, [u16; 4])>,
}

impl BareTokens {
    fn new(ranges: &RangeTable) -> Self {
        let bits = ranges.len().next_power_of_two().trailing_zeros();
        let shift = 64 - bits;
        let range = |at: usize| {
            let list = ranges.list(at);
            (ranges.tokens()[at].0, [list[0].0, list[1].0, list[2].0, 0])
        };
        let mut tokens: Vec<_> = (0..ranges.len()).map(range).collect();
        tokens.push((u64::MAX, tokens[0].1));
        let first = |bucket: u64| tokens.partition_point(|token| token.0 < bucket << shift) as u32;
        Self {
            shift,
            buckets: (0..1 << bits).map(first).collect(),
            tokens,
        }
    }

    #[inline]
    fn find(&self, key: &[u8]) -> u64 {
        let hash = xxh3_64_with_seed(key, SEED);
        let mut at = self.buckets[(hash >> self.shift) as usize] as usize;
        while self.tokens[at].0 < hash {
            at += 1;
        }
        let list = &self.tokens[at].1;
        u64::from(list[0]) + u64::from(list[2])
    }
}

/// The layout of tokens: 256 a node.
fn token_table(specs: &[Spec]) -> TokenTable {
    let tokens_per_weight = NonZeroU32::new(TOKENS).expect("256 is not 0");
    let node = |spec: &Spec| {
        let Candidate {
            handle,
            zone,
            weight,
        } = candidate(*spec);
        let node_id = NodeId::new(format!("node-{:05}", spec.0)).expect("a short name");
        let tokens = tokens(HashName::Xxh3_64, SEED, &node_id, tokens_per_weight, weight);
        TokenNode {
            tokens: tokens.expect("few enough"),
            node_id,
            handle,
            zone,
            weight,
        }
    };
    let nodes: Vec<_> = specs.iter().map(node).collect();
    TokenTable::place(3, &nodes).expect("nodes have weight")
}

/// A client that started from its file, as after a restart without a control plane.
fn client(lookup: &Lookup) -> (tokio::runtime::Runtime, Client) {
    let folder = std::env::temp_dir().join(format!("annulus-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    let snapshot = lookup.snapshot();
    let message = annulus_proto::snapshot::encode(snapshot).message();
    let file = folder.join(format!("{}.snapshot", snapshot.ring));
    std::fs::write(file, message.encode_to_vec()).expect("room for a snapshot");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let client = {
        let _inside = runtime.enter();
        let builder = Client::builder(&snapshot.ring)
            .endpoints(["127.0.0.1:1"])
            .cache_dir(&folder);
        builder.connect_lazy().expect("settings are legal")
    };
    assert!(client.held().is_some(), "the file was read");
    drop(std::fs::remove_dir_all(folder));
    (runtime, client)
}

/// Named times of a race.
fn named(contenders: &[Contender<'_>], times: &[f64]) -> Vec<(&'static str, f64)> {
    contenders
        .iter()
        .map(|contender| contender.name)
        .zip(times.iter().copied())
        .collect()
}

fn best<'a>(times: &'a [(&'static str, f64)], ours: bool) -> &'a (&'static str, f64) {
    times
        .iter()
        .filter(|(name, _)| ours || !name.contains("xxh3"))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .expect("there are peers")
}

pub fn lookup(report: &mut Report, quick: bool) {
    let passes = if quick { 51 } else { 401 };
    let specs = equal(3, 120);
    let keys = keys();
    let table = founded(14, &specs);
    let bare = BareSlots::new(&table);
    let compiled =
        Lookup::compile(Arc::new(snapshot(table, &specs, SEED))).expect("it makes sense");
    let placed = token_table(&specs);
    let bare_tokens = BareTokens::new(placed.ranges());
    let tokens = TokenIndex::of(placed.ranges()).expect("few enough");
    let (_runtime, client) = client(&compiled);
    let mut reader = client.reader();
    // The layout of tokens has no client yet: its table behind the same kind of handle.
    let swap = Arc::new(ArcSwapOption::from_pointee((SEED, tokens)));
    let mut cached = Cache::new(Arc::clone(&swap));

    let mut ours = vec![
        contender("bare slots", SHORT, |keys: &[Key]| {
            keys.iter().map(|key| bare.find(key)).sum()
        }),
        contender("bare tokens", SHORT, |keys: &[Key]| {
            keys.iter().map(|key| bare_tokens.find(key)).sum()
        }),
        contender("slots, table in hand", SHORT, |keys: &[Key]| {
            keys.iter()
                .map(|key| compiled.route(key).map_or(0, |route| ends(route.handles())))
                .sum()
        }),
        contender("slots, Reader", SHORT, |keys: &[Key]| {
            keys.iter()
                .map(|key| reader.lookup(key).map_or(0, |route| ends(route.handles())))
                .sum()
        }),
        contender("slots, Client", SHORT, |keys: &[Key]| {
            keys.iter()
                .map(|key| client.lookup(key).map_or(0, |route| ends(route.handles())))
                .sum()
        }),
        contender("tokens, cached handle", SHORT, |keys: &[Key]| {
            let mut find = |key: &Key| {
                let (seed, index) = &**cached.load().as_ref()?;
                Some(ends(index.list(xxh3_64_with_seed(key, *seed))))
            };
            keys.iter().map(|key| find(key).unwrap_or(0)).sum()
        }),
    ];
    let count = ours.len();
    ours.extend(peers::single(&specs));
    let singles = ours.len();
    ours.extend(peers::triple(&specs));
    let times = race(&mut ours, &keys, passes);
    let times = named(&ours, &times);
    let (single, triple) = (&times[count..singles], &times[singles..]);
    let find = |name: &str| {
        times
            .iter()
            .find(|time| time.0 == name)
            .map_or(f64::NAN, |time| time.1)
    };
    for (name, time) in &times {
        report.row(
            format!("lookup: {name}, 120 nodes"),
            *time,
            "ns",
            Goal::None,
            "",
        );
    }
    let (slots, tokens) = (find("slots, Reader"), find("tokens, cached handle"));
    let (bare, bare_tokens) = (find("bare slots"), find("bare tokens"));
    report.row(
        "lookup: slots / bare table",
        slots / bare,
        "x",
        Goal::AtMost(2.0),
        "through annulus_client::Reader",
    );
    report.row(
        "lookup: tokens / bare bucket index",
        tokens / bare_tokens,
        "x",
        Goal::AtMost(1.5),
        "through the same kind of cached handle",
    );
    for (what, time) in [("slots", slots), ("tokens", tokens)] {
        let (name, peer) = best(single, false);
        report.row(
            format!("lookup: {what} / fastest single-owner peer"),
            time / peer,
            "x",
            Goal::AtMost(0.35),
            format!("{name}, {peer:.1} ns"),
        );
        let (name, peer) = best(triple, false);
        report.row(
            format!("lookup: {what} / best three-zone peer"),
            time / peer,
            "x",
            Goal::AtMost(0.07),
            format!("{name}, {peer:.1} ns"),
        );
        let walks: Vec<_> = triple
            .iter()
            .copied()
            .filter(|(name, _)| name.contains("walk"))
            .collect();
        let (name, peer) = best(&walks, false);
        report.row(
            format!("lookup: {what} / best three-zone walk"),
            time / peer,
            "x",
            Goal::AtMost(0.07),
            format!("{name}, {peer:.1} ns"),
        );
        let (name, peer) = best(single, true);
        report.row(
            format!("lookup: {what} / single-owner peer with our hash"),
            time / peer,
            "x",
            Goal::None,
            format!("{name}, {peer:.1} ns"),
        );
        let (name, peer) = best(triple, true);
        report.row(
            format!("lookup: {what} / three-zone peer with our hash"),
            time / peer,
            "x",
            Goal::None,
            format!("{name}, {peer:.1} ns"),
        );
    }
}

pub fn batch(report: &mut Report, quick: bool) {
    let passes = if quick { 31 } else { 151 };
    let keys = keys();
    for (nodes, bits, goal) in [(120, 14, 150.0), (1_000, 16, 70.0), (10_000, 18, 40.0)] {
        let specs = equal(3, nodes);
        let table = scattered(bits, &specs);
        let bare = BareSlots::new(&table);
        let compiled =
            Lookup::compile(Arc::new(snapshot(table, &specs, SEED))).expect("it makes sense");
        let swap = Arc::new(ArcSwapOption::from_pointee(compiled));
        let mut cached = Cache::new(Arc::clone(&swap));
        let mut contenders = vec![
            contender("bare", KEYS, |keys: &[Key]| {
                keys.iter().map(|key| bare.find(key)).sum()
            }),
            contender("batch", KEYS, |keys: &[Key]| {
                let mut sum = 0;
                if let Some(lookup) = cached.load() {
                    lookup.lookup_batch(keys, |_, route| {
                        sum += route.map_or(0, |route| ends(route.handles()))
                    });
                }
                sum
            }),
        ];
        let times = race(&mut contenders, &keys, passes);
        let (bare, batch) = (1e3 / times[0], 1e3 / times[1]);
        // The goals are for a machine whose bare table reaches so many; a slower one owes less.
        let reference = match nodes {
            120 => 200.0,
            1_000 => 80.0,
            _ => 41.0,
        };
        report.row(
            format!("batch: {nodes} nodes x 2^{bits}, million lookups a second"),
            batch,
            "M/s",
            Goal::AtLeast(goal * (bare / reference).min(1.0)),
            format!(
                "ratio {:.2} to the bare table, which reaches {bare:.0} here; the goal is {goal} \
                 where that reaches {reference}",
                batch / bare
            ),
        );
    }
}

/// Lookups per ns on a core, summed over `threads` readers that run at once; `make` gives each
/// its pass over `count` keys.
fn readers<F: FnMut() -> u64>(threads: usize, count: usize, make: &(impl Fn() -> F + Sync)) -> f64 {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = || {
            let mut run = make();
            let (begun, cpu) = (Instant::now(), thread_ns());
            let mut lookups = 0;
            while !stop.load(Ordering::Relaxed) {
                std::hint::black_box(run());
                lookups += count;
            }
            // Time on a core: what else runs on this machine takes nothing from the figure.
            let on_core = thread_ns().zip(cpu).map(|(end, begin)| end - begin);
            let wall = begun.elapsed().as_nanos() as f64;
            lookups as f64 / on_core.filter(|ns| *ns > 0.0).unwrap_or(wall)
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(reader)).collect();
        thread::sleep(Duration::from_millis(60));
        stop.store(true, Ordering::Relaxed);
        let rates = running
            .into_iter()
            .map(|reader| reader.join().expect("readers do not panic"));
        rates.sum()
    })
}

pub fn swaps(report: &mut Report, quick: bool) {
    let rounds = if quick { 5 } else { 15 };
    let specs = equal(3, 120);
    let keys = keys();
    let keys = &keys[..4_096];
    let table = founded(14, &specs);
    let bare = BareSlots::new(&table);
    let tables: Vec<_> = (0..2)
        .map(|_| {
            Arc::new(
                Lookup::compile(Arc::new(snapshot(table.clone(), &specs, SEED)))
                    .expect("it makes sense"),
            )
        })
        .collect();
    let swap = Arc::new(ArcSwapOption::from(Some(Arc::clone(&tables[0]))));
    let stop = AtomicBool::new(false);
    let bare_pass = || || keys.iter().map(|key| bare.find(key)).sum();
    let our_pass = || {
        let mut cached = Cache::new(Arc::clone(&swap));
        move || {
            let mut find =
                |key: &Key| Some(ends(cached.load().as_ref()?.route(key).ok()?.handles()));
            keys.iter().map(|key| find(key).unwrap_or(0)).sum()
        }
    };
    let mut figures = vec![Vec::new(); 4];
    let mut published = 0_u64;
    thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            let mut count = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                swap.store(Some(Arc::clone(&tables[count as usize % 2])));
                count += 1;
                thread::sleep(Duration::from_millis(1));
            }
            count
        });
        for _ in 0..rounds {
            figures[0].push(readers(1, keys.len(), &bare_pass));
            figures[1].push(readers(2, keys.len(), &bare_pass));
            figures[2].push(readers(1, keys.len(), &our_pass));
            figures[3].push(readers(2, keys.len(), &our_pass));
        }
        stop.store(true, Ordering::Relaxed);
        published = publisher.join().expect("the publisher does not panic");
    });
    let medians: Vec<_> = figures.into_iter().map(median).collect();
    let (bare, ours) = (medians[1] / medians[0], medians[3] / medians[2]);
    report.row(
        "swap: scaling to two readers / the bare table's",
        ours / bare,
        "x",
        Goal::AtLeast(0.9),
        format!(
            "{ours:.2} against {bare:.2}; {published} snapshots swapped meanwhile; time on a core"
        ),
    );
}
