//! One Redis-protocol server: the few commands that moving entries takes. Calls block.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use redis::{Client, Connection, ConnectionLike as _, RedisError, RedisResult, Value, cmd, pipe};

use crate::entry::Entry;

/// Keys that are this crate's own, in every server.
pub(crate) const OWN_PREFIX: &[u8] = b"annulus:";
/// Of a key that was just deleted at a gainer: an older entry under way does not bring it back.
const GONE_PREFIX: &[u8] = b"annulus:gone:";
/// How long a deletion is remembered there, in ms: longer than an entry is under way.
const GONE_MS: u64 = 60_000;
/// Keys asked for in one round of `SCAN`, entries in one pipeline.
const BATCH: usize = 500;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Connections kept for the next call.
const KEPT: usize = 8;

/// Restores an entry unless a newer one is there or the key was deleted meanwhile; 0 then, and -1
/// where the server cannot read the dump (it is older than the one that wrote it). PEXPIRE looks
/// whether the mark is there without counting as a lookup in the server's hits and misses.
const RESTORE: &str = r"
if redis.call('PEXPIRE', KEYS[2], ARGV[3]) == 1 then return 0 end
local done = redis.pcall('RESTORE', KEYS[1], ARGV[1], ARGV[2])
if type(done) == 'table' and done.err then
  if string.find(done.err, 'BUSYKEY') then return 0 end
  return -1
end
return 1
";

/// Why a server did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("redis server {url}: {doing}: {source}")]
pub struct ServerError {
    url: String,
    doing: &'static str,
    source: RedisError,
}

/// One server, with a few connections to it.
#[derive(Debug)]
pub(crate) struct Server {
    url: String,
    client: Client,
    idle: Mutex<Vec<Kept>>,
}

struct Kept(Connection);

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

/// How many entries came in, and how many could not be read here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restored {
    pub taken: usize,
    pub unreadable: usize,
}

impl Server {
    /// `host:port`, or a whole `redis://` URL. Connects at the first call.
    pub(crate) fn new(address: &str) -> Result<Self, ServerError> {
        let url = match address.contains("://") {
            true => address.to_owned(),
            false => format!("redis://{address}"),
        };
        let client = Client::open(url.as_str()).map_err(|source| ServerError {
            url: url.clone(),
            doing: "read its address",
            source,
        })?;
        Ok(Self {
            url,
            client,
            idle: Mutex::default(),
        })
    }

    fn connect(&self) -> RedisResult<Connection> {
        let connection = self.client.get_connection_with_timeout(TIMEOUT)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_write_timeout(Some(TIMEOUT))?;
        Ok(connection)
    }

    fn with<T>(
        &self,
        doing: &'static str,
        call: impl FnOnce(&mut Connection) -> RedisResult<T>,
    ) -> Result<T, ServerError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let run = || {
            let mut connection = match kept {
                // A server that was restarted has closed it.
                Some(Kept(connection)) if connection.is_open() => connection,
                Some(_) | None => self.connect()?,
            };
            let done = call(&mut connection)?;
            let mut idle = idle();
            if idle.len() < KEPT {
                idle.push(Kept(connection));
            }
            Ok(done)
        };
        // After an error the connection is dropped: its answers may be another call's.
        run().map_err(|source| ServerError {
            url: self.url.clone(),
            doing,
            source,
        })
    }

    /// Every key of database 0 that is not this crate's own, once at least. One pass.
    pub(crate) fn scan(&self, mut each: impl FnMut(Bytes)) -> Result<(), ServerError> {
        let mut cursor: u64 = 0;
        loop {
            let page: (u64, Vec<Vec<u8>>) = self.with("scan its keys", |connection| {
                cmd("SCAN")
                    .arg(cursor)
                    .arg("COUNT")
                    .arg(BATCH)
                    .query(connection)
            })?;
            for key in page.1 {
                if !key.starts_with(OWN_PREFIX) {
                    each(key.into());
                }
            }
            cursor = page.0;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// The entries of these keys, in order; none where a key is gone.
    pub(crate) fn dump(&self, keys: &[Bytes]) -> Result<Vec<Option<Entry>>, ServerError> {
        let mut entries = Vec::with_capacity(keys.len());
        for keys in keys.chunks(BATCH) {
            let mut asked = pipe();
            for key in keys {
                asked.cmd("DUMP").arg(&key[..]);
                asked.cmd("PTTL").arg(&key[..]);
            }
            let told: Vec<Value> =
                self.with("dump entries", |connection| asked.query(connection))?;
            entries.extend(told.chunks(2).map(entry));
        }
        Ok(entries)
    }

    /// Takes entries in; see [`RESTORE`].
    pub(crate) fn restore(&self, entries: &[(Bytes, Entry)]) -> Result<Restored, ServerError> {
        let mut restored = Restored::default();
        for entries in entries.chunks(BATCH) {
            let mut asked = pipe();
            for (key, entry) in entries {
                asked
                    .cmd("EVAL")
                    .arg(RESTORE)
                    .arg(2)
                    .arg(&key[..])
                    .arg(gone(key))
                    .arg(entry.ttl_ms)
                    .arg(&entry.dump[..])
                    .arg(GONE_MS);
            }
            let told: Vec<i64> =
                self.with("restore entries", |connection| asked.query(connection))?;
            restored.taken += told.iter().filter(|one| **one == 1).count();
            restored.unreadable += told.iter().filter(|one| **one < 0).count();
        }
        Ok(restored)
    }

    /// Deletes keys without waiting for their memory.
    pub(crate) fn unlink(&self, keys: &[Bytes]) -> Result<(), ServerError> {
        for keys in keys.chunks(BATCH) {
            let mut asked = cmd("UNLINK");
            keys.iter().for_each(|key| {
                asked.arg(&key[..]);
            });
            self.with("delete entries", |connection| {
                asked.query::<i64>(connection)
            })?;
        }
        Ok(())
    }

    /// Deletes a key; with `mark`, an older entry under way does not bring it back.
    pub(crate) fn delete(&self, key: &[u8], mark: bool) -> Result<(), ServerError> {
        let mut asked = pipe();
        asked.atomic();
        if mark {
            let one = asked.cmd("SET").arg(gone(key)).arg(1);
            one.arg("PX").arg(GONE_MS).ignore();
        }
        asked.cmd("DEL").arg(key).ignore();
        self.with("delete a key", |connection| asked.query::<()>(connection))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ServerError> {
        let found: Option<Vec<u8>> = self.with("get a key", |connection| {
            cmd("GET").arg(key).query(connection)
        })?;
        Ok(found.map(Bytes::from))
    }

    pub(crate) fn set(
        &self,
        key: &[u8],
        value: &[u8],
        ttl: Option<Duration>,
    ) -> Result<(), ServerError> {
        let mut asked = cmd("SET");
        asked.arg(key).arg(value);
        if let Some(ttl) = ttl {
            let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
            asked.arg("PX").arg(ms);
        }
        self.with("set a key", |connection| asked.query::<()>(connection))
    }

    /// Whether a key is there: a lookup that counts among the server's hits or misses.
    pub(crate) fn has(&self, key: &[u8]) -> Result<bool, ServerError> {
        self.with("look a key up", |connection| {
            cmd("EXISTS").arg(key).query(connection)
        })
    }

    /// Lookups since it started: (hits, misses).
    pub(crate) fn lookups(&self) -> Result<(u64, u64), ServerError> {
        let text: String = self.with("read its statistics", |connection| {
            cmd("INFO").arg("stats").query(connection)
        })?;
        Ok((stat(&text, "keyspace_hits"), stat(&text, "keyspace_misses")))
    }
}

/// The key of the mark that says that `key` was deleted.
fn gone(key: &[u8]) -> Vec<u8> {
    [GONE_PREFIX, key].concat()
}

/// What `DUMP` and `PTTL` said of one key.
fn entry(told: &[Value]) -> Option<Entry> {
    match told {
        [Value::BulkString(dump), Value::Int(ttl)] => {
            let dump = Bytes::copy_from_slice(dump);
            match u64::try_from(*ttl) {
                // Less than a millisecond is left; 0 would mean for ever.
                Ok(ttl) => Some(Entry {
                    ttl_ms: ttl.max(1),
                    dump,
                }),
                Err(_) if *ttl == -1 => Some(Entry { ttl_ms: 0, dump }),
                // It expired between the two commands.
                Err(_) => None,
            }
        }
        _ => None,
    }
}

fn stat(text: &str, name: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.filter(|(field, _)| *field == name);
    let mut numbers = found.filter_map(|(_, number)| number.trim().parse().ok());
    numbers.next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_kept_and_an_entry_without_one_stays_without() {
        let dump = || Value::BulkString(b"d".to_vec());
        let ttl = |ttl| entry(&[dump(), Value::Int(ttl)]).map(|entry| entry.ttl_ms);
        assert_eq!(ttl(1_500), Some(1_500));
        assert_eq!(ttl(0), Some(1), "0 would be for ever");
        assert_eq!(ttl(-1), Some(0));
        assert_eq!(ttl(-2), None, "gone between the two commands");
        assert_eq!(entry(&[Value::Nil, Value::Int(-2)]), None);
    }

    #[test]
    fn statistics_are_read_by_name() {
        let text = "# Stats\r\nkeyspace_hits:12\r\nkeyspace_misses:3\r\n";
        assert_eq!(stat(text, "keyspace_hits"), 12);
        assert_eq!(stat(text, "keyspace_misses"), 3);
        assert_eq!(stat(text, "absent"), 0);
    }
}
