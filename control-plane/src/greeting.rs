//! An agent's Hello, answered by the roster: register it, note where it moved, or refuse it.

use std::time::Duration;

use annulus_membership::{
    Command, Greeting, Hello, Outcome, Rejection, Request, RingCommand, greet as judge,
};
use annulus_ring::{Incarnation, RingName};

use crate::{api, context::Context, raft::ProposeError};

/// How long the entry that a greeting needs may take.
const RECORD: Duration = Duration::from_secs(5);
/// A greeting registers, then moves, then welcomes.
const ROUNDS: usize = 3;

/// The agent may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// In this life.
    pub(crate) incarnation: Incarnation,
    /// Its data belongs to nobody.
    pub(crate) discard: bool,
}

/// Why it may not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetError {
    /// The rules say no.
    #[error(transparent)]
    Refused(Rejection),
    /// The entry was not made, or nobody knows.
    #[error(transparent)]
    Unavailable(ProposeError),
}

/// Greets an agent of `ring`; this server leads and has applied all that was committed.
pub(crate) async fn greet(
    context: &Context,
    ring: &RingName,
    hello: &Hello,
) -> Result<Welcome, GreetError> {
    for _ in 0..ROUNDS {
        let greeting = context.node.shared().read(|state, _| {
            let unknown = || Rejection::UnknownRing { ring: ring.clone() };
            state
                .rings
                .get(ring)
                .map(|ring| judge(ring, hello))
                .ok_or_else(unknown)
        });
        match greeting.map_err(GreetError::Refused)? {
            Greeting::Welcome {
                incarnation,
                discard,
            } => {
                return Ok(Welcome {
                    incarnation,
                    discard,
                });
            }
            Greeting::Refuse(rejection) => return Err(GreetError::Refused(rejection)),
            Greeting::Propose(command) => record(context, ring, command).await?,
        }
    }
    // Somebody else changed the roster in between, each time: the agent tries again.
    Err(GreetError::Unavailable(ProposeError::Unknown {
        reason: "the roster kept changing".to_owned(),
    }))
}

async fn record(
    context: &Context,
    ring: &RingName,
    command: RingCommand,
) -> Result<(), GreetError> {
    let kind = api::kind(&command);
    let command = Command::Ring {
        ring: ring.clone(),
        command,
    };
    // Without a request id: the birth itself makes a repeated registration harmless.
    let outcome = context
        .node
        .propose(
            Request {
                request_id: None,
                command,
            },
            RECORD,
        )
        .await;
    context.metrics.proposed(kind, &outcome);
    match outcome.map_err(GreetError::Unavailable)? {
        Outcome::Applied(_) => Ok(()),
        Outcome::Rejected(rejection) => Err(GreetError::Refused(rejection)),
    }
}
