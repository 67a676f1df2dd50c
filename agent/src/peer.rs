//! What this node gives to other data nodes: a range at a cut, a tail, a digest.
//!
//! Only the owner that serves in the very reign that is asked for answers: any other replica may
//! miss an acknowledged write. Chunks are bounded, and the reader's pace holds the stream back.

use std::{collections::BTreeSet, sync::Arc};

use annulus_proto::{
    MAX_MESSAGE_BYTES,
    convert::{self, PeerStamp},
    v1::{self, peer_server},
};
use annulus_ring::{NodeId, Position, SessionId, Slot};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use crate::{
    bait,
    board::LIVE,
    guard::{Refusal, SourceStamp},
    shared::{Held, Shared},
    store::{Copy, Cut, DigestAt, RangeStore, Record, StoreError},
    tree::{self, Difference, Leaves, MAX_DEPTH, Told},
};

/// Most payload bytes of one chunk, unless a single record is larger.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Most records of one chunk.
pub const CHUNK_RECORDS: usize = 1_000;

/// The service between data nodes; add it to the store's own tonic server.
pub type PeerServer = peer_server::PeerServer<PeerService>;

/// See [`crate::Agent::peer_service`].
#[derive(Clone, Debug)]
pub struct PeerService {
    shared: Arc<Shared>,
}

pub(crate) fn server(shared: Arc<Shared>) -> PeerServer {
    PeerServer::new(PeerService { shared })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

type Chunks = ReceiverStream<Result<v1::RecordChunk, Status>>;

impl PeerService {
    /// Whether the caller may ask this node, as the slot's owner. Waits for the caller's epoch. The
    /// slot keeps its name while what is answered besides the caller's name lives.
    async fn judge(
        &self,
        stamp: Option<v1::PeerStamp>,
        slot: u32,
        session: u64,
        copies: bool,
    ) -> Result<(NodeId, Held), Status> {
        let source = self.source_stamp(stamp, session, copies)?;
        let node = source.node.clone();
        loop {
            let admitted = self.shared.guard.admit_source(Slot(slot), source.clone());
            admitted.await.map_err(|refusal| refused(&refusal))?;
            // Not held while it waits for an epoch, which may be one that changes names.
            let held = self.shared.coordinates.hold().await;
            if self.shared.guard.serves_reign(Slot(slot), source.reign) {
                return Ok((node, held));
            }
        }
    }

    fn source_stamp(
        &self,
        stamp: Option<v1::PeerStamp>,
        session: u64,
        copies: bool,
    ) -> Result<SourceStamp, Status> {
        let invalid = |error: convert::ConvertError| Status::invalid_argument(error.to_string());
        let stamp = convert::required("stamp", stamp).map_err(invalid)?;
        let stamp = PeerStamp::try_from(stamp).map_err(invalid)?;
        if stamp.ring != self.shared.config.ring {
            let own = &self.shared.config.ring;
            let message = format!("this node serves ring {own}, not {}", stamp.ring);
            return Err(Status::failed_precondition(message));
        }
        Ok(SourceStamp {
            generation: stamp.generation,
            epoch: stamp.epoch,
            reign: stamp.reign,
            session: (session != 0).then_some(SessionId(session)),
            node: stamp.node_id,
            incarnation: stamp.incarnation,
            copies,
        })
    }

    /// Streams what `open` reads; a copy as fast as this node gives copies out.
    async fn stream(
        &self,
        held: Held,
        is_copy: bool,
        open: impl FnOnce(&dyn RangeStore) -> Result<(Cut, Option<Position>), StoreError>
        + Send
        + 'static,
    ) -> Result<Response<Chunks>, Status> {
        let meter = self.meter(is_copy);
        self.answer(held, move |store, out| {
            let (cut, fork) = open(store)?;
            send_chunks(cut, |chunk: Vec<Record>, cut: Option<Position>| {
                meter.pass(chunk.iter().map(Record::payload_bytes).sum());
                out(v1::RecordChunk {
                    records: chunk.into_iter().map(message).collect(),
                    cut: cut.map(Into::into),
                    fork: cut.and(fork).map(Into::into),
                })
            })
        })
        .await
    }

    fn meter(&self, is_copy: bool) -> Meter {
        Meter {
            shared: self.shared.clone(),
            runtime: tokio::runtime::Handle::current(),
            is_copy,
        }
    }

    /// Runs `work` on the store on a blocking thread. It sends one message after the other, which
    /// says false when nobody reads on.
    async fn answer<T: Send + 'static>(
        &self,
        held: Held,
        work: impl FnOnce(&dyn RangeStore, &dyn Fn(T) -> bool) -> Result<(), StoreError>
        + Send
        + 'static,
    ) -> Result<Response<ReceiverStream<Result<T, Status>>>, Status> {
        let permit = self.shared.serving.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Status::unavailable("this node stops"))?;
        let (store, running) = self.shared.store.borrow().await;
        let runtime = tokio::runtime::Handle::current();
        // Two chunks under way are enough to keep reading and sending apart.
        let (chunks, stream) = mpsc::channel(2);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let over = held.over().clone();
            let out = |message| {
                let sent = over.run_until_cancelled(chunks.send(Ok(message)));
                runtime.block_on(sent).is_some_and(|sent| sent.is_ok())
            };
            let end = match work(&*store, &out) {
                Err(error) => Err(broken(&error)),
                // Cut short it would look whole: strays that were not named, say.
                Ok(()) if over.is_cancelled() => Err(Status::aborted("the ring was converted")),
                Ok(()) => Ok(()),
            };
            drop((held, running));
            if let Err(status) = end {
                // The reader may be gone; then nobody is left to be told.
                let _gone = chunks.blocking_send(Err(status));
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// Counts what is given out, and holds copies back; used on a blocking thread.
struct Meter {
    shared: Arc<Shared>,
    runtime: tokio::runtime::Handle,
    is_copy: bool,
}

impl Meter {
    fn pass(&self, bytes: usize) {
        self.shared.metrics.served_bytes.inc_by(bytes as u64);
        if self.is_copy {
            let pass = self.shared.throttles.take_out(bytes);
            // Whoever stops does not wait for a slow limit.
            let _stopped = self
                .runtime
                .block_on(self.shared.stop.run_until_cancelled(pass));
        }
    }
}

/// Cuts the records into chunks; the last one, perhaps empty, carries the cut. Ends early when
/// `send` says that nobody reads on.
fn send_chunks(
    cut: Cut,
    mut send: impl FnMut(Vec<Record>, Option<Position>) -> bool,
) -> Result<(), StoreError> {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    for record in cut.records {
        let record = record?;
        let more = record.payload_bytes();
        if !chunk.is_empty() && (bytes + more > CHUNK_BYTES || chunk.len() >= CHUNK_RECORDS) {
            if !send(std::mem::take(&mut chunk), None) {
                return Ok(());
            }
            bytes = 0;
        }
        bytes += more;
        chunk.push(record);
    }
    send(chunk, Some(cut.position));
    Ok(())
}

/// Tells which of `held` the live copy does not hold so, in bounded chunks.
fn sift(
    store: &dyn RangeStore,
    slot: Slot,
    held: Vec<v1::KeyVersion>,
    mut send: impl FnMut(Vec<v1::Stray>) -> bool,
) -> Result<(), StoreError> {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    for (at, held) in (0..).zip(held) {
        let instead = store.find(slot, &held.key)?;
        let version = held.version.map(Position::from);
        if instead.as_ref().map(|record| record.version) == version {
            continue;
        }
        let more = instead.as_ref().map_or(0, Record::payload_bytes);
        if !chunk.is_empty() && bytes + more > CHUNK_BYTES {
            if !send(std::mem::take(&mut chunk)) {
                return Ok(());
            }
            bytes = 0;
        }
        bytes += more;
        let instead = instead.map(message);
        chunk.push(v1::Stray { at, instead });
    }
    if !chunk.is_empty() {
        send(chunk);
    }
    Ok(())
}

/// A chunk of differences that fills.
struct Differences {
    cut: Position,
    bytes: usize,
    chunk: v1::CompareChunk,
}

impl Differences {
    fn new(cut: Position) -> Self {
        Self {
            cut,
            bytes: 0,
            chunk: v1::CompareChunk::default(),
        }
    }

    fn count(&self) -> usize {
        self.chunk.missing.len() + self.chunk.strays.len()
    }

    fn is_full_for(&self, more: &Difference) -> bool {
        let full = self.bytes + payload(more) > CHUNK_BYTES || self.count() >= CHUNK_RECORDS;
        full && self.count() > 0
    }

    fn push(&mut self, difference: Difference) {
        self.bytes += payload(&difference);
        match difference {
            Difference::Missing(record) => self.chunk.missing.push(message(record)),
            Difference::Stray { at, instead } => {
                let instead = instead.map(message);
                self.chunk.strays.push(v1::Stray { at, instead });
            }
        }
    }

    /// What it has, and it is empty again.
    fn take(&mut self) -> v1::CompareChunk {
        self.bytes = 0;
        let chunk = std::mem::take(&mut self.chunk);
        v1::CompareChunk {
            cut: Some(self.cut.into()),
            ..chunk
        }
    }
}

fn payload(difference: &Difference) -> usize {
    match difference {
        Difference::Missing(record)
        | Difference::Stray {
            instead: Some(record),
            ..
        } => record.payload_bytes(),
        Difference::Stray { instead: None, .. } => 0,
    }
}

fn told(held: v1::HeldRecord) -> Result<Told, convert::ConvertError> {
    Ok(Told {
        version: convert::required("held.version", held.version)?.into(),
        key: held.key,
        hash: held.hash,
    })
}

fn checked_depth(depth: u32) -> Result<u32, Status> {
    if depth > MAX_DEPTH {
        let message = format!("field depth is {depth}, at most {MAX_DEPTH}");
        return Err(Status::invalid_argument(message));
    }
    Ok(depth)
}

fn message(record: Record) -> v1::Record {
    v1::Record {
        key: record.key,
        version: Some(record.version.into()),
        value: record.value,
    }
}

fn refused(refusal: &Refusal) -> Status {
    let code = match refusal {
        Refusal::Behind { .. } => Code::Unavailable,
        _ => Code::FailedPrecondition,
    };
    Status::new(code, refusal.to_string())
}

fn broken(error: &StoreError) -> Status {
    let code = match error {
        // Ask again at another watermark.
        StoreError::CutTrimmed { .. }
        | StoreError::NotThere { .. }
        | StoreError::Pending { .. } => Code::OutOfRange,
        StoreError::Missing { .. } => Code::FailedPrecondition,
        StoreError::Damaged { .. } => Code::DataLoss,
        StoreError::Backend { .. } => Code::Internal,
    };
    Status::new(code, error.to_string())
}

#[tonic::async_trait]
impl peer_server::Peer for PeerService {
    type PullStream = Chunks;
    type TailStream = Chunks;
    type FencedTailStream = Chunks;
    type SiftStream = ReceiverStream<Result<v1::SiftChunk, Status>>;
    type CompareStream = ReceiverStream<Result<v1::CompareChunk, Status>>;

    async fn pull(&self, request: Request<v1::PullRequest>) -> Result<Response<Chunks>, Status> {
        let v1::PullRequest {
            stamp,
            session,
            slot,
            attempt: _,
        } = request.into_inner();
        if session == 0 {
            return Err(Status::invalid_argument(
                "field session is 0, expected a session",
            ));
        }
        let (_, held) = self.judge(stamp, slot, session, true).await?;
        self.stream(held, true, move |store| {
            Ok((bait::cut(store.read_cut(Slot(slot))?), None))
        })
        .await
    }

    async fn tail(&self, request: Request<v1::TailRequest>) -> Result<Response<Chunks>, Status> {
        let v1::TailRequest {
            stamp,
            session,
            slot,
            from,
        } = request.into_inner();
        let (_, held) = self.judge(stamp, slot, session, false).await?;
        let from = from.map(Position::from);
        let slot = Slot(slot);
        self.stream(held, false, move |store| {
            Ok((store.tail(slot, from)?, store.fork(slot)?))
        })
        .await
    }

    async fn fenced_tail(
        &self,
        request: Request<v1::FencedTailRequest>,
    ) -> Result<Response<Chunks>, Status> {
        let v1::FencedTailRequest {
            stamp,
            wave,
            slot,
            from,
        } = request.into_inner();
        let source = self.source_stamp(stamp, 0, false)?;
        // No conversion begins beside a wave.
        let held = self.shared.coordinates.hold().await;
        let judged = self.shared.guard.admit_fenced(Slot(slot), source).await;
        judged.map_err(|refusal| refused(&refusal))?;
        // The refusal is durable before it is obeyed; the tail is whole only once it is drained.
        let fenced = self.shared.board.fenced_wave() == Some(wave);
        if !fenced && !bait::on(bait::TAILS_BEFORE_REFUSAL) {
            let message = format!("wave {wave} does not drain here; ask again");
            return Err(Status::unavailable(message));
        }
        let from = from.map(Position::from);
        self.stream(held, false, move |store| {
            Ok((store.tail(Slot(slot), from)?, None))
        })
        .await
    }

    async fn sift(
        &self,
        request: Request<v1::SiftRequest>,
    ) -> Result<Response<Self::SiftStream>, Status> {
        let v1::SiftRequest {
            stamp,
            session,
            slot,
            held,
        } = request.into_inner();
        if held.len() > CHUNK_RECORDS {
            let message = format!("{} records, at most {CHUNK_RECORDS}", held.len());
            return Err(Status::invalid_argument(message));
        }
        let (_, names) = self.judge(stamp, slot, session, false).await?;
        self.answer(names, move |store, out| {
            sift(store, Slot(slot), held, |strays| {
                out(v1::SiftChunk { strays })
            })
        })
        .await
    }

    async fn leaves(
        &self,
        request: Request<v1::LeavesRequest>,
    ) -> Result<Response<v1::LeavesResponse>, Status> {
        let v1::LeavesRequest {
            stamp,
            session,
            slot,
            depth,
        } = request.into_inner();
        let depth = checked_depth(depth)?;
        let (_, _held) = self.judge(stamp, slot, session, session != 0).await?;
        let scan = self.shared.scans.acquire().await;
        let _scan = scan.map_err(|_| Status::unavailable("this node stops"))?;
        let leaves = move |store: &dyn RangeStore| {
            let cut = store.read_cut(Slot(slot))?;
            let leaves = Leaves::of(cut.records, depth)?;
            Ok((cut.position, leaves.to_bytes()))
        };
        let answered = self.shared.store.call(leaves).await;
        let (cut, sums) = answered.map_err(|error| broken(&error))?;
        Ok(Response::new(v1::LeavesResponse {
            sums,
            cut: Some(cut.into()),
        }))
    }

    async fn compare(
        &self,
        request: Request<v1::CompareRequest>,
    ) -> Result<Response<Self::CompareStream>, Status> {
        let v1::CompareRequest {
            stamp,
            session,
            slot,
            depth,
            leaves,
            held,
        } = request.into_inner();
        let depth = checked_depth(depth)?;
        let told = held.into_iter().map(told).collect::<Result<Vec<_>, _>>();
        let told = told.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let (_, names) = self.judge(stamp, slot, session, session != 0).await?;
        let leaves = BTreeSet::from_iter(leaves);
        let meter = self.meter(session != 0);
        self.answer(names, move |store, out| {
            let cut = store.read_cut(Slot(slot))?;
            let mut chunk = Differences::new(cut.position);
            let mut read_on = true;
            tree::compare(cut.records, depth, &leaves, told, |difference| {
                if chunk.is_full_for(&difference) {
                    meter.pass(chunk.bytes);
                    read_on = out(chunk.take());
                }
                chunk.push(difference);
                read_on
            })?;
            meter.pass(chunk.bytes);
            out(chunk.take());
            Ok(())
        })
        .await
    }

    async fn digest(
        &self,
        request: Request<v1::DigestRequest>,
    ) -> Result<Response<v1::DigestResponse>, Status> {
        let v1::DigestRequest {
            stamp,
            session,
            slot,
            cut,
            attempt: _,
        } = request.into_inner();
        let (asker, _held) = self.judge(stamp, slot, session, false).await?;
        let cut = convert::required("cut", cut)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let (slot, cut) = (Slot(slot), Position::from(cut));
        let adopted = self.shared.board.adopted_epoch();
        let scan = self.shared.scans.acquire().await;
        let _scan = scan.map_err(|_| Status::unavailable("this node stops"))?;
        let at: DigestAt = self
            .shared
            .store
            .call(move |store| store.digest(slot, Copy::Live, Some(cut)))
            .await
            .map_err(|error| broken(&error))?;
        let session = if session == 0 {
            LIVE
        } else {
            SessionId(session)
        };
        // Told to the leader from this side too: neither end's word alone is evidence. Not if it
        // was made under an older epoch than the report would say.
        if self.shared.board.adopted_epoch() == adopted {
            let board = &self.shared.board;
            board.source_digest(session, slot, asker, at);
        }
        let digest = bytes::Bytes::copy_from_slice(&at.digest);
        Ok(Response::new(v1::DigestResponse {
            digest,
            records: at.records,
        }))
    }
}

#[cfg(test)]
mod tests {
    use annulus_ring::Epoch;
    use bytes::Bytes;

    use super::*;

    #[test]
    fn chunks_are_bounded_and_the_last_one_carries_the_cut() {
        let position = Position::new(Epoch(1), 5_000);
        let records = (0..2_500).map(|n: u32| {
            let value = Bytes::from(vec![0; if n == 7 { CHUNK_BYTES * 2 } else { 10 }]);
            let version = Position::new(Epoch(1), u64::from(n) + 1);
            Ok(Record {
                key: Bytes::from(n.to_string()),
                version,
                value: Some(value),
            })
        });
        let cut = Cut {
            position,
            records: Box::new(records),
        };
        let mut sent = Vec::new();
        send_chunks(cut, |chunk, cut| {
            let bytes: usize = chunk.iter().map(Record::payload_bytes).sum();
            assert!(chunk.len() == 1 || bytes <= CHUNK_BYTES);
            sent.push((chunk.len(), cut));
            true
        })
        .unwrap();
        assert_eq!(sent.iter().map(|(count, _)| count).sum::<usize>(), 2_500);
        assert!(sent.iter().all(|(count, _)| *count <= CHUNK_RECORDS));
        let cuts: Vec<_> = sent.iter().filter_map(|(_, cut)| *cut).collect();
        assert_eq!(
            (cuts, sent.last().unwrap().1),
            (vec![position], Some(position))
        );
    }
}
