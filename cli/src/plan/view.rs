//! A plan in the forms that are printed. Fields and names are what programs read: added, never
//! renamed.

use annulus_proto::v1;
use annulus_ring::Slot;
use serde::Serialize;

use super::words;
use crate::render::{Hex64, Wide};

/// What every view of a plan begins with.
#[derive(Clone, Debug, Serialize)]
pub struct Head {
    /// Its ring.
    pub ring: String,
    /// Its number.
    pub plan: Wide,
    /// The changes, as words.
    pub changes: Vec<String>,
    /// The only layout epoch that it may be committed on.
    pub base_layout_epoch: Wide,
    /// The ring's.
    pub layout_epoch: Wide,
    /// "open", "stale" (the layout is another by now) or "committed".
    pub state: &'static str,
    /// The changes that it became.
    pub committed: Vec<Wide>,
    /// When it was stored, in ms since 1970.
    pub created_at_ms: Wide,
    /// Version of the assigner that computed it.
    pub assigner_version: u32,
    /// Ranges whose list changes.
    pub changed_ranges: u32,
}

impl Head {
    pub(super) fn new(ring: &str, plan: &v1::PlanStatus) -> Self {
        let stale = plan.base_layout_epoch != plan.layout_epoch;
        Self {
            ring: ring.to_owned(),
            plan: plan.id.into(),
            changes: plan.changes.iter().map(words::show).collect(),
            base_layout_epoch: plan.base_layout_epoch.into(),
            layout_epoch: plan.layout_epoch.into(),
            state: match (plan.committed.is_empty(), stale) {
                (false, _) => "committed",
                (true, true) => "stale",
                (true, false) => "open",
            },
            committed: plan.committed.iter().copied().map(Wide).collect(),
            created_at_ms: plan.created_at_ms.into(),
            assigner_version: plan.assigner_version,
            changed_ranges: plan.changed_ranges,
        }
    }
}

/// A plan with what it would do.
#[derive(Clone, Debug, Serialize)]
pub struct PlanView {
    /// Which.
    #[serde(flatten)]
    pub head: Head,
    /// Absent when the layout that it was made on is no longer kept.
    pub outlook: Option<Outlook>,
}

/// An estimated amount.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Amount {
    /// Of keys and values.
    pub bytes: Wide,
    /// With a value.
    pub keys: Wide,
}

/// What a plan would do. Amounts and times are estimates, and null where nothing is known.
#[derive(Clone, Debug, Serialize)]
pub struct Outlook {
    /// One per gainer and range.
    pub copies: u32,
    /// All copies.
    pub copied: Option<Amount>,
    /// How long copying takes at least.
    pub copy_ms: Option<Wide>,
    /// How long the old lists get every write afterwards.
    pub soak_ms: Wide,
    /// How long losers keep their copies then.
    pub grace_ms: Wide,
    /// Who copies how much from whom.
    pub pairs: Vec<Pair>,
    /// Who holds ranges before or after.
    pub nodes: Vec<Node>,
    /// Their zones.
    pub zones: Vec<Zone>,
    /// Ranges with too few replicas.
    pub short_ranges: BeforeAfter,
    /// Ranges in fewer zones than possible.
    pub unspread_ranges: BeforeAfter,
    /// Ranges handed over before copying, as their owner leaves.
    pub leaving_hand_overs: u32,
    /// In so many waves.
    pub leaving_waves: u32,
    /// Ranges handed over afterwards, to even the owners out.
    pub evening_hand_overs: u32,
    /// The way back, step by step.
    pub undo: Vec<Undo>,
    /// Members of whose data nothing is known.
    pub unknown: Vec<String>,
    /// Sentences.
    pub warnings: Vec<String>,
}

/// A figure before and after.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BeforeAfter {
    /// Before.
    pub before: u32,
    /// After.
    pub after: u32,
}

/// What one node copies from another.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The ranges' owner.
    pub source: String,
    /// Who gets them.
    pub gainer: String,
    /// How many.
    pub ranges: u32,
    /// What they weigh.
    pub amount: Option<Amount>,
    /// From one zone to another.
    pub crosses_zones: bool,
}

/// A node's load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Load {
    /// Ranges that list it.
    pub ranges: u32,
    /// Ranges that it owns.
    pub owned: u32,
    /// Millionths of all replicas.
    pub share_ppm: u32,
    /// What it holds.
    pub held: Option<Amount>,
}

/// A node before and after.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// Who.
    pub node: String,
    /// Its zone.
    pub zone: String,
    /// Null before it is a member.
    pub weight_before: Option<u32>,
    /// Null when it leaves.
    pub weight_after: Option<u32>,
    /// Now.
    pub before: Load,
    /// At the end.
    pub after: Load,
    /// Ranges it copies.
    pub gained: u32,
    /// What they weigh.
    pub gained_amount: Option<Amount>,
    /// Ranges it gives up.
    pub lost: u32,
    /// Copies that it keeps of earlier transitions.
    pub retained: u32,
    /// Most bytes on its disk meanwhile.
    pub peak_bytes: Option<Wide>,
    /// Free there now.
    pub free_bytes: Option<Wide>,
    /// What there is no room for.
    pub lacking_bytes: Wide,
    /// Its limit on copying; 0 = none.
    pub copy_bytes_per_second: Wide,
    /// How long it copies at that limit.
    pub copy_ms: Option<Wide>,
}

/// A zone before and after.
#[derive(Clone, Debug, Serialize)]
pub struct Zone {
    /// Which.
    pub zone: String,
    /// Nodes with weight.
    pub nodes: BeforeAfter,
    /// Sum of weights before.
    pub weight_before: Wide,
    /// Sum of weights after.
    pub weight_after: Wide,
    /// Replicas.
    pub ranges: BeforeAfter,
    /// Copies from other zones.
    pub copies_in: u32,
}

/// The way back from a step.
#[derive(Clone, Debug, Serialize)]
pub struct Undo {
    /// 0 = before the first; 8 = after the soak.
    pub step: u32,
    /// Its word.
    pub step_name: &'static str,
    /// "drop", "abort", "flip back" or "new change".
    pub way: String,
    /// Copies to be made for it.
    pub copies: u32,
    /// Copied in vain, at most.
    pub wasted: Option<Amount>,
    /// What it costs.
    pub words: String,
}

/// A range whose list changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListView {
    /// Its number.
    pub slot: u32,
    /// `(start, end]`.
    pub start: Hex64,
    /// Inclusive.
    pub end: Hex64,
    /// The owner first; empty when the layout that the plan was made on is no longer kept.
    pub before: Vec<String>,
    /// The owner first.
    pub after: Vec<String>,
}

/// A plan whole, for other programs.
#[derive(Clone, Debug, Serialize)]
pub struct Export {
    /// Of this document: fields are added under one number, never re-meant.
    pub format: u32,
    /// What it is.
    #[serde(flatten)]
    pub plan: PlanView,
    /// k: the circle is cut into 2^k ranges.
    pub slot_bits: u32,
    /// By range.
    pub lists: Vec<ListView>,
}

impl PlanView {
    pub(super) fn new(ring: &str, plan: v1::PlanStatus) -> Self {
        Self {
            head: Head::new(ring, &plan),
            outlook: plan.outlook.map(Outlook::from),
        }
    }
}

impl Export {
    pub(super) fn new(ring: &str, plan: v1::PlanStatus) -> Self {
        Self {
            format: 1,
            slot_bits: plan.slot_bits,
            lists: lists(&plan),
            plan: PlanView::new(ring, plan),
        }
    }
}

/// The changed lists of a plan, by range.
pub(super) fn lists(plan: &v1::PlanStatus) -> Vec<ListView> {
    // 1 to 20 from any server that makes sense; else the ends are nonsense and nothing breaks.
    let bits = u8::try_from(plan.slot_bits).unwrap_or(1).clamp(1, 20);
    let list = |list: &v1::PlannedList| {
        let range = Slot(list.slot).range(bits);
        ListView {
            slot: list.slot,
            start: Hex64(range.start.0),
            end: Hex64(range.end.0),
            before: list.before.clone(),
            after: list.after.clone(),
        }
    };
    plan.lists.iter().map(list).collect()
}

impl From<v1::Amount> for Amount {
    fn from(amount: v1::Amount) -> Self {
        Self {
            bytes: amount.bytes.into(),
            keys: amount.keys.into(),
        }
    }
}

impl From<v1::PlanOutlook> for Outlook {
    fn from(outlook: v1::PlanOutlook) -> Self {
        let pair = |(before, after)| BeforeAfter { before, after };
        Self {
            copies: outlook.copies,
            copied: outlook.copied.map(Into::into),
            copy_ms: outlook.copy_ms.map(Into::into),
            soak_ms: outlook.soak_ms.into(),
            grace_ms: outlook.grace_ms.into(),
            pairs: outlook.pairs.into_iter().map(Into::into).collect(),
            nodes: outlook.nodes.into_iter().map(Into::into).collect(),
            zones: outlook.zones.into_iter().map(Into::into).collect(),
            short_ranges: pair((outlook.short_ranges_before, outlook.short_ranges_after)),
            unspread_ranges: pair((
                outlook.unspread_ranges_before,
                outlook.unspread_ranges_after,
            )),
            leaving_hand_overs: outlook.leaving_hand_overs,
            leaving_waves: outlook.leaving_waves,
            evening_hand_overs: outlook.evening_hand_overs,
            undo: outlook.undo.into_iter().map(Into::into).collect(),
            unknown: outlook.unknown,
            warnings: outlook.warnings,
        }
    }
}

impl From<v1::PlanPair> for Pair {
    fn from(pair: v1::PlanPair) -> Self {
        Self {
            source: pair.source,
            gainer: pair.gainer,
            ranges: pair.ranges,
            amount: pair.amount.map(Into::into),
            crosses_zones: pair.crosses_zones,
        }
    }
}

impl From<v1::PlanLoad> for Load {
    fn from(load: v1::PlanLoad) -> Self {
        Self {
            ranges: load.ranges,
            owned: load.owned,
            share_ppm: load.share_ppm,
            held: load.held.map(Into::into),
        }
    }
}

impl From<v1::PlanNode> for Node {
    fn from(node: v1::PlanNode) -> Self {
        Self {
            node: node.node,
            zone: node.zone,
            weight_before: node.weight_before,
            weight_after: node.weight_after,
            before: node.before.unwrap_or_default().into(),
            after: node.after.unwrap_or_default().into(),
            gained: node.gained,
            gained_amount: node.gained_amount.map(Into::into),
            lost: node.lost,
            retained: node.retained,
            peak_bytes: node.peak_bytes.map(Into::into),
            free_bytes: node.free_bytes.map(Into::into),
            lacking_bytes: node.lacking_bytes.into(),
            copy_bytes_per_second: node.copy_bytes_per_second.into(),
            copy_ms: node.copy_ms.map(Into::into),
        }
    }
}

impl From<v1::PlanZone> for Zone {
    fn from(zone: v1::PlanZone) -> Self {
        let pair = |(before, after)| BeforeAfter { before, after };
        Self {
            zone: zone.zone,
            nodes: pair((zone.nodes_before, zone.nodes_after)),
            weight_before: zone.weight_before.into(),
            weight_after: zone.weight_after.into(),
            ranges: pair((zone.ranges_before, zone.ranges_after)),
            copies_in: zone.copies_in,
        }
    }
}

impl From<v1::PlanUndo> for Undo {
    fn from(undo: v1::PlanUndo) -> Self {
        Self {
            step: undo.step,
            step_name: match undo.step {
                0 => "not begun",
                8 => "settled",
                step => crate::views::TransitionView::name_of(step),
            },
            way: undo.way,
            copies: undo.copies,
            wasted: undo.wasted.map(Into::into),
            words: undo.words,
        }
    }
}
