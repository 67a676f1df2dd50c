//! Who is first: balancing owners by weight inside given lists.

use std::collections::{BTreeMap, VecDeque};

use super::{
    Pin, filled, handles, quota, scatter,
    work::{Node, Row, Work, index_by_handle, slot},
};
use crate::{Handle, Slot, SlotTable};

/// A range whose owner may be chosen.
struct Choice {
    slot: Slot,
    /// Who may own it.
    from: Row,
    /// Who does; `None` for somebody who should not.
    owner: Option<u16>,
}

/// Orders the finished rows: owners that stay, successors for those that leave, then the
/// others as they were, then gainers.
pub(super) fn finish(current: &SlotTable, work: &Work<'_>) -> SlotTable {
    let nodes = work.nodes;
    let mut owned = vec![0_u32; nodes.len()];
    let mut choices = Vec::new();
    let mut rows = Vec::with_capacity(work.rows.len());
    for (at, row) in work.rows.iter().enumerate() {
        let old = &work.old[at];
        let mut ordered: Row = old
            .iter()
            .copied()
            .filter(|node| row.contains(node))
            .collect();
        let staying = ordered.len();
        ordered.extend(row.iter().copied().filter(|node| !old.contains(node)));
        if work.owned[at] && staying > 0 && ordered[0] == old[0] {
            owned[usize::from(ordered[0])] += 1;
        } else {
            // Only a member that stays has the data; a gainer is first where nobody does.
            let from = if staying > 0 {
                &ordered[..staying]
            } else {
                &ordered[..]
            };
            let pinned = work.pins.owner(at).filter(|node| from.contains(node));
            choices.push(Choice {
                slot: slot(at),
                from: pinned.map_or_else(|| from.into(), |node| Row::from_slice(&[node])),
                owner: None,
            });
        }
        rows.push(ordered);
    }

    settle(nodes, &work.count, &mut owned, &mut choices);
    for choice in choices {
        let row = &mut rows[choice.slot.index()];
        if let Some(at) = row.iter().position(|node| choice.owner == Some(*node)) {
            // The others keep their order.
            row[..=at].rotate_right(1);
        }
    }

    let mut table = SlotTable::empty(current.bits(), work.spread.rf as u8);
    for (at, row) in rows.iter().enumerate() {
        table.set(slot(at), &handles(nodes, row));
    }
    table
}

/// See [`super::even_owners_with`].
pub(super) fn even(table: &SlotTable, nodes: &[Node], pinned: &[Pin]) -> Vec<(Slot, Handle)> {
    let index = index_by_handle(nodes);
    let known = |handle: &Handle| *index.get(handle.index())?;
    let pinned: BTreeMap<Slot, u16> = pinned
        .iter()
        .filter_map(|pin| Some((pin.slot, known(&pin.handle)?)))
        .collect();
    let (mut owned, mut replicas) = (vec![0_u32; nodes.len()], vec![0_u32; nodes.len()]);
    let mut choices = Vec::new();
    for slot in table.slots() {
        let list = table.list(slot);
        let mut from: Row = list.iter().filter_map(known).collect();
        from.iter()
            .for_each(|node| replicas[usize::from(*node)] += 1);
        let mut owner = list.first().and_then(known);
        if let Some(node) = pinned.get(&slot).filter(|node| from.contains(node)) {
            owner = owner.filter(|owner| owner == node);
            from = Row::from_slice(&[*node]);
        }
        if let Some(owner) = owner {
            owned[usize::from(owner)] += 1;
        }
        if !from.is_empty() {
            choices.push(Choice { slot, from, owner });
        }
    }
    let before: Vec<_> = choices.iter().map(|choice| choice.owner).collect();
    let uneven = unevenness(nodes, &owned);
    settle(nodes, &replicas, &mut owned, &mut choices);
    undo_rounds(&before, &mut choices, nodes.len());
    // Handed over again and again for nothing, ranges would be sealed for ever: whoever calls
    // this until it answers nothing comes to an end.
    if before.iter().all(Option::is_some) && unevenness(nodes, &owned) >= uneven {
        return Vec::new();
    }
    let changed = choices
        .iter()
        .zip(before)
        .filter(|(choice, before)| choice.owner != *before);
    changed
        .filter_map(|(choice, _)| Some((choice.slot, nodes[usize::from(choice.owner?)].handle)))
        .collect()
}

/// Takes back hand-overs that go round: one range from a to b and another from b to a leave both
/// with what they had. Done one after the other they would even be asked for without end, each time
/// from the state that the last one left. O(choices + nodes).
fn undo_rounds(before: &[Option<u16>], choices: &mut [Choice], nodes: usize) {
    let mut leaves: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (at, (choice, before)) in choices.iter().zip(before).enumerate() {
        if let Some(was) = before.filter(|was| choice.owner != Some(*was)) {
            leaves[usize::from(was)].push(at);
        }
    }
    // Where on the path each node is: the path's hand-overs each begin where the last one ended.
    let mut place: Vec<Option<usize>> = vec![None; nodes];
    for start in 0..nodes {
        let (mut node, mut path) = (start, Vec::<(usize, usize)>::new());
        place[node] = Some(0);
        loop {
            let leaving = leaves[node].pop();
            let Some((at, to)) = leaving.and_then(|at| Some((at, choices[at].owner?))) else {
                // Nothing leaves it any more, so nothing comes back by it.
                place[node] = None;
                match path.pop() {
                    Some((from, _)) => node = from,
                    None => break,
                }
                continue;
            };
            let to = usize::from(to);
            path.push((node, at));
            let Some(first) = place[to] else {
                node = to;
                place[node] = Some(path.len());
                continue;
            };
            for (from, at) in path.drain(first..) {
                choices[at].owner = before[at];
                place[from] = None;
            }
            node = to;
            place[node] = Some(path.len());
        }
    }
}

/// Sum of count^2 / weight, in units of 2^-32: least where counts follow weights.
fn unevenness(nodes: &[Node], owned: &[u32]) -> u128 {
    let part =
        |(node, owned): (&Node, &u32)| (u128::from(*owned).pow(2) << 32) / u128::from(node.weight);
    nodes.iter().zip(owned).map(part).sum()
}

/// Chooses owners, so that no other choice balances them better.
///
/// `replicas` and `owned` count all ranges, also those of which nobody may choose. Where the
/// lists do not allow everybody its share, nodes fall apart into those that own too much and
/// can hand it to nobody else, and the rest; each part then shares by weight what it owns.
fn settle(nodes: &[Node], replicas: &[u32], owned: &mut [u32], choices: &mut [Choice]) {
    let quota = |part: &[u16], owned: &[u32], open: usize| {
        let total = part
            .iter()
            .map(|node| u64::from(owned[usize::from(*node)]))
            .sum::<u64>();
        quota::owners(nodes, part, total + open as u64, replicas, owned)
    };
    let all: Vec<_> = (0..nodes.len() as u16).collect();
    let open = choices
        .iter()
        .filter(|choice| choice.owner.is_none())
        .count();
    let shares = quota(&all, owned, open);
    for choice in choices.iter_mut().filter(|choice| choice.owner.is_none()) {
        pick(choice, owned, &shares);
    }

    let mut parts = vec![all];
    while let Some(part) = parts.pop() {
        let shares = quota(&part, owned, 0);
        let mut member = vec![false; nodes.len()];
        part.iter()
            .for_each(|node| member[usize::from(*node)] = true);
        even_out(&part, &member, choices, owned, &shares);
        let stuck = reach(&part, &member, choices, owned, &shares);
        let count = stuck.iter().filter(|stuck| **stuck).count();
        if count > 0 && count < part.len() {
            let (stuck, rest) = part.into_iter().partition(|node| stuck[usize::from(*node)]);
            parts.extend([stuck, rest]);
        }
    }
}

/// The node that owns least of its quota, give or take half a range: of all ranges that two
/// nodes share each should own about half, or one that joins finds only owners where it needs
/// others.
fn least(
    slot: Slot,
    nodes: impl Iterator<Item = u16>,
    owned: &[u32],
    quota: &[u32],
) -> Option<u16> {
    nodes.min_by_key(|node| {
        let (owned, quota) = (owned[usize::from(*node)], quota[usize::from(*node)]);
        filled(owned, quota, scatter(slot.0, (*node).into()))
    })
}

/// The one that may own the range and has least of its quota.
fn pick(choice: &mut Choice, owned: &mut [u32], quota: &[u32]) {
    choice.owner = least(choice.slot, choice.from.iter().copied(), owned, quota);
    if let Some(owner) = choice.owner {
        owned[usize::from(owner)] += 1;
    }
}

/// Places in `choices` per owner; of members of the part alone.
fn held(member: &[bool], choices: &[Choice]) -> Vec<Vec<usize>> {
    let mut holds = vec![Vec::new(); member.len()];
    for (at, choice) in choices.iter().enumerate() {
        if let Some(owner) = choice.owner.filter(|owner| member[usize::from(*owner)]) {
            holds[usize::from(owner)].push(at);
        }
    }
    holds
}

/// Members of the part that own more than their quota, and all they could hand to.
fn reach(
    part: &[u16],
    member: &[bool],
    choices: &[Choice],
    owned: &[u32],
    quota: &[u32],
) -> Vec<bool> {
    let over = |node: &&u16| owned[usize::from(**node)] > quota[usize::from(**node)];
    let mut queue: Vec<_> = part.iter().filter(over).copied().collect();
    let mut reached = vec![false; member.len()];
    if queue.is_empty() {
        return reached;
    }
    queue
        .iter()
        .for_each(|node| reached[usize::from(*node)] = true);
    let holds = held(member, choices);
    while let Some(node) = queue.pop() {
        for to in holds[usize::from(node)]
            .iter()
            .flat_map(|at| &choices[*at].from)
        {
            if member[usize::from(*to)] && !std::mem::replace(&mut reached[usize::from(*to)], true)
            {
                queue.push(*to);
            }
        }
    }
    reached
}

/// Moves ownership within a part of the nodes, straight and then along shortest chains, until
/// all have their quota or no chain leads from one that has more to one that has less.
fn even_out(
    part: &[u16],
    member: &[bool],
    choices: &mut [Choice],
    owned: &mut [u32],
    quota: &[u32],
) {
    if part
        .iter()
        .all(|node| owned[usize::from(*node)] <= quota[usize::from(*node)])
    {
        return;
    }
    let mut holds = held(member, choices);
    for node in part {
        straight((*node).into(), member, choices, &mut holds, owned, quota);
    }
    for node in part.iter().map(|node| usize::from(*node)) {
        while owned[node] > quota[node] {
            let Some(chain) = chain(node, member, choices, &holds, owned, quota) else {
                break;
            };
            for (at, to) in chain {
                if let Some(from) = choices[at].owner.replace(to) {
                    owned[usize::from(from)] -= 1;
                }
                owned[usize::from(to)] += 1;
                holds[usize::from(to)].push(at);
            }
            holds[node].retain(|at| choices[*at].owner.map(usize::from) == Some(node));
        }
    }
}

/// Gives ranges of a node that owns too many to members of their lists that own too few.
fn straight(
    node: usize,
    member: &[bool],
    choices: &mut [Choice],
    holds: &mut [Vec<usize>],
    owned: &mut [u32],
    quota: &[u32],
) {
    let mut kept = Vec::new();
    for at in std::mem::take(&mut holds[node]) {
        let choice = &mut choices[at];
        let lacking = |to: &u16| {
            let to = usize::from(*to);
            owned[node] > quota[node] && member[to] && owned[to] < quota[to]
        };
        let to = least(
            choice.slot,
            choice.from.iter().copied().filter(lacking),
            owned,
            quota,
        );
        match to {
            Some(to) => {
                choice.owner = Some(to);
                owned[node] -= 1;
                owned[usize::from(to)] += 1;
                holds[usize::from(to)].push(at);
            }
            None => kept.push(at),
        }
    }
    holds[node] = kept;
}

/// A shortest chain of (choice, new owner) from `start` to a node that has less than its quota.
fn chain(
    start: usize,
    member: &[bool],
    choices: &[Choice],
    holds: &[Vec<usize>],
    owned: &[u32],
    quota: &[u32],
) -> Option<Vec<(usize, u16)>> {
    let mut reached: Vec<Option<usize>> = vec![None; owned.len()];
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for at in &holds[node] {
            let choice = &choices[*at];
            if choice.owner.map(usize::from) != Some(node) {
                continue;
            }
            for to in choice.from.iter().map(|to| usize::from(*to)) {
                if to == start || !member[to] || reached[to].is_some() {
                    continue;
                }
                reached[to] = Some(*at);
                if owned[to] < quota[to] {
                    return Some(trace(start, to, choices, &reached));
                }
                queue.push_back(to);
            }
        }
    }
    None
}

fn trace(
    start: usize,
    target: usize,
    choices: &[Choice],
    reached: &[Option<usize>],
) -> Vec<(usize, u16)> {
    let mut chain = Vec::new();
    let mut to = target;
    while to != start {
        // Every node but the start was reached by a choice that somebody owns.
        let Some(at) = reached[to] else { break };
        let Some(owner) = choices[at].owner else {
            break;
        };
        chain.push((at, to as u16));
        to = owner.into();
    }
    chain
}
