//! `annulus ring`: creating, founding and showing rings.

use std::io::{self, Write};

use annulus_ring::{Lookup, RingName, Snapshot};
use serde::Serialize;

use crate::{
    args::{
        CreateArgs, Global, RangeArgs, RingCommand,
        slots::{self, Spans},
    },
    connect::{Accepted, Admin, Read, newest_snapshot},
    exit::{Failure, Result},
    follow::{Asked, follow},
    progress,
    render::{self, Hex64, Render, Wide},
    views::{RingView, nodes_by_state},
};

/// Runs `annulus ring ..`.
pub async fn run(global: &Global, command: RingCommand) -> Result {
    let admin = Admin::new(global)?;
    match command {
        RingCommand::Create(args) => create(global, &admin, &args).await,
        RingCommand::Found {
            ring,
            nodes,
            accept,
        } => {
            let founded = admin.found_ring(&ring, &nodes, accept).await?;
            print_done(global, &ring, "founded", &founded)
        }
        RingCommand::List { local } => {
            let rings = admin.rings(Read::from(local)).await?;
            render::print(global.output, &RingList { rings })
        }
        RingCommand::Show { ring, local } => {
            let ring = admin.ring(&ring, Read::from(local)).await?;
            render::print(global.output, &ring)
        }
        RingCommand::Dump { ring, epoch, local } => {
            let found = admin.dump(&ring, epoch, Read::from(local)).await?;
            render::print(global.output, &Dump::new(&found.snapshot, found.checksum))
        }
        RingCommand::Convert {
            ring,
            double,
            hash,
            layout,
        } => {
            let accepted = admin.convert(&ring, double, hash, layout).await?;
            let epoch = progress::wait_until_converted(&admin, &ring, accepted.epoch).await?;
            print_done(global, &ring, "converted", &Accepted { epoch, ..accepted })
        }
        RingCommand::Replication { ring, args } => {
            let accepted = admin.replication(&ring, &args).await?;
            let (rf, w, r) = (args.rf, args.w(), args.r());
            let asked = Asked {
                ring,
                what: format!("replication to rf {rf} w {w} r {r}"),
                nodes: Vec::new(),
                leaves: Vec::new(),
            };
            follow(global, &admin, asked, accepted, &args.change).await
        }
        RingCommand::Pin {
            ring,
            node,
            ranges,
            owner,
            change,
        } => {
            let slots = slots_of(global, &ring, &ranges).await?;
            let what = format!("pin slots {} to {node}", slots::told(&slots.0));
            let expected = change.expect_layout;
            let accepted = admin.pin(&ring, &node, slots, owner, expected).await?;
            let nodes = vec![node];
            let asked = Asked {
                ring,
                what,
                nodes,
                leaves: Vec::new(),
            };
            follow(global, &admin, asked, accepted, &change).await
        }
        RingCommand::Unpin {
            ring,
            node,
            slots,
            change,
        } => {
            let expected = change.expect_layout;
            let accepted = admin.unpin(&ring, &node, slots, expected).await?;
            let asked = Asked {
                nodes: Vec::new(),
                ..Asked::of(ring, "unpin", node)
            };
            follow(global, &admin, asked, accepted, &change).await
        }
        RingCommand::Pause { ring, reason } => {
            let paused = admin.pause(&ring, Some(reason)).await?;
            print_done(global, &ring, "paused", &paused)
        }
        RingCommand::Resume { ring } => {
            let resumed = admin.pause(&ring, None).await?;
            print_done(global, &ring, "moving again", &resumed)
        }
        RingCommand::Hold { ring, reason } => {
            let held = admin.hold(&ring, Some(reason)).await?;
            print_done(global, &ring, "on hold: nothing is deleted", &held)
        }
        RingCommand::Unhold { ring } => {
            let free = admin.hold(&ring, None).await?;
            print_done(global, &ring, "no longer on hold", &free)
        }
        RingCommand::AutoRemove {
            ring,
            after,
            off: _,
        } => {
            let set = admin.auto_remove(&ring, after).await?;
            let what = match after {
                None => "dead members stay until they are removed by hand",
                Some(_) => "dead members are removed by themselves where no word is needed",
            };
            print_done(global, &ring, what, &set)
        }
        RingCommand::Epochs { ring, local } => {
            let epochs = admin.epochs(&ring, Read::from(local)).await?;
            render::print(
                global.output,
                &EpochList {
                    ring: ring.to_string(),
                    epochs,
                },
            )
        }
    }
}

async fn create(global: &Global, admin: &Admin, args: &CreateArgs) -> Result {
    let created = admin.create_ring(args).await?;
    if args.found_with.is_empty() {
        return print_done(global, &args.ring, "created", &created);
    }
    let founded = admin
        .found_ring(&args.ring, &args.found_with, args.accept)
        .await?;
    print_done(global, &args.ring, "created and founded", &founded)
}

/// Slots as named, and those of keys by the newest snapshot.
async fn slots_of(global: &Global, ring: &RingName, ranges: &RangeArgs) -> Result<Spans> {
    let named = ranges.slots.clone().unwrap_or_default();
    if ranges.key.is_empty() {
        return Ok(named);
    }
    let snapshot = newest_snapshot(global, ring).await?;
    let lookup = Lookup::compile(snapshot).map_err(|error| {
        Failure::failed(
            error,
            "ask another server with --endpoints, and report this",
        )
    })?;
    let slots = ranges
        .key
        .iter()
        .map(|key| lookup.slot(key.as_encoded_bytes()));
    Ok(named.with(slots))
}

#[derive(Serialize)]
struct Done<'a> {
    ring: &'a str,
    what: &'a str,
    epoch: Wide,
    notes: &'a [String],
}

impl Render for Done<'_> {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "ring {} is {}, epoch {}",
            self.ring, self.what, self.epoch
        )
    }
}

fn print_done(global: &Global, ring: &RingName, what: &str, accepted: &Accepted) -> Result {
    let Accepted { epoch, notes, .. } = accepted;
    notes.iter().for_each(|note| eprintln!("note: {note}"));
    let done = Done {
        ring: ring.as_str(),
        what,
        epoch: Wide(*epoch),
        notes,
    };
    render::print(global.output, &done)
}

#[derive(Serialize)]
struct RingList {
    rings: Vec<RingView>,
}

impl Render for RingList {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table =
            render::columns(&["RING", "EPOCH", "RANGES", "RF", "W", "R", "NODES", "CHANGE"]);
        for ring in &self.rings {
            let change = ring
                .transition
                .as_ref()
                .map_or("-".to_owned(), |transition| {
                    format!("step {} {}", transition.step, transition.step_name)
                });
            table.add_row([
                ring.ring.clone(),
                ring.epoch.to_string(),
                format!("2^{}", ring.slot_bits),
                ring.rf.to_string(),
                ring.w.to_string(),
                ring.r.to_string(),
                nodes_by_state(&ring.nodes),
                change,
            ]);
        }
        render::write_table(out, &table)
    }
}

/// A kept epoch.
#[derive(Debug, Serialize)]
pub struct EpochView {
    /// Rises when a backup is restored.
    pub generation: Wide,
    /// The epoch.
    pub epoch: Wide,
    /// 64 hexadecimal digits.
    pub checksum: String,
}

#[derive(Serialize)]
struct EpochList {
    ring: String,
    epochs: Vec<EpochView>,
}

impl Render for EpochList {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = render::columns(&["EPOCH", "GENERATION", "CHECKSUM"]);
        for EpochView {
            generation,
            epoch,
            checksum,
        } in &self.epochs
        {
            table.add_row([epoch.to_string(), generation.to_string(), checksum.clone()]);
        }
        render::write_table(out, &table)
    }
}

/// A whole snapshot.
#[derive(Serialize)]
struct Dump {
    cluster_id: String,
    ring: String,
    generation: Wide,
    epoch: Wide,
    checksum: String,
    previous_checksum: String,
    created_at_ms: Wide,
    hash: &'static str,
    seed: Wide,
    rf: u8,
    w: u8,
    r: u8,
    slot_bits: u8,
    members: Vec<DumpMember>,
    ranges: Vec<DumpRange>,
    transition: Option<DumpTransition>,
}

#[derive(Serialize)]
struct DumpMember {
    node: String,
    incarnation: Wide,
    zone: String,
    weight: u32,
    endpoint: String,
    state: &'static str,
}

/// `(start, end]` and who holds it, owner first.
#[derive(Serialize)]
struct DumpRange {
    slot: u32,
    start: Hex64,
    end: Hex64,
    replicas: Vec<String>,
    /// The list it gets from the running transition.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Vec<String>>,
}

#[derive(Serialize)]
struct DumpTransition {
    id: Wide,
    step: u8,
    step_name: &'static str,
    changed_ranges: usize,
    /// rf, w and r of the new lists, where they are others.
    #[serde(skip_serializing_if = "Option::is_none")]
    replication: Option<annulus_ring::Replication>,
}

impl Dump {
    fn new(snapshot: &Snapshot, checksum: String) -> Self {
        let table = &snapshot.layout.slots;
        let replication = snapshot.layout.replication;
        let names = |list: &[annulus_ring::Handle]| -> Vec<String> {
            list.iter()
                .filter_map(|handle| snapshot.member_by_handle(*handle))
                .map(|member| member.node_id.to_string())
                .collect()
        };
        let target = |slot: annulus_ring::Slot| {
            let target = &snapshot.transition.as_ref()?.target;
            let at = target
                .binary_search_by_key(&slot, |change| change.slot)
                .ok()?;
            Some(names(&target[at].to))
        };
        Self {
            cluster_id: snapshot.cluster_id.to_string(),
            ring: snapshot.ring.to_string(),
            generation: Wide(snapshot.generation.0),
            epoch: Wide(snapshot.epoch.0),
            checksum,
            previous_checksum: snapshot.previous_checksum.to_string(),
            created_at_ms: Wide(snapshot.created_at_ms),
            hash: snapshot.layout.hash.as_str(),
            seed: Wide(snapshot.layout.seed),
            rf: replication.rf,
            w: replication.w,
            r: replication.r,
            slot_bits: table.bits(),
            members: snapshot
                .members
                .iter()
                .map(|member| DumpMember {
                    node: member.node_id.to_string(),
                    incarnation: Wide(member.incarnation.0),
                    zone: member.zone.to_string(),
                    weight: member.weight.get(),
                    endpoint: member.endpoint.to_string(),
                    state: member.state.as_str(),
                })
                .collect(),
            ranges: table
                .slots()
                .map(|slot| {
                    let range = slot.range(table.bits());
                    DumpRange {
                        slot: slot.0,
                        start: Hex64(range.start.0),
                        end: Hex64(range.end.0),
                        replicas: names(table.list(slot)),
                        target: target(slot),
                    }
                })
                .collect(),
            transition: snapshot
                .transition
                .as_ref()
                .map(|transition| DumpTransition {
                    id: Wide(transition.id.0),
                    step: transition.step.number(),
                    step_name: transition.step.as_str(),
                    changed_ranges: transition.target.len(),
                    replication: transition.replication,
                }),
        }
    }
}

impl Render for Dump {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "ring {}  epoch {}  checksum {}",
            self.ring, self.epoch, self.checksum
        )?;
        if let Some(DumpTransition {
            id,
            step,
            step_name,
            changed_ranges,
            replication,
        }) = &self.transition
        {
            write!(
                out,
                "transition {id} at step {step} {step_name}: {changed_ranges} range(s)"
            )?;
            match replication {
                Some(new) => writeln!(out, ", to rf {} w {} r {}", new.rf, new.w, new.r)?,
                None => writeln!(out)?,
            }
        }
        writeln!(out)?;
        let mut table = render::columns(&["NODE", "ZONE", "WEIGHT", "STATE", "ENDPOINT"]);
        for member in &self.members {
            let DumpMember {
                node,
                zone,
                weight,
                endpoint,
                state,
                ..
            } = member;
            table.add_row([node, zone, &weight.to_string(), *state, endpoint]);
        }
        render::write_table(out, &table)?;
        writeln!(out)?;
        for range in &self.ranges {
            write!(
                out,
                "({},{}]  {}",
                range.start,
                range.end,
                range.replicas.join(" ")
            )?;
            match &range.target {
                Some(target) => writeln!(out, "  ->  {}", target.join(" "))?,
                None => writeln!(out)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use annulus_ring::{
        Checksum, ClusterId, Epoch, Generation, Handle, HashName, Layout, Replication, Slot,
        SlotTable,
    };
    use serde_json::Value;

    use super::*;

    /// What a reader that keeps numbers as doubles makes of a document.
    fn through_doubles(value: Value) -> Value {
        match value {
            Value::Number(number) => {
                let double = number.as_f64().expect("a number");
                Value::from(double as u64)
            }
            Value::Array(items) => items.into_iter().map(through_doubles).collect(),
            Value::Object(fields) => fields
                .into_iter()
                .map(|(key, value)| (key, through_doubles(value)))
                .collect(),
            other => other,
        }
    }

    #[test]
    fn c10_64_bit_tokens_survive_readers_that_know_only_doubles() {
        let mut slots = SlotTable::empty(4, 1);
        slots.slots().for_each(|slot| slots.set(slot, &[Handle(7)]));
        let member = annulus_ring::Member {
            node_id: "n1".parse().expect("a name"),
            incarnation: annulus_ring::Incarnation(u64::MAX - 2),
            handle: Handle(7),
            zone: "z1".parse().expect("a name"),
            weight: annulus_ring::Weight::new(1).expect("in range"),
            endpoint: "127.0.0.1:7101".parse().expect("an endpoint"),
            state: annulus_ring::MemberState::Active,
            availability: annulus_ring::Availability::Up,
        };
        let snapshot = Snapshot {
            format: annulus_ring::snapshot::FORMAT,
            cluster_id: ClusterId::default(),
            ring: "users".parse().expect("a name"),
            generation: Generation(u64::MAX - 1),
            epoch: Epoch((1 << 53) + 1),
            previous_checksum: Checksum([0xfe; 32]),
            created_at_ms: u64::MAX - 3,
            layout: Layout {
                placement_version: 1,
                hash: HashName::Xxh3_64,
                seed: (1 << 62) + 1,
                replication: Replication { rf: 1, w: 1, r: 1 },
                slots,
            },
            members: vec![member],
            transition: None,
        };
        let dump = Dump::new(&snapshot, Checksum([0xab; 32]).to_string());
        let json = serde_json::to_value(&dump).expect("serializes");
        assert_eq!(through_doubles(json.clone()), json);
        // And what is in it is the truth, token by token.
        assert_eq!(json["epoch"], ((1_u64 << 53) + 1).to_string());
        assert_eq!(json["seed"], ((1_u64 << 62) + 1).to_string());
        let ranges = json["ranges"].as_array().expect("ranges");
        for (slot, range) in (0..).map(Slot).zip(ranges) {
            let token = |field: &str| {
                let text = range[field].as_str().expect("hexadecimal");
                u64::from_str_radix(text, 16).expect("hexadecimal")
            };
            let expected = slot.range(4);
            assert_eq!(
                (token("start"), token("end")),
                (expected.start.0, expected.end.0)
            );
        }
        assert_eq!(ranges.len(), 16);
    }
}
