//! What to do after an attempt: a pure decision, kept as one table.
//!
//! ```text
//!   answer            epochs                      next
//!   ---------------   -------------------------   ------------------------------------------
//!   Stale, NotOwner   node newer than held        wait for its epoch, once; then its hint or a pause
//!   Stale, NotOwner   held moved on meanwhile     at once, where the ring now says
//!   Stale, NotOwner   node not newer than asked   it must catch up: another member, or a pause
//!   Behind            node older                  another member, or a pause
//!   Sealed                                        a pause, shorter if a newer epoch comes
//!   Unavailable                                   another member, or a pause
//!   Unknown           may be repeated             as Unavailable
//!   Unknown           may not be repeated         give up
//!   Failed                                        give up
//! ```
//!
//! The ring decides where a request goes; a node's hint is followed only where the ring cannot
//! be refreshed, only to a member of the ring, and at most two hops in all. A client never
//! goes back to an older epoch. Every path is bounded by tries and by the deadline, and every
//! way back to the same ring goes through a pause: no busy loop.

use std::time::Duration;

use annulus_ring::Epoch;

/// Most hops of one request: from the client, and once more on a node's word.
pub const MAX_HOPS: u8 = 2;

/// What an attempt came to, without its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Stale { epoch: Epoch },
    NotOwner { epoch: Epoch, hint: Hint },
    Behind { epoch: Epoch },
    Sealed,
    Unavailable,
    Unknown,
    Failed,
}

/// Whom a refusing node named, as the held ring sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Nobody.
    None,
    /// The node that was asked.
    Itself,
    /// A node that the ring does not list.
    Stranger,
    /// Another member.
    Member,
}

/// Everything the decision depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// The epoch that the attempt was stamped with.
    pub(crate) asked: Epoch,
    /// The epoch held now.
    pub(crate) held: Epoch,
    /// The newest epoch that was already waited for in vain.
    pub(crate) waited: Epoch,
    /// Attempts made, this one included.
    pub(crate) tries: u32,
    pub(crate) max_tries: u32,
    /// Hops of this attempt; 1 = straight from the ring.
    pub(crate) hops: u8,
    /// Members of the list that may serve this and were not asked since the last pause.
    pub(crate) untried: usize,
    /// Whether doing it twice is harmless.
    pub(crate) repeatable: bool,
    /// What is left of the caller's deadline.
    pub(crate) left: Duration,
    /// How long a pause would take.
    pub(crate) pause: Duration,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask the ring again, now.
    Reroute,
    /// Pause, then ask the ring again.
    Pause,
    /// Pause until a newer epoch is held, at most as long; then ask the ring again.
    PauseForNews,
    /// Wait until this epoch, or a newer one, is held; then ask the ring again.
    Await(Epoch),
    /// The next member that the list names.
    Other,
    /// The member that the node named.
    Hinted,
    /// Tell the caller.
    GiveUp,
}

/// The table above.
pub(crate) fn decide(answer: Answer, facts: &Facts) -> Next {
    let final_answer = match answer {
        Answer::Failed => true,
        Answer::Unknown => !facts.repeatable,
        Answer::Stale { .. }
        | Answer::NotOwner { .. }
        | Answer::Behind { .. }
        | Answer::Sealed
        | Answer::Unavailable => false,
    };
    if final_answer || facts.tries >= facts.max_tries || facts.left.is_zero() {
        return Next::GiveUp;
    }
    match wish(answer, facts) {
        // A pause that outlasts the deadline only hides the answer from the caller.
        Next::Pause | Next::PauseForNews if facts.left <= facts.pause => Next::GiveUp,
        next => next,
    }
}

fn wish(answer: Answer, facts: &Facts) -> Next {
    let elsewhere = if facts.untried > 0 {
        Next::Other
    } else {
        Next::Pause
    };
    match answer {
        Answer::Stale { epoch } => newer(epoch, Hint::None, facts).unwrap_or(elsewhere),
        Answer::NotOwner { epoch, hint } => newer(epoch, hint, facts).unwrap_or(elsewhere),
        // A node that says "behind" and names a newer epoch contradicts itself: believe the
        // number, for it costs one bounded wait.
        Answer::Behind { epoch } => newer(epoch, Hint::None, facts).unwrap_or(elsewhere),
        Answer::Unavailable | Answer::Unknown => elsewhere,
        // What ends a seal is an epoch.
        Answer::Sealed => Next::PauseForNews,
        Answer::Failed => Next::GiveUp,
    }
}

/// What a node's newer epoch calls for; nothing when it is not newer than what was asked.
fn newer(seen: Epoch, hint: Hint, facts: &Facts) -> Option<Next> {
    if seen <= facts.asked {
        return None;
    }
    if seen <= facts.held {
        // The refresh came while the attempt was under way.
        return Some(Next::Reroute);
    }
    if seen > facts.waited {
        return Some(Next::Await(seen));
    }
    match hint {
        Hint::Member if facts.hops < MAX_HOPS => Some(Next::Hinted),
        Hint::Member | Hint::None | Hint::Itself | Hint::Stranger => Some(Next::Pause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: u64 = 10;

    fn facts() -> Facts {
        Facts {
            asked: Epoch(ASKED),
            held: Epoch(ASKED),
            waited: Epoch(0),
            tries: 1,
            max_tries: 5,
            hops: 1,
            untried: 0,
            repeatable: false,
            left: Duration::from_millis(500),
            pause: Duration::from_millis(20),
        }
    }

    fn stale(epoch: u64) -> Answer {
        Answer::Stale {
            epoch: Epoch(epoch),
        }
    }

    fn not_owner(epoch: u64, hint: Hint) -> Answer {
        Answer::NotOwner {
            epoch: Epoch(epoch),
            hint,
        }
    }

    fn behind(epoch: u64) -> Answer {
        Answer::Behind {
            epoch: Epoch(epoch),
        }
    }

    /// C42, row by row.
    #[test]
    fn c42_every_answer_has_one_bounded_way_on() {
        let waited = Facts {
            waited: Epoch(12),
            ..facts()
        };
        let refreshed = Facts {
            held: Epoch(12),
            ..facts()
        };
        let second_hop = Facts { hops: 2, ..waited };
        let spare = Facts {
            untried: 2,
            ..facts()
        };
        let repeatable = Facts {
            repeatable: true,
            ..facts()
        };
        let table = [
            // 1. "not owner, epoch newer than yours": once wait for it, then pause.
            (
                "newer, first time",
                stale(12),
                facts(),
                Next::Await(Epoch(12)),
            ),
            ("newer, waited in vain", stale(12), waited, Next::Pause),
            ("newer still", stale(13), waited, Next::Await(Epoch(13))),
            (
                "newer, and refreshed meanwhile",
                stale(12),
                refreshed,
                Next::Reroute,
            ),
            (
                "not owner, newer",
                not_owner(12, Hint::None),
                facts(),
                Next::Await(Epoch(12)),
            ),
            // 2. "not owner, epoch older than yours": never back; it has to catch up.
            ("older", not_owner(9, Hint::Member), facts(), Next::Pause),
            (
                "older, another member may serve",
                not_owner(9, Hint::Member),
                spare,
                Next::Other,
            ),
            (
                "same epoch, and refuses",
                stale(ASKED),
                facts(),
                Next::Pause,
            ),
            ("behind", behind(9), facts(), Next::Pause),
            (
                "behind, another member may serve",
                behind(9),
                spare,
                Next::Other,
            ),
            (
                "behind, by its own word ahead",
                behind(12),
                facts(),
                Next::Await(Epoch(12)),
            ),
            // 3. A names B, B names A: the second hop is the last.
            (
                "hint, ring not to be had",
                not_owner(12, Hint::Member),
                waited,
                Next::Hinted,
            ),
            (
                "hint of a hinted node",
                not_owner(12, Hint::Member),
                second_hop,
                Next::Pause,
            ),
            // 4. A names itself. 5. A names a stranger.
            (
                "names itself",
                not_owner(12, Hint::Itself),
                waited,
                Next::Pause,
            ),
            (
                "names a stranger",
                not_owner(12, Hint::Stranger),
                waited,
                Next::Pause,
            ),
            // The rest of what a node can answer.
            ("sealed", Answer::Sealed, spare, Next::PauseForNews),
            ("unavailable", Answer::Unavailable, facts(), Next::Pause),
            (
                "unavailable, another member",
                Answer::Unavailable,
                spare,
                Next::Other,
            ),
            (
                "unknown, not repeatable",
                Answer::Unknown,
                spare,
                Next::GiveUp,
            ),
            (
                "unknown, repeatable",
                Answer::Unknown,
                repeatable,
                Next::Pause,
            ),
            ("failed", Answer::Failed, spare, Next::GiveUp),
        ];
        for (name, answer, facts, expected) in table {
            assert_eq!(decide(answer, &facts), expected, "{name}");
        }
    }

    #[test]
    fn tries_and_deadline_bound_every_answer() {
        let answers = [
            stale(12),
            stale(9),
            not_owner(12, Hint::Member),
            behind(9),
            Answer::Sealed,
            Answer::Unavailable,
            Answer::Unknown,
            Answer::Failed,
        ];
        let open = Facts {
            repeatable: true,
            untried: 2,
            ..facts()
        };
        for answer in answers {
            let tried = Facts { tries: 5, ..open };
            assert_eq!(decide(answer, &tried), Next::GiveUp, "{answer:?}");
            let late = Facts {
                left: Duration::ZERO,
                ..open
            };
            assert_eq!(decide(answer, &late), Next::GiveUp, "{answer:?}");
        }
        let short = Facts {
            left: Duration::from_millis(20),
            ..facts()
        };
        assert_eq!(decide(Answer::Sealed, &short), Next::GiveUp);
        // A refreshed ring is worth a last try even when a pause would be too long.
        let refreshed = Facts {
            held: Epoch(12),
            ..short
        };
        assert_eq!(decide(stale(12), &refreshed), Next::Reroute);
    }

    /// Without a pause a request moves only to a newer ring, another member or a further hop;
    /// each of them runs out.
    #[test]
    fn no_busy_loop() {
        let answers = |epoch| [stale(epoch), not_owner(epoch, Hint::Member), behind(epoch)];
        for epoch in 0..20 {
            for waited in 0..20 {
                for answer in answers(epoch) {
                    let facts = Facts {
                        waited: Epoch(waited),
                        ..facts()
                    };
                    match decide(answer, &facts) {
                        Next::Reroute => panic!("{answer:?}: the same ring again, at once"),
                        Next::Await(wanted) => assert!(wanted > facts.waited.max(facts.held)),
                        Next::Hinted => assert!(facts.hops < MAX_HOPS),
                        Next::Other => assert!(facts.untried > 0),
                        Next::Pause | Next::PauseForNews | Next::GiveUp => {}
                    }
                }
            }
        }
    }
}
