//! The receiving side of an owner's writes and questions.

use std::{collections::BTreeMap, sync::Arc};

use annulus_agent::{
    guard::{Refusal, ReplicaAdmission, ReplicaStamp},
    store::{Copy, RangeStore, Record},
};
use annulus_ring::{Epoch, Generation, Position, SessionId, Slot};
use futures::future::join_all;
use tonic::{Request, Response, Status};

use crate::{
    limits,
    node::Node,
    pb::{self, replica_server::Replica},
    refused::{Cause, Refused},
};

/// Everything by which writes of one message are judged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lot {
    slot: Slot,
    epoch: Epoch,
    reign: Epoch,
    session: Option<SessionId>,
}

/// Writes of one lot, by their places in the message.
#[derive(Default)]
struct Lots {
    places: Vec<usize>,
    records: Vec<Record>,
    acknowledged: Option<Position>,
}

impl Node {
    /// Judges and stores one lot; an `Ok` is durable.
    async fn take_lot(
        &self,
        generation: Generation,
        lot: Lot,
        sender: &Sender<'_>,
        records: Vec<Record>,
        acknowledged: Option<Position>,
    ) -> Result<(), Refused> {
        let Lot {
            slot,
            epoch,
            reign,
            session,
        } = lot;
        let stamp = ReplicaStamp {
            generation,
            epoch,
            reign,
            session,
        };
        let admission: ReplicaAdmission = self.guard.admit_replica(slot, stamp).await?;
        // After the guard waited for the sender's epoch, which may have changed who is who.
        self.check_sender(sender, slot)?;
        let refuse = |cause: Cause| cause.at(admission.epoch);
        self.store
            .take_in(slot, admission.copy, records, acknowledged)
            .await
            .map_err(|error| refuse(error.into()))?;
        if admission.copy == Copy::Live
            && let Some(repair) = &self.settings.repair
            && self
                .store
                .watermark(slot, Copy::Live)
                .is_ok_and(|watermark| watermark.pending)
        {
            repair(slot);
        }
        // Only now: an epoch is acked when nothing admitted under an older one is in flight.
        drop(admission);
        Ok(())
    }

    /// That a message is for this node of this ring. An answer given in the place of another
    /// member behind the same address would count one copy twice.
    fn check_addressee(&self, ring: &str, receiver: &str) -> Result<(), Refused> {
        let view = self.guard.view();
        let (name, message) = if ring != view.ring.as_str() {
            let own = &view.ring;
            let message = format!("this node serves ring {own}, the request is for ring {ring:?}");
            ("WrongRing", message)
        } else if receiver != view.node.as_str() {
            let own = &view.node;
            let message = format!(
                "this node is {own}, the request is for {receiver:?}: two members give one address"
            );
            ("WrongNode", message)
        } else {
            return Ok(());
        };
        let name = name.to_owned();
        Err(Cause::Invalid { name, message }.at(self.epoch()))
    }
}

/// Who sends writes or asks about a reign.
struct Sender<'a> {
    name: &'a str,
    endpoint: &'a str,
}

impl Node {
    /// That the sender is the slot's owner, and the process that the snapshot means: one that was
    /// replaced by another of the same name does not know that it no longer is.
    fn check_sender(&self, sender: &Sender<'_>, slot: Slot) -> Result<(), Refused> {
        let view = self.guard.view();
        let owner = view
            .sets(slot)
            .owner()
            .and_then(|owner| view.peer(owner, None));
        let message = match owner {
            Some(owner) if owner.node_id.as_str() != sender.name => {
                format!(
                    "{} owns slot {slot} here, not {}",
                    owner.node_id, sender.name
                )
            }
            Some(owner) if owner.endpoint.as_str() != sender.endpoint => format!(
                "{} listens at {} here, the sender at {}: one of two processes of that name",
                owner.node_id, owner.endpoint, sender.endpoint
            ),
            // Judged by the guard, which knows the better word.
            None | Some(_) => return Ok(()),
        };
        let name = "WrongSender".to_owned();
        Err(Cause::Invalid { name, message }.at(self.epoch()))
    }
}

/// The service, over a node.
#[derive(Clone)]
pub(crate) struct ReplicaService(pub Arc<Node>);

#[tonic::async_trait]
impl Replica for ReplicaService {
    async fn replicate(
        &self,
        request: Request<pb::ReplicateRequest>,
    ) -> Result<Response<pb::ReplicateResponse>, Status> {
        let request = request.into_inner();
        let node = &self.0;
        let count = request.items.len();
        if !node.settings.replicate_delay.is_zero() {
            // Before anything is judged or stored, as a slow network would.
            tokio::time::sleep(node.settings.replicate_delay).await;
        }
        let mut results = vec![pb::ReplicateResult { refused: None }; count];
        let mut set = |place: usize, refused: Refused| {
            results[place].refused = Some(refused.into());
        };
        if let Err(refused) = node.check_addressee(&request.ring, &request.receiver) {
            (0..count).for_each(|place| set(place, refused.clone()));
            return Ok(Response::new(pb::ReplicateResponse { results }));
        }
        let mut lots: BTreeMap<Lot, Lots> = BTreeMap::new();
        for (place, item) in request.items.into_iter().enumerate() {
            match read(item) {
                Ok((lot, record, acknowledged)) => {
                    let lots = lots.entry(lot).or_default();
                    lots.places.push(place);
                    lots.records.push(record);
                    lots.acknowledged = lots.acknowledged.max(acknowledged);
                }
                Err(cause) => set(place, cause.at(node.epoch())),
            }
        }
        let generation = Generation(request.generation);
        let sender = &Sender {
            name: &request.sender,
            endpoint: &request.sender_endpoint,
        };
        let taken = join_all(lots.into_iter().map(|(lot, lots)| async move {
            let taken = node
                .take_lot(generation, lot, sender, lots.records, lots.acknowledged)
                .await;
            (lots.places, taken)
        }));
        for (places, taken) in taken.await {
            if let Err(refused) = taken {
                places
                    .into_iter()
                    .for_each(|place| set(place, refused.clone()));
            }
        }
        Ok(Response::new(pb::ReplicateResponse { results }))
    }

    async fn confirm_reign(
        &self,
        request: Request<pb::ConfirmReignRequest>,
    ) -> Result<Response<pb::ConfirmReignResponse>, Status> {
        let request = request.into_inner();
        let node = &self.0;
        let astray = node.check_addressee(&request.ring, &request.receiver).err();
        let sender = &Sender {
            name: &request.sender,
            endpoint: &request.sender_endpoint,
        };
        let results = join_all(request.items.iter().map(|item| {
            let astray = astray.clone();
            async move {
                let (slot, reign, epoch) = (Slot(item.slot), Epoch(item.reign), Epoch(item.epoch));
                let confirmed = match astray {
                    Some(refused) => Err(refused),
                    None => node
                        .guard
                        .confirm_reign(slot, reign, epoch)
                        .await
                        .map_err(|refusal: Refusal| refusal.into())
                        .and_then(|()| node.check_sender(sender, slot)),
                };
                pb::ConfirmResult {
                    refused: confirmed.err().map(Into::into),
                }
            }
        }));
        Ok(Response::new(pb::ConfirmReignResponse {
            results: results.await,
        }))
    }
}

/// Checks one write of a message.
fn read(item: pb::ReplicateItem) -> Result<(Lot, Record, Option<Position>), Cause> {
    limits::check_write(&item.key, item.value.as_deref())?;
    let version = item.version.ok_or_else(|| Cause::Invalid {
        name: "NoVersion".to_owned(),
        message: "a replicated write carries no version".to_owned(),
    })?;
    let lot = Lot {
        slot: Slot(item.slot),
        epoch: Epoch(item.epoch),
        reign: Epoch(item.reign),
        session: (item.session != 0).then_some(SessionId(item.session)),
    };
    let record = Record {
        key: item.key,
        version: version.into(),
        value: item.value,
    };
    Ok((lot, record, item.acknowledged.map(Into::into)))
}
