//! The client: keys to owners by the ring, results by what a caller would do about them.
//!
//! ```text
//!   Ok          it was done, or found
//!   Unknown     it may have been done: never sent again by itself, unless said to be harmless
//!   the rest    nothing was done
//! ```

mod batch;

use std::time::Duration;

use annulus_client::{
    CallError, CallKind, Client, Deadline, Dial, Reach, Router, RouterConfig, Target,
};
use annulus_ring::{Endpoint, Epoch, NodeId, Position};
use bytes::Bytes;
use tokio::time::Instant;
use tonic::{Status, transport::Channel};

use crate::{
    channels::{Channels, explain, never_sent},
    limits::{self, LimitError, MAX_MESSAGE_BYTES},
    pb::{self, kv_client::KvClient as Stub},
    refused::{Cause, Refused},
};

/// Why a request came to nothing, or may have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request breaks a limit; it was not sent.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// No node served it before the deadline. Nothing was done.
    #[error(transparent)]
    Refused(annulus_client::Error),
    /// A write of a batch was refused until the deadline. Nothing of it was done.
    #[error("{node} at {endpoint} refused it {refused}")]
    RefusedWrite {
        /// Who was asked last.
        node: NodeId,
        /// Where.
        endpoint: Endpoint,
        /// Its answer.
        refused: Refused,
    },
    /// The owner of a batch's write was not reached until the deadline. Nothing of it was done.
    #[error("{node} at {endpoint} is not reachable: {why}")]
    NotReached {
        /// Who was asked last.
        node: NodeId,
        /// Where.
        endpoint: Endpoint,
        /// What happened.
        why: String,
    },
    /// Nobody is known to own the key of a batch's write. Nothing of it was done.
    #[error("{0}")]
    NoRoute(String),
    /// It may have been done, and may still come to be seen.
    #[error("outcome unknown: {0}")]
    Unknown(String),
}

impl Error {
    /// Whether the write may have been done.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

    /// Whether the same request may succeed later, without harm if it is made again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused(error) => error.is_retryable(),
            Self::RefusedWrite { refused, .. } => !matches!(refused.cause, Cause::Invalid { .. }),
            Self::NotReached { .. } => true,
            Self::Limit(_) | Self::NoRoute(_) | Self::Unknown(_) => false,
        }
    }
}

impl From<annulus_client::Error> for Error {
    fn from(error: annulus_client::Error) -> Self {
        match error {
            annulus_client::Error::Unknown { .. } => Self::Unknown(error.to_string()),
            error => Self::Refused(error),
        }
    }
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The value; absent = the key does not exist.
    pub value: Option<Bytes>,
    /// The record's version. Absent: the key was never written. Present without a value: deleted.
    pub version: Option<Position>,
    /// How far the answering copy has got.
    pub watermark: Option<Position>,
    /// The epoch by which the node answered.
    pub epoch: Epoch,
}

/// An acknowledged write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its place in the order of its range's writes.
    pub version: Position,
    /// The epoch by which the node answered.
    pub epoch: Epoch,
}

/// One write of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchItem {
    /// The key.
    pub key: Bytes,
    /// The new value; absent = delete.
    pub value: Option<Bytes>,
}

/// How a write is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// How long to try; absent = the client's own deadline.
    pub deadline: Option<Duration>,
    /// Whether doing it twice is harmless, also with others' writes between. Then it is sent again
    /// when its outcome is unknown. Default no.
    pub idempotent: bool,
}

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct KvClientConfig {
    /// How long a request is tried. Default 5 s.
    pub deadline: Duration,
    /// Bounds of routing. Default 50 attempts, paused up to 200 ms, within the deadline.
    pub router: RouterConfig,
    /// How connections to data nodes are made.
    pub dial: Dial,
}

impl Default for KvClientConfig {
    fn default() -> Self {
        let router = RouterConfig {
            max_tries: std::num::NonZeroU32::new(50).expect("50 is not 0"),
            pause: (Duration::from_millis(5), Duration::from_millis(200)),
            ..RouterConfig::default()
        };
        Self {
            deadline: Duration::from_secs(5),
            router,
            dial: Dial::default(),
        }
    }
}

/// A client of one ring's data nodes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KvClient {
    router: Router,
    channels: Channels,
    deadline: Duration,
}

impl KvClient {
    /// A client that routes by `client`, with default settings.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self::with_config(client, KvClientConfig::default())
    }

    /// A client that routes by `client`.
    #[must_use]
    pub fn with_config(client: Client, config: KvClientConfig) -> Self {
        Self {
            router: Router::new(client, config.router),
            channels: Channels::new(config.dial),
            deadline: config.deadline,
        }
    }

    /// The client that says where.
    #[must_use]
    pub fn ring(&self) -> &Client {
        self.router.client()
    }

    /// How many requests and attempts there were.
    #[must_use]
    pub fn stats(&self) -> annulus_client::RouterStats {
        self.router.stats()
    }

    /// How long a request is tried.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Reads a key from its owner: sees every write acknowledged before the call.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Refused`]; never [`Error::Unknown`].
    pub async fn get(&self, key: &[u8]) -> Result<Found, Error> {
        self.read(key, pb::ReadMode::Exact).await
    }

    /// Reads a key from whichever member of its list answers; may be old.
    ///
    /// # Errors
    /// As [`KvClient::get`].
    pub async fn get_any(&self, key: &[u8]) -> Result<Found, Error> {
        self.read(key, pb::ReadMode::Any).await
    }

    /// Sets a key's value.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Refused`]: nothing was done. [`Error::Unknown`]: it may have been.
    pub async fn put(&self, key: &[u8], value: impl Into<Bytes>) -> Result<Written, Error> {
        self.write(key, Some(value.into()), WriteOptions::default())
            .await
    }

    /// Deletes a key; one that does not exist as well.
    ///
    /// # Errors
    /// As [`KvClient::put`].
    pub async fn delete(&self, key: &[u8]) -> Result<Written, Error> {
        self.write(key, None, WriteOptions::default()).await
    }

    /// Sets (or with `None` deletes) a key, with options.
    ///
    /// # Errors
    /// As [`KvClient::put`].
    pub async fn write(
        &self,
        key: &[u8],
        value: Option<Bytes>,
        options: WriteOptions,
    ) -> Result<Written, Error> {
        limits::check_write(key, value.as_deref())?;
        let key = Bytes::copy_from_slice(key);
        let kind = CallKind {
            reach: Reach::Owner,
            repeatable: options.idempotent,
        };
        let deadline = Deadline::from(options.deadline.unwrap_or(self.deadline));
        let written = self.router.call_as(kind, &key, deadline, |target| {
            let (key, value) = (key.clone(), value.clone());
            async move { self.write_at(&target, key, value).await }
        });
        Ok(written.await?)
    }

    async fn write_at(
        &self,
        target: &Target,
        key: Bytes,
        value: Option<Bytes>,
    ) -> Result<Written, CallError> {
        let mut stub = self.stub(target)?;
        let (stamp, timeout_ms) = head(target);
        let response = match value {
            Some(value) => {
                stub.put(pb::PutRequest {
                    stamp,
                    key,
                    value,
                    timeout_ms,
                })
                .await
            }
            None => {
                stub.delete(pb::DeleteRequest {
                    stamp,
                    key,
                    timeout_ms,
                })
                .await
            }
        };
        let response = response.map_err(|status| broken(&status))?.into_inner();
        let result = response.result.and_then(|result| result.result);
        self.note(target, response.epoch);
        match result {
            Some(pb::write_result::Result::Written(version)) => Ok(Written {
                version: version.into(),
                epoch: Epoch(response.epoch),
            }),
            Some(pb::write_result::Result::Refused(refused)) => Err(call_error(refused.into())),
            None => Err(CallError::Unknown("the node's answer says nothing".into())),
        }
    }

    async fn read(&self, key: &[u8], mode: pb::ReadMode) -> Result<Found, Error> {
        limits::check_key(key)?;
        let key = Bytes::copy_from_slice(key);
        let reach = if mode == pb::ReadMode::Any {
            Reach::Any
        } else {
            Reach::Owner
        };
        let kind = CallKind {
            reach,
            repeatable: true,
        };
        let found = self.router.call_as(kind, &key, self.deadline, |target| {
            let key = key.clone();
            async move { self.read_at(&target, key, mode).await }
        });
        match found.await {
            Ok(found) => Ok(found),
            // A read does nothing, so whatever became of it, nothing was done.
            Err(error) => Err(Error::Refused(error)),
        }
    }

    async fn read_at(
        &self,
        target: &Target,
        key: Bytes,
        mode: pb::ReadMode,
    ) -> Result<Found, CallError> {
        let mut stub = self.stub(target)?;
        let (stamp, timeout_ms) = head(target);
        let request = pb::GetRequest {
            stamp,
            key,
            mode: mode.into(),
            timeout_ms,
        };
        let response = stub
            .get(request)
            .await
            .map_err(|status| broken(&status))?
            .into_inner();
        self.note(target, response.epoch);
        match response.result {
            Some(pb::get_response::Result::Found(found)) => Ok(Found {
                value: found.value,
                version: found.version.map(Into::into),
                watermark: found.watermark.map(Into::into),
                epoch: Epoch(response.epoch),
            }),
            Some(pb::get_response::Result::Refused(refused)) => Err(call_error(refused.into())),
            None => Err(CallError::Unknown("the node's answer says nothing".into())),
        }
    }

    fn stub(&self, target: &Target) -> Result<Stub<Channel>, CallError> {
        let channel = self.channels.to(&target.endpoint);
        let channel = channel.map_err(|error| CallError::Unavailable(error.into()))?;
        Ok(Stub::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES))
    }

    /// A node that is ahead served this all the same: the ring is refreshed beside it.
    fn note(&self, target: &Target, seen: u64) {
        if Epoch(seen) > target.stamp.epoch {
            self.ring().refresh(target.stamp.epoch);
        }
    }
}

/// A request's stamp, and the ms that its caller still waits.
fn head(target: &Target) -> (Option<pb::Stamp>, u32) {
    let stamp = pb::Stamp {
        ring: target.stamp.ring.to_string(),
        generation: target.stamp.generation.0,
        epoch: target.stamp.epoch.0,
        hops: target.stamp.hops.into(),
    };
    (Some(stamp), timeout_ms(target.deadline))
}

fn timeout_ms(deadline: Instant) -> u32 {
    let left = deadline.saturating_duration_since(Instant::now());
    // 0 means "the node's own limit", which a caller in a hurry does not mean.
    u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1)
}

/// A call that broke: certainly not made, or perhaps made.
fn broken(status: &Status) -> CallError {
    let text = explain(status).into();
    if never_sent(status) {
        CallError::Unavailable(text)
    } else {
        CallError::Unknown(text)
    }
}

fn call_error(refused: Refused) -> CallError {
    let Refused { epoch, cause } = refused;
    match cause {
        Cause::Stale { .. } | Cause::NotMember => CallError::Stale { epoch },
        Cause::Behind => CallError::Behind { epoch },
        Cause::Sealed => CallError::Sealed,
        Cause::NotOwner { owner } => CallError::NotOwner { epoch, owner },
        Cause::Unavailable(text) => CallError::Unavailable(text.into()),
        Cause::Unknown(text) => CallError::Unknown(text.into()),
        invalid @ Cause::Invalid { .. } => CallError::Failed(invalid.at(epoch).into()),
    }
}
