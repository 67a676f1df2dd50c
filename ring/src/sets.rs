//! Who may read and who must receive a range, at each step of a transition.
//!
//! The one place that turns (old list, new list, step) into read set, write set and groups.
//! Servers, clients and data nodes all ask it, so they cannot disagree.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{Handle, List, Replication};

/// One committed step of a transition. Step 8, settled, is the end: the new lists are then
/// the lists and there is no transition any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// 1: announced. Reads O, writes O.
    Prepared = 1,
    /// 2: gainers have opened staging. Reads O, writes O and gainers, acknowledged by w of O.
    Writing = 2,
    /// 3: every owner feeds the gainers; a copy may be cut.
    Copying = 3,
    /// 4: every range has its whole copy.
    CatchingUp = 4,
    /// 5: equal digests at the same cut, no holes, little lag.
    Verified = 5,
    /// 6: acknowledged by w of O and w of N.
    Joint = 6,
    /// 7: reads N, writes O and N, acknowledged by w of O and w of N.
    Switched = 7,
    /// The way back from 7 (8 is the end): reads O, writes O and N, acknowledged by w of O and w
    /// of N until every gainer refuses reads of before; only then it is an abort.
    FlippingBack = 9,
}

impl Step {
    /// All steps, in order; the way back last.
    pub const ALL: [Self; 8] = [
        Self::Prepared,
        Self::Writing,
        Self::Copying,
        Self::CatchingUp,
        Self::Verified,
        Self::Joint,
        Self::Switched,
        Self::FlippingBack,
    ];

    /// The step's number: 1 to 7, or 9.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The step with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.number() == number)
    }

    /// The step after this one; none after [`Step::Switched`] and [`Step::FlippingBack`], which
    /// are followed by the end.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        Self::from_number(self.number() + 1)
    }

    /// The word used everywhere.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Writing => "writing",
            Self::Copying => "copying",
            Self::CatchingUp => "catching_up",
            Self::Verified => "verified",
            Self::Joint => "joint",
            Self::Switched => "switched",
            Self::FlippingBack => "flipping_back",
        }
    }

    /// Whether entering this step changes a set, or how a write is acknowledged, and so is
    /// an epoch by which requests on the range are judged.
    #[must_use]
    pub fn changes_sets(self) -> bool {
        match self {
            Self::Writing | Self::Joint | Self::Switched | Self::FlippingBack => true,
            Self::Prepared | Self::Copying | Self::CatchingUp | Self::Verified => false,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A list of which a write needs so many acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Its members.
    pub list: &'a [Handle],
    /// How many of them must hold the write durably: w of the list.
    pub need: usize,
}

/// All of them must be satisfied. One outside steps 6, 7 and the way back.
pub type Groups<'a> = SmallVec<[Group<'a>; 2]>;

/// rf, w and r of the old lists and of the new ones: different only while a transition changes
/// them, for each list keeps its own until it is read no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorums {
    /// Of O.
    pub old: Replication,
    /// Of N.
    pub new: Replication,
}

/// One range's old list, new list and step: everything its sets follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSets<'a> {
    /// O: the list before the transition, or the only one.
    pub old: &'a [Handle],
    /// N: the list after it; equal to `old` where nothing changes.
    pub new: &'a [Handle],
    /// The step of the transition that touches this range, if one does.
    pub step: Option<Step>,
}

impl<'a> RangeSets<'a> {
    /// A range that no transition touches.
    #[must_use]
    pub fn steady(list: &'a [Handle]) -> Self {
        Self {
            old: list,
            new: list,
            step: None,
        }
    }

    /// Who may answer reads, owner first.
    #[must_use]
    pub fn read_set(&self) -> &'a [Handle] {
        match self.step {
            Some(Step::Switched) => self.new,
            _ => self.old,
        }
    }

    /// Who orders writes: the first of the read set.
    #[must_use]
    pub fn owner(&self) -> Option<Handle> {
        self.read_set().first().copied()
    }

    /// Who must receive a write: the old list, then the gainers from step 2 on.
    #[must_use]
    pub fn write_set(&self) -> List {
        let mut set = List::from_slice(self.old);
        if self.step.is_some_and(|step| step >= Step::Writing) {
            set.extend(self.gainers());
        }
        set
    }

    /// Who must hold a write before it is acknowledged: w of O, and in steps 6, 7 and on the way
    /// back w of N too, each by its own w.
    #[must_use]
    pub fn groups(&self, quorums: Quorums) -> Groups<'a> {
        let group = |list, replication: Replication| Group {
            list,
            need: replication.w.into(),
        };
        let old = group(self.old, quorums.old);
        match self.step {
            Some(Step::Joint | Step::Switched | Step::FlippingBack) => {
                SmallVec::from_slice(&[old, group(self.new, quorums.new)])
            }
            _ => SmallVec::from_slice(&[old]),
        }
    }

    /// w and r of the list that is read.
    #[must_use]
    pub fn read_quorum(&self, quorums: Quorums) -> Replication {
        match self.step {
            Some(Step::Switched) => quorums.new,
            _ => quorums.old,
        }
    }

    /// Whether members that stay must prove that they hold what was acknowledged by O alone,
    /// before N is read.
    ///
    /// Such a write is held by w of O. Those that lose the range take up to as many copies with
    /// them, gainers have merged it: of N at least `w - losers + gainers` hold it, which is w of N
    /// where both lists are equally long and need the same, and may be less where they do not.
    #[must_use]
    pub fn stayers_must_prove(&self, quorums: Quorums) -> bool {
        let (losers, gainers) = (self.losers().count(), self.gainers().count());
        let held = usize::from(quorums.old.w).saturating_sub(losers) + gainers;
        held < usize::from(quorums.new.w)
    }

    /// N minus O, in N's order.
    pub fn gainers(&self) -> impl Iterator<Item = Handle> + use<'a> {
        let old = self.old;
        self.new
            .iter()
            .copied()
            .filter(move |handle| !old.contains(handle))
    }

    /// O minus N, in O's order.
    pub fn losers(&self) -> impl Iterator<Item = Handle> + use<'a> {
        let new = self.new;
        self.old
            .iter()
            .copied()
            .filter(move |handle| !new.contains(handle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Handle = Handle(0);
    const B: Handle = Handle(1);
    const C: Handle = Handle(2);
    const G: Handle = Handle(3);

    const OLD: Replication = Replication { rf: 3, w: 2, r: 2 };
    const NEW: Replication = Replication { rf: 5, w: 3, r: 3 };
    const SAME: Quorums = Quorums { old: OLD, new: OLD };
    const MORE: Quorums = Quorums { old: OLD, new: NEW };

    fn at(step: Step) -> RangeSets<'static> {
        RangeSets {
            old: &[A, B, C],
            new: &[A, B, G],
            step: Some(step),
        }
    }

    #[test]
    fn sets_follow_the_table_of_steps() {
        for step in Step::ALL {
            let sets = at(step);
            let reads: &[Handle] = if step == Step::Switched {
                &[A, B, G]
            } else {
                &[A, B, C]
            };
            assert_eq!(sets.read_set(), reads, "{step}");
            let writes: &[Handle] = if step == Step::Prepared {
                &[A, B, C]
            } else {
                &[A, B, C, G]
            };
            assert_eq!(sets.write_set().as_slice(), writes, "{step}");
            let joint = matches!(step, Step::Joint | Step::Switched | Step::FlippingBack);
            let groups = sets.groups(MORE);
            assert_eq!(groups.len(), if joint { 2 } else { 1 }, "{step}");
            // O keeps its own w, N brings its own.
            assert_eq!((groups[0].list, groups[0].need), (sets.old, 2), "{step}");
            if joint {
                assert_eq!((groups[1].list, groups[1].need), (sets.new, 3), "{step}");
            }
            let read = if step == Step::Switched { NEW } else { OLD };
            assert_eq!(sets.read_quorum(MORE), read, "{step}");
        }
    }

    #[test]
    fn those_that_stay_prove_what_nobody_else_would_bring_to_the_new_list() {
        const D: Handle = Handle(4);
        let sets = |old, new| RangeSets {
            old,
            new,
            step: Some(Step::Joint),
        };
        let quorums = |w: u8, new_w: u8| Quorums {
            old: Replication { w, ..OLD },
            new: Replication { w: new_w, ..OLD },
        };
        // One for one: the gainer brings what the loser takes away.
        assert!(!sets(&[A, B, C], &[A, B, G]).stayers_must_prove(SAME));
        // Two more: w of O and both gainers are more than enough.
        assert!(!sets(&[A, B, C], &[A, B, C, D, G]).stayers_must_prove(MORE));
        // Two fewer: a write of w 3 may have two of its copies at those that leave.
        assert!(sets(&[A, B, C, D, G], &[A, B, C]).stayers_must_prove(quorums(3, 2)));
        // The same list, another w: one more than acknowledged it has to hold it.
        assert!(sets(&[A, B, C], &[A, B, C]).stayers_must_prove(quorums(2, 3)));
        assert!(!sets(&[A, B, C], &[A, B, C]).stayers_must_prove(quorums(3, 2)));
    }

    #[test]
    fn the_numbers_of_steps_are_for_ever() {
        let numbers = Step::ALL.map(Step::number);
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 9]);
        for step in Step::ALL {
            assert_eq!(Step::from_number(step.number()), Some(step));
        }
        assert_eq!(Step::from_number(8), None, "8 is the end, not a step");
        assert_eq!(Step::Joint.next(), Some(Step::Switched));
        assert_eq!(Step::Switched.next(), None);
        assert_eq!(Step::FlippingBack.next(), None);
    }

    #[test]
    fn a_steady_range_has_one_list() {
        let sets = RangeSets::steady(&[A, B]);
        assert_eq!(sets.read_set(), [A, B]);
        assert_eq!(sets.write_set().as_slice(), [A, B]);
        assert_eq!(sets.gainers().count() + sets.losers().count(), 0);
        assert_eq!(RangeSets::steady(&[]).owner(), None);
    }
}
