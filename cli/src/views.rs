//! What the control plane says of itself, in the forms that are printed.
//!
//! The fields and their names are what programs read from `-o json`: they are added, never
//! renamed. See [`crate::render`] for why wide numbers are strings.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::Serialize;

use crate::render::{self, Render, Wide, span};

/// Who answered, and how old the answer may be.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FreshnessView {
    /// Number of the answering server.
    pub server_id: Wide,
    /// Log index that the answer is from.
    pub applied_index: Wide,
    /// No older than the call.
    pub linearizable: bool,
    /// Ms since that server last heard from a leader; 0 if `linearizable`.
    pub age_ms: Wide,
}

impl FreshnessView {
    fn sentence(&self) -> String {
        if self.linearizable {
            format!("answered by server {}, through the leader", self.server_id)
        } else {
            let age = span(self.age_ms.0);
            format!(
                "STALE: from server {} alone, which heard a leader {age} ago",
                self.server_id
            )
        }
    }
}

/// The control plane and all its rings.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterView {
    /// Drawn when the control plane was founded, 32 hexadecimal digits; empty before.
    pub cluster_id: String,
    /// Who answered.
    pub freshness: FreshnessView,
    /// Number of the leader, if one is known.
    pub leader_id: Option<Wide>,
    /// Where it listens.
    pub leader_endpoint: Option<String>,
    /// Raft's term.
    pub term: Wide,
    /// Index of the last log entry.
    pub last_log_index: Wide,
    /// Watch streams open at the answering server.
    pub watchers: u32,
    /// By number.
    pub servers: Vec<ServerView>,
    /// By name.
    pub rings: Vec<RingView>,
}

/// A control-plane server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerView {
    /// Its number.
    pub id: Wide,
    /// Where it listens.
    pub endpoint: String,
    /// It votes.
    pub voter: bool,
    /// Highest log index known to be on it; only the leader knows.
    pub matched_index: Option<Wide>,
    /// Ms since the leader last had an answer of it; only the leader knows, and of others only.
    pub heard_ms_ago: Option<Wide>,
    /// What is wrong with it, as a sentence about it; only the leader says.
    pub trouble: Option<String>,
}

/// A ring.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RingView {
    /// Its name.
    pub ring: String,
    /// Rises when a backup is restored.
    pub generation: Wide,
    /// Of the newest snapshot.
    pub epoch: Wide,
    /// Last epoch that changed lists, members, weights, zones or replication.
    pub layout_epoch: Wide,
    /// Of the newest snapshot, 64 hexadecimal digits.
    pub checksum: String,
    /// k: the circle is cut into 2^k ranges.
    pub slot_bits: u32,
    /// Hash of keys.
    pub hash: String,
    /// Seed of the hash.
    pub seed: Wide,
    /// Replicas of a range.
    pub rf: u32,
    /// Replicas that must hold a write.
    pub w: u32,
    /// Replicas that an exact read asks.
    pub r: u32,
    /// `durable` or `cache`.
    pub kind: String,
    /// Of a cache: how long gainers are filled before the switch; none = they begin cold.
    pub warm_up: Option<WarmUpView>,
    /// Of a cache: a node that hears nothing from the control plane goes on serving.
    pub serve_when_isolated: bool,
    /// The epoch that began the running conversion; 0 = none runs.
    pub converting_since_epoch: Wide,
    /// The epoch of the last conversion; 0 = never.
    pub converted_epoch: Wide,
    /// How long the old lists get every write after a switch, in ms.
    pub soak_ms: Wide,
    /// How long a loser keeps its copy, in ms.
    pub grace_ms: Wide,
    /// Why all movement stands still, if it does.
    pub paused: Option<String>,
    /// Why nothing is deleted, if so.
    pub held: Option<String>,
    /// Ranges kept at nodes whatever balance says.
    pub pins: Vec<PinView>,
    /// It has, or had, members.
    pub founded: bool,
    /// By name; members and those only registered.
    pub nodes: Vec<NodeView>,
    /// By number: those that run or wait, and the last ended ones.
    pub changes: Vec<ChangeView>,
    /// What is moving.
    pub transition: Option<TransitionView>,
    /// The running hand-over wave.
    pub wave: Option<WaveView>,
    /// Ranges with fewer replicas than possible.
    pub short_ranges: u32,
    /// Ranges over fewer zones than possible.
    pub unspread_ranges: u32,
    /// Copies kept by losers.
    pub retained_copies: u32,
    /// Sentences: balance, spread, shortfall.
    pub warnings: Vec<String>,
    /// Watchers at the answering server, by the epoch they act by.
    pub watchers_at: Vec<EpochCountView>,
    /// Nodes by adopted epoch; only the leader knows.
    pub nodes_at: Vec<EpochCountView>,
}

/// Slots pinned to one node in one way.
#[derive(Clone, Debug, Serialize)]
pub struct PinView {
    /// To whom.
    pub node: String,
    /// It owns them, too.
    pub owner: bool,
    /// Such as "3,5-7".
    pub slots: String,
}

/// How many are at an epoch.
#[derive(Clone, Debug, Serialize)]
pub struct EpochCountView {
    /// The epoch.
    pub epoch: Wide,
    /// How many.
    pub count: u32,
}

/// A data node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeView {
    /// Its name.
    pub node: String,
    /// Which life of its data.
    pub incarnation: Wide,
    /// Its zone.
    pub zone: String,
    /// Its share.
    pub weight: u32,
    /// Where it listens.
    pub endpoint: String,
    /// Its state if it is a member, else "registered".
    pub state: String,
    /// It is a member.
    pub member: bool,
    /// It is tried last.
    pub down: bool,
    /// For how long it is in maintenance still, if it is, in ms.
    pub maintenance_left_ms: Option<Wide>,
    /// "up", "suspect", "down", "recovering" or "maintenance", for members; only the leader knows.
    pub word: Option<String>,
    /// Ranges it is a replica of.
    pub replica_ranges: u32,
    /// Ranges it owns.
    pub owned_ranges: u32,
    /// Its link is up; only the leader knows.
    pub linked: Option<bool>,
    /// Ms since the leader last heard from it; only the leader knows.
    pub heard_ms_ago: Option<Wide>,
    /// The epoch it acts by; only the leader knows.
    pub adopted_epoch: Option<Wide>,
}

impl NodeView {
    /// When the leader last heard it, in words.
    #[must_use]
    pub fn heard(&self) -> String {
        self.heard_ms_ago
            .map_or("never".to_owned(), |ms| format!("{} ago", span(ms.0)))
    }
}

/// An operator's change.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeView {
    /// Its number.
    pub id: Wide,
    /// "join", "drain", "pin" or another.
    pub kind: String,
    /// Which node; empty where it is not about one.
    pub node: String,
    /// What it is about besides the node; may be empty.
    pub about: String,
    /// "queued", "running", "done", "aborted" or "refused".
    pub state: &'static str,
    /// Why, if it was refused.
    pub reason: String,
}

impl ChangeView {
    /// In words: "pin n2 slots 3-7".
    #[must_use]
    pub fn sentence(&self) -> String {
        let words = [&self.kind, &self.node, &self.about];
        let words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
        words.join(" ").trim_end().replace("  ", " ")
    }
}

/// The running transition.
#[derive(Clone, Debug, Serialize)]
pub struct TransitionView {
    /// Its number.
    pub id: Wide,
    /// 1 to 7, or 9 on the way back.
    pub step: u32,
    /// The step's word.
    pub step_name: &'static str,
    /// Ranges whose list changes.
    pub changed_ranges: u32,
    /// Copies to be made, one per range and gainer; only the leader knows, as with the next three.
    pub copies: u32,
    /// Copies made.
    pub copied: u32,
    /// Copies compared and found equal.
    pub verified: u32,
    /// Bytes copied.
    pub copied_bytes: Wide,
    /// Sentences, each with the command that would help.
    pub waiting_for: Vec<String>,
    /// Numbers of the changes it carries out.
    pub changes: Vec<Wide>,
}

impl TransitionView {
    /// The word of a step's number.
    #[must_use]
    pub fn name_of(step: u32) -> &'static str {
        u8::try_from(step)
            .ok()
            .and_then(annulus_ring::Step::from_number)
            .map_or("unknown", annulus_ring::Step::as_str)
    }

    /// One line: step and figures.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!(
            "{} at step {} {}: {} range(s) change, copied {}/{}, verified {}/{}",
            self.id,
            self.step,
            self.step_name,
            self.changed_ranges,
            self.copied,
            self.copies,
            self.verified,
            self.copies
        )
    }
}

/// How long gainers of a cache ring are filled.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WarmUpView {
    /// At most, in ms.
    pub limit_ms: Wide,
    /// Hits of 1,000 lookups that end it early; 0 = none do.
    pub hit_ratio_permille: u32,
}

/// A hand-over wave.
#[derive(Clone, Debug, Serialize)]
pub struct WaveView {
    /// Its number.
    pub id: Wide,
    /// Who owns the ranges now.
    pub owner: String,
    /// Who shall.
    pub successor: String,
    /// How many ranges.
    pub ranges: u32,
}

impl Render for ClusterView {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        self.head(out)?;
        self.rings.iter().try_for_each(|ring| {
            writeln!(out)?;
            ring.screen(out)
        })
    }
}

impl ClusterView {
    fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.servers.is_empty() {
            let id = self.freshness.server_id;
            return writeln!(
                out,
                "server {id} belongs to no cluster: `annulus cluster init` founds one, once and for \
                 all its servers.\nIf it belonged to one, it was started without its own data \
                 directory: give it that one back."
            );
        }
        let leader = match (&self.leader_id, &self.leader_endpoint) {
            (Some(id), Some(endpoint)) => format!("leader {id} at {endpoint}"),
            (Some(id), None) => format!("leader {id}"),
            _ => "NO LEADER".to_owned(),
        };
        writeln!(
            out,
            "cluster {}  {leader}  term {}  servers {}  log {}  watchers {}",
            render::short(&self.cluster_id),
            self.term,
            self.servers.len(),
            self.last_log_index,
            self.watchers
        )?;
        writeln!(out, "{}", self.freshness.sentence())?;
        self.servers.iter().try_for_each(|server| {
            let Some(trouble) = &server.trouble else {
                return Ok(());
            };
            writeln!(
                out,
                "WARNING: server {} at {} {trouble}",
                server.id, server.endpoint
            )
        })
    }

    /// Servers only, for `annulus cluster status`.
    ///
    /// # Errors
    /// The writer's.
    pub fn servers_table(&self, out: &mut dyn Write) -> io::Result<()> {
        self.head(out)?;
        writeln!(out)?;
        let mut table = render::columns(&["SERVER", "ENDPOINT", "ROLE", "HEARD", "MATCHED"]);
        for server in &self.servers {
            let role = match (server.voter, Some(server.id) == self.leader_id) {
                (_, true) => "leader",
                (true, false) => "voter",
                (false, false) => "learner",
            };
            let matched = server
                .matched_index
                .map_or("-".to_owned(), |index| index.to_string());
            let heard = match (&server.trouble, server.heard_ms_ago) {
                (Some(_), None) => "DOWN".to_owned(),
                (Some(_), Some(ms)) => format!("DOWN, heard {} ago", span(ms.0)),
                (None, Some(ms)) => format!("{} ago", span(ms.0)),
                (None, None) => "-".to_owned(),
            };
            table.add_row([
                server.id.to_string(),
                server.endpoint.clone(),
                role.into(),
                heard,
                matched,
            ]);
        }
        render::write_table(out, &table)
    }
}

/// "5 active, 1 copying", states in the order of a life.
#[must_use]
pub fn nodes_by_state(nodes: &[NodeView]) -> String {
    const LIFE: [&str; 7] = [
        "registered",
        "joining",
        "copying",
        "catching_up",
        "active",
        "draining",
        "removed",
    ];
    let mut counts = BTreeMap::<usize, usize>::new();
    for node in nodes {
        let place = LIFE
            .iter()
            .position(|state| *state == node.state)
            .unwrap_or(LIFE.len() - 1);
        *counts.entry(place).or_default() += 1;
    }
    let words: Vec<String> = counts
        .into_iter()
        .map(|(place, count)| format!("{count} {}", LIFE[place]))
        .collect();
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(", ")
    }
}

fn by_epoch(counts: &[EpochCountView]) -> String {
    let words: Vec<String> = counts
        .iter()
        .map(|at| format!("{} at epoch {}", at.count, at.epoch))
        .collect();
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(", ")
    }
}

impl RingView {
    /// The change with this number.
    #[must_use]
    pub fn change(&self, id: u64) -> Option<&ChangeView> {
        self.changes.iter().find(|change| change.id.0 == id)
    }

    fn title(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "ring {}  epoch {}  layout epoch {}  checksum {}  2^{} ranges  rf {} w {} r {}{}",
            self.ring,
            self.epoch,
            self.layout_epoch,
            render::short(&self.checksum),
            self.slot_bits,
            self.rf,
            self.w,
            self.r,
            if self.kind == "cache" { "  cache" } else { "" }
        )
    }

    /// The part of one ring on the status screen.
    fn screen(&self, out: &mut dyn Write) -> io::Result<()> {
        self.title(out)?;
        if !self.founded {
            let ring = &self.ring;
            writeln!(
                out,
                "  not founded: `annulus ring found {ring} NODE..` does that"
            )?;
        }
        writeln!(out, "  nodes       {}", nodes_by_state(&self.nodes))?;
        for node in self
            .nodes
            .iter()
            .filter(|node| node.word.as_deref().is_some_and(|word| word != "up"))
            .chain(self.nodes.iter().filter(|node| {
                // A follower knows no words, and nobody has one for a node that is no member.
                node.word.is_none() && (node.down || node.linked == Some(false))
            }))
        {
            let heard = node.heard();
            writeln!(
                out,
                "  {:<10}  {} at {}, last heard {heard}",
                node.word.as_deref().unwrap_or("not linked"),
                node.node,
                node.endpoint
            )?;
        }
        for change in self
            .changes
            .iter()
            .filter(|change| matches!(change.state, "queued" | "running"))
        {
            writeln!(
                out,
                "  change {:<4} {}: {}",
                change.id,
                change.sentence(),
                change.state
            )?;
        }
        if let Some(transition) = &self.transition {
            writeln!(out, "  transition  {}", transition.sentence())?;
            for sentence in &transition.waiting_for {
                writeln!(out, "  waits for   {sentence}")?;
            }
        }
        if let Some(wave) = &self.wave {
            let WaveView {
                id,
                owner,
                successor,
                ranges,
            } = wave;
            writeln!(
                out,
                "  hand-over   wave {id}: {ranges} range(s) from {owner} to {successor}"
            )?;
        }
        writeln!(out, "  acting by   nodes: {}", by_epoch(&self.nodes_at))?;
        writeln!(
            out,
            "              watchers here: {}",
            by_epoch(&self.watchers_at)
        )?;
        if self.short_ranges > 0 {
            writeln!(
                out,
                "  SHORT       {} range(s) have too few replicas",
                self.short_ranges
            )?;
        }
        if self.unspread_ranges > 0 {
            let ranges = self.unspread_ranges;
            writeln!(
                out,
                "  UNSPREAD    {ranges} range(s) are in fewer zones than possible"
            )?;
        }
        for pin in &self.pins {
            let owner = if pin.owner { ", which owns them" } else { "" };
            writeln!(
                out,
                "  pinned      slots {} to {}{owner}",
                pin.slots, pin.node
            )?;
        }
        if self.retained_copies > 0 {
            writeln!(
                out,
                "  retained    {} copies wait for grace and permit",
                self.retained_copies
            )?;
        }
        self.warnings
            .iter()
            .try_for_each(|warning| writeln!(out, "  note        {warning}"))
    }
}

/// One ring, all of it.
impl Render for RingView {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        self.screen(out)?;
        let (soak, grace) = (span(self.soak_ms.0), span(self.grace_ms.0));
        writeln!(
            out,
            "  settings    hash {} seed {}  soak {soak}  grace {grace}",
            self.hash, self.seed
        )?;
        if self.kind == "cache" {
            let warm_up = match &self.warm_up {
                None => "none, gainers begin cold".to_owned(),
                Some(WarmUpView {
                    limit_ms,
                    hit_ratio_permille: 0,
                }) => format!("{} at most", span(limit_ms.0)),
                Some(WarmUpView {
                    limit_ms,
                    hit_ratio_permille: hits,
                }) => format!("until {hits} of 1000 hit, {} at most", span(limit_ms.0)),
            };
            let isolated = if self.serve_when_isolated {
                "serves"
            } else {
                "stops"
            };
            writeln!(out, "  cache       warm-up {warm_up}  isolated {isolated}")?;
        }
        if !self.changes.is_empty() {
            writeln!(out)?;
            let header = ["CHANGE", "KIND", "NODE", "ABOUT", "STATE", "REASON"];
            let mut table = render::columns(&header);
            for change in &self.changes {
                let ChangeView {
                    id,
                    kind,
                    node,
                    about,
                    state,
                    reason,
                } = change;
                table.add_row([&id.to_string(), kind, node, about, *state, reason]);
            }
            render::write_table(out, &table)?;
        }
        writeln!(out)?;
        write_nodes(out, &self.nodes)
    }
}

/// All nodes of a ring.
///
/// # Errors
/// The writer's.
pub fn write_nodes(out: &mut dyn Write, nodes: &[NodeView]) -> io::Result<()> {
    let header = [
        "NODE", "ZONE", "WEIGHT", "STATE", "OWNS", "HOLDS", "ADOPTED", "HEARD", "ENDPOINT",
    ];
    let mut table = render::columns(&header);
    for node in nodes {
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let state = match (node.word.as_deref(), node.down) {
            (Some("up"), false) | (None, false) => node.state.clone(),
            (Some(word), _) => format!("{} ({word})", node.state),
            (None, true) => format!("{} (down)", node.state),
        };
        table.add_row([
            node.node.clone(),
            node.zone.clone(),
            node.weight.to_string(),
            state,
            node.owned_ranges.to_string(),
            node.replica_ranges.to_string(),
            or_dash(node.adopted_epoch.map(|epoch| epoch.to_string())),
            or_dash(node.heard_ms_ago.map(|ms| format!("{} ago", span(ms.0)))),
            node.endpoint.clone(),
        ]);
    }
    render::write_table(out, &table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, state: &str) -> NodeView {
        NodeView {
            node: name.to_owned(),
            state: state.to_owned(),
            ..NodeView::default()
        }
    }

    #[test]
    fn states_are_told_in_the_order_of_a_life() {
        let nodes = [
            node("a", "active"),
            node("b", "copying"),
            node("c", "active"),
        ];
        assert_eq!(nodes_by_state(&nodes), "1 copying, 2 active");
        assert_eq!(nodes_by_state(&[]), "none");
    }

    #[test]
    fn a_local_answer_is_marked_stale() {
        let fresh = FreshnessView {
            linearizable: true,
            ..FreshnessView::default()
        };
        assert!(!fresh.sentence().contains("STALE"));
        let old = FreshnessView {
            age_ms: Wide(12_300),
            ..FreshnessView::default()
        };
        assert!(old.sentence().contains("STALE") && old.sentence().contains("12.3 s"));
    }

    #[test]
    fn the_screen_names_what_a_change_waits_for() {
        let ring = RingView {
            ring: "users".to_owned(),
            founded: true,
            transition: Some(TransitionView {
                id: Wide(3),
                step: 3,
                step_name: TransitionView::name_of(3),
                changed_ranges: 40,
                copies: 40,
                copied: 12,
                verified: 0,
                copied_bytes: Wide(1),
                waiting_for: vec!["n7 to copy 28 ranges".to_owned()],
                changes: vec![Wide(1)],
            }),
            ..RingView::default()
        };
        let mut out = Vec::new();
        ring.screen(&mut out).expect("memory");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("transition  3 at step 3 copying: 40 range(s) change, copied 12/40"));
        assert!(text.contains("waits for   n7 to copy 28 ranges"));
    }

    #[test]
    fn json_has_wide_numbers_as_strings() {
        let ring = RingView {
            epoch: Wide(u64::MAX),
            seed: Wide((1 << 53) + 1),
            ..RingView::default()
        };
        let json = serde_json::to_value(&ring).expect("serializes");
        assert_eq!(json["epoch"], u64::MAX.to_string());
        assert_eq!(json["seed"], ((1_u64 << 53) + 1).to_string());
        assert!(json["rf"].is_u64());
    }
}
