//! Scenario tables: `membership/scenarios/*.txt`, read like a story, reviewed like code.
//!
//! A block of commands, a line of dashes, then what is to be seen: answers, epoch, members and the
//! ranges that changed since the last block. `UPDATE_GOLDEN=1` (`cargo x golden`) writes them anew.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use super::support::World;
use annulus_membership::{
    Burial, Change, ChangeId, NodeEvidence, Outcome, PinKind, PlanId, Rejection, RingCommand,
    Spans, WarmUp, restart, why_kept,
};
use annulus_ring::{Epoch, NodeId, Replication, SessionId, Slot, Step, Weight, Zone};

struct Stage {
    world: Option<World>,
    shown: BTreeMap<Slot, String>,
    answers: String,
    /// The leader's last word for a node, as shown.
    word: &'static str,
    /// Once a scenario moves nodes between zones.
    shows_zones: bool,
    /// Once a scenario changes it.
    shows_replication: bool,
}

impl Stage {
    fn world(&mut self) -> &mut World {
        self.world
            .as_mut()
            .expect("the first command of a scenario is `ring`")
    }

    fn run(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| panic!("{word:?}"));
        let option = |name: &str| {
            words
                .iter()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let result = match words[0] {
            "ring" => {
                let bits = option("bits").map_or(2, number) as u8;
                let factor = option("factor").map_or(3, number) as u8;
                let warm_up = option("warm").map_or(WarmUp::None, warm_up);
                let config = match words.contains(&"cache") {
                    true => World::cache(bits, factor, warm_up),
                    false => World::config(bits, factor),
                };
                self.world = Some(World::new(config));
                Ok(())
            }
            "agent" => {
                let weight = option("weight").map_or(100, number) as u32;
                let at = option("at").unwrap_or(words[1]);
                self.world().agent_at(words[1], words[2], weight, at)
            }
            "found" => {
                let accept = words.last() == Some(&"accept");
                let names = &words[1..words.len() - usize::from(accept)];
                self.world().found(names, accept)
            }
            "join" => {
                let change = Change::Join {
                    node: NodeId::new(words[1]).unwrap(),
                    zone: option("zone").map(|zone| Zone::new(zone).unwrap()),
                    weight: option("weight").map(|w| Weight::new(number(w) as u32).unwrap()),
                };
                self.change(change)
            }
            "replace" => self.change(Change::Replace {
                node: NodeId::new(words[1]).unwrap(),
                by: NodeId::new(words[2]).unwrap(),
                burial: words.contains(&"dead").then(Burial::default),
            }),
            "remove" => self.change(Change::Remove {
                node: NodeId::new(words[1]).unwrap(),
                burial: Burial {
                    lost: option("lost").map_or_else(Spans::default, |slots| {
                        Spans::of(slots.split(',').map(|slot| Slot(number(slot) as u32)))
                    }),
                    stopped: option("stopped").map(str::to_owned),
                },
            }),
            "weight" => {
                let change = Change::Weight {
                    node: NodeId::new(words[1]).unwrap(),
                    weight: Weight::new(number(words[2]) as u32).unwrap(),
                };
                self.change_by(change, option("ramp").map(number))
            }
            "convert" => self.command(RingCommand::Convert {
                hash: option("hash").map(|hash| hash.parse().unwrap()),
                layout: option("layout").map(str::to_owned),
                double: words.contains(&"double"),
            }),
            // On the word of these members, whatever it is.
            "finish" => {
                let ring = self.world().ring_state().clone();
                let begun = ring.conversion.as_ref().map_or(Epoch(0), |one| one.begun);
                let evidence = words[1..].iter().map(|name| {
                    let node = NodeId::new(name).unwrap();
                    NodeEvidence {
                        incarnation: ring.members[&node].incarnation,
                        session: SessionId::default(),
                        acked_epoch: self.node(name).adopted,
                        hit_permille: None,
                        node,
                    }
                });
                let evidence = evidence.collect();
                self.command(RingCommand::FinishConversion { begun, evidence })
            }
            "pin" => self.change(Change::Pin {
                node: NodeId::new(words[1]).unwrap(),
                slots: spans(words[2]),
                kind: match words.get(3) {
                    None => PinKind::Member,
                    Some(word) => {
                        assert_eq!(*word, "owner");
                        PinKind::Owner
                    }
                },
            }),
            "unpin" => self.change(Change::Unpin {
                node: NodeId::new(words[1]).unwrap(),
                slots: words.get(2).map(|word| spans(word)),
            }),
            "zone" => self.change(Change::Zone {
                node: NodeId::new(words[1]).unwrap(),
                zone: Zone::new(words[2]).unwrap(),
                accept: words.last() == Some(&"accept"),
            }),
            "replication" => self.change(Change::Replication {
                to: annulus_ring::Replication {
                    rf: number(words[1]) as u8,
                    w: number(words[2]) as u8,
                    r: number(words[3]) as u8,
                },
                accept: words.last() == Some(&"accept"),
            }),
            "drain-zone" => self.change(Change::DrainZone {
                zone: Zone::new(words[1]).unwrap(),
                accept: words.last() == Some(&"accept"),
            }),
            "restart" => {
                let node = NodeId::new(words[1]).unwrap();
                let said = &mut self.world().nodes.get_mut(&node).unwrap().registration;
                if let Some(zone) = option("zone") {
                    said.zone = Zone::new(zone).unwrap();
                }
                if let Some(weight) = option("weight") {
                    said.weight = Weight::new(number(weight) as u32).unwrap();
                }
                self.world().link(&node)
            }
            "drain" => {
                let node = NodeId::new(words[1]).unwrap();
                self.change_by(Change::Drain { node }, option("in").map(number))
            }
            "abort" => {
                let change = ChangeId(number(words[1]));
                self.command(RingCommand::Abort { change })
            }
            "settle" => self.command(RingCommand::Settle),
            "pause" | "hold" => {
                let reason = Some(words[1..].join(" "));
                self.command(if words[0] == "pause" {
                    RingCommand::Pause { reason }
                } else {
                    RingCommand::Hold { reason }
                })
            }
            "maintain" => {
                let command = RingCommand::Maintain {
                    node: NodeId::new(words[1]).unwrap(),
                    for_ms: option("for").map(|seconds| number(seconds) * 1_000),
                    accept: words.last() == Some(&"accept"),
                };
                self.command(command)
            }
            "ok-to-restart" => {
                let world = self.world.as_mut().unwrap();
                let nodes = words[1..].iter().map(|id| NodeId::new(*id).unwrap());
                let up = restart::up(world.ring_state(), &world.reports, world.now_ms);
                let answer = restart::batches(world.ring_state(), up, &nodes.collect());
                answer.map(|answer| {
                    let together = if answer.together { "together" } else { "apart" };
                    writeln!(self.answers, "{together}: {:?}", answer.batches).unwrap();
                    for blocked in answer.blocked {
                        writeln!(self.answers, "blocked: {blocked:?}").unwrap();
                    }
                })
            }
            "waits" => {
                let world = self.world.as_ref().unwrap();
                let (state, ring) = (&world.state, world.ring_state());
                let told =
                    annulus_membership::waiting_for(state, ring, &world.reports, world.now_ms);
                told.iter()
                    .for_each(|line| writeln!(self.answers, "{line}").unwrap());
                Ok(())
            }
            "auto-remove" => {
                let after_ms = words.get(1).map(|seconds| number(seconds) * 1_000);
                self.command(RingCommand::AutoRemove { after_ms })
            }
            "resume" => self.command(RingCommand::Pause { reason: None }),
            "unhold" => self.command(RingCommand::Hold { reason: None }),
            "plan" => self.plan(&words[1..]),
            "commit" => {
                let plan = PlanId(number(words[1]));
                self.world().commit(plan).map(|changes| {
                    let changes: Vec<_> = changes.iter().map(ToString::to_string).collect();
                    let changes = changes.join(", ");
                    writeln!(self.answers, "plan {plan} is change {changes}").unwrap();
                })
            }
            "drop" => {
                let plan = PlanId(number(words[1]));
                self.command(RingCommand::DropPlan { plan })
            }
            "outlook" => {
                let plan = PlanId(number(words[1]));
                let told = self.world().told_plan(plan, option("limit").map(number));
                self.answers.push_str(&told);
                Ok(())
            }
            "disk" => {
                let node = NodeId::new(words[1]).unwrap();
                self.world().nodes.get_mut(&node).unwrap().free_bytes = number(words[2]);
                self.world().node_acts(&node);
                Ok(())
            }
            "why-kept" => {
                self.why_kept(words.get(1).map(|id| NodeId::new(id).unwrap()));
                Ok(())
            }
            "silent" | "pass" => {
                self.pass(words[1], number(words[2]), words[0] == "silent");
                Ok(())
            }
            "leader" => {
                self.world().new_leader();
                Ok(())
            }
            "link" => self.world().link(&NodeId::new(words[1]).unwrap()),
            "empty-disk" => {
                let node = NodeId::new(words[1]).unwrap();
                let birth = annulus_membership::Birth(u128::MAX);
                self.world().nodes.get_mut(&node).unwrap().start_anew(birth);
                self.world().link(&node)
            }
            "slow" => {
                self.node(words[1]).slow = true;
                Ok(())
            }
            "hits" => {
                self.node(words[1]).hits = Some(number(words[2]) as u16);
                Ok(())
            }
            "create" => {
                let mut config = World::config(2, 3);
                if let Some(text) = option("warm") {
                    config.warm_up = warm_up(text);
                }
                if words.contains(&"cache") {
                    config.kind = annulus_ring::RingKind::Cache;
                }
                config.serve_when_isolated = !words.contains(&"isolated=stop");
                let config = annulus_membership::RingConfig {
                    replication: quorums(option("quorums")).unwrap_or(config.replication),
                    ..config
                };
                self.world().create(words[1], config)
            }
            "due" => {
                self.world().leader_acts();
                Ok(())
            }
            "acts" => {
                words[1..].iter().for_each(|id| {
                    self.world().node_acts(&NodeId::new(id).unwrap());
                });
                Ok(())
            }
            "go" => {
                self.go(words[1]);
                Ok(())
            }
            other => panic!("unknown scenario command {other:?}"),
        };
        if let Err(rejection) = result {
            writeln!(self.answers, "refused {}: {rejection}", rejection.name()).unwrap();
        }
    }

    fn node(&mut self, id: &str) -> &mut super::support::node::Node {
        let id = NodeId::new(id).unwrap();
        self.world().nodes.get_mut(&id).unwrap()
    }

    /// For so many seconds everybody goes on, but this node if it is silent; its words are shown.
    fn pass(&mut self, ids: &str, seconds: u64, is_silent: bool) {
        let world = self.world.as_mut().unwrap();
        let silent: Vec<NodeId> = ids.split(',').map(|id| NodeId::new(id).unwrap()).collect();
        let (id, watched) = (silent[0].clone(), silent[0].clone());
        for _ in 0..seconds {
            world.now_ms += 1_000;
            let others: Vec<NodeId> = world.nodes.keys().cloned().collect();
            for id in others
                .iter()
                .filter(|id| !is_silent || !silent.contains(id))
            {
                world.node_acts(id);
            }
            world.leader_acts();
            let Some(member) = world.ring_state().members.get(&watched) else {
                continue;
            };
            let word = world.reports.word(member, world.now_ms).as_str();
            if self.word != word {
                writeln!(self.answers, "{id} is {word}").unwrap();
                self.word = word;
            }
        }
    }

    fn go(&mut self, where_to: &str) {
        let world = self.world.as_mut().unwrap();
        match where_to {
            "rest" => world.run_to_rest(),
            "wave" => world.run_until("a wave", |world| world.ring_state().wave.is_some()),
            "settled" => {
                world.run_until("the end", |world| world.ring_state().transition.is_none())
            }
            "converted" => world.run_until("the end of the conversion", |world| {
                world.ring_state().conversion.is_none()
            }),
            step => {
                let step = Step::ALL
                    .into_iter()
                    .find(|one| one.as_str() == step)
                    .unwrap();
                world.run_until(step.as_str(), |world| {
                    let running = world.ring_state().transition.as_ref();
                    running.is_some_and(|transition| transition.step == step)
                });
            }
        }
    }

    fn change(&mut self, change: Change) -> Result<(), Rejection> {
        self.change_by(change, None)
    }

    fn change_by(&mut self, change: Change, steps: Option<u64>) -> Result<(), Rejection> {
        let expected_layout_epoch = None;
        let command = match steps {
            None => RingCommand::Change {
                change,
                expected_layout_epoch,
            },
            Some(steps) => RingCommand::ChangeBySteps {
                change,
                steps: steps as u32,
                expected_layout_epoch,
            },
        };
        match self.world().request(command) {
            Outcome::Applied(applied) => {
                write!(self.answers, "change {}", applied.change.unwrap()).unwrap();
                for note in applied.notes {
                    write!(self.answers, "; {note}").unwrap();
                }
                self.answers.push('\n');
                Ok(())
            }
            Outcome::Rejected(rejection) => Err(rejection),
        }
    }

    /// `join x drain y weight z=3 replace a=b`: a plan of these changes.
    fn plan(&mut self, words: &[&str]) -> Result<(), Rejection> {
        let node = |id: &str| NodeId::new(id).unwrap();
        let changes: Vec<Change> = words
            .chunks(2)
            .map(|pair| match (pair[0], pair[1].split_once('=')) {
                ("join", None) => Change::Join {
                    node: node(pair[1]),
                    zone: None,
                    weight: None,
                },
                ("drain", None) => Change::Drain {
                    node: node(pair[1]),
                },
                ("weight", Some((id, weight))) => Change::Weight {
                    node: node(id),
                    weight: Weight::new(weight.parse().unwrap()).unwrap(),
                },
                ("replace", Some((id, by))) => Change::Replace {
                    node: node(id),
                    by: node(by),
                    burial: None,
                },
                other => panic!("unknown change {other:?}"),
            })
            .collect();
        let plan = self.world().plan(&changes)?;
        writeln!(self.answers, "plan {plan} is kept").unwrap();
        Ok(())
    }

    fn why_kept(&mut self, node: Option<NodeId>) {
        let world = self.world.as_mut().unwrap();
        let ring = world.ring_state();
        let kept = why_kept(&world.state, ring, &world.reports, node.as_ref(), None);
        for copies in kept {
            let (node, session, since) = (copies.node, copies.session, copies.since_epoch);
            let (kept, permitted) = (copies.kept, copies.permitted);
            writeln!(
                self.answers,
                "{node} keeps {kept} of session {session} since epoch {since}, may delete {permitted}"
            )
            .unwrap();
            for (lack, ranges) in copies.waits {
                writeln!(self.answers, "  {ranges}: {}", lack.words()).unwrap();
            }
        }
    }

    fn command(&mut self, command: RingCommand) -> Result<(), Rejection> {
        self.world().ring_command(command)
    }

    fn show(&mut self) -> String {
        let mut text = std::mem::take(&mut self.answers);
        let world = self.world.as_ref().unwrap();
        let ring = world.ring_state();
        let mut members = String::new();
        for member in ring.members.values() {
            write!(members, "  {} {}", member.node_id, member.state).unwrap();
            if self.shows_zones {
                write!(members, " in {}", member.zone).unwrap();
            }
            if member.weight.get() != 100 {
                write!(members, " ({})", member.weight).unwrap();
            }
            if member.availability == annulus_ring::Availability::Down {
                members.push_str(" (down)");
            }
        }
        write!(text, "epoch {}{members}", ring.epoch).unwrap();
        if let Some(transition) = &ring.transition {
            write!(
                text,
                "  [step {} {}]",
                transition.step.number(),
                transition.step
            )
            .unwrap();
        }
        if let Some(wave) = &ring.wave {
            write!(
                text,
                "  [wave {}: {} -> {}]",
                wave.id, wave.owner, wave.successor
            )
            .unwrap();
        }
        if let Some(conversion) = &ring.conversion {
            let to = conversion.to;
            write!(text, "  [to {}, k {}]", to.hash, to.slot_bits).unwrap();
        }
        let replication = ring.replication();
        if self.shows_replication {
            let annulus_ring::Replication { rf, w, r } = replication;
            write!(text, "  rf {rf} w {w} r {r}").unwrap();
        }
        text.push('\n');
        for (id, record) in &ring.changes {
            use annulus_membership::ChangePhase::{Aborted, Done, Queued, Refused, Running};
            let phase = match &record.phase {
                Queued => "queued".to_owned(),
                Running(_) => continue,
                Done => continue,
                Aborted => "aborted".to_owned(),
                Refused(why) => format!("refused {}", why.name()),
            };
            let change = &record.change;
            let about = change
                .node()
                .map_or_else(|| change.about(), NodeId::to_string);
            writeln!(text, "  change {id} ({} {about}) {phase}", change.kind()).unwrap();
        }
        for ((node, kind), slots) in ring.pins.by_node() {
            let owner = if kind == PinKind::Owner {
                " as owner"
            } else {
                ""
            };
            writeln!(text, "  pinned to {node}{owner}: slots {slots}").unwrap();
        }
        for copies in &ring.retained {
            let (node, kept, permitted) = (&copies.node, &copies.kept, &copies.permitted);
            writeln!(
                text,
                "  {node} keeps {} copies, may delete {}",
                kept.len(),
                permitted.len()
            )
            .unwrap();
        }
        let names = |list: &[annulus_ring::Handle]| -> String {
            let ids = list
                .iter()
                .map(|handle| ring.by_handle(*handle).unwrap().node_id.as_str());
            ids.collect::<Vec<_>>().join(" ")
        };
        let quorums = ring.quorums();
        for slot in ring.slots.slots() {
            let sets = ring.sets(slot);
            let mut line = format!("  slot {slot}  read {}", names(sets.read_set()));
            if sets.write_set().as_slice() != sets.read_set() {
                write!(line, "  write {}", names(&sets.write_set())).unwrap();
            }
            let groups = sets.groups(quorums);
            if quorums.old.w != quorums.new.w {
                let named = |group: &annulus_ring::Group<'_>| {
                    format!("{} of [{}]", group.need, names(group.list))
                };
                let groups: Vec<_> = groups.iter().map(named).collect();
                write!(line, "  ack by {}", groups.join(" and ")).unwrap();
            } else if groups.len() > 1 {
                let groups: Vec<_> = groups.iter().map(|group| names(group.list)).collect();
                write!(line, "  ack by w of [{}]", groups.join("] and [")).unwrap();
            }
            if self.shown.get(&slot) != Some(&line) {
                writeln!(text, "{line}").unwrap();
                self.shown.insert(slot, line);
            }
        }
        text
    }
}

/// `3,5-7`, or whatever was written, as it was written.
fn spans(text: &str) -> Spans {
    let slot = |text: &str| Slot(text.parse().unwrap());
    let span = |text: &str| match text.split_once('-') {
        Some((first, last)) => (slot(first), slot(last)),
        None => (slot(text), slot(text)),
    };
    Spans(text.split(',').map(span).collect())
}

/// `none`, `time:MS` or `hits:PERMILLE:MS`.
fn warm_up(text: &str) -> WarmUp {
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        ["none"] => WarmUp::None,
        ["time", ms] => WarmUp::Time {
            time_ms: ms.parse().unwrap(),
        },
        ["hits", permille, ms] => WarmUp::HitRatio {
            hit_ratio_permille: permille.parse().unwrap(),
            limit_ms: ms.parse().unwrap(),
        },
        _ => panic!("warm-up {text:?}"),
    }
}

/// `RF:W:R`.
fn quorums(text: Option<&str>) -> Option<Replication> {
    let parts: Vec<u8> = text?.split(':').map(|n| n.parse().unwrap()).collect();
    let [rf, w, r] = parts[..] else {
        panic!("quorums {text:?}")
    };
    Some(Replication { rf, w, r })
}

/// Runs a scenario's commands and writes what is seen after each block.
fn play(script: &str) -> String {
    let mut stage = Stage {
        world: None,
        shown: BTreeMap::new(),
        answers: String::new(),
        word: "up",
        shows_replication: script.lines().any(|line| line.starts_with("replication ")),
        shows_zones: script.lines().any(|line| line.starts_with("zone ")),
    };
    let mut output = String::new();
    let mut expecting = false;
    let mut open = false;
    for line in script.lines() {
        if line == "----" {
            expecting = true;
            open = false;
            output.push_str("----\n");
            output.push_str(&stage.show());
        } else if expecting {
            // The old expectation ends at an empty line.
            expecting = !line.trim().is_empty();
            if !expecting {
                output.push('\n');
            }
        } else {
            output.push_str(line);
            output.push('\n');
            if !line.trim().is_empty() && !line.starts_with('#') {
                stage.run(line);
                open = true;
            }
        }
    }
    assert!(!open, "a scenario ends with a block of what is to be seen");
    output
}

#[test]
fn scenarios_read_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(
        files.len() >= 6,
        "scenarios are missing from {}",
        folder.display()
    );
    for file in files {
        let script = fs::read_to_string(&file).unwrap();
        let played = play(&script);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&file, &played).unwrap();
        } else {
            assert!(
                played == script,
                "{} differs; it is now:\n{played}\n(UPDATE_GOLDEN=1 writes it)",
                file.display()
            );
        }
    }
}
