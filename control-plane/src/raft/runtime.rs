//! tokio, with a generator that can be seeded.
//!
//! openraft draws election timeouts from its runtime's generator; with tokio's that is the
//! thread's, which nobody can seed, and a simulation could never be replayed. Everything else
//! is passed to [`TokioRuntime`] unchanged.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::time::Duration;

use openraft::OptionalSend;
use openraft::rt::AsyncRuntime;
use openraft_rt_tokio::TokioRuntime;
use rand::SeedableRng;
use rand::rngs::SmallRng;

thread_local! {
    static SEEDED: RefCell<Option<SmallRng>> = const { RefCell::new(None) };
}

/// Makes this thread's draws follow from `seed`: for simulations, which run on one thread.
pub fn seed_this_thread(seed: u64) {
    SEEDED.with(|cell| *cell.borrow_mut() = Some(SmallRng::seed_from_u64(seed)));
}

/// A generator for this thread: forked from the seeded one, or seeded by the system.
pub(super) fn generator() -> SmallRng {
    SEEDED.with(|cell| match &mut *cell.borrow_mut() {
        Some(parent) => SmallRng::from_rng(parent),
        None => SmallRng::from_rng(&mut rand::rng()),
    })
}

/// The runtime of the type configuration.
#[derive(Debug)]
pub struct SeededTokio(TokioRuntime);

impl AsyncRuntime for SeededTokio {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = SmallRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        generator()
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }

    fn spawn_blocking<F, T>(f: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        TokioRuntime::spawn_blocking(f)
    }
}
