//! A leader that does what the test tells it: publishes views, gives directives, keeps reports.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use annulus_proto::v1::{self, from_agent, link_server, to_agent};
use annulus_ring::{
    Availability, Checksum, ClusterId, Endpoint, Epoch, Generation, Handle, HashName, Incarnation,
    Layout, Member, MemberState, NodeId, Position, Replication, RingName, Slot, SlotChange,
    SlotTable, Snapshot, Step, Transition, TransitionId, Weight, Zone,
};
use bytes::Bytes;
use tokio::{net::TcpListener, sync::watch};
use tokio_stream::{StreamExt, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

pub const CLUSTER: u128 = 0xc0ffee;

/// What one node reported on its links, merged.
#[derive(Clone, Debug, Default)]
pub struct Reported {
    pub adopted: u64,
    pub slots: BTreeMap<(u64, u32), v1::SlotReport>,
    pub source: BTreeMap<(u64, u32, String), v1::SlotDigest>,
    pub sealed: Option<v1::WaveReport>,
    pub confirmed: Option<v1::WaveReport>,
    pub fenced: Option<u64>,
    pub succeeded: Option<v1::Succeeded>,
    pub behind: u32,
    pub retained: BTreeMap<u64, Vec<u32>>,
    pub hellos: Vec<v1::Hello>,
    pub renewals: u64,
}

/// The ring as the test has it.
#[derive(Clone, Debug)]
pub struct Script {
    pub epoch: u64,
    pub previous: Checksum,
    pub members: Vec<&'static str>,
    pub replicas: u8,
    pub lists: Vec<Vec<&'static str>>,
    pub reigns: Vec<u64>,
    pub last_changes: Vec<u64>,
    /// Id, step, and N of slot 0.
    pub transition: Option<(u64, Step, Vec<&'static str>)>,
    /// N of slot 1, where it moves too.
    pub other: Option<Vec<&'static str>>,
    pub view: Option<v1::View>,
    pub directives: BTreeMap<String, v1::Directive>,
    pub aborted_births: BTreeSet<Bytes>,
    pub births: BTreeMap<Bytes, u64>,
    pub endpoints: BTreeMap<String, String>,
    pub elsewhere: Option<String>,
    pub permits: bool,
    /// Who hears nothing of all this, though its link stays open.
    pub frozen: BTreeSet<&'static str>,
    /// Those of a durable ring, unless said otherwise.
    pub terms: Option<v1::RingTerms>,
    /// Nodes that start from now on take a short silence of the link for its end.
    pub short_silence: bool,
}

pub struct Leader {
    script: Mutex<Script>,
    reports: watch::Sender<BTreeMap<String, Reported>>,
    changed: watch::Sender<u64>,
}

fn handle(node: &str) -> Handle {
    Handle(u16::from(node.as_bytes()[0] - b'a'))
}

impl Leader {
    pub async fn start() -> (Arc<Self>, Endpoint, tokio::task::JoinHandle<()>) {
        let script = Script {
            epoch: 0,
            previous: Checksum::default(),
            members: Vec::new(),
            replicas: 2,
            lists: vec![Vec::new(); 2],
            reigns: vec![0; 2],
            last_changes: vec![0; 2],
            transition: None,
            other: None,
            view: None,
            directives: BTreeMap::new(),
            aborted_births: BTreeSet::new(),
            births: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            elsewhere: None,
            permits: true,
            frozen: BTreeSet::new(),
            terms: None,
            short_silence: false,
        };
        let leader = Arc::new(Self {
            script: Mutex::new(script),
            reports: watch::Sender::default(),
            changed: watch::Sender::new(0),
        });
        leader.publish(|_| {});
        let (endpoint, task) = leader.listen().await;
        (leader, endpoint, task)
    }

    pub async fn listen(self: &Arc<Self>) -> (Endpoint, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::new(listener.local_addr().unwrap().to_string()).unwrap();
        let service = link_server::LinkServer::new(Service(self.clone()));
        let task = tokio::spawn(async move {
            let server = tonic::transport::Server::builder().add_service(service);
            server
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        });
        (endpoint, task)
    }

    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// It leads no more (and knows no other leader), or leads again, having forgotten all reports.
    pub fn lead(&self, leads: bool) {
        self.script().elsewhere = (!leads).then(String::new);
        if leads {
            self.reports.send_modify(BTreeMap::clear);
        }
        self.bump();
    }

    /// These nodes hear nothing more, or catch up.
    pub fn freeze(&self, nodes: &[&'static str]) {
        self.script().frozen.extend(nodes);
    }

    pub fn thaw(&self, nodes: &[&'static str]) {
        self.script().frozen.retain(|node| !nodes.contains(node));
        self.bump();
    }

    fn bump(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// The next epoch, after a change of the ring.
    pub fn publish(&self, change: impl FnOnce(&mut Script)) -> u64 {
        let mut script = self.script();
        script.epoch += 1;
        change(&mut script);
        let script = &mut *script;
        let mut slots = SlotTable::empty(1, script.replicas);
        for (slot, list) in (0..).map(Slot).zip(&script.lists) {
            slots.set(
                slot,
                &list.iter().map(|node| handle(node)).collect::<Vec<_>>(),
            );
        }
        let mut members: Vec<_> = script
            .members
            .iter()
            .map(|node| Member {
                node_id: NodeId::new(node).unwrap(),
                incarnation: Incarnation(1),
                handle: handle(node),
                zone: Zone::new(node).unwrap(),
                weight: Weight::new(1).unwrap(),
                endpoint: Endpoint::new(&script.endpoints[*node]).unwrap(),
                state: MemberState::Active,
                availability: Availability::Up,
            })
            .collect();
        members.sort_by(|one, other| one.node_id.cmp(&other.node_id));
        let mut snapshot = Snapshot {
            format: annulus_ring::snapshot::FORMAT,
            cluster_id: ClusterId(CLUSTER),
            ring: RingName::new("r").unwrap(),
            generation: Generation(1),
            epoch: Epoch(script.epoch),
            previous_checksum: script.previous,
            created_at_ms: 0,
            layout: Layout {
                placement_version: 1,
                hash: HashName::Xxh3_64,
                seed: 0,
                replication: Replication {
                    rf: script.replicas,
                    w: 2,
                    r: script.replicas - 1,
                },
                slots,
            },
            members,
            transition: script
                .transition
                .as_ref()
                .map(|(id, step, list)| Transition {
                    replication: None,
                    id: TransitionId(*id),
                    step: *step,
                    target: vec![SlotChange {
                        slot: Slot(0),
                        to: list.iter().map(|node| handle(node)).collect(),
                    }],
                }),
        };
        if let (Some(running), Some(list)) = (&mut snapshot.transition, &script.other) {
            running.target.push(SlotChange {
                slot: Slot(1),
                to: list.iter().map(|node| handle(node)).collect(),
            });
        }
        let encoded = annulus_proto::snapshot::encode(&snapshot);
        script.previous = encoded.checksum;
        script.view = Some(v1::View {
            converting: false,
            converted_epoch: 0,
            snapshot: Some(encoded.message()),
            reigns: script.reigns.clone(),
            last_changes: script.last_changes.clone(),
            terms: script.terms.clone(),
        });
        let epoch = script.epoch;
        self.bump();
        epoch
    }

    /// Enters a step of transition `id`, which gives slot 0 the new list.
    pub fn step(&self, id: u64, step: Step, list: &[&'static str]) -> u64 {
        self.publish(|script| {
            script.transition = Some((id, step, list.to_vec()));
            if step.changes_sets() {
                script.last_changes[0] = script.epoch;
                if script.other.is_some() {
                    script.last_changes[1] = script.epoch;
                }
            }
        })
    }

    pub fn direct(&self, node: &str, directive: v1::Directive) {
        let mut script = self.script();
        let epoch = if directive.epoch == 0 {
            script.epoch
        } else {
            directive.epoch
        };
        script
            .directives
            .insert(node.to_owned(), v1::Directive { epoch, ..directive });
        drop(script);
        self.bump();
    }

    pub fn reported(&self, node: &str) -> Reported {
        self.reports.borrow().get(node).cloned().unwrap_or_default()
    }

    /// Waits until a node's reports are as wanted.
    pub async fn until(
        &self,
        node: &str,
        what: &str,
        wanted: impl Fn(&Reported) -> bool,
    ) -> Reported {
        let mut reports = self.reports.subscribe();
        let waiting = reports.wait_for(|all| all.get(node).is_some_and(&wanted));
        match tokio::time::timeout(std::time::Duration::from_secs(20), waiting).await {
            Ok(found) => found.unwrap()[node].clone(),
            Err(_) => panic!(
                "waited for {node}: {what}; reported: {:?}",
                self.reported(node)
            ),
        }
    }

    pub async fn adopted(&self, nodes: &[&str], epoch: u64) {
        for node in nodes {
            self.until(node, &format!("epoch {epoch}"), |one| one.adopted >= epoch)
                .await;
        }
    }

    fn take(&self, node: &str, report: v1::Report) {
        self.reports.send_modify(|all| {
            let known = all.entry(node.to_owned()).or_default();
            known.adopted = known.adopted.max(report.adopted_epoch);
            for slot in report.slots {
                match &slot.digest {
                    Some(digest) if !digest.peer.is_empty() => {
                        let key = (slot.session, slot.slot, digest.peer.clone());
                        known.source.insert(key, digest.clone());
                    }
                    _ => {
                        known.slots.insert((slot.session, slot.slot), slot);
                    }
                }
            }
            known.sealed = report.sealed;
            known.confirmed = report.confirmed;
            known.fenced = report.fenced_wave;
            known.succeeded = report.succeeded;
            known.behind = report.behind_ranges;
            known.retained = report
                .retained
                .into_iter()
                .map(|set| (set.session, set.slots))
                .collect();
        });
    }
}

struct Service(Arc<Leader>);

fn out(message: to_agent::Message) -> Result<v1::ToAgent, Status> {
    Ok(v1::ToAgent {
        message: Some(message),
    })
}

#[tonic::async_trait]
impl link_server::Link for Service {
    type OpenStream = std::pin::Pin<
        Box<dyn tokio_stream::Stream<Item = Result<v1::ToAgent, Status>> + Send + 'static>,
    >;

    async fn open(
        &self,
        request: Request<Streaming<v1::FromAgent>>,
    ) -> Result<Response<Self::OpenStream>, Status> {
        let leader = self.0.clone();
        let mut incoming = request.into_inner();
        let hello = match incoming.message().await?.and_then(|first| first.message) {
            Some(from_agent::Message::Hello(hello)) => hello,
            other => return Err(Status::invalid_argument(format!("{other:?}"))),
        };
        let node = hello.node_id.clone();
        leader.reports.send_modify(|all| {
            all.entry(node.clone())
                .or_default()
                .hellos
                .push(hello.clone());
        });
        let (send, stream) = tokio::sync::mpsc::channel(16);
        let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
        let (elsewhere, discard, incarnation) = {
            let mut script = leader.script();
            let next = script.births.len() as u64;
            let incarnation = *script
                .births
                .entry(hello.birth.clone())
                .or_insert(1 + next / 100);
            let discard = script.aborted_births.contains(&hello.birth);
            (script.elsewhere.clone(), discard, incarnation)
        };
        if let Some(endpoint) = elsewhere {
            let there = to_agent::Message::Leader(v1::LeaderAt { endpoint });
            send.send(out(there)).await.unwrap();
            return Ok(Response::new(Box::pin(stream)));
        }
        let welcome = to_agent::Message::Welcome(v1::Welcome {
            cluster_id: Bytes::copy_from_slice(&CLUSTER.to_be_bytes()),
            incarnation,
            discard,
        });
        send.send(out(welcome)).await.unwrap();
        let mut changed = leader.changed.subscribe();
        tokio::spawn(async move {
            let mut told = 0;
            loop {
                changed.mark_unchanged();
                let (epoch, view, directive, elsewhere) = {
                    let script = leader.script();
                    let frozen = script.frozen.contains(node.as_str());
                    let directive = script.directives.get(&node).filter(|_| !frozen).cloned();
                    (
                        if frozen { told } else { script.epoch },
                        script.view.clone(),
                        directive,
                        script.elsewhere.clone(),
                    )
                };
                if let Some(endpoint) = elsewhere {
                    let there = to_agent::Message::Leader(v1::LeaderAt { endpoint });
                    let _gone = send.send(out(there)).await;
                    return;
                }
                if epoch > told {
                    told = epoch;
                    let view = to_agent::Message::View(view.unwrap());
                    if send.send(out(view)).await.is_err() {
                        return;
                    }
                }
                if let Some(directive) = directive {
                    let directive = to_agent::Message::Directive(directive);
                    if send.send(out(directive)).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    _ = changed.changed() => {}
                    message = incoming.next() => match message {
                        Some(Ok(message)) => match message.message {
                            Some(from_agent::Message::Report(report)) => leader.take(&node, report),
                            Some(from_agent::Message::Renew(renew)) => {
                                leader.reports.send_modify(|all| {
                                    all.entry(node.clone()).or_default().renewals += 1;
                                });
                                let ack = v1::RenewAck { seq: renew.seq };
                                if send.send(out(to_agent::Message::RenewAck(ack))).await.is_err() {
                                    return;
                                }
                            }
                            _ => {}
                        },
                        _ => return,
                    },
                }
            }
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn confirm_permit(
        &self,
        request: Request<v1::ConfirmPermitRequest>,
    ) -> Result<Response<v1::ConfirmPermitResponse>, Status> {
        let asked = request.into_inner().copies.unwrap_or_default();
        let slots = if self.0.script().permits {
            asked.slots
        } else {
            Vec::new()
        };
        Ok(Response::new(v1::ConfirmPermitResponse { slots }))
    }
}

pub fn position(of: Option<v1::Position>) -> Position {
    of.map(Position::from).unwrap_or_default()
}
