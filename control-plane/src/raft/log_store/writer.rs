//! The one thread that owns a store: takes all that waits, writes it, syncs once, completes it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use openraft::storage::IOFlushed;
use tokio::sync::{mpsc, oneshot};

use super::store::{Change, Store, StoreError};
use crate::raft::bait;
use crate::raft::fatal::FatalBell;
use crate::raft::types::TypeConfig;

/// Operations that may wait; the next caller waits for room.
const QUEUE: usize = 1_024;
/// Operations taken into one sync.
const GROUP: usize = 1_024;
/// Payload bytes after which a group is not filled further.
const GROUP_BYTES: usize = 16 << 20;
/// Keys deleted between two groups: 10,000 at once stalled appends for up to 0.4 s.
const SWEEP: usize = 1_000;

enum Op {
    Change(Vec<Change>, Done),
    Stop(oneshot::Sender<()>),
}

/// Who is told, and of what.
enum Done {
    /// Nobody; need not be synced.
    Lazy,
    Flushed(IOFlushed<TypeConfig>),
    Durable(oneshot::Sender<io::Result<()>>),
}

impl Done {
    fn tell(self, result: Result<(), &str>) {
        let result = result.map_err(|reason| io::Error::other(reason.to_owned()));
        match self {
            Self::Lazy => {}
            Self::Flushed(callback) => callback.io_completed(result),
            // A caller that no longer waits has been cancelled; the change stands.
            Self::Durable(waiting) => {
                let _ = waiting.send(result);
            }
        }
    }
}

/// Where changes go.
pub(in crate::raft) enum Writer {
    /// To a thread of their own: stores that block.
    Thread(mpsc::Sender<Op_>),
    /// Straight through, on the caller's thread: memory, where a second thread would make a
    /// simulation's order depend on the machine.
    Inline(Mutex<Box<dyn Store>>),
}

/// Keeps `Op` private in a public enum.
pub(in crate::raft) struct Op_(Op);

fn closed() -> io::Error {
    io::Error::other("the log's writer has ended")
}

impl Writer {
    /// Starts the thread. A store that fails rings `bell`, once, and is never asked again.
    pub(in crate::raft) fn spawn(store: impl Store, bell: FatalBell) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        std::thread::Builder::new()
            .name("annulus-log".into())
            .spawn(move || {
                let died = catch_unwind(AssertUnwindSafe(|| run(store, receiver, &bell)));
                if let Err(panic) = died {
                    bell.ring(format!("the log store panicked: {}", bell_text(&*panic)));
                }
            })?;
        Ok(Self::Thread(sender))
    }

    pub(in crate::raft) fn inline(store: impl Store) -> Self {
        Self::Inline(Mutex::new(Box::new(store)))
    }

    async fn send(&self, changes: Vec<Change>, done: Done) -> io::Result<()> {
        match self {
            Self::Thread(sender) => sender
                .send(Op_(Op::Change(changes, done)))
                .await
                .map_err(|_| closed()),
            Self::Inline(store) => {
                let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
                let result = store.write(&changes).and_then(|()| store.sync());
                let result = result.map_err(|error| error.to_string());
                done.tell(result.as_ref().copied().map_err(String::as_str));
                Ok(())
            }
        }
    }

    /// Comes back when the changes are durable.
    pub(super) async fn durable(&self, changes: Vec<Change>) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        self.send(changes, Done::Durable(sender)).await?;
        receiver.await.map_err(|_| closed())?
    }

    /// Comes back when the changes are queued; `callback` is told when they are durable.
    pub(super) async fn flushed(
        &self,
        changes: Vec<Change>,
        callback: IOFlushed<TypeConfig>,
    ) -> io::Result<()> {
        self.send(changes, Done::Flushed(callback)).await
    }

    /// Comes back when the changes are queued.
    pub(super) async fn lazy(&self, changes: Vec<Change>) -> io::Result<()> {
        self.send(changes, Done::Lazy).await
    }

    pub(super) async fn close(&self) {
        if let Self::Thread(sender) = self {
            let (done, closed) = oneshot::channel();
            if sender.send(Op_(Op::Stop(done))).await.is_ok() {
                // An error means that the thread ended by itself: closed all the same.
                drop(closed.await);
            }
        }
    }
}

fn bell_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

fn run(mut store: impl Store, mut queue: mpsc::Receiver<Op_>, bell: &FatalBell) {
    // Left-overs of a purge before the last stop are swept too.
    let mut sweeping = true;
    loop {
        let first = if sweeping {
            match queue.try_recv() {
                Ok(op) => Some(op),
                Err(mpsc::error::TryRecvError::Empty) => None,
                Err(mpsc::error::TryRecvError::Disconnected) => return,
            }
        } else {
            match queue.blocking_recv() {
                Some(op) => Some(op),
                None => return,
            }
        };
        let group = first.map_or_else(Group::default, |first| gather(first, &mut queue));
        let result = commit(&mut store, group.changes, group.done);
        if let Err(error) = result {
            bell.ring(format!("the log could not be written: {error}"));
            return;
        }
        if let Some(stopped) = group.stop {
            drop(store);
            // Whoever asked may have given up; the store is closed either way.
            let _ = stopped.send(());
            return;
        }
        sweeping |= group.purges;
        if sweeping {
            match store.sweep(SWEEP) {
                Ok(more) => sweeping = more,
                Err(error) => {
                    bell.ring(format!("the log could not be purged: {error}"));
                    return;
                }
            }
        }
    }
}

#[derive(Default)]
struct Group {
    changes: Vec<Change>,
    done: Vec<Done>,
    purges: bool,
    stop: Option<oneshot::Sender<()>>,
}

fn gather(first: Op_, queue: &mut mpsc::Receiver<Op_>) -> Group {
    let mut group = Group::default();
    let mut next = Some(first);
    let mut bytes = 0;
    while let Some(Op_(op)) = next {
        match op {
            Op::Stop(stopped) => {
                group.stop = Some(stopped);
                break;
            }
            Op::Change(changes, done) => {
                for change in &changes {
                    match change {
                        Change::Put { payload, .. } => bytes += payload.len(),
                        Change::Purged(_) => group.purges = true,
                        Change::Vote(_)
                        | Change::Committed(_)
                        | Change::TruncateFrom(_)
                        | Change::Cluster(_) => {}
                    }
                }
                group.changes.extend(changes);
                group.done.push(done);
            }
        }
        let full = group.done.len() >= GROUP || bytes >= GROUP_BYTES;
        next = if full { None } else { queue.try_recv().ok() };
    }
    group
}

fn commit(store: &mut impl Store, changes: Vec<Change>, done: Vec<Done>) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    // A purge must be durable before the sweep deletes what it covers.
    let sync = changes
        .iter()
        .any(|change| matches!(change, Change::Purged(_)))
        || done.iter().any(|done| !matches!(done, Done::Lazy));
    let mut done = done;
    let result = store.write(&changes).and_then(|()| {
        if bait::on("ack-before-sync") {
            done.drain(..).for_each(|done| done.tell(Ok(())));
        }
        if sync { store.sync() } else { Ok(()) }
    });
    let told = result.as_ref().copied().map_err(ToString::to_string);
    for done in done {
        done.tell(told.as_ref().copied().map_err(String::as_str));
    }
    result
}
