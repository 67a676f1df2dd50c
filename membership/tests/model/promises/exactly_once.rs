//! EXACTLY-ONCE: a repeated request id changes nothing and answers the same. (That nothing changes
//! is judged by `nothing_else`, for whoever is remembered.)

use super::{Memory, Seen, ensure};

pub fn check(seen: &Seen<'_>, memory: &Memory) -> Result<(), String> {
    let Some(id) = seen.entry.request_id else {
        return Ok(());
    };
    let Some(first) = memory.answers.get(&id) else {
        return Ok(());
    };
    let again = &seen.effect.outcome;
    ensure(first == again, || {
        format!("request {id} was answered {first:?}, and now {again:?}")
    })?;
    let same = seen.before.rings == seen.after.rings;
    ensure(same, || format!("request {id} changed something again"))
}
