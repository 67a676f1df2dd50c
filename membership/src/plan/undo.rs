//! What the way back costs at each step of a plan's transition.

use annulus_ring::Step;

use super::Outlook;
use crate::Held;

/// How a transition is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayBack {
    /// Nothing was begun: the plan is dropped.
    Drop,
    /// One entry; the lists are what they were.
    Abort,
    /// Reads go back to the old lists; the abort follows when every gainer has heard it.
    FlipBack,
    /// A new change, which copies again.
    NewChange,
}

impl WayBack {
    /// The word used everywhere.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Abort => "abort",
            Self::FlipBack => "flip back",
            Self::NewChange => "new change",
        }
    }
}

/// The way back from one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    /// From which step; none: before the first and after the last.
    pub step: Option<Step>,
    /// How.
    pub way: WayBack,
    /// Copies to be made for it.
    pub copies: u32,
    /// Bytes and keys thrown away, at most: copies made in vain.
    pub wasted: Option<Held>,
    /// What it costs, in words.
    pub words: String,
}

/// One row per step, in order, with a row before the first and one after the last.
pub(super) fn ways(outlook: &Outlook) -> Vec<Undo> {
    let nothing = Some(Held::default());
    let mut ways = vec![Undo {
        step: None,
        way: WayBack::Drop,
        copies: 0,
        wasted: nothing,
        words: "nothing is begun".to_owned(),
    }];
    let forward = Step::ALL
        .into_iter()
        .filter(|step| *step != Step::FlippingBack);
    ways.extend(forward.map(|step| at(step, outlook)));
    let lost: u32 = outlook.nodes.iter().map(|node| node.lost).sum();
    ways.push(Undo {
        step: None,
        way: WayBack::NewChange,
        copies: lost,
        wasted: outlook.copied,
        words: format!("the soak is over: {lost} copies are made anew, by a change of its own"),
    });
    ways
}

fn at(step: Step, outlook: &Outlook) -> Undo {
    let gainers = outlook.nodes.iter().filter(|node| node.gained > 0).count();
    let (way, copied, words) = match step {
        Step::Prepared => {
            let ranges = outlook.hand_overs.leaving;
            let words = match ranges {
                0 => "one entry; nothing was copied".to_owned(),
                _ => format!(
                    "one entry; nothing was copied, and up to {ranges} range(s) have another owner, \
                     which evening waves put right"
                ),
            };
            (WayBack::Abort, false, words)
        }
        Step::Writing => {
            let words = "one entry; gainers throw away the writes they were given";
            (WayBack::Abort, false, words.to_owned())
        }
        Step::Copying | Step::CatchingUp | Step::Verified | Step::Joint => {
            let words = "one entry; gainers throw away what they copied";
            (WayBack::Abort, true, words.to_owned())
        }
        Step::Switched => {
            let words = format!(
                "nothing is copied; reads go back to the old lists at once, and the change ends when \
                 {gainers} gainer(s) have heard it"
            );
            (WayBack::FlipBack, true, words)
        }
        Step::FlippingBack => {
            let words = "it is on its way back already";
            (WayBack::FlipBack, true, words.to_owned())
        }
    };
    Undo {
        step: Some(step),
        way,
        copies: 0,
        wasted: if copied {
            outlook.copied
        } else {
            Some(Held::default())
        },
        words,
    }
}
