//! ABORT-CLEAN: after an abort the lists equal, as sets, those before the transition, no member of
//! it is left, and every other change waits again.

use annulus_membership::{ChangePhase, Rejection, RingCommand};
use annulus_ring::MemberState;

use super::{Memory, Seen, as_set, ended, ensure};

pub fn check(seen: &Seen<'_>, memory: &Memory) -> Result<(), String> {
    let Some((before, after)) = seen.rings() else {
        return Ok(());
    };
    let command = seen.done();
    if let Some(RingCommand::Abort { change }) = command {
        let phase = after.changes.get(change).map(|record| &record.phase);
        let flips = matches!(phase, Some(ChangePhase::Running(_)));
        ensure(flips || phase == Some(&ChangePhase::Aborted), || {
            format!("change {change} was withdrawn and is {phase:?}")
        })?;
    }
    let Some((was, false)) = ended(before, after, command) else {
        return Ok(());
    };
    for (slot, list) in after.slots.slots().zip(&memory.lists) {
        let same = as_set(after.slots.list(slot)) == as_set(list);
        ensure(same, || format!("slot {slot} has another list than before"))?;
    }
    ensure(after.retained == before.retained, || {
        "copies became retained by an abort".to_owned()
    })?;
    for node in &was.joining {
        let gone = !after.members.contains_key(node);
        ensure(gone, || format!("{node} is still a member"))?;
    }
    for node in &was.draining {
        let back = after.members.get(node).map(|member| member.state);
        ensure(back == Some(MemberState::Active), || {
            format!("{node} is {back:?} after the abort of its drain")
        })?;
    }
    let withdrawn = |id| after.changes.get(id).map(|record| &record.phase);
    let replanned = matches!(command, Some(RingCommand::Replan { .. }));
    let mut aborted = 0;
    for id in &was.changes {
        match withdrawn(id) {
            Some(ChangePhase::Aborted) => aborted += 1,
            Some(ChangePhase::Queued) => {}
            // It starts again without a joiner that is gone.
            Some(ChangePhase::Refused(Rejection::JoinerSilent { .. })) if replanned => {}
            phase => return Err(format!("change {id} is {phase:?} after the abort")),
        }
    }
    ensure(aborted == usize::from(!replanned), || {
        format!("{aborted} changes were withdrawn by one abort")
    })
}
