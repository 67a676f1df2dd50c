//! Connections to other data nodes: one channel an endpoint, made at its first use.

use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
};

use annulus_client::{Dial, DialError};
use annulus_ring::Endpoint;
use tonic::{ConnectError, Status, transport::Channel};

/// Channels kept; beyond that the whole table is begun anew, which costs reconnecting.
const KEPT: usize = 4_096;

/// One channel per endpoint. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Channels {
    dial: Dial,
    open: Arc<Mutex<HashMap<Endpoint, Channel>>>,
}

impl Channels {
    pub fn new(dial: Dial) -> Self {
        Self {
            dial,
            open: Arc::default(),
        }
    }

    pub fn to(&self, endpoint: &Endpoint) -> Result<Channel, DialError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = open.get(endpoint) {
            return Ok(channel.clone());
        }
        let channel = self.dial.channel(endpoint)?;
        if open.len() >= KEPT {
            open.clear();
        }
        open.insert(endpoint.clone(), channel.clone());
        Ok(channel)
    }
}

/// Whether the request certainly never left: no connection came up.
pub(crate) fn never_sent(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<ConnectError>())
}

/// A failed call with its innermost cause, which tonic hides behind "transport error".
pub(crate) fn explain(status: &Status) -> String {
    match causes(status).last() {
        Some(innermost) => format!("{}: {innermost}", status.message()),
        None => format!("{:?}: {}", status.code(), status.message()),
    }
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |cause: &&(dyn Error + 'static)| {
        (*cause).source()
    })
}
