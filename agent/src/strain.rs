//! Whether this node's own requests suffer while ranges move. Pure: what was served in a window
//! comes in, an opinion goes out.

use std::time::Duration;

/// Fewer requests than this in a window say nothing.
const ENOUGH: u64 = 20;
/// A millisecond or two more is nobody's concern.
const SLACK: Duration = Duration::from_millis(2);

/// Requests that ended in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    pub requests: u64,
    /// Of all of them together.
    pub took: Duration,
}

impl Served {
    fn mean(self) -> Option<Duration> {
        let requests = u32::try_from(self.requests).ok()?;
        (self.requests >= ENOUGH).then(|| self.took / requests)
    }
}

/// What is usual here, learned while nothing moves.
#[derive(Debug, Default)]
pub(crate) struct Strain {
    usual: Option<Duration>,
}

impl Strain {
    /// What a request takes when nothing moves; none while that is not known.
    pub(crate) fn usual(&self) -> Option<Duration> {
        self.usual
    }

    /// Takes a window in: requests suffer if they took more than twice what is usual while ranges
    /// moved. A node that has never served in peace takes its first window for usual.
    pub(crate) fn look(&mut self, served: Served, moves: bool) -> bool {
        let Some(mean) = served.mean() else {
            return false;
        };
        let usual = *self.usual.get_or_insert(mean);
        if !moves {
            // One slow window among eight moves it little, a lasting change all the way.
            self.usual = Some((usual * 7 + mean) / 8);
        }
        moves && mean > usual * 2 + SLACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(requests: u64, each_ms: u64) -> Served {
        Served {
            requests,
            took: Duration::from_millis(requests * each_ms),
        }
    }

    #[test]
    fn requests_suffer_when_they_take_twice_as_long_while_ranges_move() {
        let mut strain = Strain::default();
        let looks = [
            ("learns", served(100, 5), false, false),
            ("as ever, moving", served(100, 5), true, false),
            ("a little slower", served(100, 12), true, false),
            ("more than twice", served(100, 13), true, true),
            ("too few to say", served(19, 500), true, false),
            ("nothing served", served(0, 0), true, false),
            ("slow, but nothing moves", served(100, 80), false, false),
            (
                "one slow window taught it little",
                served(100, 40),
                true,
                true,
            ),
        ];
        for (what, served, moves, expected) in looks {
            assert_eq!(strain.look(served, moves), expected, "{what}");
        }
    }

    #[test]
    fn what_lasts_becomes_usual() {
        let mut strain = Strain::default();
        strain.look(served(100, 1), false);
        for _ in 0..40 {
            strain.look(served(100, 50), false);
        }
        assert!(!strain.look(served(100, 60), true));
    }

    #[test]
    fn moving_teaches_nothing() {
        let mut strain = Strain::default();
        strain.look(served(100, 5), false);
        for _ in 0..40 {
            assert!(strain.look(served(100, 50), true));
        }
    }
}
