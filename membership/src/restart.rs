//! Which members can be stopped together without any range falling under its quorums.

use std::collections::{BTreeMap, BTreeSet};

use annulus_ring::{Handle, NodeId, Replication, Slot};

use crate::{Rejection, Reports, RingState, Word, due::current};

/// The answer to "may these be stopped?".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restart {
    /// All that were asked about can be stopped at the same time.
    pub together: bool,
    /// Who can be stopped together, one batch after the other has come back; sorted by zone, then
    /// node, each node at most once.
    pub batches: Vec<Vec<NodeId>>,
    /// Who cannot be stopped at all, and why.
    pub blocked: Vec<Blocked>,
}

/// A node without which some range has too few members that are up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Who.
    pub node: NodeId,
    /// A slot that would fall short.
    pub slot: Slot,
    /// Members of its list left up.
    pub up: usize,
    /// w or r of the list, whichever is more.
    pub need: usize,
}

/// One list that needs so many of its members up.
struct Need {
    slot: Slot,
    list: Vec<Handle>,
    up: usize,
    need: usize,
}

/// Lists by which writes are acknowledged or reads answered, each with what it needs.
fn needs(ring: &RingState, up: &BTreeSet<Handle>) -> Vec<Need> {
    let quorums = ring.quorums();
    let most = |replication: Replication| usize::from(replication.w.max(replication.r));
    let mut needs = Vec::new();
    for slot in ring.slots.slots() {
        let sets = ring.sets(slot);
        for (at, group) in sets.groups(quorums).iter().enumerate() {
            let of = if at == 0 { quorums.old } else { quorums.new };
            needs.push(Need {
                slot,
                list: group.list.to_vec(),
                up: group.list.iter().filter(|one| up.contains(one)).count(),
                need: most(of),
            });
        }
    }
    needs
}

/// Who is there now, by what the leader hears: linked, not silent, and not in maintenance.
pub fn up<'a>(
    ring: &'a RingState,
    reports: &'a Reports,
    now_ms: u64,
) -> impl Fn(&NodeId) -> bool + use<'a> {
    move |node| {
        let linked = current(ring, reports, node).is_some_and(|report| report.linked);
        let member = ring.members.get(node);
        let up = member.is_some_and(|member| reports.word(member, now_ms) == Word::Up);
        linked && up && !ring.maintenance.contains_key(node)
    }
}

fn handles(ring: &RingState, up: impl Fn(&NodeId) -> bool) -> BTreeSet<Handle> {
    let members = ring.members.values();
    members
        .filter(|member| up(&member.node_id))
        .map(|member| member.handle)
        .collect()
}

/// Why `node` cannot be stopped while those that are not `up` are away; none: it can. A node that
/// is away already changes nothing. O(slots x rf).
#[must_use]
pub fn without(ring: &RingState, up: impl Fn(&NodeId) -> bool, node: &NodeId) -> Option<Blocked> {
    let handle = ring.members.get(node)?.handle;
    let up = handles(ring, up);
    if !up.contains(&handle) {
        return None;
    }
    let short = |need: &Need| need.list.contains(&handle) && need.up <= need.need;
    let found = needs(ring, &up).into_iter().find(short)?;
    Some(Blocked {
        node: node.clone(),
        slot: found.slot,
        up: found.up - 1,
        need: found.need,
    })
}

/// Batches of `wanted` (empty: all members) that can be stopped together. First fit, zone by zone,
/// so that a whole zone is one batch where its ranges allow. O(slots x rf x batches).
///
/// # Errors
/// [`Rejection::NotMember`].
pub fn batches(
    ring: &RingState,
    up: impl Fn(&NodeId) -> bool,
    wanted: &BTreeSet<NodeId>,
) -> Result<Restart, Rejection> {
    if let Some(node) = wanted.iter().find(|node| !ring.members.contains_key(*node)) {
        return Err(Rejection::NotMember { node: node.clone() });
    }
    let up = handles(ring, up);
    let needs = needs(ring, &up);
    let mut lists: BTreeMap<Handle, Vec<usize>> = BTreeMap::new();
    for (at, need) in needs.iter().enumerate() {
        for handle in need.list.iter().filter(|handle| up.contains(handle)) {
            lists.entry(*handle).or_default().push(at);
        }
    }
    let mut members: Vec<_> = ring
        .members
        .values()
        .filter(|member| wanted.is_empty() || wanted.contains(&member.node_id))
        .collect();
    members.sort_by_key(|member| (&member.zone, &member.node_id));

    let mut answer = Restart::default();
    // Per batch: how many members of each list are away.
    let mut away: Vec<Vec<usize>> = Vec::new();
    for member in members {
        let node = member.node_id.clone();
        let held = lists.get(&member.handle).map_or(&[][..], Vec::as_slice);
        if let Some(short) = held.iter().find(|at| needs[**at].up <= needs[**at].need) {
            let need = &needs[*short];
            answer.blocked.push(Blocked {
                node,
                slot: need.slot,
                up: need.up - 1,
                need: need.need,
            });
            continue;
        }
        let fits = |away: &Vec<usize>| {
            held.iter()
                .all(|at| needs[*at].up > needs[*at].need + away[*at])
        };
        let batch = away.iter().position(fits).unwrap_or_else(|| {
            away.push(vec![0; needs.len()]);
            answer.batches.push(Vec::new());
            away.len() - 1
        });
        held.iter().for_each(|at| away[batch][*at] += 1);
        answer.batches[batch].push(node);
    }
    answer.together = answer.blocked.is_empty() && answer.batches.len() <= 1;
    Ok(answer)
}
