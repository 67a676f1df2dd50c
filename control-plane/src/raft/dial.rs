//! How one server reaches another: a function from an address to a channel, passed in, so that
//! a simulated network can carry raft too.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

type Connect = dyn Fn(&str) -> Result<Channel, DialError> + Send + Sync;

/// Makes channels. Connecting is lazy: an error here means that the address cannot be parsed.
#[derive(Clone)]
pub struct Dial(Arc<Connect>);

/// An address that is none.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot dial {address}: {reason}")]
pub struct DialError {
    /// What was asked for.
    pub address: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Dial {
    /// Dials with `connect`.
    pub fn new(
        connect: impl Fn(&str) -> Result<Channel, DialError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(connect))
    }

    /// Plain TCP with HTTP/2 keepalive, so that a half-open connection is noticed in seconds.
    #[must_use]
    pub fn tcp() -> Self {
        Self::new(|address| Ok(endpoint(address)?.connect_lazy()))
    }

    /// A channel to `address` (`host:port`), connected when first used.
    ///
    /// # Errors
    /// The address cannot be parsed.
    pub fn dial(&self, address: &str) -> Result<Channel, DialError> {
        (self.0)(address)
    }
}

/// The settings every dialler shares, for those who bring their own connector.
///
/// # Errors
/// The address cannot be parsed.
pub fn endpoint(address: &str) -> Result<Endpoint, DialError> {
    let endpoint =
        Endpoint::from_shared(format!("http://{address}")).map_err(|error| DialError {
            address: address.to_owned(),
            reason: error.to_string(),
        })?;
    Ok(endpoint
        .connect_timeout(Duration::from_secs(1))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(2))
        .keep_alive_timeout(Duration::from_secs(3))
        .keep_alive_while_idle(true))
}

impl Default for Dial {
    fn default() -> Self {
        Self::tcp()
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}
