//! What a client can be told, with the price of each choice.

use std::{fmt::Display, path::PathBuf, time::Duration};

use annulus_proto::convert::MAX_WATCHER_BYTES;
use annulus_ring::{ClusterId, Endpoint, RingName};

use crate::{client::Client, dial::Dial, error::ConfigError};

/// Every setting of a [`Client`]; [`Builder`] makes one.
#[derive(Clone, Debug)]
pub struct Config {
    /// The ring to route by.
    pub ring: RingName,
    /// Servers of the control plane, in any order; one is enough, all are better: the watch
    /// picks at random among those that work.
    pub endpoints: Vec<Endpoint>,
    /// Folder of the last good snapshot, created when missing. Default none: then a start needs
    /// a control plane. Programs may share it; the last writer wins.
    pub cache_dir: Option<PathBuf>,
    /// Free text that operators see in status, such as program and host; at most 128 bytes.
    pub name: String,
    /// The only cluster whose snapshots are taken. Default none: the first snapshot tells it,
    /// and it stays for the life of the client.
    pub cluster_id: Option<ClusterId>,
    /// How connections are made.
    pub dial: Dial,
    /// How long a stream may be silent before it counts as broken; any event counts as life.
    /// Default 15 s: three of the servers' progress messages. Lower it to notice a half-open
    /// stream sooner, at the price of reconnecting when a server only pauses.
    pub silence: Duration,
    /// Ceiling of the first pause between tries; the pause is drawn below it. Default 100 ms.
    pub backoff_base: Duration,
    /// Ceiling of every later pause. Default 5 s. Raise it for many thousands of clients; the
    /// price is how long they may take to find a control plane that came back.
    pub backoff_cap: Duration,
    /// How long an open stream may take to bring an epoch that a data node already has before
    /// another server is asked. Default 250 ms.
    pub refresh_patience: Duration,
    /// Least time between two such changes of server: however many answers are stale, and
    /// whatever epoch they claim. Default 1 s.
    pub refresh_interval: Duration,
    /// Seed of jitter and of the order of endpoints; only for simulations that run twice.
    pub seed: Option<u64>,
}

impl Config {
    /// Settings as the fields' docs say.
    #[must_use]
    pub fn new(ring: RingName, endpoints: Vec<Endpoint>) -> Self {
        Self {
            ring,
            endpoints,
            cache_dir: None,
            name: concat!("annulus-client ", env!("CARGO_PKG_VERSION")).to_owned(),
            cluster_id: None,
            dial: Dial::default(),
            silence: Duration::from_secs(15),
            backoff_base: Duration::from_millis(100),
            backoff_cap: Duration::from_secs(5),
            refresh_patience: Duration::from_millis(250),
            refresh_interval: Duration::from_secs(1),
            seed: None,
        }
    }

    /// Refuses what cannot work.
    ///
    /// # Errors
    /// [`ConfigError`], which names the setting.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.endpoints.is_empty() {
            return Err(ConfigError::NoEndpoints);
        }
        for endpoint in &self.endpoints {
            self.dial.check(endpoint)?;
        }
        let setting = |setting, why| Err(ConfigError::Setting { setting, why });
        if self.name.len() > MAX_WATCHER_BYTES || self.name.chars().any(char::is_control) {
            return setting(
                "name",
                "at most 128 bytes without control characters are allowed",
            );
        }
        if self.silence.is_zero() {
            return setting("silence", "zero would end every stream at once");
        }
        if self.backoff_base.is_zero() {
            return setting(
                "backoff_base",
                "zero would be a busy loop while servers are down",
            );
        }
        if self.backoff_cap < self.backoff_base {
            return setting("backoff_cap", "must be at least backoff_base");
        }
        Ok(())
    }
}

/// Builds a [`Client`]; see [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before `connect_lazy`"]
pub struct Builder {
    ring: String,
    endpoints: Vec<String>,
    change: Config,
}

impl Builder {
    pub(crate) fn new(ring: impl Display) -> Self {
        // The name is checked in `build`; until then any valid one holds the place.
        let place = RingName::new("ring").expect("a plain word is a valid name");
        Self {
            ring: ring.to_string(),
            endpoints: Vec::new(),
            change: Config::new(place, Vec::new()),
        }
    }

    /// Adds servers of the control plane, as `host:port` (with or without `http://`).
    pub fn endpoints(mut self, endpoints: impl IntoIterator<Item = impl Display>) -> Self {
        self.endpoints
            .extend(endpoints.into_iter().map(|endpoint| endpoint.to_string()));
        self
    }

    /// Keeps the last good snapshot in this folder and starts from it.
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.change.cache_dir = Some(dir.into());
        self
    }

    /// What operators see in status.
    pub fn name(mut self, name: impl Display) -> Self {
        self.change.name = name.to_string();
        self
    }

    /// Takes snapshots of this cluster only.
    pub fn cluster_id(mut self, cluster_id: ClusterId) -> Self {
        self.change.cluster_id = Some(cluster_id);
        self
    }

    /// Replaces how connections are made.
    pub fn dial(mut self, dial: Dial) -> Self {
        self.change.dial = dial;
        self
    }

    /// Replaces the silence deadline.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.change.silence = silence;
        self
    }

    /// Replaces the first and the largest ceiling of pauses between tries.
    pub fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        (self.change.backoff_base, self.change.backoff_cap) = (base, cap);
        self
    }

    /// Replaces the patience with an open stream, and the least time between two changes of
    /// server, when a data node is known to have a newer epoch.
    pub fn refresh(mut self, patience: Duration, interval: Duration) -> Self {
        (self.change.refresh_patience, self.change.refresh_interval) = (patience, interval);
        self
    }

    /// Seeds jitter and the order of endpoints, for simulations.
    pub fn seed(mut self, seed: u64) -> Self {
        self.change.seed = Some(seed);
        self
    }

    /// The checked settings.
    ///
    /// # Errors
    /// [`ConfigError`], which names what is wrong.
    pub fn build(self) -> Result<Config, ConfigError> {
        let endpoints = self.endpoints.iter().map(|text| parse_endpoint(text));
        let config = Config {
            ring: RingName::new(&self.ring)?,
            endpoints: endpoints.collect::<Result<_, _>>()?,
            ..self.change
        };
        config.validate()?;
        Ok(config)
    }

    /// Starts the client: reads the last file, if there is one, and begins to watch. Contacts
    /// nobody before it returns; [`Client::ready`] waits for the first snapshot.
    ///
    /// Reading the file blocks for as long as the disk takes.
    ///
    /// # Errors
    /// [`ConfigError`], which names what is wrong; [`ConfigError::NoRuntime`] outside tokio.
    pub fn connect_lazy(self) -> Result<Client, ConfigError> {
        Client::start(self.build()?)
    }
}

/// An endpoint as people write it.
pub(crate) fn parse_endpoint(text: &str) -> Result<Endpoint, ConfigError> {
    let bare = text.trim();
    let bare = bare.strip_prefix("http://").unwrap_or(bare);
    Ok(Endpoint::new(bare.strip_suffix('/').unwrap_or(bare))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_settings_are_named() {
        let good = || Builder::new("cache").endpoints(["127.0.0.1:7000", "http://[::1]:7001/"]);
        assert!(good().build().is_ok());
        let message = |builder: Builder| builder.build().unwrap_err().to_string();
        assert!(message(Builder::new("cache")).contains("no endpoint"));
        assert!(message(Builder::new("").endpoints(["a:1"])).contains("ring name is empty"));
        assert!(message(good().endpoints(["a"])).contains("not host:port"));
        assert!(message(good().endpoints(["a%:1"])).contains("a%:1"));
        assert!(message(good().name("x".repeat(129))).starts_with("name"));
        assert!(message(good().name("a\nb")).starts_with("name"));
        assert!(message(good().silence(Duration::ZERO)).starts_with("silence"));
        let (zero, second) = (Duration::ZERO, Duration::from_secs(1));
        assert!(message(good().backoff(zero, second)).starts_with("backoff_base"));
        assert!(message(good().backoff(second * 2, second)).starts_with("backoff_cap"));
    }
}
