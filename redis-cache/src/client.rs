//! A client of the fleet: reads at the owner, writes and invalidations wherever a key may be read.

use std::{collections::BTreeMap, time::Duration};

use annulus_client::{Client, LookupError};
use annulus_ring::{Handle, Lookup, NodeId, Slot, Step};
use bytes::Bytes;

use crate::server::{Server, ServerError};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The ring has no snapshot yet, or the key's range no owner.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The ring names a node of which no server address was given.
    #[error("node {node} of the ring has no server address here; give one")]
    UnknownServer {
        /// Which.
        node: NodeId,
    },
    /// Nobody who may serve the key answered.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Some of the servers that may serve the key did not take the write or the invalidation: what
    /// they hold of it may be old. Try again, or let its TTL end it.
    #[error("{done} of {of} servers took it; the last that did not: {source}")]
    Partial {
        /// Took it.
        done: usize,
        /// Should have.
        of: usize,
        /// Why one did not.
        source: ServerError,
    },
}

/// Routes keys of one cache ring to Redis-protocol servers. Calls block.
#[derive(Debug)]
pub struct CacheClient {
    ring: Client,
    servers: BTreeMap<NodeId, Server>,
}

impl CacheClient {
    /// A client over the ring's router and the address (`host:port` or URL) of each node's server.
    ///
    /// # Errors
    /// [`CacheError::Server`] where an address is none.
    pub fn new(
        ring: Client,
        servers: impl IntoIterator<Item = (NodeId, String)>,
    ) -> Result<Self, CacheError> {
        let servers = servers
            .into_iter()
            .map(|(node, address)| Ok((node, Server::new(&address)?)))
            .collect::<Result<_, ServerError>>()?;
        Ok(Self { ring, servers })
    }

    fn server(&self, lookup: &Lookup, handle: Handle) -> Result<(&NodeId, &Server), CacheError> {
        let member = lookup.member(handle);
        let node = &member
            .expect("a checked snapshot has a member for every handle")
            .node_id;
        match self.servers.get_key_value(node) {
            Some(known) => Ok(known),
            None => Err(CacheError::UnknownServer { node: node.clone() }),
        }
    }

    /// The value of a key: from its owner, or the next of its list where that does not answer. While
    /// the key's range is warmed up, an entry that its gainer lacks is given to it.
    ///
    /// # Errors
    /// [`CacheError`] but for `Partial`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, CacheError> {
        let route = self.ring.lookup(key)?;
        let (lookup, slot) = (route.lookup(), route.slot);
        let mut unreached = None;
        for handle in route.handles() {
            let (_, server) = self.server(lookup, *handle)?;
            match server.get(key) {
                Ok(found) => {
                    if found.is_some() {
                        self.warm(lookup, slot, key, server);
                    }
                    return Ok(found);
                }
                Err(error) => unreached = Some(error),
            }
        }
        match unreached {
            Some(error) => Err(error.into()),
            None => Ok(None),
        }
    }

    /// Gives an entry to the gainers of its range that lack it: what is read is what should be warm.
    fn warm(&self, lookup: &Lookup, slot: Slot, key: &[u8], from: &Server) {
        let sets = lookup.sets(slot);
        let warms = sets
            .step
            .is_some_and(|step| (Step::Copying..Step::Switched).contains(&step));
        if !warms {
            return;
        }
        for gainer in sets.gainers() {
            let Ok((node, server)) = self.server(lookup, gainer) else {
                continue;
            };
            let given = server.has(key).and_then(|there| {
                if there {
                    return Ok(());
                }
                let key = Bytes::copy_from_slice(key);
                let entry = from.dump(std::slice::from_ref(&key))?.pop().flatten();
                let entries: Vec<_> = entry
                    .into_iter()
                    .map(|entry| (key.clone(), entry))
                    .collect();
                server.restore(&entries).map(drop)
            });
            if let Err(error) = given {
                // The reader has its answer; the gainer stays a little colder.
                tracing::debug!(%error, %node, "an entry was not given to a gainer");
            }
        }
    }

    /// Sets a key wherever it may be read, before and after a switch that runs. Without `ttl` it
    /// lives until evicted.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn set(&self, key: &[u8], value: &[u8], ttl: Option<Duration>) -> Result<(), CacheError> {
        self.everywhere(key, |server, _| server.set(key, value, ttl))
    }

    /// Invalidates a key wherever it may be read, before and after a switch that runs; an entry that
    /// is being copied does not bring it back.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn delete(&self, key: &[u8]) -> Result<(), CacheError> {
        self.everywhere(key, |server, moves| server.delete(key, moves))
    }

    /// Calls every server of the key's write set, owner first. The closure is told whether the key's
    /// range moves.
    fn everywhere(
        &self,
        key: &[u8],
        call: impl Fn(&Server, bool) -> Result<(), ServerError>,
    ) -> Result<(), CacheError> {
        let route = self.ring.lookup(key)?;
        let lookup = route.lookup();
        let sets = lookup.sets(route.slot);
        let moves = sets.step.is_some();
        let write_set = sets.write_set();
        let (mut done, mut missed) = (0, None);
        for handle in &write_set {
            let (_, server) = self.server(lookup, *handle)?;
            match call(server, moves) {
                Ok(()) => done += 1,
                Err(source) => missed = Some(source),
            }
        }
        match missed {
            None => Ok(()),
            Some(source) if done == 0 => Err(source.into()),
            Some(source) => Err(CacheError::Partial {
                done,
                of: write_set.len(),
                source,
            }),
        }
    }
}
