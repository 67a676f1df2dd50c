//! `annulus explain`: why a key lives where it does, and how far a change is.

use std::io::{self, Write};

use annulus_proto::v1::{self, explain_range_request::What};
use annulus_ring::Slot;
use serde::Serialize;

use crate::{
    args::{Global, explain::ExplainCommand},
    connect::{Admin, Read},
    exit::Result,
    key,
    render::{self, Hex64, Render, Wide, ago},
    views::{ChangeView, TransitionView},
};

/// Runs `annulus explain ..`.
pub async fn run(global: &Global, command: ExplainCommand) -> Result {
    let admin = Admin::new(global)?;
    match command {
        ExplainCommand::Key { ring, key, local } => {
            let key = key::read(&key)?;
            let what = What::Key(key.clone().into());
            let answer = admin.explain_range(&ring, what, Read::from(local)).await?;
            let story = RangeStory::new(ring.as_str(), Some(&key), answer);
            render::print(global.output, &story)
        }
        ExplainCommand::Range { ring, slot, local } => {
            let what = What::Slot(slot);
            let answer = admin.explain_range(&ring, what, Read::from(local)).await?;
            render::print(global.output, &RangeStory::new(ring.as_str(), None, answer))
        }
        ExplainCommand::Change {
            ring,
            change,
            local,
        } => {
            let answer = admin
                .explain_change(&ring, change, Read::from(local))
                .await?;
            let story = ChangeStory::new(ring.as_str(), answer);
            render::print(global.output, &story)
        }
    }
}

#[derive(Debug, Serialize)]
struct RangeStory {
    ring: String,
    epoch: Wide,
    /// Hexadecimal, as keys are bytes.
    key_hex: Option<String>,
    hash: Option<Hex64>,
    slot: u32,
    start: Hex64,
    end: Hex64,
    /// Who answers reads now, the owner first.
    replicas: Vec<String>,
    /// The epoch that made the owner owner.
    reign: Wide,
    /// The last epoch that changed who holds it, who is written to, or who is first.
    last_change: Wide,
    moving: Option<Moving>,
    /// Nothing older is kept.
    oldest_epoch: Wide,
    history: Vec<Event>,
    #[serde(skip)]
    shown_key: Option<String>,
}

/// What a transition does to the range.
#[derive(Debug, Serialize)]
struct Moving {
    transition: Wide,
    step: u32,
    step_name: &'static str,
    from: Vec<String>,
    to: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Event {
    generation: Wide,
    epoch: Wide,
    created_at_ms: Wide,
    replicas: Vec<String>,
    cause: &'static str,
    transition: Option<Wide>,
    changes: Vec<ChangeView>,
}

impl Event {
    fn new(event: v1::RangeEvent) -> Self {
        let cause = match event.cause() {
            v1::RangeCause::OldestKept => "oldest_kept",
            v1::RangeCause::Founded => "founded",
            v1::RangeCause::HandOver => "hand_over",
            v1::RangeCause::Transition => "transition",
            v1::RangeCause::Unspecified => "unknown",
        };
        Self {
            generation: event.generation.into(),
            epoch: event.epoch.into(),
            created_at_ms: event.created_at_ms.into(),
            replicas: event.replicas,
            cause,
            transition: event.transition.map(Into::into),
            changes: event.changes.into_iter().map(Into::into).collect(),
        }
    }

    fn why(&self) -> String {
        let changes: Vec<String> = self
            .changes
            .iter()
            .map(|change| format!("change {} ({} {})", change.id, change.kind, change.node))
            .collect();
        let changes = match changes.is_empty() {
            true => String::new(),
            false => format!(": {}", changes.join(", ")),
        };
        match (self.cause, self.transition) {
            ("oldest_kept", _) => "as it was at the oldest kept epoch".to_owned(),
            ("founded", _) => "the ring was founded".to_owned(),
            ("hand_over", None) => "handed over, to even the owners out or to spare one".to_owned(),
            ("hand_over", Some(id)) => format!("handed over for transition {id}{changes}"),
            (_, Some(id)) => format!("moved by transition {id}{changes}"),
            (cause, None) => cause.to_owned(),
        }
    }
}

impl RangeStory {
    fn new(ring: &str, key: Option<&[u8]>, answer: v1::ExplainRangeResponse) -> Self {
        // 1 to 20 from any server that makes sense; else the ends are nonsense and nothing breaks.
        let bits = u8::try_from(answer.slot_bits).unwrap_or(1).clamp(1, 20);
        let range = Slot(answer.slot).range(bits);
        Self {
            ring: ring.to_owned(),
            epoch: answer.epoch.into(),
            key_hex: key.map(hex::encode),
            hash: answer.hash.map(Hex64),
            slot: answer.slot,
            start: Hex64(range.start.0),
            end: Hex64(range.end.0),
            replicas: answer.replicas,
            reign: answer.reign.into(),
            last_change: answer.last_change.into(),
            moving: answer.transition.map(|transition| Moving {
                transition: transition.into(),
                step: answer.step,
                step_name: TransitionView::name_of(answer.step),
                from: answer.old_list,
                to: answer.new_list,
            }),
            oldest_epoch: answer.oldest_epoch.into(),
            history: answer.history.into_iter().map(Event::new).collect(),
            shown_key: key.map(key::show),
        }
    }
}

impl Render for RangeStory {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(key) = &self.shown_key {
            writeln!(out, "key     {key}")?;
        }
        if let Some(hash) = &self.hash {
            writeln!(out, "hash    {hash}")?;
        }
        writeln!(
            out,
            "range   ({},{}]  slot {}",
            self.start, self.end, self.slot
        )?;
        match self.replicas.split_first() {
            None => writeln!(out, "owner   nobody: the ring is not founded")?,
            Some((owner, others)) => {
                writeln!(
                    out,
                    "owner   {owner}, since epoch {}; with {}",
                    self.reign,
                    if others.is_empty() {
                        "nobody".to_owned()
                    } else {
                        others.join(" ")
                    }
                )?;
                writeln!(
                    out,
                    "epoch   {}; the last one that changed the range is {}",
                    self.epoch, self.last_change
                )?;
            }
        }
        if let Some(moving) = &self.moving {
            writeln!(
                out,
                "moving  {} -> {}, by transition {} at step {} {}",
                moving.from.join(" "),
                moving.to.join(" "),
                moving.transition,
                moving.step,
                moving.step_name
            )?;
        }
        if self.history.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        let mut table = render::columns(&["EPOCH", "MADE", "LIST", "WHY"]);
        for event in &self.history {
            table.add_row([
                event.epoch.to_string(),
                ago(event.created_at_ms.0),
                event.replicas.join(" "),
                event.why(),
            ]);
        }
        render::write_table(out, &table)
    }
}

#[derive(Debug, Serialize)]
struct ChangeStory {
    ring: String,
    change: ChangeView,
    transition: Option<Wide>,
    together_with: Vec<Wide>,
    running: Option<TransitionView>,
    moves: Vec<Moves>,
    first_epoch: Option<Wide>,
    end_epoch: Option<Wide>,
    behind: Vec<Wide>,
    waiting_for: Vec<String>,
}

/// What a transition does to one node.
#[derive(Debug, Serialize)]
struct Moves {
    node: String,
    gained: u32,
    lost: u32,
    handed_over: u32,
    taken_over: u32,
}

impl ChangeStory {
    fn new(ring: &str, answer: v1::ExplainChangeResponse) -> Self {
        let wide = |ids: Vec<u64>| ids.into_iter().map(Wide).collect();
        Self {
            ring: ring.to_owned(),
            change: answer.change.unwrap_or_default().into(),
            transition: answer.transition.map(Into::into),
            together_with: wide(answer.together_with),
            running: answer.running.map(Into::into),
            moves: answer
                .moves
                .into_iter()
                .map(|moves| Moves {
                    node: moves.node,
                    gained: moves.gained,
                    lost: moves.lost,
                    handed_over: moves.handed_over,
                    taken_over: moves.taken_over,
                })
                .collect(),
            first_epoch: answer.first_epoch.map(Into::into),
            end_epoch: answer.end_epoch.map(Into::into),
            behind: wide(answer.behind),
            waiting_for: answer.waiting_for,
        }
    }
}

fn list(ids: &[Wide]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(", ")
}

impl Render for ChangeStory {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let ChangeView {
            id,
            kind,
            node,
            state,
            reason,
            about,
        } = &self.change;
        let said = [kind.as_str(), node, about];
        let said: Vec<&str> = said.into_iter().filter(|word| !word.is_empty()).collect();
        write!(
            out,
            "change {id} of ring {}: {}, {state}",
            self.ring,
            said.join(" ")
        )?;
        match reason.as_str() {
            "" => writeln!(out)?,
            reason => writeln!(out, ": {reason}")?,
        }
        if !self.behind.is_empty() {
            writeln!(out, "  after       change {}", list(&self.behind))?;
        }
        if let Some(transition) = &self.running {
            writeln!(out, "  transition  {}", transition.sentence())?;
        } else if let Some(id) = self.transition {
            writeln!(out, "  transition  {id}, which runs no more")?;
        }
        if !self.together_with.is_empty() {
            writeln!(out, "  with        change {}", list(&self.together_with))?;
        }
        for moves in &self.moves {
            let Moves {
                node,
                gained,
                lost,
                handed_over,
                taken_over,
            } = moves;
            writeln!(
                out,
                "  moves       {node}: gains {gained}, gives up {lost}, hands over {handed_over}, \
                 takes over {taken_over} range(s)"
            )?;
        }
        match (self.first_epoch, self.end_epoch) {
            (Some(first), Some(end)) => {
                writeln!(out, "  epochs      from {first}, ended by {end}")?;
            }
            (Some(first), None) => writeln!(out, "  epochs      from {first}")?,
            (None, _) => {}
        }
        self.waiting_for
            .iter()
            .try_for_each(|sentence| writeln!(out, "  waits for   {sentence}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &impl Render) -> String {
        let mut out = Vec::new();
        value.table(&mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_key_is_told_with_what_moved_its_range() {
        let join = v1::ChangeStatus {
            id: 5,
            kind: "join".to_owned(),
            node: "n7".to_owned(),
            ..v1::ChangeStatus::default()
        };
        let event = |epoch, cause: v1::RangeCause, transition, changes| v1::RangeEvent {
            epoch,
            replicas: names(&["n3", "n7"]),
            cause: cause.into(),
            transition,
            changes,
            ..v1::RangeEvent::default()
        };
        let answer = v1::ExplainRangeResponse {
            epoch: (1 << 53) + 1,
            hash: Some(u64::MAX),
            slot: 15,
            slot_bits: 4,
            replicas: names(&["n3", "n7"]),
            reign: 2,
            last_change: 9,
            transition: Some(6),
            step: 3,
            old_list: names(&["n3", "n7"]),
            new_list: names(&["n3", "n8"]),
            history: vec![
                event(2, v1::RangeCause::Founded, None, Vec::new()),
                event(4, v1::RangeCause::HandOver, None, Vec::new()),
                event(9, v1::RangeCause::Transition, Some(4), vec![join]),
            ],
            ..v1::ExplainRangeResponse::default()
        };
        let story = RangeStory::new("users", Some(b"greeting"), answer);
        let told = text(&story);
        for part in [
            "key     \"greeting\"",
            "hash    ffffffffffffffff",
            "owner   n3, since epoch 2; with n7",
            "moving  n3 n7 -> n3 n8, by transition 6 at step 3 copying",
            "the ring was founded",
            "handed over, to even",
            "moved by transition 4: change 5 (join n7)",
        ] {
            assert!(told.contains(part), "{part} is missing in\n{told}");
        }
        let json = serde_json::to_value(&story).expect("serializes");
        assert_eq!(json["hash"], "ffffffffffffffff");
        assert_eq!(json["epoch"], "9007199254740993");
    }

    #[test]
    fn a_change_is_told_with_what_it_moves_and_waits_for() {
        let answer = v1::ExplainChangeResponse {
            change: Some(v1::ChangeStatus {
                id: 5,
                kind: "join".to_owned(),
                node: "n7".to_owned(),
                state: v1::ChangeState::Queued.into(),
                ..v1::ChangeStatus::default()
            }),
            behind: vec![3, 4],
            moves: vec![v1::NodeMoves {
                node: "n7".to_owned(),
                gained: 12,
                ..v1::NodeMoves::default()
            }],
            first_epoch: Some(7),
            waiting_for: vec!["transition 2 runs".to_owned()],
            ..v1::ExplainChangeResponse::default()
        };
        let told = text(&ChangeStory::new("users", answer));
        for part in [
            "change 5 of ring users: join n7, queued\n",
            "after       change 3, 4",
            "n7: gains 12, gives up 0",
            "epochs      from 7\n",
            "waits for   transition 2 runs",
        ] {
            assert!(told.contains(part), "{part} is missing in\n{told}");
        }
    }
}
