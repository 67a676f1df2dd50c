//! One server's settings: units, defaults, and what goes together.

use std::{
    net::SocketAddr,
    num::{NonZeroU32, NonZeroU64},
    path::PathBuf,
    time::Duration,
};

use annulus_ring::{Endpoint, NameError};
use serde::{Deserialize, Serialize};

/// Settings of one control-plane server, as a TOML file holds them.
///
/// Only `server_id`, `listen` and `data_dir` have no default:
///
/// ```
/// let config = annulus_control_plane::Config::from_toml(
///     "server_id = 1\nlisten = '127.0.0.1:7101'\ndata_dir = '/var/lib/annulus'",
/// )?;
/// assert_eq!(config.watch.progress_ms.get(), 5_000);
/// config.validate()?;
/// # Ok::<_, annulus_control_plane::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// This server's number, 1 or more. Never reused: a server whose directory is lost comes
    /// back under a new one.
    pub server_id: NonZeroU64,
    /// Where to listen. Port 0 takes a free one, which `Server::local_addr` tells.
    pub listen: SocketAddr,
    /// Where others reach this server, as `host:port`; absent: the address it listens on.
    /// Needed when it listens on an address that others cannot dial, such as `0.0.0.0`.
    #[serde(default)]
    pub advertise: Option<Endpoint>,
    /// The folder of log, votes and log snapshots. One server each.
    pub data_dir: PathBuf,
    /// Allow listening on addresses that others than this machine reach, without TLS: whoever
    /// reaches the port may then change every ring. Default false.
    #[serde(default)]
    pub insecure: bool,
    /// Where to serve `/metrics` over plain HTTP; absent: nowhere.
    #[serde(default)]
    pub metrics_listen: Option<SocketAddr>,
    /// Compaction of the log.
    #[serde(default)]
    pub log: LogConfig,
    /// Watch streams.
    #[serde(default)]
    pub watch: WatchConfig,
    /// Data nodes' links.
    #[serde(default)]
    pub link: LinkConfig,
    /// Bounds on what callers may cost.
    #[serde(default)]
    pub limits: LimitConfig,
}

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Entries between two log snapshots; default 5,000. Lower: less disk and a faster start;
    /// the price is writing the whole state more often.
    pub snapshot_every: NonZeroU64,
    /// Entries kept behind a log snapshot, so that a server that was away for a short time
    /// catches up from the log; default 10,000, and not below.
    pub keep_entries: NonZeroU64,
}

/// Settings of watch streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatchConfig {
    /// Between two signs of life on a stream, in ms; default 5,000. Readers give up after 15 s
    /// of silence, so not above 10,000.
    pub progress_ms: NonZeroU32,
    /// How long this server may hear no leader before it sends its readers elsewhere, in ms;
    /// default 5,000, at least 1,200: an election takes 600 and is no reason to leave.
    pub behind_ms: NonZeroU32,
    /// How long a reader that is ahead of this server is kept waiting, in ms; default 5,000.
    pub ahead_ms: NonZeroU32,
}

/// Settings of data nodes' links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkConfig {
    /// A link heard within this many ms is fresh: a second process under the same id is
    /// refused; default 3,000. Agents renew every second.
    pub fresh_ms: NonZeroU32,
    /// A link silent for this many ms is closed; default 15,000. Above `fresh_ms`.
    pub silent_ms: NonZeroU32,
}

/// Bounds on what callers may cost. The offender suffers first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitConfig {
    /// Watch streams open at once at this server; default 20,000.
    pub watch_streams: NonZeroU32,
    /// Calls and streams open at once on one connection; default 1,000.
    pub streams_per_connection: NonZeroU32,
    /// Longest a call of an operator may take here, in ms; default 10,000. Its own deadline
    /// applies where that is shorter.
    pub call_ms: NonZeroU32,
    /// Least time between two epochs of one ring that the leader makes by itself, in ms;
    /// default 250, which is four a second. Lower: changes end sooner; the price is every
    /// watcher taking in more snapshots.
    pub epoch_interval_ms: NonZeroU32,
}

const fn nz32(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).expect("defaults are not zero")
}
const fn nz64(value: u64) -> NonZeroU64 {
    NonZeroU64::new(value).expect("defaults are not zero")
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            snapshot_every: nz64(5_000),
            keep_entries: nz64(MIN_KEEP_ENTRIES),
        }
    }
}
impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            progress_ms: nz32(5_000),
            behind_ms: nz32(5_000),
            ahead_ms: nz32(5_000),
        }
    }
}
impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            fresh_ms: nz32(3_000),
            silent_ms: nz32(15_000),
        }
    }
}
impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            watch_streams: nz32(20_000),
            streams_per_connection: nz32(1_000),
            call_ms: nz32(10_000),
            epoch_interval_ms: nz32(250),
        }
    }
}

/// Below this the leader may purge entries that it is about to apply or send.
const MIN_KEEP_ENTRIES: u64 = 10_000;
/// The longest election, and room for a lost round.
const MIN_BEHIND_MS: u32 = 1_200;
/// Readers call a stream dead after 15 s of silence.
const MAX_PROGRESS_MS: u32 = 10_000;

/// Every key that a configuration file may hold; tables as `table.key`.
pub const KEYS: &[&str] = &[
    "server_id",
    "listen",
    "advertise",
    "data_dir",
    "insecure",
    "metrics_listen",
    "log",
    "log.snapshot_every",
    "log.keep_entries",
    "watch",
    "watch.progress_ms",
    "watch.behind_ms",
    "watch.ahead_ms",
    "link",
    "link.fresh_ms",
    "link.silent_ms",
    "limits",
    "limits.watch_streams",
    "limits.streams_per_connection",
    "limits.call_ms",
    "limits.epoch_interval_ms",
];

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key nobody reads: a typing error that would otherwise be a silent default.
    #[error("unknown key `{found}`; did you mean `{nearest}`?")]
    UnknownKey {
        /// As written, with its table.
        found: String,
        /// The known key most like it.
        nearest: &'static str,
    },
    /// Not TOML, a missing key, or a value of another type.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// Two fields that do not go together.
    #[error("{first} = {first_value} and {second} = {second_value}: {rule}")]
    Conflict {
        /// One field.
        first: &'static str,
        /// Its value.
        first_value: String,
        /// The other field.
        second: &'static str,
        /// Its value.
        second_value: String,
        /// What must hold between them.
        rule: &'static str,
    },
    /// One field that is out of bounds by itself.
    #[error("{field} = {value}: {rule}")]
    OutOfBounds {
        /// Which.
        field: &'static str,
        /// Its value.
        value: String,
        /// What must hold.
        rule: String,
    },
    /// The address to advertise is no endpoint.
    #[error("advertise: {0}")]
    Advertise(#[from] NameError),
}

impl Config {
    /// Settings with every default, for a server that listens on `listen`.
    #[must_use]
    pub fn new(server_id: NonZeroU64, listen: SocketAddr, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            server_id,
            listen,
            advertise: None,
            data_dir: data_dir.into(),
            insecure: false,
            metrics_listen: None,
            log: LogConfig::default(),
            watch: WatchConfig::default(),
            link: LinkConfig::default(),
            limits: LimitConfig::default(),
        }
    }

    /// Reads a configuration file's text. Does not validate: flags may still change it.
    ///
    /// # Errors
    /// [`ConfigError::UnknownKey`] names the nearest known key; [`ConfigError::Toml`] the line.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let table: toml::Table = toml::from_str(text)?;
        refuse_unknown(&table, "")?;
        Ok(toml::from_str(text)?)
    }

    /// Refuses impossible sets, naming both fields.
    ///
    /// # Errors
    /// [`ConfigError::Conflict`], [`ConfigError::OutOfBounds`] or [`ConfigError::Advertise`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_addresses()?;
        at_least(
            ("link.silent_ms", self.link.silent_ms.get()),
            ("link.fresh_ms", self.link.fresh_ms.get()),
            "a fresh link must not be closed for silence",
            self.link.fresh_ms.get(),
        )?;
        if self.log.keep_entries.get() < MIN_KEEP_ENTRIES {
            return Err(ConfigError::OutOfBounds {
                field: "log.keep_entries",
                value: self.log.keep_entries.to_string(),
                rule: format!("at least {MIN_KEEP_ENTRIES}"),
            });
        }
        if self.watch.behind_ms.get() < MIN_BEHIND_MS {
            return Err(ConfigError::OutOfBounds {
                field: "watch.behind_ms",
                value: self.watch.behind_ms.to_string(),
                rule: format!("at least {MIN_BEHIND_MS}: an election must not send readers away"),
            });
        }
        if self.watch.progress_ms.get() > MAX_PROGRESS_MS {
            return Err(ConfigError::OutOfBounds {
                field: "watch.progress_ms",
                value: self.watch.progress_ms.to_string(),
                rule: format!("at most {MAX_PROGRESS_MS}: readers give up after 15,000 of silence"),
            });
        }
        Ok(())
    }

    fn validate_addresses(&self) -> Result<(), ConfigError> {
        let open = [
            ("listen", Some(self.listen)),
            ("metrics_listen", self.metrics_listen),
        ]
        .into_iter()
        .find_map(|(field, address)| {
            address
                .filter(|address| !address.ip().is_loopback())
                .map(|found| (field, found))
        });
        if let (Some((first, address)), false) = (open, self.insecure) {
            return Err(ConfigError::Conflict {
                first,
                first_value: address.to_string(),
                second: "insecure",
                second_value: "false".to_owned(),
                rule: if first == "listen" {
                    "without TLS only loopback addresses are served; `insecure = true` serves \
                     others, and lets whoever reaches the port change every ring"
                } else {
                    "nothing protects it, so only loopback addresses are served; \
                     `insecure = true` serves others, and shows whoever reaches the port all counters"
                },
            });
        }
        if self.listen.ip().is_unspecified() && self.advertise.is_none() {
            return Err(ConfigError::Conflict {
                first: "listen",
                first_value: self.listen.to_string(),
                second: "advertise",
                second_value: "nothing".to_owned(),
                rule: "others cannot dial this address; say which one they can",
            });
        }
        if self
            .metrics_listen
            .is_some_and(|at| at == self.listen && at.port() != 0)
        {
            return Err(ConfigError::Conflict {
                first: "metrics_listen",
                first_value: self.listen.to_string(),
                second: "listen",
                second_value: self.listen.to_string(),
                rule: "they must be two addresses",
            });
        }
        Ok(())
    }

    /// Where others reach this server, once it is known where it listens.
    pub(crate) fn endpoint(&self, local: SocketAddr) -> Result<Endpoint, ConfigError> {
        match &self.advertise {
            Some(endpoint) => Ok(endpoint.clone()),
            None => Ok(Endpoint::new(local.to_string())?),
        }
    }
}

/// `what`'s value is at least the bound, or a conflict with the field that the bound is of.
fn at_least(
    what: (&'static str, u32),
    bound: (&'static str, u32),
    rule: &'static str,
    other_value: u32,
) -> Result<(), ConfigError> {
    if what.1 >= bound.1 {
        return Ok(());
    }
    Err(ConfigError::Conflict {
        first: what.0,
        first_value: what.1.to_string(),
        second: bound.0,
        second_value: other_value.to_string(),
        rule,
    })
}

fn refuse_unknown(table: &toml::Table, prefix: &str) -> Result<(), ConfigError> {
    for (key, value) in table {
        let path = if prefix.is_empty() {
            key.clone()
        } else {
            format!("{prefix}.{key}")
        };
        if !KEYS.contains(&path.as_str()) {
            return Err(ConfigError::UnknownKey {
                nearest: nearest(&path),
                found: path,
            });
        }
        if let toml::Value::Table(inner) = value {
            refuse_unknown(inner, &path)?;
        }
    }
    Ok(())
}

/// The known key most like `path`; a bare key is compared with keys of tables too.
fn nearest(path: &str) -> &'static str {
    let likeness = |known: &str| {
        let bare = known.rsplit('.').next().unwrap_or(known);
        strsim::normalized_damerau_levenshtein(known, path)
            .max(strsim::normalized_damerau_levenshtein(bare, path))
    };
    KEYS.iter()
        .copied()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .expect("there are known keys")
}

/// A field in ms as a duration.
pub(crate) fn ms(value: NonZeroU32) -> Duration {
    Duration::from_millis(u64::from(value.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "server_id = 1\nlisten = '127.0.0.1:7101'\ndata_dir = 'data'\n";

    fn config(more: &str) -> Result<Config, ConfigError> {
        Config::from_toml(&format!("{BASE}{more}"))
    }

    #[test]
    fn a_small_file_takes_every_default() {
        let config = config("").unwrap();
        assert_eq!(
            config,
            Config::new(nz64(1), "127.0.0.1:7101".parse().unwrap(), "data")
        );
        config.validate().unwrap();
    }

    #[test]
    fn every_known_key_is_read_and_written() {
        let mut whole = config("").unwrap();
        whole.advertise = Some(Endpoint::new("a:1").unwrap());
        whole.metrics_listen = Some("127.0.0.1:9000".parse().unwrap());
        let table: toml::Table = toml::from_str(&toml::to_string(&whole).unwrap()).unwrap();
        let mut found = Vec::new();
        for (key, value) in &table {
            found.push(key.clone());
            if let toml::Value::Table(inner) = value {
                found.extend(inner.keys().map(|inner| format!("{key}.{inner}")));
            }
        }
        found.sort();
        let mut known: Vec<String> = KEYS.iter().map(|&key| key.to_owned()).collect();
        known.sort();
        assert_eq!(found, known);
    }

    #[test]
    fn unknown_keys_name_the_nearest_known_one() {
        for (line, expected) in [
            ("data_dri = 'x'", "data_dir"),
            ("keep_entrys = 5", "log.keep_entries"),
            ("[watch]\nprogres_ms = 5", "watch.progress_ms"),
            ("[lgo]\nkeep_entries = 5", "log"),
        ] {
            let Err(ConfigError::UnknownKey { nearest, .. }) = config(line) else {
                panic!("{line} was taken");
            };
            assert_eq!(nearest, expected, "{line}");
        }
    }

    #[test]
    fn impossible_sets_are_refused_by_both_names() {
        for (lines, first, second) in [
            ("[link]\nsilent_ms = 10", "link.silent_ms", "link.fresh_ms"),
            (
                "metrics_listen = '127.0.0.1:7101'",
                "metrics_listen",
                "listen",
            ),
            (
                "metrics_listen = '0.0.0.0:9000'",
                "metrics_listen",
                "insecure",
            ),
        ] {
            let message = config(lines).unwrap().validate().unwrap_err().to_string();
            assert!(
                message.contains(first) && message.contains(second),
                "{lines}: {message}"
            );
        }
        assert!(
            config("[watch]\nbehind_ms = 5")
                .unwrap()
                .validate()
                .is_err()
        );
        assert!(
            config("[log]\nkeep_entries = 5")
                .unwrap()
                .validate()
                .is_err()
        );
        assert!(config("[link]\nfresh_ms = 0").is_err());
    }

    #[test]
    fn only_loopback_is_served_without_a_word() {
        let mut open = config("").unwrap();
        open.listen = "0.0.0.0:7101".parse().unwrap();
        let message = open.validate().unwrap_err().to_string();
        assert!(message.contains("insecure"), "{message}");
        open.insecure = true;
        let message = open.validate().unwrap_err().to_string();
        assert!(message.contains("advertise"), "{message}");
        open.advertise = Some(Endpoint::new("server-1.example:7101").unwrap());
        open.validate().unwrap();
    }
}
