//! Interleaved repetitions and their medians.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// A key as benchmarks use it.
pub type Key = [u8; 16];

/// One way to look keys up; answers something that depends on every answer.
pub struct Contender<'a> {
    pub name: &'static str,
    /// Keys of one pass, at most as many as there are: slow ones take fewer.
    pub keys: usize,
    pub run: Pass<'a>,
}

/// Looks all keys up and sums what it finds.
type Pass<'a> = Box<dyn FnMut(&[Key]) -> u64 + 'a>;

pub fn contender<'a>(
    name: &'static str,
    keys: usize,
    run: impl FnMut(&[Key]) -> u64 + 'a,
) -> Contender<'a> {
    Contender {
        name,
        keys,
        run: Box::new(run),
    }
}

/// ns per key, the median over `passes`, of each contender. All take turns, so that what else
/// the machine does falls on all alike.
pub fn race(contenders: &mut [Contender<'_>], keys: &[Key], passes: usize) -> Vec<f64> {
    let mut times = vec![Vec::with_capacity(passes); contenders.len()];
    for pass in 0..=passes {
        for (contender, times) in contenders.iter_mut().zip(&mut times) {
            let keys = &keys[..contender.keys.min(keys.len())];
            // Once for the caches, which the one before has filled with its own; then for time.
            black_box((contender.run)(black_box(keys)));
            let begun = Instant::now();
            black_box((contender.run)(black_box(keys)));
            let took = begun.elapsed().as_secs_f64() * 1e9 / keys.len() as f64;
            // The first pass warms up.
            if pass > 0 {
                times.push(took);
            }
        }
    }
    times.into_iter().map(median).collect()
}

/// What a call answers, and the ms that it took on a core.
pub fn on_core_ms<T>(call: impl FnOnce() -> T) -> (T, f64) {
    let (begun, on_core) = (Instant::now(), thread_ns());
    let answer = black_box(call());
    let on_core = thread_ns().zip(on_core).map(|(end, begin)| end - begin);
    (
        answer,
        on_core.unwrap_or(begun.elapsed().as_secs_f64() * 1e9) / 1e6,
    )
}

/// ms of one call on a core: what `passes` and more of them took, divided. The system counts
/// time on a core in steps of some ms, so they go on for 200 of them.
pub fn call_ms<T>(passes: usize, mut call: impl FnMut() -> T) -> f64 {
    black_box(call());
    let mut calls = 0;
    let ((), took) = on_core_ms(|| {
        let begun = Instant::now();
        while calls < passes || begun.elapsed() < Duration::from_millis(200) {
            black_box(call());
            calls += 1;
        }
    });
    took / calls as f64
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// ns that this thread has been on a core, which other programs do not stretch. None where the
/// system does not say.
pub fn thread_ns() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
