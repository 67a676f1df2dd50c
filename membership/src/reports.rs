//! What the leader has heard from data nodes: soft state, never a log entry.
//!
//! A node makes everything durable before it says it, and opens every link with a whole
//! report, so a new leader needs nothing of the old one's memory.

use std::collections::BTreeMap;

use annulus_ring::{Availability, Epoch, Incarnation, Member, NodeId, Position, SessionId, Slot};

use crate::{RingState, WaveId, due::WAVE_PAUSE_MS};

/// Silent for this long: suspect, in ms.
pub const SUSPECT_MS: u64 = 5_000;
/// Silent for this long: down, in ms.
pub const DOWN_MS: u64 = 10_000;
/// How long a node that was down must be heard before it is up again, in ms. Doubles each time it
/// goes down again within [`HOLD_DOWN_MAX_MS`] of its return.
pub const HOLD_DOWN_MS: u64 = 30_000;
/// The longest hold-down, in ms.
pub const HOLD_DOWN_MAX_MS: u64 = 60 * 60 * 1000;

/// One ring's nodes as the leader hears them. Bounded by the roster and by slots x rf.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    nodes: BTreeMap<NodeId, NodeReport>,
    /// The running wave, and since when this leader sees it: a new leader counts a full budget.
    wave_since: Option<(WaveId, u64)>,
    /// Waves wait until then after one was aborted.
    wave_not_before_ms: u64,
    /// Owners are as even as lists allow in this layout, with these members in maintenance and
    /// these down.
    even_at: Option<(Epoch, Vec<NodeId>)>,
    last_permit_ms: u64,
    /// When this leader first looked: everybody has a full window from then.
    office_since_ms: Option<u64>,
    /// The running conversion, and since when this leader sees it.
    converting_since: Option<(Epoch, u64)>,
    /// The ring's last conversion: what a node says of slots under an older epoch is of others.
    converted: Epoch,
    /// Members that were silent for too long, or were lately.
    watched: BTreeMap<NodeId, Watched>,
    /// When a member was last seen in maintenance: its silence counts from then.
    excused: BTreeMap<NodeId, u64>,
    #[cfg(feature = "bait")]
    skip_joint: bool,
}

/// The leader's opinion of a member, from its own monotonic clock. Nothing depends on it but who is
/// tried last ([`Availability`]) and what people are told; it moves no ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// Heard lately.
    Up,
    /// Silent for [`SUSPECT_MS`].
    Suspect,
    /// Silent for [`DOWN_MS`].
    Down,
    /// Heard again, and its hold-down runs.
    Recovering,
}

impl Word {
    /// The word used everywhere.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
            Self::Recovering => "recovering",
        }
    }
}

/// What is remembered of a member that was down.
#[derive(Clone, Debug)]
struct Watched {
    down: bool,
    /// Since when, as this leader sees it.
    down_since_ms: u64,
    /// Heard again without a pause since then.
    back_since_ms: Option<u64>,
    /// How long it must be heard this time.
    hold_down_ms: u64,
    /// When it was taken for up again the last time.
    returned_ms: u64,
}

/// What one linked node has said on its present link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// In which life.
    pub incarnation: Incarnation,
    /// Its directory was empty when it said Hello.
    pub empty: bool,
    /// The link is open.
    pub linked: bool,
    /// Leader's monotonic clock, in ms, when it was last heard.
    pub heard_ms: u64,
    /// Adopted and drained.
    pub adopted: Epoch,
    /// Standing of copies, by (session, slot); session 0: live copies.
    pub slots: BTreeMap<(SessionId, Slot), SlotStanding>,
    /// Digests that a source made for others, by (session, slot, gainer).
    pub source_digests: BTreeMap<(SessionId, Slot, NodeId), Digest>,
    /// The wave it sealed as owner, with F per slot.
    pub sealed: Option<(WaveId, Vec<Position>)>,
    /// The wave whose F it holds as successor.
    pub confirmed: Option<(WaveId, Vec<Position>)>,
    /// The failover whose owner it durably refuses in all ranges that list it.
    pub fenced: Option<WaveId>,
    /// The failover for which it stored, as successor, the tails of these nodes.
    pub succeeded: Option<(WaveId, Vec<NodeId>)>,
    /// Copies it keeps; none before its first report.
    pub retained: Option<BTreeMap<SessionId, Vec<Slot>>>,
    /// Payload bytes copied in the running session.
    pub copied_bytes: u64,
    /// Free bytes on its disk.
    pub free_bytes: u64,
    /// What its live copies hold; none while it does not know.
    pub held: Option<Held>,
    /// How fast it copies ranges that it gains, in bytes a second; 0: as fast as it goes.
    pub copy_bytes_per_second: u64,
    /// Ranges that list it and of which it holds no copy.
    pub unheld: u32,
    /// Ranges that list it, that another owns, and of which it lacks the base of the present reign
    /// or something below what it holds.
    pub behind: u32,
    /// As gainer of a cache ring: the session, and its hits of 1,000 lookups.
    pub hits: Option<(SessionId, u16)>,
}

/// What live copies hold, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes of keys and values; tombstones count with their keys.
    pub bytes: u64,
    /// Keys that have a value.
    pub keys: u64,
}

/// One copy's standing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotStanding {
    /// Try at the range within the session.
    pub attempt: u32,
    /// Staging is durably open.
    pub staged: bool,
    /// Cut of the complete copy.
    pub copied: Option<Position>,
    /// Held without holes up to here.
    pub watermark: Option<Position>,
    /// Digest at a cut, and whose it equalled or differed from.
    pub digest: Option<Digest>,
    /// As owner: last position when the joint epoch was drained.
    pub joint: Option<Position>,
}

/// A digest at a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Where.
    pub cut: Position,
    /// SHA-256 based; see the agent's contract.
    pub digest: [u8; 32],
    /// How many records.
    pub records: u64,
    /// The epoch the node had adopted when this was reported.
    pub adopted: Epoch,
}

/// One report, decoded.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Adopted and drained.
    pub adopted: Epoch,
    /// Changed standings.
    pub slots: Vec<SlotReport>,
    /// See [`NodeReport::sealed`].
    pub sealed: Option<(WaveId, Vec<Position>)>,
    /// See [`NodeReport::confirmed`].
    pub confirmed: Option<(WaveId, Vec<Position>)>,
    /// See [`NodeReport::fenced`].
    pub fenced: Option<WaveId>,
    /// See [`NodeReport::succeeded`].
    pub succeeded: Option<(WaveId, Vec<NodeId>)>,
    /// See [`NodeReport::retained`]; the whole list each time.
    pub retained: Vec<(SessionId, Vec<Slot>)>,
    /// See [`NodeReport::copied_bytes`].
    pub copied_bytes: u64,
    /// See [`NodeReport::free_bytes`].
    pub free_bytes: u64,
    /// See [`NodeReport::held`].
    pub held: Option<Held>,
    /// See [`NodeReport::copy_bytes_per_second`].
    pub copy_bytes_per_second: u64,
    /// See [`NodeReport::unheld`].
    pub unheld: u32,
    /// See [`NodeReport::behind`].
    pub behind: u32,
    /// See [`NodeReport::hits`].
    pub hits: Option<(SessionId, u16)>,
}

/// One slot of a report: each field given replaces what was known.
#[derive(Clone, Debug, Default)]
pub struct SlotReport {
    /// Which.
    pub slot: Slot,
    /// Session, 0 for a live copy.
    pub session: SessionId,
    /// Which try.
    pub attempt: u32,
    /// Staging is open.
    pub staged: bool,
    /// Cut of the complete copy.
    pub copied: Option<Position>,
    /// Held without holes up to here.
    pub watermark: Option<Position>,
    /// Digest (cut, digest, records); with `for_gainer` it is the source's.
    pub digest: Option<(Position, [u8; 32], u64)>,
    /// The digest was made as source, for this node.
    pub for_gainer: Option<NodeId>,
    /// J of this owner.
    pub joint: Option<Position>,
}

impl NodeReport {
    /// All that it said of slots.
    fn forget_slots(&mut self) {
        *self = Self {
            incarnation: self.incarnation,
            empty: self.empty,
            linked: self.linked,
            heard_ms: self.heard_ms,
            adopted: self.adopted,
            copied_bytes: self.copied_bytes,
            free_bytes: self.free_bytes,
            held: self.held,
            copy_bytes_per_second: self.copy_bytes_per_second,
            ..Self::default()
        };
    }
}

impl Reports {
    /// A link opened: whatever the node said on an older link is forgotten.
    pub fn hello(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        empty: bool,
        adopted: Epoch,
        now_ms: u64,
    ) {
        let report = NodeReport {
            incarnation,
            empty,
            linked: true,
            heard_ms: now_ms,
            adopted,
            ..NodeReport::default()
        };
        self.nodes.insert(node, report);
    }

    /// The node's link closed; what it said stays true, as it was durable.
    pub fn unlink(&mut self, node: &NodeId) {
        if let Some(report) = self.nodes.get_mut(node) {
            report.linked = false;
        }
    }

    /// The node was heard.
    pub fn heard(&mut self, node: &NodeId, now_ms: u64) {
        if let Some(report) = self.nodes.get_mut(node) {
            report.heard_ms = now_ms;
        }
    }

    /// Takes in a report. Late and repeated ones are harmless: an adopted epoch never falls, an
    /// older attempt never replaces a newer one, and what was kept under an older epoch is not what
    /// is kept.
    pub fn take(&mut self, node: &NodeId, report: Report, now_ms: u64) {
        let Some(known) = self.nodes.get_mut(node) else {
            return;
        };
        known.heard_ms = now_ms;
        if report.adopted < self.converted {
            // It opens a new link once it has adopted the conversion, and says everything again.
            return;
        }
        let is_late = report.adopted < known.adopted;
        known.adopted = known.adopted.max(report.adopted);
        // A digest is as young as the report it came with, however late that arrives.
        let adopted = report.adopted;
        for slot in report.slots {
            let digest = slot.digest.map(|(cut, digest, records)| Digest {
                cut,
                digest,
                records,
                adopted,
            });
            if let Some(gainer) = slot.for_gainer {
                if let Some(digest) = digest {
                    known
                        .source_digests
                        .insert((slot.session, slot.slot, gainer), digest);
                }
                continue;
            }
            let standing = known.slots.entry((slot.session, slot.slot)).or_default();
            if slot.attempt < standing.attempt {
                continue;
            }
            if slot.attempt > standing.attempt {
                *standing = SlotStanding {
                    joint: standing.joint,
                    ..SlotStanding::default()
                };
                standing.attempt = slot.attempt;
            }
            standing.staged |= slot.staged;
            standing.copied = slot.copied.or(standing.copied);
            standing.watermark = standing.watermark.max(slot.watermark);
            standing.joint = standing.joint.max(slot.joint);
            if digest.is_some() {
                standing.digest = digest;
            }
        }
        if report.sealed.is_some() {
            known.sealed = report.sealed;
        }
        if report.confirmed.is_some() {
            known.confirmed = report.confirmed;
        }
        if report.fenced.is_some() {
            known.fenced = report.fenced;
        }
        if report.succeeded.is_some() {
            known.succeeded = report.succeeded;
        }
        // A late one does not know of copies that became retained since: they would be taken for
        // deleted.
        if !is_late {
            known.retained = Some(report.retained.into_iter().collect());
        }
        known.copied_bytes = report.copied_bytes;
        known.free_bytes = report.free_bytes;
        known.held = report.held;
        known.copy_bytes_per_second = report.copy_bytes_per_second;
        known.unheld = report.unheld;
        known.behind = report.behind;
        known.hits = report.hits;
    }

    /// Looks at the state before the next step is judged: what has ended is forgotten.
    pub(crate) fn see(&mut self, ring: &RingState, now_ms: u64) {
        match (&ring.wave, self.wave_since) {
            (Some(wave), Some((id, _))) if wave.id == id => {}
            (Some(wave), _) => self.wave_since = Some((wave.id, now_ms)),
            (None, _) => self.wave_since = None,
        }
        match (&ring.conversion, self.converting_since) {
            (Some(running), Some((begun, _))) if running.begun == begun => {}
            (Some(running), _) => self.converting_since = Some((running.begun, now_ms)),
            (None, _) => self.converting_since = None,
        }
        if ring.converted != self.converted {
            self.converted = ring.converted;
            self.nodes.values_mut().for_each(NodeReport::forget_slots);
        }
        let session = ring
            .transition
            .as_ref()
            .map(crate::TransitionState::session);
        let live = SessionId(0);
        self.forget_sessions(|other| other == live || Some(other) == session);
        self.watched
            .retain(|node, _| ring.members.contains_key(node));
        self.excused
            .retain(|node, _| ring.members.contains_key(node));
        for node in ring.maintenance.keys() {
            self.excused.insert(node.clone(), now_ms);
        }
        for member in ring.members.values() {
            self.watch(member, ring.epoch, now_ms);
        }
    }

    fn watch(&mut self, member: &Member, epoch: Epoch, now_ms: u64) {
        let silent = self.silent_ms(member, now_ms);
        let committed_down = member.availability == Availability::Down;
        let Some(watched) = self.watched.get_mut(&member.node_id) else {
            // A new leader takes over what is committed; its own opinion needs a full window.
            if committed_down || silent >= DOWN_MS {
                let heard = self.nodes.contains_key(&member.node_id);
                let watched = Watched {
                    down: true,
                    down_since_ms: now_ms,
                    back_since_ms: (heard && silent < SUSPECT_MS).then_some(now_ms),
                    hold_down_ms: HOLD_DOWN_MS,
                    returned_ms: 0,
                };
                self.watched.insert(member.node_id.clone(), watched);
            }
            return;
        };
        if !watched.down {
            if silent >= DOWN_MS {
                watched.hold_down_ms = (watched.hold_down_ms * 2).min(HOLD_DOWN_MAX_MS);
                watched.down = true;
                watched.down_since_ms = now_ms;
                watched.back_since_ms = None;
            } else if now_ms.saturating_sub(watched.returned_ms) >= HOLD_DOWN_MAX_MS {
                self.watched.remove(&member.node_id);
            }
        } else if silent >= SUSPECT_MS {
            watched.back_since_ms = None;
        } else {
            let since = *watched.back_since_ms.get_or_insert(now_ms);
            let current = self
                .nodes
                .get(&member.node_id)
                .is_some_and(|report| report.adopted >= epoch && report.behind == 0);
            if current && now_ms.saturating_sub(since) >= watched.hold_down_ms {
                watched.down = false;
                watched.back_since_ms = None;
                watched.returned_ms = now_ms;
            }
        }
    }

    /// How long a member has said nothing, in the member's life.
    fn silent_ms(&mut self, member: &Member, now_ms: u64) -> u64 {
        let office_since_ms = *self.office_since_ms.get_or_insert(now_ms);
        let heard_ms = self
            .nodes
            .get(&member.node_id)
            .filter(|report| report.incarnation == member.incarnation)
            .map_or(office_since_ms, |report| report.heard_ms);
        let excused_ms = self.excused.get(&member.node_id).copied().unwrap_or(0);
        now_ms.saturating_sub(heard_ms.max(excused_ms))
    }

    /// The leader's word for a member, as of the last look.
    #[must_use]
    pub fn word(&self, member: &Member, now_ms: u64) -> Word {
        match self.watched.get(&member.node_id) {
            Some(watched) if watched.down && watched.back_since_ms.is_some() => Word::Recovering,
            Some(watched) if watched.down => Word::Down,
            _ => {
                let heard_ms = self
                    .nodes
                    .get(&member.node_id)
                    .map(|report| report.heard_ms)
                    .or(self.office_since_ms)
                    .max(self.excused.get(&member.node_id).copied());
                let silent = heard_ms.map_or(0, |heard| now_ms.saturating_sub(heard));
                if silent >= SUSPECT_MS {
                    Word::Suspect
                } else {
                    Word::Up
                }
            }
        }
    }

    /// How long a member has been down without being heard again, in ms.
    pub(crate) fn down_ms(&self, node: &NodeId, now_ms: u64) -> Option<u64> {
        let watched = self.watched.get(node)?;
        let down = watched.down && watched.back_since_ms.is_none();
        down.then(|| now_ms.saturating_sub(watched.down_since_ms))
    }

    /// What the snapshot should say of a member.
    pub(crate) fn availability(&self, node: &NodeId) -> Availability {
        if self.watched.get(node).is_some_and(|watched| watched.down) {
            Availability::Down
        } else {
            Availability::Up
        }
    }

    /// How long this leader has seen the running conversion.
    pub(crate) fn converting_ms(&self, now_ms: u64) -> u64 {
        let since = self.converting_since.map_or(now_ms, |(_, since)| since);
        now_ms.saturating_sub(since)
    }

    /// The running wave has used its budget up; the next one pauses.
    pub(crate) fn wave_ran_out(&mut self, wave: WaveId, budget_ms: u64, now_ms: u64) -> bool {
        let over = self
            .wave_since
            .is_some_and(|(id, since)| id == wave && now_ms.saturating_sub(since) > budget_ms);
        if over {
            self.wave_not_before_ms = now_ms + WAVE_PAUSE_MS;
        }
        over
    }

    pub(crate) fn may_begin_wave(&self, now_ms: u64) -> bool {
        now_ms >= self.wave_not_before_ms
    }

    /// Whether nothing about owners changed since they were found to be even.
    pub(crate) fn is_even(&self, ring: &RingState) -> bool {
        let known = self.even_at.as_ref();
        known.is_some_and(|(epoch, aside)| *epoch == ring.layout_epoch && *aside == set_aside(ring))
    }

    pub(crate) fn note_even(&mut self, ring: &RingState) {
        self.even_at = Some((ring.layout_epoch, set_aside(ring)));
    }

    pub(crate) fn permit_waited(&self, now_ms: u64, pause_ms: u64) -> bool {
        now_ms.saturating_sub(self.last_permit_ms) > pause_ms
    }

    pub(crate) fn note_permit(&mut self, now_ms: u64) {
        self.last_permit_ms = now_ms;
    }

    /// Bait `switch-not-waiting-for-joint`: the switch is proposed without J.
    #[cfg(feature = "bait")]
    pub fn bait_skip_joint(&mut self) {
        self.skip_joint = true;
    }

    #[cfg(feature = "bait")]
    pub(crate) fn skips_joint(&self) -> bool {
        self.skip_joint || crate::bait::on("switch-not-waiting-for-joint")
    }

    #[cfg(not(feature = "bait"))]
    pub(crate) fn skips_joint(&self) -> bool {
        false
    }

    /// Drops what belongs to sessions that have ended, so that memory stays bounded.
    pub fn forget_sessions(&mut self, keep: impl Fn(SessionId) -> bool) {
        for report in self.nodes.values_mut() {
            report.slots.retain(|(session, _), _| keep(*session));
            report
                .source_digests
                .retain(|(session, _, _), _| keep(*session));
        }
    }

    /// What one node said.
    #[must_use]
    pub fn node(&self, node: &NodeId) -> Option<&NodeReport> {
        self.nodes.get(node)
    }

    /// All nodes heard, by id.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeId, &NodeReport)> {
        self.nodes.iter()
    }
}

/// Members that own nothing for now: in maintenance, or down.
fn set_aside(ring: &RingState) -> Vec<NodeId> {
    let down = |member: &&Member| {
        member.availability == Availability::Down || ring.maintenance.contains_key(&member.node_id)
    };
    let aside = ring.members.values().filter(down);
    aside.map(|member| member.node_id.clone()).collect()
}
