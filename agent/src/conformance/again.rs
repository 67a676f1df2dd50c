//! The agent repeats what it is not sure of, so every call is idempotent.

use super::{
    bench::{Bench, Done, Stop, same},
    story::{Effect, Picture, STORY},
};

pub(super) fn each_call_twice(bench: &Bench<'_>) -> Done {
    let store = bench.empty()?;
    for call in STORY {
        let before = Picture::of(&*store)?;
        (call.make)(&*store)?;
        let once = Picture::of(&*store)?;
        match call.effect {
            Effect::Always => continue,
            Effect::Nothing => same(&format!("the copies after {}", call.name), &before, &once)?,
            Effect::Once => {}
        }
        if let Err(error) = (call.make)(&*store) {
            let expected = format!("{}, made again: Ok", call.name);
            return Err(Stop::broken(expected, format!("{error:?}")));
        }
        let what = format!("the copies after {}, made again", call.name);
        same(&what, once, Picture::of(&*store)?)?;
    }
    Ok(())
}
