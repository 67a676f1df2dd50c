//! Waiting for conditions. The only place of the tests that sleeps, and only between two looks.

use std::{fmt::Display, future::Future, time::Duration};

use tokio::time::Instant;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Looks until the condition holds and gives what it found.
///
/// A look that finds the condition unmet says what it saw instead; the last such sentence is in
/// the message if the deadline passes.
///
/// # Panics
/// When `limit` is over.
pub async fn until<T, F, Fut>(limit: Duration, what: impl Display, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, String>>,
{
    let start = Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) if start.elapsed() >= limit => {
                panic!("waited {limit:?} in vain for {what}; last seen: {seen}")
            }
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

/// [`until`] for a condition that needs no await and shows nothing.
///
/// # Panics
/// When `limit` is over.
pub async fn until_true(limit: Duration, what: impl Display, mut holds: impl FnMut() -> bool) {
    until(limit, what, || {
        let held = holds()
            .then_some(())
            .ok_or_else(|| "it does not hold yet".to_owned());
        async move { held }
    })
    .await;
}

/// Whether the long forms of tests are wanted (`ANNULUS_NIGHTLY=1`).
#[must_use]
pub fn nightly() -> bool {
    std::env::var_os("ANNULUS_NIGHTLY").is_some_and(|value| value == "1")
}

/// A number that is larger at night.
#[must_use]
pub fn by_night<T>(day: T, night: T) -> T {
    if nightly() { night } else { day }
}
