//! How a connection is made: injectable, with a connect timeout and HTTP/2 keepalive.

use std::{fmt, sync::Arc, time::Duration};

use annulus_ring::Endpoint;
use tonic::transport::{self, Channel};

/// Bounds of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialSettings {
    /// How long a connection may take to come up. Default 1 s. Raise it for far networks; the
    /// price is that a black-holed endpoint costs this much before the next one is tried.
    pub connect_timeout: Duration,
    /// How long a connection may be quiet before a ping is sent. Default 5 s. Lower it to notice
    /// a half-open connection sooner, at the price of more pings.
    pub keepalive_interval: Duration,
    /// How long the answer to a ping may take before the connection counts as broken.
    /// Default 5 s.
    pub keepalive_timeout: Duration,
}

impl Default for DialSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(1),
            keepalive_interval: Duration::from_secs(5),
            keepalive_timeout: Duration::from_secs(5),
        }
    }
}

/// An endpoint that no connection can be made to, whoever listens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("endpoint {endpoint} cannot be dialled: {why}; expected host:port")]
pub struct DialError {
    /// The endpoint as given.
    pub endpoint: Endpoint,
    /// What the URI parser said.
    pub why: String,
}

type Make = dyn Fn(transport::Endpoint) -> Channel + Send + Sync;

/// A function from an address to a channel, passed in wherever this library (and the agent)
/// opens a connection, so that a test can replace the network.
#[derive(Clone)]
pub struct Dial {
    settings: DialSettings,
    make: Arc<Make>,
}

impl Dial {
    /// Plain TCP.
    #[must_use]
    pub fn tcp(settings: DialSettings) -> Self {
        Self::new(settings, |address| address.connect_lazy())
    }

    /// Another network: `make` gets the address with every setting of `settings` on it, and
    /// answers a channel that connects at its first call
    /// ([`transport::Endpoint::connect_with_connector_lazy`]).
    pub fn new(
        settings: DialSettings,
        make: impl Fn(transport::Endpoint) -> Channel + Send + Sync + 'static,
    ) -> Self {
        Self {
            settings,
            make: Arc::new(make),
        }
    }

    /// The bounds in force.
    #[must_use]
    pub fn settings(&self) -> &DialSettings {
        &self.settings
    }

    /// Whether `endpoint` can be dialled at all; contacts nobody.
    ///
    /// # Errors
    /// [`DialError`] when it is no URI's authority.
    pub fn check(&self, endpoint: &Endpoint) -> Result<(), DialError> {
        self.address(endpoint).map(drop)
    }

    /// A channel that connects at its first call, and again after it broke.
    ///
    /// # Errors
    /// [`DialError`] when `endpoint` is no URI's authority, or outside a tokio runtime, in which
    /// the connection lives. Nothing is contacted here.
    pub fn channel(&self, endpoint: &Endpoint) -> Result<Channel, DialError> {
        let address = self.address(endpoint)?;
        if tokio::runtime::Handle::try_current().is_err() {
            let why = "no tokio runtime here".to_owned();
            return Err(DialError {
                endpoint: endpoint.clone(),
                why,
            });
        }
        Ok((self.make)(address))
    }

    fn address(&self, endpoint: &Endpoint) -> Result<transport::Endpoint, DialError> {
        let settings = &self.settings;
        let address = transport::Endpoint::from_shared(format!("http://{endpoint}"))
            .map_err(|error| DialError {
                endpoint: endpoint.clone(),
                why: error.to_string(),
            })?
            .connect_timeout(settings.connect_timeout)
            .http2_keep_alive_interval(settings.keepalive_interval)
            .keep_alive_timeout(settings.keepalive_timeout)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true)
            // Snapshots and copied ranges are megabytes: the default of 64 KiB would make them
            // wait for a round trip at every 64 KiB.
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20);
        Ok(address)
    }
}

impl Default for Dial {
    fn default() -> Self {
        Self::tcp(DialSettings::default())
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
