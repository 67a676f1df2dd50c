//! The one thread that writes: it takes every job that waits, makes one transaction of them,
//! syncs it once, and only then answers all of them (group commit).
//!
//! The more jobs wait, the more share one sync, so the disk's latency bounds the delay of a
//! write but not their number. Jobs are carried out in the order in which they were submitted.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TryRecvError, TrySendError},
    },
    thread::JoinHandle,
};

use annulus_agent::store::StoreError;
use redb::Database;

use super::{
    Shared, StoreFault,
    catalog::Catalog,
    merge::{Batch, Fault, Merge, Outcome},
};

/// Jobs that may wait. An owner's writes are bounded before they come here.
const QUEUE: usize = 32_768;
/// Jobs and payload bytes of one transaction.
const MAX_JOBS: usize = 4_096;
const MAX_BYTES: usize = 16 << 20;

/// Called on the writer's thread once the job is durable, or failed.
pub(crate) type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// What a job does to the transaction.
pub(super) enum Work {
    /// Takes records in.
    Merge(Merge),
    /// Anything else.
    Other(Other),
}

/// Work on the transaction.
pub(super) type Other = Box<dyn FnOnce(&mut Batch<'_>) -> Result<(), Fault> + Send>;

impl Work {
    fn payload_bytes(&self) -> usize {
        match self {
            Self::Merge(merge) => merge
                .records
                .iter()
                .map(|record| record.payload_bytes())
                .sum(),
            Self::Other(_) => 0,
        }
    }
}

struct Job {
    work: Work,
    done: Done,
}

/// The submitting end. The thread ends, and the database closes, when this is dropped.
pub(super) struct Writer {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub fn start(
        database: Arc<Database>,
        catalog: Catalog,
        shared: Arc<Shared>,
    ) -> std::io::Result<Self> {
        let (jobs, waiting) = std::sync::mpsc::sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("kv-writer".to_owned())
            .spawn(move || run(&database, catalog, &shared, &waiting))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    fn jobs(&self) -> &SyncSender<Job> {
        self.jobs.as_ref().expect("taken only when dropped")
    }

    /// Submits without waiting. On `Ok` `done` is called, on the writer's thread; on `Err` it never
    /// is, and nothing was done.
    pub fn submit(&self, work: Work, done: Done) -> Result<(), StoreError> {
        match self.jobs().try_send(Job { work, done }) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(full()),
            Err(TrySendError::Disconnected(_)) => Err(StoreFault::closed().into()),
        }
    }

    /// Submits and blocks until the job is durable.
    pub fn wait(&self, work: Work) -> Result<(), StoreError> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        // The receiver lives until the answer came, so sending cannot fail.
        let done: Done = Box::new(move |result| drop(answer.send(result)));
        if self.jobs().send(Job { work, done }).is_err() {
            return Err(StoreFault::closed().into());
        }
        answered
            .recv()
            .unwrap_or_else(|_| Err(StoreFault::closed().into()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        // The last handle of the store may be dropped by a job's answer, on the writer itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            drop(thread.join());
        }
    }
}

fn full() -> StoreError {
    let source = format!("{QUEUE} jobs wait for the disk already");
    StoreError::Backend {
        doing: "queue a write",
        source: source.into(),
    }
}

/// Tells everybody that the store is broken when the writer's thread panics: the engine asserts
/// what it relies on.
struct LastWords<'a>(&'a Shared);

impl Drop for LastWords<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let fault = StoreFault::panicked();
            tracing::error!(error = %fault, "the writer panicked, the store takes nothing more");
            self.0.break_with(fault);
        }
    }
}

fn run(database: &Database, mut catalog: Catalog, shared: &Shared, waiting: &Receiver<Job>) {
    let _last_words = LastWords(shared);
    let mut sweeping = true;
    loop {
        let mut jobs = Vec::new();
        if !sweeping {
            match waiting.recv() {
                Ok(job) => jobs.push(job),
                Err(_) => return,
            }
        }
        let mut bytes = 0;
        while jobs.len() < MAX_JOBS && bytes < MAX_BYTES {
            match waiting.try_recv() {
                Ok(job) => {
                    bytes += job.work.payload_bytes();
                    jobs.push(job);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) if jobs.is_empty() => return,
                Err(TryRecvError::Disconnected) => break,
            }
        }
        match commit(database, &mut catalog, shared, jobs) {
            Ok((answers, outcome, more)) => {
                sweeping = more;
                shared.publish(outcome, answers.len());
                for (done, answer) in answers {
                    done(answer);
                }
            }
            Err((fault, unanswered)) => {
                // Nothing after a failed sync can be trusted, so nothing more is tried: every job
                // from here on is refused until the process is started again.
                tracing::error!(error = %fault, "storage failed, the store takes nothing more");
                shared.break_with(fault.clone());
                for done in unanswered {
                    done(Err(fault.clone().into()));
                }
                while let Ok(job) = waiting.recv() {
                    (job.done)(Err(fault.clone().into()));
                }
                return;
            }
        }
    }
}

type Answers = Vec<(Done, Result<(), StoreError>)>;

/// One transaction: all jobs, a piece of what is to be deleted, one sync.
fn commit(
    database: &Database,
    catalog: &mut Catalog,
    shared: &Shared,
    jobs: Vec<Job>,
) -> Result<(Answers, Outcome, bool), (StoreFault, Vec<Done>)> {
    let mut answers: Answers = Vec::with_capacity(jobs.len());
    let mut jobs = jobs.into_iter();
    let result = (|| -> Result<(Outcome, bool), Fault> {
        let txn = database.begin_write()?;
        let mut batch = Batch::open(&txn, catalog)?;
        for job in jobs.by_ref() {
            let done = match job.work {
                Work::Merge(merge) => batch.merge(merge),
                Work::Other(work) => work(&mut batch),
            };
            match done {
                Ok(()) => answers.push((job.done, Ok(()))),
                Err(Fault::Refused(error)) => answers.push((job.done, Err(error))),
                Err(fault @ Fault::Engine(_)) => {
                    answers.push((job.done, Ok(())));
                    return Err(fault);
                }
            }
        }
        let more = batch.sweep()?;
        let mut outcome = batch.close()?;
        outcome
            .noted
            .drain(..)
            .for_each(|noted| shared.undo.note(noted));
        txn.commit()?;
        Ok((outcome, more))
    })();
    match result {
        Ok((outcome, more)) => Ok((answers, outcome, more)),
        Err(fault) => {
            let fault = match fault {
                Fault::Engine(error) => StoreFault::engine("commit", &error),
                Fault::Refused(error) => StoreFault::engine("commit", &error),
            };
            let unanswered = answers.into_iter().map(|(done, _)| done);
            Err((fault, unanswered.chain(jobs.map(|job| job.done)).collect()))
        }
    }
}
