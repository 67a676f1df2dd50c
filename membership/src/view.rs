//! State to snapshot, and to the facts that operators ask for.

use std::collections::BTreeMap;

use annulus_ring::{
    Availability, Candidate, Handle, Layout, Member, MemberState, NodeId, Replication, RingName,
    SlotChange, Snapshot, Transition, Weight,
    place::{self, Shortfall},
    snapshot::FORMAT,
};

use crate::{Requorum, RingState, State};

impl State {
    /// The newest snapshot of a ring; none before the cluster and the ring exist. O(slots x rf).
    #[must_use]
    pub fn snapshot(&self, name: &RingName) -> Option<Snapshot> {
        let ring = self.rings.get(name)?;
        Some(Snapshot {
            format: FORMAT,
            cluster_id: self.cluster_id?,
            ring: name.clone(),
            generation: ring.generation,
            epoch: ring.epoch,
            previous_checksum: ring.previous_checksum,
            created_at_ms: ring.published_at_ms,
            layout: Layout {
                placement_version: annulus_ring::ASSIGNER_VERSION,
                hash: ring.config.hash,
                seed: ring.config.seed,
                replication: ring.replication(),
                slots: ring.slots.clone(),
            },
            members: ring.members.values().cloned().collect(),
            transition: ring.transition.as_ref().map(|transition| Transition {
                id: transition.id,
                step: transition.step,
                target: transition
                    .target
                    .iter()
                    .map(|(slot, to)| SlotChange {
                        slot: *slot,
                        to: to.clone(),
                    })
                    .collect(),
                replication: transition.requorum.map(|both| both.to),
            }),
        })
    }
}

/// Candidates that may hold ranges.
pub(crate) fn weighty(candidates: &[Candidate]) -> usize {
    let weighty = candidates.iter().filter(|one| one.weight.get() > 0);
    weighty.count()
}

/// What is asked of lists over so many nodes: no more of them than there are.
pub(crate) fn with_nodes(configured: Replication, nodes: usize) -> Replication {
    match u8::try_from(nodes) {
        Ok(few) if few > 0 && few < configured.w => Replication {
            rf: configured.rf,
            w: few,
            r: configured.r.min(few),
        },
        _ => configured,
    }
}

impl RingState {
    /// rf, w and r as published for the lists that hold until a transition's end. A ring founded
    /// with fewer nodes than w needs (`--accept`) works with as many as it has, visibly, until it
    /// has grown.
    #[must_use]
    pub fn replication(&self) -> Replication {
        let running = self.transition.as_ref();
        if let Some(both) = running.and_then(|transition| transition.requorum) {
            return both.from;
        }
        with_nodes(self.config.replication, self.holders())
    }

    /// Members with weight that the lists before a running transition are made of: who joins by it
    /// does not count yet, who leaves by it does until its end. Else quorums would change under way
    /// where a node comes into weight as another leaves.
    fn holders(&self) -> usize {
        let running = self.transition.as_ref();
        let counts = |member: &&Member| {
            let id = &member.node_id;
            let joins = running.is_some_and(|one| one.joining.contains(id));
            let leaves = running.is_some_and(|one| one.draining.contains(id));
            member.weight.get() > 0 && !joins && (member.state != MemberState::Draining || leaves)
        };
        self.members.values().filter(counts).count()
    }

    /// How far the lists are from what the members allow.
    #[must_use]
    pub fn shortfall(&self) -> Shortfall {
        let mut candidates = self.candidates();
        // A member that drains still counts where it is listed, and asks for nothing.
        let draining = self
            .members
            .values()
            .filter(|one| one.state == MemberState::Draining);
        candidates.extend(draining.map(|member| Candidate {
            handle: member.handle,
            zone: member.zone.clone(),
            weight: Weight::ZERO,
        }));
        place::shortfall(&self.slots, &candidates)
    }

    /// Per member: in how many lists it is, and how many it leads, at this moment's read sets.
    #[must_use]
    pub fn shares(&self) -> BTreeMap<NodeId, (u32, u32)> {
        let mut by_handle: BTreeMap<_, (u32, u32)> = BTreeMap::new();
        for slot in self.slots.slots() {
            for (at, handle) in self.sets(slot).read_set().iter().enumerate() {
                let share = by_handle.entry(*handle).or_default();
                share.0 += 1;
                share.1 += u32::from(at == 0);
            }
        }
        let share = |member: &Member| by_handle.get(&member.handle).copied().unwrap_or_default();
        self.members
            .values()
            .map(|member| (member.node_id.clone(), share(member)))
            .collect()
    }

    /// Sentences on balance and spread that an operator should see.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        if !self.founded {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        let Shortfall { short, unspread } = self.shortfall();
        if short > 0 {
            warnings.push(format!(
                "{short} range(s) have fewer replicas than they should"
            ));
        }
        if unspread > 0 {
            warnings.push(format!(
                "{unspread} range(s) spread over fewer zones than possible"
            ));
        }
        let down: Vec<&Member> = self
            .members
            .values()
            .filter(|member| member.availability == Availability::Down)
            .collect();
        if !down.is_empty() {
            let lies = |handle: &Handle| down.iter().any(|member| member.handle == *handle);
            let slots = self.slots.slots();
            let lame = slots.filter(|slot| self.slots.list(*slot).iter().any(lies));
            let names: Vec<_> = down.iter().map(|member| member.node_id.as_str()).collect();
            warnings.push(format!(
                "{} range(s) have a replica on a node that is down ({})",
                lame.count(),
                names.join(", ")
            ));
        }
        let running = self.transition.as_ref();
        if let Some(Requorum { from, to }) = running.and_then(|one| one.requorum) {
            warnings.push(format!(
                "replication changes from rf {} w {} r {} to rf {} w {} r {} with the running \
                 transition",
                from.rf, from.w, from.r, to.rf, to.w, to.r
            ));
        }
        let (published, configured) = (self.replication(), self.config.replication);
        if published.w < configured.w {
            warnings.push(format!(
                "w is {} instead of {} until more nodes join",
                published.w, configured.w
            ));
        }
        let zones: std::collections::BTreeSet<_> = self
            .members
            .values()
            .filter(|member| member.weight.get() > 0)
            .map(|member| &member.zone)
            .collect();
        let rf = usize::from(configured.rf);
        if zones.len() < rf {
            warnings.push(format!(
                "zone spread is not met: {} zone(s) for rf {rf}; the loss of one may take \
                 several copies of a range",
                zones.len()
            ));
        }
        let total = u32::try_from(self.slots.slot_count()).unwrap_or(u32::MAX);
        let full: Vec<_> = self
            .shares()
            .into_iter()
            .filter(|(_, (replicas, _))| *replicas == total)
            .map(|(node, _)| node.to_string())
            .collect();
        let alone = self.candidates().len() > rf;
        if alone && !full.is_empty() {
            warnings.push(format!("{} carry 100 % of the ranges", full.join(", ")));
        }
        warnings
    }
}
