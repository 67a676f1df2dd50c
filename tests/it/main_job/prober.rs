//! Asks a gainer for keys of the ranges that it is getting: it must refuse until the switch.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use annulus_kv::pb::ReadMode;
use annulus_ring::{NodeId, Slot, Step};
use annulus_tests::{
    load::{Load, newest},
    probe::{Answer, Probe},
    timeline::{Meaning, Timeline, moves},
};
use tokio::task::JoinHandle;

/// Keys asked for, again and again.
const KEYS: usize = 64;

pub struct Prober {
    gainer: NodeId,
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<(Slot, Answer)>>,
}

impl Prober {
    /// Asks from now on; the transition must have begun.
    pub fn start(gainer: &str, timeline: &Timeline, load: &Load) -> Self {
        let gainer = NodeId::new(gainer).expect("a name");
        let client = timeline.client().clone();
        let snapshot = timeline.snapshot();
        let handle = snapshot.member(&gainer).expect("it is named").handle;
        let mut acks = newest(&load.acks_from(0));
        acks.retain(|ack| snapshot.sets(ack.slot).gainers().any(|to| to == handle));
        acks.truncate(KEYS);
        assert!(!acks.is_empty(), "{gainer} gains ranges that hold keys");
        let probe = Probe::of(&snapshot);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, asked) = (Arc::clone(&stop), gainer.clone());
        let task = tokio::spawn(async move {
            let mut answers = Vec::new();
            for at in 0.. {
                let lookup = client.current().expect("a snapshot is held");
                let snapshot = lookup.snapshot();
                let ack = &acks[at % acks.len()];
                let switched = snapshot
                    .transition
                    .as_ref()
                    .is_none_or(|it| it.step == Step::Switched);
                if stopped.load(Ordering::Acquire) || switched || !moves(snapshot, ack.slot) {
                    break;
                }
                let mode = if at % 2 == 0 {
                    ReadMode::Any
                } else {
                    ReadMode::Exact
                };
                // A broken call is no answer; the next one may be.
                if let Ok(answer) = probe.read(&asked, snapshot, &ack.key, mode).await {
                    answers.push((ack.slot, answer));
                }
                // The load has the machine too.
                tokio::task::yield_now().await;
            }
            answers
        });
        Self { gainer, stop, task }
    }

    /// NO-EARLY-READ: whatever was answered was answered by an epoch from the switch on.
    pub async fn judge(self, meaning: &Meaning) {
        self.stop.store(true, Ordering::Release);
        let answers = self.task.await.expect("the prober does not panic");
        let mut refused: BTreeMap<u8, usize> = BTreeMap::new();
        for (slot, answer) in answers {
            let step = meaning
                .stage(answer.epoch, slot)
                .map_or(0, |stage| stage.step);
            match answer.found {
                Ok(_) => assert!(
                    step >= 7,
                    "NO-EARLY-READ: {} answered in step {step}",
                    self.gainer
                ),
                Err(_) => *refused.entry(step).or_default() += 1,
            }
        }
        let total: usize = refused.values().sum();
        assert!(total > 0, "{} was asked before the switch", self.gainer);
        println!(
            "{} refused {total} early reads, by step: {refused:?}",
            self.gainer
        );
    }
}
