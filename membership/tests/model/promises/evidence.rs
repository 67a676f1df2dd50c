//! EVIDENCE: no step is entered but on the word of everybody it waits for, in this life and session
//! and under this epoch, and the word is true. NO-EARLY-READ: a gainer is read from the switch on.

use std::collections::{BTreeMap, BTreeSet};

use annulus_membership::{Evidence, RingCommand, RingState, TransitionState, evidence::slots_root};
use annulus_ring::{Handle, NodeId, Slot, Step};

use super::{Memory, Seen, as_set, ensure};
use crate::node::Node;

pub fn check(seen: &Seen<'_>, _: &Memory) -> Result<(), String> {
    let Some((before, _)) = seen.rings() else {
        return Ok(());
    };
    let Some(RingCommand::Advance { evidence, .. }) = seen.done() else {
        return Ok(());
    };
    let Some(transition) = &before.transition else {
        return Err("a step was entered without a transition".to_owned());
    };
    let roles = Roles::of(before, transition);
    claimed(before, transition, &roles, evidence)?;
    soaked(seen, before, transition)?;
    for (slot, source, gainer) in &roles.gains {
        truly_held(seen, before, transition, *slot, *source, *gainer)?;
    }
    if transition.step == Step::Joint {
        for (slot, source, stayer) in &roles.stays {
            truly_stays(seen, before, transition, *slot, *source, *stayer)?;
        }
    }
    for handle in roles.waited_for(transition.step) {
        if is_excused(before, transition, handle) {
            continue;
        }
        let Some(node) = seen.holder(before, handle) else {
            return Err(format!("nobody has the life of handle {}", handle.0));
        };
        let (id, adopted, wanted) = (node.id(), node.adopted, transition.step_epoch);
        ensure(adopted >= wanted, || {
            format!("{id} adopted {adopted}, and {wanted} was taken for acked")
        })?;
    }
    Ok(())
}

/// Reads never reach a gainer before the switch, nor on the way back.
pub fn no_early_read(seen: &Seen<'_>, _: &Memory) -> Result<(), String> {
    let Some((_, after)) = seen.rings() else {
        return Ok(());
    };
    let Some(transition) = &after.transition else {
        return Ok(());
    };
    for slot in transition.target.keys() {
        let sets = after.sets(*slot);
        let early = transition.step != Step::Switched
            && sets
                .gainers()
                .any(|gainer| sets.read_set().contains(&gainer));
        ensure(!early, || {
            format!("slot {slot} is read from a gainer at {}", transition.step)
        })?;
    }
    Ok(())
}

/// Who owns, gains and loses what, by the lists alone.
struct Roles {
    owners: BTreeSet<Handle>,
    gainers: BTreeSet<Handle>,
    losers: BTreeSet<Handle>,
    holders: BTreeSet<Handle>,
    /// Members that stay and must prove what they hold: other quorums count on them.
    stayers: BTreeSet<Handle>,
    /// Slot, source, gainer.
    gains: Vec<(Slot, Handle, Handle)>,
    /// Slot, source, stayer.
    stays: Vec<(Slot, Handle, Handle)>,
    /// Whether every range changes its quorums.
    requorum: bool,
}

impl Roles {
    fn of(ring: &RingState, transition: &TransitionState) -> Self {
        let mut roles = Self {
            owners: BTreeSet::new(),
            gainers: BTreeSet::new(),
            losers: BTreeSet::new(),
            holders: BTreeSet::new(),
            stayers: BTreeSet::new(),
            gains: Vec::new(),
            stays: Vec::new(),
            requorum: transition.requorum.is_some(),
        };
        let quorums = ring.quorums();
        for (slot, new) in &transition.target {
            let (was, is) = (as_set(ring.slots.list(*slot)), as_set(new));
            roles.losers.extend(was.difference(&is));
            roles.holders.extend(&is);
            let Some(owner) = ring.slots.list(*slot).first() else {
                continue;
            };
            if roles.requorum {
                roles.owners.insert(*owner);
            }
            if ring.sets(*slot).stayers_must_prove(quorums) {
                for stayer in is.intersection(&was).filter(|one| *one != owner) {
                    roles.owners.insert(*owner);
                    roles.stayers.insert(*stayer);
                    roles.stays.push((*slot, *owner, *stayer));
                }
            }
            for gainer in is.difference(&was) {
                roles.owners.insert(*owner);
                roles.gainers.insert(*gainer);
                roles.gains.push((*slot, *owner, *gainer));
            }
        }
        roles
    }

    /// Members of the step's barrier (design section 5).
    fn waited_for(&self, step: Step) -> BTreeSet<Handle> {
        match step {
            Step::FlippingBack if self.requorum => {
                self.gainers.union(&self.holders).copied().collect()
            }
            Step::Prepared | Step::Copying | Step::CatchingUp | Step::FlippingBack => {
                self.gainers.clone()
            }
            Step::Writing => self.owners.clone(),
            Step::Verified => BTreeSet::new(),
            Step::Joint => {
                let all = self.owners.iter().chain(&self.gainers).chain(&self.stayers);
                all.copied().collect()
            }
            Step::Switched => self.losers.union(&self.holders).copied().collect(),
        }
    }
}

/// What the command says is complete, current and equal.
fn claimed(
    ring: &RingState,
    transition: &TransitionState,
    roles: &Roles,
    evidence: &Evidence,
) -> Result<(), String> {
    let mut speakers = BTreeSet::new();
    for said in &evidence.nodes {
        let id = &said.node;
        let Some(member) = ring.members.get(id) else {
            return Err(format!("{id} is no member"));
        };
        speakers.insert(member.handle);
        ensure(said.incarnation == member.incarnation, || {
            format!("{id} spoke in incarnation {}", said.incarnation)
        })?;
        ensure(said.session.0 == transition.id.0, || {
            format!("{id} spoke of session {}", said.session)
        })?;
        ensure(said.acked_epoch >= transition.step_epoch, || {
            format!("{id} acked epoch {} only", said.acked_epoch)
        })?;
    }
    let wanted = roles.waited_for(transition.step);
    let absent: Vec<&Handle> = wanted.difference(&speakers).collect();
    let excused = absent
        .iter()
        .all(|handle| is_excused(ring, transition, **handle));
    let complete = speakers.is_subset(&wanted) && evidence.nodes.len() == speakers.len() && excused;
    ensure(complete, || {
        format!("{speakers:?} spoke, {wanted:?} were to")
    })?;

    let (staged, both) = match transition.step {
        Step::Prepared => (true, false),
        Step::Copying => (false, false),
        Step::CatchingUp | Step::Joint => (false, true),
        Step::Writing | Step::Verified | Step::Switched | Step::FlippingBack => {
            return ensure(evidence.pairs.is_empty(), || "pairs spoke".to_owned());
        }
    };
    let id = |handle: &Handle| ring.by_handle(*handle).map(|one| one.node_id.clone());
    let mut pairs: BTreeMap<(Option<NodeId>, Option<NodeId>), Vec<Slot>> = BTreeMap::new();
    let stays = roles
        .stays
        .iter()
        .filter(|_| transition.step == Step::Joint);
    for (slot, source, gainer) in roles.gains.iter().chain(stays) {
        pairs
            .entry((id(source), id(gainer)))
            .or_default()
            .push(*slot);
    }
    ensure(pairs.len() == evidence.pairs.len(), || {
        "a pair is missing".to_owned()
    })?;
    for said in &evidence.pairs {
        let key = (Some(said.source.clone()), Some(said.gainer.clone()));
        let slots = pairs.get(&key).map_or(&[][..], Vec::as_slice);
        let (from, to) = (&said.source, &said.gainer);
        ensure(
            slots.len() == said.ranges as usize && !slots.is_empty(),
            || {
                format!(
                    "{from} and {to} speak of {} ranges, not {}",
                    said.ranges,
                    slots.len()
                )
            },
        )?;
        let equal = !both || said.source_root == Some(said.gainer_root);
        let open = !staged || said.gainer_root == slots_root(slots);
        ensure(equal && open, || format!("{from} and {to} do not agree"))?;
    }
    Ok(())
}

/// Whether nobody need wait for a member: it is taken for dead, and either an operator says that its
/// process is stopped, or n - r + 1 others of each list that was read refuse reads of before.
fn is_excused(ring: &RingState, transition: &TransitionState, handle: Handle) -> bool {
    let Some(member) = ring.by_handle(handle) else {
        return false;
    };
    let is_back = transition.step == Step::FlippingBack;
    if !is_back && transition.step != Step::Switched {
        return false;
    }
    let dead: BTreeSet<Handle> = ring
        .burials()
        .filter_map(|(node, _)| Some(ring.members.get(node)?.handle))
        .collect();
    let quorums = ring.quorums();
    let r = usize::from(if is_back {
        quorums.new.r
    } else {
        quorums.old.r
    });
    let fenced = transition.target.iter().all(|(slot, new)| {
        let old = ring.slots.list(*slot);
        let read = if is_back { new.as_slice() } else { old };
        let left = read.iter().filter(|one| !dead.contains(one)).count();
        !read.contains(&handle) || left + r > read.len()
    });
    let mut burials = ring.burials();
    burials.any(|(node, said)| *node == member.node_id && (said.stopped.is_some() || fenced))
}

/// A member that stays holds everything up to J, since quorums count on it.
fn truly_stays(
    seen: &Seen<'_>,
    ring: &RingState,
    transition: &TransitionState,
    slot: Slot,
    source: Handle,
    stayer: Handle,
) -> Result<(), String> {
    let (Some(from), Some(to)) = (seen.holder(ring, source), seen.holder(ring, stayer)) else {
        return Err(format!("slot {slot}: nobody has the life of its ends"));
    };
    let joint = from.joint.get(&(transition.session(), slot));
    ensure(joint.is_some() && to.live.get(&slot) >= joint, || {
        format!(
            "{} stays in slot {slot} and lacks writes up to J of {}",
            to.id(),
            from.id()
        )
    })
}

/// The old lists get every write until the soak is over, or an operator says so.
fn soaked(seen: &Seen<'_>, ring: &RingState, transition: &TransitionState) -> Result<(), String> {
    let over_at = transition.step_since_ms + ring.config.soak_ms;
    let over = transition.settle_now || seen.before.ring_time_ms >= over_at;
    // Where no list changed there is nothing to go back to.
    let over = over || transition.target.is_empty();
    ensure(transition.step != Step::Switched || over, || {
        format!(
            "ended {} ms before its soak",
            over_at - seen.before.ring_time_ms
        )
    })?;
    let leaves = |(slot, new): (&Slot, &annulus_ring::List)| {
        let owner = ring.slots.list(*slot).first();
        owner.is_some_and(|owner| !new.contains(owner))
    };
    let waits = transition.step == Step::Prepared && transition.target.iter().any(leaves);
    ensure(!waits, || {
        "writes begin while an owner that leaves has not handed over".to_owned()
    })
}

/// The step is true of one range and its gainer.
fn truly_held(
    seen: &Seen<'_>,
    ring: &RingState,
    transition: &TransitionState,
    slot: Slot,
    source: Handle,
    gainer: Handle,
) -> Result<(), String> {
    let (Some(from), Some(to)) = (seen.holder(ring, source), seen.holder(ring, gainer)) else {
        return Err(format!("slot {slot}: nobody has the life of its ends"));
    };
    let key = (transition.session(), slot);
    let staged = to.staging.get(&key);
    let lacks = |what: &str| {
        let Node { adopted, .. } = to;
        format!(
            "{} (epoch {adopted}) has not {what} slot {slot} in session {}",
            to.id(),
            key.0
        )
    };
    match transition.step {
        Step::Prepared => ensure(staged.is_some(), || lacks("opened staging for")),
        Step::Copying => {
            let copied = staged.is_some_and(|staged| staged.cut.is_some());
            ensure(copied, || lacks("copied"))
        }
        Step::CatchingUp => {
            let good = staged.is_some_and(|one| !one.damaged && one.mark >= one.cut);
            ensure(good, || lacks("verified"))
        }
        Step::Joint => {
            let joint = from.joint.get(&key);
            let good = staged.is_some_and(|one| !one.damaged && one.mark.as_ref() >= joint);
            ensure(joint.is_some() && good, || lacks("merged up to J of"))
        }
        Step::Writing | Step::Verified | Step::Switched | Step::FlippingBack => Ok(()),
    }
}
