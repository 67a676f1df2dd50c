//! To the other members: what each still has to get, and the questions it is asked, in batches.
//!
//! ```text
//!   writes ------> queue of n2 --\   one task a peer: takes all that waits, stamps it by the
//!            \---> queue of n3    >  present view, sends it, notes who holds what, sends the
//!   exact reads -> asks of n2  --/   rest again
//! ```
//!
//! A write stays in a peer's queue until the peer holds it or leaves the write set, also after it
//! was acknowledged. A peer that is away for long loses writes from its queue that others have
//! acknowledged, except the last of each slot: by that one it notices the hole, and repairs it.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use annulus_agent::guard::{NodeView, Peer};
use annulus_ring::{Epoch, NodeId, Slot};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use crate::{
    channels::explain,
    node::Node,
    pb::{self, replica_client::ReplicaClient},
    refused::Refused,
    write::Write,
};

/// Writes and payload bytes of one message.
const MESSAGE_ITEMS: usize = 1_000;
const MESSAGE_BYTES: usize = 2 << 20;
/// Writes and payload bytes that wait for one peer before acknowledged ones are left to repair.
const QUEUE_ITEMS: usize = 32_768;
const QUEUE_BYTES: usize = 64 << 20;
/// Questions about reigns in one message.
const MESSAGE_ASKS: usize = 4_096;
/// How long one message may take.
const CALL: Duration = Duration::from_secs(5);
/// Pause before a write that was refused is sent again, stamped anew.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);
/// Pauses after a call that broke: first and largest.
const BROKEN_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// One other member.
pub(crate) struct Link {
    node: NodeId,
    queue: Mutex<Queue>,
    queued: Notify,
    asks: Mutex<Vec<Ask>>,
    asked: Notify,
}

/// "Do you still obey this reign?", and where to say so.
struct Ask {
    slot: Slot,
    reign: Epoch,
    epoch: Epoch,
    answer: oneshot::Sender<Result<(), Refused>>,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Arc<Write>>,
    /// Refused, to be sent again at that time; in order of time.
    later: VecDeque<(Instant, Arc<Write>)>,
    /// Payload bytes of both.
    bytes: usize,
}

impl Queue {
    fn push(&mut self, write: Arc<Write>) {
        self.bytes += write.record.payload_bytes();
        self.ready.push_back(write);
        if self.ready.len() + self.later.len() > QUEUE_ITEMS || self.bytes > QUEUE_BYTES {
            self.shorten();
        }
    }

    /// Leaves acknowledged writes to repair, but for the last of each slot. Those that are not
    /// acknowledged stay: they are bounded where they are admitted.
    fn shorten(&mut self) {
        let later = std::mem::take(&mut self.later)
            .into_iter()
            .map(|(_, write)| write);
        let all: Vec<_> = later.chain(self.ready.drain(..)).collect();
        let mut last_of: HashSet<Slot> = HashSet::new();
        let kept = all
            .into_iter()
            .rev()
            .filter(|write| last_of.insert(write.lane.slot) || !write.is_settled());
        self.ready = kept.collect::<Vec<_>>().into_iter().rev().collect();
        self.bytes = self
            .ready
            .iter()
            .map(|write| write.record.payload_bytes())
            .sum();
    }

    /// What is due, for one message.
    fn take(&mut self) -> Vec<Arc<Write>> {
        let now = Instant::now();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < MESSAGE_ITEMS && bytes < MESSAGE_BYTES {
            let due = self.later.front().is_some_and(|(due, _)| *due <= now);
            let next = if due {
                self.later.pop_front().map(|(_, write)| write)
            } else {
                None
            };
            let Some(write) = next.or_else(|| self.ready.pop_front()) else {
                break;
            };
            bytes += write.record.payload_bytes();
            batch.push(write);
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        batch
    }

    /// Puts a batch back, before what came after it.
    fn put_back(&mut self, batch: Vec<Arc<Write>>) {
        for write in batch.into_iter().rev() {
            self.bytes += write.record.payload_bytes();
            self.ready.push_front(write);
        }
    }

    fn put_off(&mut self, write: Arc<Write>) {
        self.bytes += write.record.payload_bytes();
        self.later
            .push_back((Instant::now() + REFUSED_PAUSE, write));
    }
}

impl Link {
    pub fn new(node: NodeId) -> Arc<Self> {
        Arc::new(Self {
            node,
            queue: Mutex::default(),
            queued: Notify::new(),
            asks: Mutex::default(),
            asked: Notify::new(),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asks(&self) -> MutexGuard<'_, Vec<Ask>> {
        self.asks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes that wait here.
    pub fn backlog(&self) -> usize {
        let queue = self.queue();
        queue.ready.len() + queue.later.len()
    }
}

/// How a queued write goes to one peer now.
enum Way {
    Send(pb::ReplicateItem),
    /// The peer has it, or is not to have it (any more).
    Done,
}

impl Node {
    /// Puts committed writes in the queue of every other member of their write sets that does not
    /// hold them yet.
    pub(crate) fn send(self: &Arc<Self>, writes: &[Arc<Write>]) {
        let view = self.guard.view();
        let mut set: Option<(Slot, Vec<Peer>)> = None;
        let mut woken: Vec<Arc<Link>> = Vec::new();
        for write in writes {
            let slot = write.lane.slot;
            let (_, peers) = match set.take() {
                Some(known) if known.0 == slot => set.insert(known),
                _ => set.insert((slot, view.write_set(slot))),
            };
            for peer in peers.iter().filter(|peer| Some(peer.handle) != view.own) {
                if write.is_held_by(peer.handle) {
                    continue;
                }
                let link = self.link(&peer.node_id);
                link.queue().push(write.clone());
                if !woken.iter().any(|known| Arc::ptr_eq(known, &link)) {
                    woken.push(link);
                }
            }
        }
        woken.iter().for_each(|link| link.queued.notify_one());
    }

    /// Asks a member whether it still obeys the reign; the question joins the next message.
    pub(crate) fn ask(
        self: &Arc<Self>,
        peer: &NodeId,
        slot: Slot,
        reign: Epoch,
        epoch: Epoch,
    ) -> oneshot::Receiver<Result<(), Refused>> {
        let (answer, answered) = oneshot::channel();
        let link = self.link(peer);
        link.asks().push(Ask {
            slot,
            reign,
            epoch,
            answer,
        });
        link.asked.notify_one();
        answered
    }

    /// One peer's replicator: ends with the node.
    pub(crate) async fn replicate(self: Arc<Self>, link: Arc<Link>) {
        let mut broken = 0_u32;
        loop {
            let batch = link.queue().take();
            if batch.is_empty() {
                let due = link.queue().later.front().map(|(due, _)| *due);
                match due {
                    Some(due) => {
                        // Either is a reason to look again.
                        let _ = tokio::time::timeout_at(due, link.queued.notified()).await;
                    }
                    None => link.queued.notified().await,
                }
                continue;
            }
            match self.send_batch(&link, batch).await {
                Ok(()) => broken = 0,
                Err((batch, why)) => {
                    link.queue().put_back(batch);
                    if broken == 0 {
                        tracing::warn!(epoch = %self.epoch(), peer = %link.node, %why,
                            "a member does not take writes, trying again");
                    }
                    let (first, largest) = BROKEN_PAUSES;
                    let ceiling = (first * 2_u32.saturating_pow(broken.min(10))).min(largest);
                    broken += 1;
                    // Full jitter, so that owners do not come back to a member all at once.
                    tokio::time::sleep(ceiling.mul_f64(fastrand::f64())).await;
                }
            }
        }
    }

    /// Sends one batch. An error gives back what may not have arrived.
    async fn send_batch(
        self: &Arc<Self>,
        link: &Arc<Link>,
        batch: Vec<Arc<Write>>,
    ) -> Result<(), (Vec<Arc<Write>>, String)> {
        let view = self.guard.view();
        let Some(endpoint) = view.endpoint(&link.node).cloned() else {
            // No member any more: whatever it should have got, its sets went without it.
            return Ok(());
        };
        let mut sent = Vec::with_capacity(batch.len());
        let mut items = Vec::with_capacity(batch.len());
        let mut set: Option<(Slot, Option<Peer>)> = None;
        for write in batch {
            let slot = write.lane.slot;
            if set.as_ref().is_none_or(|(known, _)| *known != slot) {
                let peer = view
                    .write_set(slot)
                    .into_iter()
                    .find(|peer| peer.node_id == link.node);
                set = Some((slot, peer));
            }
            let peer = set.as_ref().and_then(|(_, peer)| peer.as_ref());
            match way(&view, &write, peer) {
                Way::Send(item) => {
                    items.push(item);
                    sent.push((write, peer.map(|peer| peer.handle)));
                }
                Way::Done => {}
            }
        }
        if items.is_empty() {
            return Ok(());
        }
        let count = items.len() as u64;
        let request = pb::ReplicateRequest {
            ring: view.ring.to_string(),
            generation: view.generation().0,
            sender: view.node.to_string(),
            receiver: link.node.to_string(),
            sender_endpoint: self.own_endpoint(),
            items,
        };
        let back = |sent: Vec<(Arc<Write>, _)>| sent.into_iter().map(|(write, _)| write).collect();
        let channel = match self.channels.to(&endpoint) {
            Ok(channel) => channel,
            Err(error) => return Err((back(sent), error.to_string())),
        };
        let mut client = ReplicaClient::new(channel)
            .max_decoding_message_size(crate::limits::MAX_MESSAGE_BYTES)
            .max_encoding_message_size(crate::limits::MAX_MESSAGE_BYTES);
        let results = match tokio::time::timeout(CALL, client.replicate(request)).await {
            Ok(Ok(response)) => response.into_inner().results,
            Ok(Err(status)) => return Err((back(sent), explain(&status))),
            Err(_) => return Err((back(sent), format!("no answer in {CALL:?}"))),
        };
        if results.len() != sent.len() {
            let text = format!("{} results for {} writes", results.len(), sent.len());
            return Err((back(sent), text));
        }
        self.metrics.replicated.inc_by(count);
        let mut refused_count = 0;
        for ((write, handle), result) in sent.into_iter().zip(results) {
            match (result.refused, handle) {
                (None, Some(handle)) => self.hold(&write, handle),
                (None, None) => {}
                (Some(refused), _) => {
                    let refused = Refused::from(refused);
                    tracing::debug!(epoch = %view.epoch(), peer = %link.node,
                        slot = %write.lane.slot, %refused, "a replicated write was refused");
                    refused_count += 1;
                    link.queue().put_off(write);
                }
            }
        }
        self.metrics.replicate_refused.inc_by(refused_count);
        Ok(())
    }

    fn own_endpoint(&self) -> String {
        let endpoint = self.settings.endpoint.as_ref();
        endpoint.map_or_else(String::new, ToString::to_string)
    }

    /// One peer's questioner: ends with the node. One message is under way at a time, so all reads
    /// that come in meanwhile share the next one, which leaves after each of them came in.
    pub(crate) async fn question(self: Arc<Self>, link: Arc<Link>) {
        loop {
            let asks = {
                let mut asks = link.asks();
                // Whoever asked may have what he needs from another member, or have given up.
                asks.retain(|ask| !ask.answer.is_closed());
                let count = asks.len().min(MESSAGE_ASKS);
                asks.drain(..count).collect::<Vec<_>>()
            };
            if asks.is_empty() {
                link.asked.notified().await;
                continue;
            }
            // Dropping the questions is an answer too: "not confirmed".
            if let Err(why) = self.ask_batch(&link, asks).await {
                tracing::debug!(epoch = %self.epoch(), peer = %link.node, %why,
                    "a member does not confirm reigns");
            }
        }
    }

    async fn ask_batch(self: &Arc<Self>, link: &Link, asks: Vec<Ask>) -> Result<(), String> {
        let view = self.guard.view();
        let endpoint = view
            .endpoint(&link.node)
            .cloned()
            .ok_or("no member any more")?;
        // Many reads of one slot are one question.
        let mut items: Vec<(Slot, Epoch, Epoch)> = asks
            .iter()
            .map(|ask| (ask.slot, ask.reign, ask.epoch))
            .collect();
        items.sort_unstable();
        items.dedup();
        let request = pb::ConfirmReignRequest {
            ring: view.ring.to_string(),
            generation: view.generation().0,
            sender: view.node.to_string(),
            receiver: link.node.to_string(),
            sender_endpoint: self.own_endpoint(),
            items: items
                .iter()
                .map(|(slot, reign, epoch)| pb::ConfirmItem {
                    slot: slot.0,
                    reign: reign.0,
                    epoch: epoch.0,
                })
                .collect(),
        };
        self.metrics.confirm_rounds.inc();
        let channel = self
            .channels
            .to(&endpoint)
            .map_err(|error| error.to_string())?;
        let mut client = ReplicaClient::new(channel);
        let results = tokio::time::timeout(CALL, client.confirm_reign(request))
            .await
            .map_err(|_| format!("no answer in {CALL:?}"))?
            .map_err(|status| explain(&status))?
            .into_inner()
            .results;
        if results.len() != items.len() {
            return Err(format!(
                "{} results for {} slots",
                results.len(),
                items.len()
            ));
        }
        for ask in asks {
            let at = items
                .binary_search(&(ask.slot, ask.reign, ask.epoch))
                .expect("every question is in the sorted list of them");
            let answer = results[at]
                .refused
                .clone()
                .map_or(Ok(()), |refused| Err(refused.into()));
            // The asker may be gone.
            drop(ask.answer.send(answer));
        }
        Ok(())
    }
}

/// How a write goes to a peer by this view.
fn way(view: &NodeView, write: &Arc<Write>, peer: Option<&Peer>) -> Way {
    let slot = write.lane.slot;
    let Some(peer) = peer else { return Way::Done };
    // In another reign the base carries it: stamped anew under that reign it was failed here.
    if write.is_held_by(peer.handle) || view.reign(slot) != write.reign || !view.owns(slot) {
        return Way::Done;
    }
    let record = &write.record;
    Way::Send(pb::ReplicateItem {
        slot: slot.0,
        epoch: view.epoch().0,
        reign: write.reign.0,
        session: peer.session.map_or(0, |session| session.0),
        version: Some(record.version.into()),
        key: record.key.clone(),
        value: record.value.clone(),
        acknowledged: write.lane.acknowledged().map(Into::into),
    })
}
