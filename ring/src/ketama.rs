//! The `ketama` layout: the continuum of memcached clients, so that a fleet can be taken over
//! without moving a key.
//!
//! A circle of u32. Point group g of a server is the MD5 of `name-g`, whose 16 bytes are four
//! points, each little-endian. A key belongs to the first point at or after the first 4 bytes,
//! little-endian, of its MD5; past the last point it wraps to the first.
//!
//! | client | name | groups of 4 points | equal points |
//! |---|---|---|---|
//! | libmemcached with `KETAMA_WEIGHTED` (pylibmc `ketama_weighted`) | `host:port`, `host` for port 11211 | the weighted rule | the first server's |
//! | twemproxy, `distribution: ketama` | the same, or the name in its file | the weighted rule | the first server's |
//! | spymemcached, `KetamaNodeLocator` | `ip:port` or `host/ip:port` | 40 at equal weights, else the weighted rule | the last server's |
//!
//! *The weighted rule*: `floor(weight / total x 160 / 4 x servers)`, each step in single precision,
//! so that some numbers of equal servers get 39 groups and not 40. It is done here with integers
//! and the same roundings. First and last refer to the order in which servers are given; it
//! decides nothing else.
//!
//! twemproxy hashes keys as its file says, by default with its own shortened FNV-1a:
//! [`twemproxy_fnv1a_64`]. libmemcached's unweighted `KETAMA` is another continuum and not offered.
//!
//! (Jones: libketama, 2007. Checked against libmemcached 1.1.4, twemproxy 0.5.0 and spymemcached
//! 2.12.3: `tests/fixtures/ketama`. Two servers have an equal point in none of those fleets, so
//! the last column is how the clients are built and not what they were seen to do.)

use md5::{Digest, Md5};

use crate::{Handle, Weight, rounding::Rounded};

/// Points of a server, were all weights equal and nothing rounded.
pub const POINTS_PER_SERVER: u64 = 160;
/// The port that clients leave out of a server's name.
pub const DEFAULT_PORT: u16 = 11_211;

/// Whose continuum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KetamaClient {
    /// libmemcached with `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`, and what is built on it.
    #[default]
    Libmemcached,
    /// twemproxy (nutcracker). The same continuum as libmemcached's.
    Twemproxy,
    /// spymemcached's `KetamaNodeLocator`.
    Spymemcached,
}

/// A cache server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KetamaServer {
    /// As the client writes it; see [`server_name`].
    pub name: String,
    /// Its number.
    pub handle: Handle,
    /// Its share; 0 owns nothing and is not counted as a server.
    pub weight: Weight,
}

/// Points and whose they are. Memory: 8 bytes per point, about 1,280 per server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ketama {
    /// Sorted by point, each once.
    points: Vec<(u32, Handle)>,
}

/// Why there is no continuum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KetamaError {
    /// Nobody has weight, or every share is below one group of points.
    #[error("no eligible server: no weight gives a single point")]
    NoEligibleServer,
    /// Two servers have one handle, or one has the handle that pads lists.
    #[error("handle {handle} is given to two servers, or reserved")]
    Handle {
        /// The offending handle.
        handle: u16,
    },
    /// Two servers have one name.
    #[error("server {name:?} is listed twice")]
    Twice {
        /// The offending name.
        name: String,
    },
}

/// A server's name as libmemcached and twemproxy write it: without the port if it is 11211.
#[must_use]
pub fn server_name(host: &str, port: u16) -> String {
    match port {
        DEFAULT_PORT => host.to_owned(),
        port => format!("{host}:{port}"),
    }
}

impl Ketama {
    /// The continuum of `servers`, in the client's order.
    ///
    /// # Errors
    /// The first [`KetamaError`] found.
    pub fn new(client: KetamaClient, servers: &[KetamaServer]) -> Result<Self, KetamaError> {
        let mut handles: Vec<_> = servers.iter().map(|server| server.handle).collect();
        if let Err(crate::tokens::TokensError::Handle { handle }) =
            crate::tokens::distinct(&mut handles)
        {
            return Err(KetamaError::Handle { handle });
        }
        let mut names: Vec<_> = servers.iter().map(|server| &server.name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let name = pair[0].clone();
            return Err(KetamaError::Twice { name });
        }
        let eligible: Vec<_> = servers
            .iter()
            .filter(|server| server.weight.get() > 0)
            .collect();
        let total = eligible
            .iter()
            .map(|server| u64::from(server.weight.get()))
            .sum();
        let equal = eligible
            .windows(2)
            .all(|pair| pair[0].weight == pair[1].weight);

        let mut points = Vec::new();
        for server in &eligible {
            let groups = match client {
                KetamaClient::Spymemcached if equal => POINTS_PER_SERVER / 4,
                _ => groups(server.weight, total, eligible.len() as u64),
            };
            for group in 0..groups {
                let digest = Md5::digest(format!("{}-{group}", server.name));
                let (quarters, _) = digest.as_slice().as_chunks::<4>();
                let point = |bytes: &[u8; 4]| (u32::from_le_bytes(*bytes), server.handle);
                points.extend(quarters.iter().map(point));
            }
        }
        // The sort is stable, so equal points are still in the order of the servers.
        match client {
            KetamaClient::Libmemcached | KetamaClient::Twemproxy => {}
            KetamaClient::Spymemcached => points.reverse(),
        }
        points.sort_by_key(|(point, _)| *point);
        points.dedup_by_key(|(point, _)| *point);
        if points.is_empty() {
            return Err(KetamaError::NoEligibleServer);
        }
        Ok(Self { points })
    }

    /// Sorted by point, each once, never empty.
    #[must_use]
    pub fn points(&self) -> &[(u32, Handle)] {
        &self.points
    }

    /// The owner of `key`. One MD5 and a binary search.
    #[must_use]
    pub fn owner(&self, key: &[u8]) -> Handle {
        self.owner_of_hash(md5_32(key))
    }

    /// The owner of a hash that the client made in its own way.
    #[must_use]
    pub fn owner_of_hash(&self, hash: u32) -> Handle {
        let at = self.points.partition_point(|(point, _)| *point < hash);
        self.points.get(at).unwrap_or(&self.points[0]).1
    }
}

/// Groups of four points under the weighted rule.
fn groups(weight: Weight, total: u64, servers: u64) -> u64 {
    let single = Rounded::<24>::of;
    let share = single(weight.get().into()).over(single(total));
    // x 160 / 4: dividing by a power of two never rounds, so the order of the two is free.
    let groups = share.times(single(POINTS_PER_SERVER)).over(single(4));
    groups.times(single(servers)).floor()
}

/// How the clients hash a key: first 4 bytes, little-endian, of its MD5.
#[must_use]
pub fn md5_32(key: &[u8]) -> u32 {
    let digest = Md5::digest(key);
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// twemproxy's `fnv1a_64`, its default for keys: FNV-1a in 32 bits with the lower halves of the
/// basis and the prime of 64 bits.
#[must_use]
pub fn twemproxy_fnv1a_64(key: &[u8]) -> u32 {
    key.iter().fold(0x8422_2325, |state: u32, byte| {
        (state ^ u32::from(*byte)).wrapping_mul(0x0000_01b3)
    })
}
