//! LEGAL-EDGES: node states and steps change only as design section 5 says; a life that is over
//! never comes back. The tables here are written by hand; `golden/edges.txt` is what was seen.

use annulus_membership::{RingCommand, RingState};
use annulus_ring::{MemberState, Step};

use super::{Memory, Seen, ended, ensure};

pub fn check(seen: &Seen<'_>, memory: &Memory) -> Result<(), String> {
    let Some((before, after)) = seen.rings() else {
        return Ok(());
    };
    let Some(command) = seen.done() else {
        return Ok(());
    };
    nodes(before, after, memory)?;
    steps(before, after, command)?;
    for (node, entry) in &before.roster {
        let now = after.roster.get(node).map(|entry| entry.incarnation);
        ensure(now >= Some(entry.incarnation), || {
            format!("the incarnation of {node} fell")
        })?;
    }
    Ok(())
}

fn nodes(before: &RingState, after: &RingState, memory: &Memory) -> Result<(), String> {
    use MemberState::{Active, CatchingUp, Copying, Draining, Joining};
    for (node, is) in &after.members {
        let Some(was) = before.members.get(node) else {
            let begins = matches!(is.state, Joining) || (is.state == Active && !before.founded);
            ensure(begins, || format!("{node} begins as {}", is.state))?;
            let over = memory.over.get(node);
            let returns = over.is_some_and(|over| over.contains(&is.incarnation));
            ensure(!returns, || {
                format!(
                    "{node} is back in incarnation {}, which is over",
                    is.incarnation
                )
            })?;
            continue;
        };
        let same_life = (was.handle, was.incarnation) == (is.handle, is.incarnation);
        ensure(same_life, || format!("{node} has another handle or life"))?;
        let legal = was.state == is.state
            || matches!(
                (was.state, is.state),
                (Joining, Copying)
                    | (Copying, CatchingUp)
                    | (CatchingUp, Active)
                    | (Active, CatchingUp)
                    | (Active, Draining)
                    | (Draining, Active)
            );
        ensure(legal, || format!("{node}: {} -> {}", was.state, is.state))?;
    }
    for (node, was) in &before.members {
        if after.members.contains_key(node) {
            continue;
        }
        ensure(was.state != Active, || {
            format!("{node} was active and is gone")
        })?;
        let keeps = after.retained.iter().any(|copies| copies.node == *node);
        ensure(!keeps, || {
            format!("{node} was removed while it keeps copies")
        })?;
    }
    Ok(())
}

fn steps(before: &RingState, after: &RingState, command: &RingCommand) -> Result<(), String> {
    let was = before.transition.as_ref().map(|one| one.step);
    let is = after.transition.as_ref().map(|one| one.step);
    if let Some((ending, well)) = ended(before, after, Some(command)) {
        let from = ending.step;
        let legal = if well {
            from == Step::Switched
        } else {
            from != Step::Switched
        };
        return ensure(legal, || format!("the transition ended from {from}"));
    }
    if was == is {
        return Ok(());
    }
    let legal = match (was, is) {
        (None, Some(is)) => is == Step::Prepared,
        (Some(Step::Switched), Some(Step::FlippingBack)) => {
            matches!(command, RingCommand::Abort { .. })
        }
        (Some(was), Some(is)) => {
            was.next() == Some(is) && matches!(command, RingCommand::Advance { .. })
        }
        (_, None) => true,
    };
    ensure(legal, || format!("step {was:?} -> {is:?}"))
}
