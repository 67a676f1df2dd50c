//! The movement of ranges: tasks that are started and ended as (view, directive, held) change.
//!
//! Every task is idempotent on (session, attempt): it looks at what is durably held and goes on
//! from there, so starting it twice or after a restart does no harm.

use std::{collections::BTreeMap, sync::Arc};

use annulus_ring::{SessionId, Slot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{shared::Shared, store::Holding, wire::Wave};

mod gain;
mod release;
mod succeed;
mod tend;
mod wave;
mod weigh;

pub(crate) use release::release;
pub(crate) use tend::tend;
pub(crate) use weigh::weigh;

/// The tasks of the running session and wave.
pub(crate) struct Work {
    shared: Arc<Shared>,
    session: Option<Running>,
    wave: Option<(Wave, CancellationToken)>,
    tasks: TaskTracker,
}

struct Running {
    id: SessionId,
    stop: CancellationToken,
    gains: BTreeMap<Slot, tokio::task::JoinHandle<()>>,
}

impl Work {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            session: None,
            wave: None,
            tasks: TaskTracker::new(),
        }
    }

    /// Brings one range in, from opened staging to the joint step, unless that runs already. `kept`
    /// names the session of a retained copy of it, if there is one.
    pub(crate) fn gain(
        &mut self,
        session: SessionId,
        slot: Slot,
        holding: Option<&Holding>,
        kept: Option<SessionId>,
    ) {
        let stop = self.shared.stop.child_token();
        let running = self.session.get_or_insert_with(|| Running {
            id: session,
            stop,
            gains: BTreeMap::new(),
        });
        debug_assert_eq!(
            running.id, session,
            "the adopter closes a session before the next"
        );
        if running
            .gains
            .get(&slot)
            .is_some_and(|task| !task.is_finished())
        {
            return;
        }
        let gain = gain::Gain::new(self.shared.clone(), session, slot, holding, kept);
        let stop = running.stop.clone();
        let task = self.tasks.spawn(async move {
            // Dropped half way at worst: what was merged stays merged, and no call of the store
            // is torn, as it ends on its own thread.
            let _over = stop.run_until_cancelled(gain.run()).await;
        });
        running.gains.insert(slot, task);
    }

    /// Ends the tasks of the running session and waits until they are gone.
    pub(crate) async fn close_session(&mut self) {
        if let Some(running) = self.session.take() {
            running.stop.cancel();
            for (_, task) in running.gains {
                // A task that panicked was logged by the runtime; it is over either way.
                let _over = task.await;
            }
            self.shared.metrics.ranges_left.set(0);
        }
    }

    /// As successor: holds F of each slot of the wave, unless that runs already.
    pub(crate) fn confirm(&mut self, wave: &Wave) {
        self.take_over(wave, wave::confirm);
    }

    /// As successor of a failover: stores the tails of the members that refuse the owner, unless
    /// that runs already.
    pub(crate) fn succeed(&mut self, wave: &Wave) {
        self.take_over(wave, succeed::succeed);
    }

    fn take_over<F>(&mut self, wave: &Wave, work: fn(Arc<Shared>, Wave) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let running = self.wave.as_ref().map(|(running, _)| running);
        if running == Some(wave) {
            return;
        }
        self.end_wave();
        let stop = self.shared.stop.child_token();
        self.wave = Some((wave.clone(), stop.clone()));
        let work = work(self.shared.clone(), wave.clone());
        self.tasks.spawn(async move {
            let _over = stop.run_until_cancelled(work).await;
        });
    }

    /// Ends the wave's task, if one runs.
    pub(crate) fn end_wave(&mut self) {
        if let Some((_, stop)) = self.wave.take() {
            stop.cancel();
        }
    }

    /// Ends everything and waits.
    pub(crate) async fn stop(&mut self) {
        self.close_session().await;
        self.end_wave();
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }
}
