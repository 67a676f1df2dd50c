//! The language-neutral vectors in `vectors/`: made anew in memory and compared byte for byte.
//!
//! `cargo x vectors` writes them. A changed byte is a changed protocol: keys would move, or
//! clients in other languages would disagree.

use std::{collections::BTreeMap, fmt::Write as _, num::NonZeroU32, path::PathBuf};

use crate::common::{Spec, assign, founded};
use annulus_ring::{
    Bound, Handle, HashName, NodeId, RangeTable, Rendezvous, SlotTable, Token, TokenNode,
    TokenTable, Weight, Zone, bounded,
    diff::diff,
    hash::mix64,
    jump, ketama, log,
    rendezvous::{RendezvousNode, node_hash},
    tokens::{token, token_bytes, tokens},
};
use serde::Serialize;

const SEED: u64 = 0x0123_4567_89ab_cdef;

/// Every number that may pass 2^53 is written as 16 hexadecimal digits.
fn hex(value: u64) -> String {
    format!("{value:016x}")
}

fn hex_bytes(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn numbers(list: &[Handle]) -> Vec<u16> {
    list.iter().map(|handle| handle.0).collect()
}

/// A file: what it holds in a sentence, then one case per line.
#[derive(Default)]
struct File {
    lines: Vec<String>,
}

impl File {
    fn case(&mut self, case: &impl Serialize) {
        self.lines.push(serde_json::to_string(case).unwrap());
    }

    fn text(&self, what: &str) -> String {
        let what = serde_json::to_string(what).unwrap();
        let cases = self.lines.join(",\n");
        format!("{{\"format\":1,\"what\":{what},\"cases\":[\n{cases}\n]}}\n")
    }
}

// -- hashes -----------------------------------------------------------------------------------

/// Keys that languages like to bend, and every length at which a hash changes its way.
fn keys() -> Vec<Vec<u8>> {
    let odd: [&[u8]; 14] = [
        b"",
        b"\0",
        b"a",
        b"a\n",
        b" a",
        b"a\0",
        b"user:1000",
        b"{user1000}.following",
        "\u{e9}".as_bytes(),
        "e\u{301}".as_bytes(),
        "\u{212b}".as_bytes(),
        "\u{1f511}".as_bytes(),
        b"\xff\xfe\xc3\x28",
        b"\xed\xa0\x80",
    ];
    let lengths = [
        3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 129, 240, 241, 256, 1_024, 1_025,
    ];
    let long = lengths.map(|length| (0..length).map(|at| (at * 7 + 3) as u8).collect());
    odd.into_iter().map(<[u8]>::to_vec).chain(long).collect()
}

#[derive(Serialize)]
struct HashCase {
    hash: HashName,
    seed: String,
    key: String,
    /// The key is these bytes so many times over.
    times: u32,
    value: String,
}

fn hashes() -> String {
    let mut file = File::default();
    for hash in HashName::ALL {
        for seed in [0, 1, SEED, u64::MAX] {
            let cases = keys().into_iter().map(|key| (key, 1));
            // 1 MiB.
            for (key, times) in cases.chain([(b"0123456789abcdef".to_vec(), 65_536)]) {
                let value = hex(hash.hash(seed, &key.repeat(times)));
                file.case(&HashCase {
                    hash,
                    seed: hex(seed),
                    key: hex_bytes(&key),
                    times: times as u32,
                    value,
                });
            }
        }
    }
    file.text("value = hash(seed, key repeated `times` times)")
}

// -- tokens -----------------------------------------------------------------------------------

#[derive(Serialize)]
struct TokenCase {
    hash: HashName,
    seed: String,
    node: String,
    index: u32,
    bytes: String,
    token: String,
}

fn token_cases() -> String {
    let mut file = File::default();
    for hash in HashName::ALL {
        for seed in [0, SEED] {
            for name in ["a", "n1", "n11", "node-7.rack_2", &"x".repeat(63)] {
                let node = NodeId::new(name).unwrap();
                for index in [0, 1, 255, 256, 65_536, u32::MAX] {
                    file.case(&TokenCase {
                        hash,
                        seed: hex(seed),
                        node: name.to_owned(),
                        index,
                        bytes: hex_bytes(&token_bytes(&node, index)),
                        token: hex(token(hash, seed, &node, index).0),
                    });
                }
            }
        }
    }
    file.text("token = hash(seed, bytes); bytes = length of the id in 1 byte, id, index in 4 bytes little-endian")
}

// -- walks and lookups ------------------------------------------------------------------------

#[derive(Serialize)]
struct MemberCase {
    node: String,
    handle: u16,
    zone: String,
    weight: u32,
    tokens: Vec<String>,
}

#[derive(Serialize)]
struct RangeCase {
    token: String,
    list: Vec<u16>,
    missing_replicas: u8,
    missing_zones: u8,
}

#[derive(Serialize)]
struct WalkCase {
    name: &'static str,
    rf: u8,
    members: Vec<MemberCase>,
    ranges: Vec<RangeCase>,
}

#[derive(Serialize)]
struct LookupCase {
    name: &'static str,
    rf: u8,
    hash: String,
    list: Vec<u16>,
}

fn member(name: &str, handle: u16, zone: &str, weight: u32, tokens: &[u64]) -> TokenNode {
    TokenNode {
        node_id: NodeId::new(name).unwrap(),
        handle: Handle(handle),
        zone: Zone::new(zone).unwrap(),
        weight: Weight::new(weight).unwrap(),
        tokens: tokens.iter().copied().map(Token).collect(),
    }
}

/// Nodes (zone, weight) with 4 hashed tokens per weight.
fn hashed(specs: &[(u8, u32)]) -> Vec<TokenNode> {
    let four = NonZeroU32::new(4).unwrap();
    (0..)
        .zip(specs)
        .map(|(at, (zone, weight))| {
            let mut node = member(&format!("n{at}"), at, &format!("z{zone}"), *weight, &[]);
            node.tokens =
                tokens(HashName::Xxh3_64, SEED, &node.node_id, four, node.weight).unwrap();
            node
        })
        .collect()
}

fn rings() -> Vec<(&'static str, Vec<TokenNode>)> {
    let max = u64::MAX;
    vec![
        ("one node", vec![member("a", 0, "z1", 1, &[1 << 40])]),
        (
            "tokens 0, 1 and the largest",
            vec![
                member("a", 0, "z1", 1, &[0]),
                member("b", 1, "z1", 1, &[1]),
                member("c", 2, "z1", 1, &[max]),
            ],
        ),
        (
            "equal tokens go by node id, not by handle",
            vec![
                member("b", 0, "z1", 1, &[100, 300]),
                member("a", 1, "z2", 1, &[100, 200, 200]),
                member("c", 2, "z1", 1, &[100, 300]),
            ],
        ),
        (
            "weight 0 owns nothing",
            vec![
                member("a", 0, "z1", 1, &[100]),
                member("b", 1, "z2", 0, &[200]),
                member("c", 2, "z3", 2, &[300, 400]),
            ],
        ),
        (
            "zones of 1, 1 and 4",
            hashed(&[(1, 1), (2, 1), (3, 1), (3, 1), (3, 1), (3, 1)]),
        ),
        ("weights 4 4 1 1", hashed(&[(1, 4), (1, 4), (1, 1), (1, 1)])),
        (
            "two zones",
            hashed(&[(1, 1), (1, 2), (1, 1), (2, 3), (2, 1), (2, 1)]),
        ),
        (
            "three zones of two",
            hashed(&[(1, 1), (1, 1), (2, 1), (2, 1), (3, 1), (3, 1)]),
        ),
        (
            "four zones",
            hashed(&[
                (1, 1),
                (2, 2),
                (3, 1),
                (4, 1),
                (1, 1),
                (2, 1),
                (3, 2),
                (4, 1),
            ]),
        ),
    ]
}

fn walks() -> String {
    let mut file = File::default();
    for (name, nodes) in rings() {
        for rf in [1, 2, 3, 4, 5, 7] {
            let table = TokenTable::place(rf, &nodes).unwrap();
            let range = |token: &Token| {
                let (list, shortage) = table.lookup(token.0);
                RangeCase {
                    token: hex(token.0),
                    list: numbers(list),
                    missing_replicas: shortage.replicas,
                    missing_zones: shortage.zones,
                }
            };
            let members = nodes.iter().map(|node| MemberCase {
                node: node.node_id.to_string(),
                handle: node.handle.0,
                zone: node.zone.to_string(),
                weight: node.weight.get(),
                tokens: node.tokens.iter().map(|token| hex(token.0)).collect(),
            });
            file.case(&WalkCase {
                name,
                rf,
                members: members.collect(),
                ranges: table.ranges().tokens().iter().map(range).collect(),
            });
        }
    }
    file.text("ranges = the walk from each distinct token; hashed tokens are 4 per weight, xxh3-64, seed 0123456789abcdef")
}

fn lookups() -> String {
    let mut file = File::default();
    for (name, nodes) in rings() {
        let table = TokenTable::place(3, &nodes).unwrap();
        look(&mut file, name, table.ranges());
    }
    let slots = RangeTable::from(&founded(3, 2, &[(0, 1, 1), (1, 2, 1), (2, 1, 1)]));
    look(&mut file, "eight slots", &slots);
    look(&mut file, "no node", &RangeTable::empty(3));
    file.text("list = who holds hash, in the ring of that name in walks.json at this rf (eight slots: in slots.json), at every edge of every range")
}

fn look(file: &mut File, name: &'static str, table: &RangeTable) {
    let edges = table
        .tokens()
        .iter()
        .flat_map(|token| [token.0.wrapping_sub(1), token.0, token.0.wrapping_add(1)]);
    let mut hashes: Vec<_> = edges
        .chain([0, 1, 1 << 63, u64::MAX - 1, u64::MAX])
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    for hash in hashes {
        file.case(&LookupCase {
            name,
            rf: table.rf(),
            hash: hex(hash),
            list: numbers(table.lookup(hash)),
        });
    }
}

// -- slots and diffs --------------------------------------------------------------------------

#[derive(Serialize)]
struct SlotsCase {
    name: &'static str,
    assigner_version: u32,
    bits: u8,
    rf: u8,
    /// (handle, zone, weight).
    nodes: Vec<Spec>,
    lists: Vec<Vec<u16>>,
}

fn slots() -> String {
    let mut file = File::default();
    let mut case = |name, nodes: &[Spec], table: &SlotTable| {
        file.case(&SlotsCase {
            name,
            assigner_version: annulus_ring::ASSIGNER_VERSION,
            bits: table.bits(),
            rf: table.rf(),
            nodes: nodes.to_vec(),
            lists: table
                .slots()
                .map(|slot| numbers(table.list(slot)))
                .collect(),
        });
    };
    let small = [(0, 1, 1), (1, 2, 1), (2, 1, 1)];
    case("eight slots", &small, &founded(3, 2, &small));
    let mut specs: Vec<Spec> = (0..6).map(|at| (at, (at % 3) as u8, 1)).collect();
    let before = founded(6, 3, &specs);
    case("six nodes in three zones", &specs, &before);
    specs.push((6, 0, 1));
    let joined = assign(&before, &specs);
    case("the same, then one more joins", &specs, &joined);
    specs[2].2 = 2;
    let heavier = assign(&joined, &specs);
    case(
        "the same, then node 2 weighs twice as much",
        &specs,
        &heavier,
    );
    specs.remove(4);
    case(
        "the same, then node 4 leaves",
        &specs,
        &assign(&heavier, &specs),
    );
    let uneven = [
        (0, 1, 1),
        (1, 2, 1),
        (2, 3, 4),
        (3, 3, 4),
        (4, 3, 1),
        (5, 3, 1),
    ];
    case(
        "zones of 1, 1 and 4, weights 4 4 1 1",
        &uneven,
        &founded(6, 3, &uneven),
    );
    file.text("lists = what the assigner of this version gives each slot, from an empty table or from the case before; clients read lists from snapshots and need not compute them")
}

#[derive(Serialize)]
struct TableCase {
    token: String,
    list: Vec<u16>,
}

#[derive(Serialize)]
struct ChangeCase {
    start: String,
    end: String,
    old: Vec<u16>,
    new: Vec<u16>,
    gainers: Vec<u16>,
    losers: Vec<u16>,
    owner_changes: bool,
    order_only: bool,
}

#[derive(Serialize)]
struct DiffCase {
    name: &'static str,
    old: Vec<TableCase>,
    new: Vec<TableCase>,
    changes: Vec<ChangeCase>,
}

fn diffs() -> String {
    let place = |nodes: &[TokenNode]| TokenTable::place(3, nodes).unwrap().ranges().clone();
    let four = hashed(&[(1, 1), (2, 1), (3, 1), (1, 1)]);
    let mut turned = TokenTable::place(3, &four).unwrap();
    let (token, mut list) = (
        turned.ranges().tokens()[0],
        turned.ranges().list(0).to_vec(),
    );
    list.rotate_left(1);
    turned.reorder(token, &list).unwrap();
    let slots = RangeTable::from(&founded(
        3,
        3,
        &[(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 1, 1)],
    ));
    let whole = RangeTable::new(3, [(Token(0), [Handle(0), Handle(1)])]).unwrap();
    let shifted = RangeTable::new(3, [(Token(u64::MAX), [Handle(1), Handle(0)])]).unwrap();
    let mut file = File::default();
    for (name, old, new) in [
        ("nothing changes", place(&four), place(&four)),
        ("founding", RangeTable::empty(3), place(&four)),
        ("a node joins", place(&four[..3]), place(&four)),
        ("a node leaves", place(&four), place(&four[1..])),
        ("a hand-over", place(&four), turned.ranges().clone()),
        ("the whole circle in another order", whole, shifted),
        ("from tokens to slots", place(&four), slots),
    ] {
        let table = |table: &RangeTable| {
            let ranges = table.iter().map(|(range, list)| TableCase {
                token: hex(range.end.0),
                list: numbers(list),
            });
            ranges.collect::<Vec<_>>()
        };
        let changes = diff(&old, &new).into_iter().map(|change| ChangeCase {
            start: hex(change.range.start.0),
            end: hex(change.range.end.0),
            old: numbers(&change.old),
            new: numbers(&change.new),
            gainers: numbers(&change.gainers()),
            losers: numbers(&change.losers()),
            owner_changes: change.owner_changes(),
            order_only: change.order_only(),
        });
        file.case(&DiffCase {
            name,
            old: table(&old),
            new: table(&new),
            changes: changes.collect(),
        });
    }
    file.text("changes = ranges (start, end] whose lists differ, clockwise by end, neighbours of equal lists joined")
}

// -- cache layouts ----------------------------------------------------------------------------

#[derive(Serialize)]
struct LogCase {
    x: String,
    log2: String,
}

#[derive(Serialize)]
struct LogTable {
    table: Vec<String>,
}

fn logs() -> String {
    let mut file = File::default();
    file.case(&LogTable {
        table: log::TABLE.iter().map(|entry| hex(*entry)).collect(),
    });
    let powers = (0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) | 1, u64::MAX >> bit]);
    let drawn = (1..200).map(|at| mix64(at) >> (at % 13));
    for x in powers.chain(drawn) {
        file.case(&LogCase {
            x: hex(x),
            log2: hex(log::log2(x)),
        });
    }
    file.text("first case: the 2049 table entries; then log2(x) in units of 2^-57")
}

#[derive(Serialize)]
struct RendezvousCase {
    name: &'static str,
    hash: HashName,
    seed: String,
    rf: u8,
    /// (node, handle, zone, weight, node hash).
    nodes: Vec<(String, u16, String, u32, String)>,
    /// (key in hex, hash of the key, list).
    keys: Vec<(String, String, Vec<u16>)>,
}

fn rendezvous() -> String {
    let mut file = File::default();
    let fleets: [(&str, &[(u8, u32)]); 4] = [
        ("equal weights", &[(1, 1), (1, 1), (1, 1), (1, 1), (1, 1)]),
        (
            "weights 4 4 1 1 and 0",
            &[(1, 4), (1, 4), (1, 1), (1, 1), (1, 0)],
        ),
        (
            "three zones",
            &[(1, 1), (2, 2), (3, 3), (1, 1), (2, 1), (3, 1)],
        ),
        (
            "zones of 1, 1 and 4",
            &[(1, 1), (2, 1), (3, 10), (3, 10), (3, 10), (3, 10)],
        ),
    ];
    for (name, fleet) in fleets {
        for (hash, seed, rf) in [
            (HashName::Xxh3_64, 0, 1),
            (HashName::Xxh3_64, SEED, 3),
            (HashName::SipHash24, SEED, 5),
            (HashName::Md5_64, 0, 2),
        ] {
            let nodes: Vec<_> = (0..)
                .zip(fleet)
                .map(|(at, (zone, weight))| RendezvousNode {
                    node_id: NodeId::new(format!("n{at}")).unwrap(),
                    handle: Handle(at),
                    zone: Zone::new(format!("z{zone}")).unwrap(),
                    weight: Weight::new(*weight).unwrap(),
                })
                .collect();
            let all = Rendezvous::new(hash, seed, rf, &nodes).unwrap();
            let shown = |node: &RendezvousNode| {
                let bid = hex(node_hash(hash, seed, &node.node_id));
                let (name, zone) = (node.node_id.to_string(), node.zone.to_string());
                (name, node.handle.0, zone, node.weight.get(), bid)
            };
            let key = |at: u32| {
                let key = format!("key:{at}");
                let list = numbers(&all.choose(key.as_bytes()).list);
                (
                    hex_bytes(key.as_bytes()),
                    hex(hash.hash(seed, key.as_bytes())),
                    list,
                )
            };
            file.case(&RendezvousCase {
                name,
                hash,
                seed: hex(seed),
                rf,
                nodes: nodes.iter().map(shown).collect(),
                keys: (0..40).map(key).collect(),
            });
        }
    }
    file.text(
        "nodes = (id, handle, zone, weight, node hash); keys = (key, its hash, list of handles)",
    )
}

#[derive(Serialize)]
struct JumpCase {
    hash: String,
    buckets: u32,
    bucket: u32,
}

fn jumps() -> String {
    let mut file = File::default();
    let hashes = [0, 1, 42, 256, 0xdead_10cc, SEED, 1 << 63, u64::MAX];
    let drawn = (1..60).map(mix64);
    for hash in hashes.into_iter().chain(drawn) {
        for buckets in [1, 2, 3, 8, 9, 120, 121, 666, 1_024, 1_000_000, u32::MAX] {
            file.case(&JumpCase {
                hash: hex(hash),
                buckets,
                bucket: jump::bucket(hash, buckets).unwrap(),
            });
        }
    }
    file.text("bucket of a hash among so many")
}

#[derive(Serialize)]
struct KetamaCase {
    client: &'static str,
    /// (name, handle, weight).
    servers: Vec<(String, u16, u32)>,
    point_count: usize,
    /// The first of them: (point, handle).
    points: Vec<(String, u16)>,
    /// (key in hex, its hash, handle).
    keys: Vec<(String, String, u16)>,
}

fn ketamas() -> String {
    let mut file = File::default();
    let fleets: [(&'static str, ketama::KetamaClient, u16, Vec<u32>); 4] = [
        (
            "libmemcached",
            ketama::KetamaClient::Libmemcached,
            11_211,
            vec![1; 3],
        ),
        (
            "libmemcached",
            ketama::KetamaClient::Libmemcached,
            11_212,
            vec![4, 4, 1, 1],
        ),
        (
            "twemproxy",
            ketama::KetamaClient::Twemproxy,
            11_211,
            vec![1; 25],
        ),
        (
            "spymemcached",
            ketama::KetamaClient::Spymemcached,
            11_211,
            vec![1; 25],
        ),
    ];
    for (client, kind, port, weights) in fleets {
        let servers: Vec<_> = (0..)
            .zip(weights)
            .map(|(at, weight)| ketama::KetamaServer {
                name: match kind {
                    ketama::KetamaClient::Spymemcached => format!("10.0.0.{}:{port}", at + 1),
                    _ => ketama::server_name(&format!("10.0.0.{}", at + 1), port),
                },
                handle: Handle(at),
                weight: Weight::new(weight).unwrap(),
            })
            .collect();
        let all = ketama::Ketama::new(kind, &servers).unwrap();
        let point = |(point, handle): &(u32, Handle)| (format!("{point:08x}"), handle.0);
        let key = |at: u32| {
            let key = format!("key:{at}");
            let hash = ketama::md5_32(key.as_bytes());
            let owner = all.owner_of_hash(hash).0;
            (hex_bytes(key.as_bytes()), format!("{hash:08x}"), owner)
        };
        let shown = |server: &ketama::KetamaServer| {
            (server.name.clone(), server.handle.0, server.weight.get())
        };
        file.case(&KetamaCase {
            client,
            servers: servers.iter().map(shown).collect(),
            point_count: all.points().len(),
            points: all.points().iter().take(200).map(point).collect(),
            keys: (0..100).map(key).collect(),
        });
    }
    file.text("servers = (name, handle, weight); points = the first 200 as (point, handle); keys = (key, its hash, handle)")
}

#[derive(Serialize)]
struct BoundedCase {
    /// c = numerator / denominator.
    bound: (u32, u32),
    total: String,
    nodes: u64,
    capacity: String,
}

#[derive(Serialize)]
struct ChosenCase {
    loads: Vec<u64>,
    capacities: Vec<u64>,
    chosen: Option<u16>,
    over: bool,
}

fn bounds() -> String {
    let mut file = File::default();
    for (numerator, denominator) in [(1, 1), (5, 4), (3, 2), (1_000_001, 1_000_000)] {
        for (total, nodes) in [
            (0, 3),
            (1, 3),
            (99, 10),
            (100, 10),
            (101, 10),
            (u64::MAX, 7),
            (5, 0),
        ] {
            let bound = Bound::new(numerator, denominator).unwrap();
            file.case(&BoundedCase {
                bound: (numerator, denominator),
                total: hex(total),
                nodes,
                capacity: hex(bound.capacity(total, nodes)),
            });
        }
    }
    let cases: [(&[u64], &[u64]); 6] = [
        (&[0, 0, 0], &[1, 1, 1]),
        (&[1, 0, 0], &[1, 1, 1]),
        (&[5, 1, 0], &[5, 1, 1]),
        (&[10, 3, 9], &[5, 2, 3]),
        (&[0, 0, 7], &[0, 0, 7]),
        (&[], &[]),
    ];
    for (loads, capacities) in cases {
        let list: Vec<_> = (0..).take(loads.len()).map(Handle).collect();
        let placed = bounded::choose(&list, |h| loads[h.index()], |h| capacities[h.index()]);
        file.case(&ChosenCase {
            loads: loads.to_vec(),
            capacities: capacities.to_vec(),
            chosen: placed.map(|placed| placed.handle.0),
            over: placed.is_some_and(|placed| placed.over),
        });
    }
    file.text("capacity = ceil(bound x total / nodes); chosen = place in the list 0, 1, 2.. by loads and capacities")
}

// -- the files --------------------------------------------------------------------------------

fn all() -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("hashes.json", hashes()),
        ("tokens.json", token_cases()),
        ("walks.json", walks()),
        ("lookups.json", lookups()),
        ("slots.json", slots()),
        ("diffs.json", diffs()),
        ("log2.json", logs()),
        ("rendezvous.json", rendezvous()),
        ("jump.json", jumps()),
        ("ketama.json", ketamas()),
        ("bounded.json", bounds()),
    ])
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../vectors")
}

/// The files are what this build makes, to the bit; C07 rests on them.
#[test]
fn c07_vectors_are_what_this_build_makes() {
    for (name, made) in all() {
        let path = folder().join(name);
        if std::env::var_os("UPDATE_VECTORS").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        let (mut stored_lines, mut made_lines) = (stored.lines(), made.lines());
        for line in 1.. {
            let (stored, made) = (stored_lines.next(), made_lines.next());
            assert_eq!(
                stored, made,
                "vectors/{name}:{line}: a changed protocol, or `cargo x vectors`"
            );
            if made.is_none() {
                break;
            }
        }
        assert_eq!(stored, made, "vectors/{name} differs in its line ends");
    }
}

/// No file is there that nothing checks, and they stay small enough to be carried along.
#[test]
fn every_vector_file_is_checked() {
    let known = all();
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        assert!(
            known.contains_key(name.as_str()) || !name.ends_with(".json"),
            "vectors/{name} is made by nothing"
        );
        bytes += entry.metadata().unwrap().len();
    }
    assert!(bytes < 2_000_000, "{bytes} bytes");
}

/// C10: a parser that reads numbers as doubles changes nothing. Whatever may pass 2^53 is text.
#[test]
fn c10_vectors_survive_a_parser_of_doubles() {
    fn through_doubles(value: &serde_json::Value) {
        match value {
            serde_json::Value::Number(number) => {
                let exact = number.as_u64().unwrap();
                assert!(exact < 1 << 53, "{exact} is written as a number");
            }
            serde_json::Value::Array(values) => values.iter().for_each(through_doubles),
            serde_json::Value::Object(fields) => fields.values().for_each(through_doubles),
            _ => {}
        }
    }
    for text in all().values() {
        through_doubles(&serde_json::from_str(text).unwrap());
    }
    // The text is read back to the same token.
    for token in [0, 1, (1 << 53) + 1, u64::MAX] {
        assert_eq!(u64::from_str_radix(&hex(token), 16), Ok(token));
    }
}
