//! A rejection touches nothing, and neither does a repeated request; other rings never change.

use super::{Memory, Seen, ensure};

pub fn check(seen: &Seen<'_>, _: &Memory) -> Result<(), String> {
    let (before, after) = (seen.before, seen.after);
    if !seen.is_applied() || seen.is_repeated() {
        let same = before.rings == after.rings
            && before.ring_time_ms == after.ring_time_ms
            && before.cluster_id == after.cluster_id;
        return ensure(same, || {
            format!("the state was touched, answer {:?}", seen.effect.outcome)
        });
    }
    if before.rings.len() == 1 {
        return Ok(());
    }
    let named = match &seen.entry.command {
        annulus_membership::Command::Ring { ring, .. } => Some(ring),
        annulus_membership::Command::Init { .. } | annulus_membership::Command::Tick { .. } => None,
    };
    for (name, ring) in &before.rings {
        let same = Some(name) == named || after.rings.get(name) == Some(ring);
        ensure(same, || format!("ring {name} changed by itself"))?;
    }
    Ok(())
}
