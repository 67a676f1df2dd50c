//! Putting a copy right by what differs from the owner's, and by nothing else: the asker's side of
//! [`crate::tree`].

use std::{collections::BTreeSet, sync::Arc};

use annulus_proto::{convert::required, v1};
use annulus_ring::{Position, SessionId, Slot};

use crate::{
    fetch::{FetchError, Source, record},
    peer::CHUNK_RECORDS,
    shared::Shared,
    store::{Copy, Record, StoreError, Stray},
    tree::{Leaves, MAX_DEPTH, Told, leaf_of},
};

/// Keys that are named of those that differed.
const NAMED: usize = 5;

/// What was put right.
#[derive(Debug)]
pub(crate) struct Mended {
    /// Everything that the owner assigned up to here is held.
    pub cut: Position,
    /// Records that were missing or older.
    pub fetched: u64,
    /// Records that the owner has not, or has otherwise.
    pub given_up: u64,
    /// Some of their keys, for people.
    pub named: Vec<String>,
}

impl Mended {
    fn name(&mut self, key: &[u8]) {
        if self.named.len() < NAMED {
            self.named.push(key.escape_ascii().to_string());
        }
    }
}

impl Shared {
    /// Compares a copy with the owner's by leaves and puts right what differs. None: the store
    /// cannot list the copy, and nothing was done. Costs a pass over the copy, two at the owner,
    /// and one more on each side for every 16,384 records in leaves that differ.
    pub(crate) async fn mend(
        self: &Arc<Self>,
        slot: Slot,
        copy: Copy,
    ) -> Result<Option<Mended>, FetchError> {
        let source = self.source(slot)?;
        let session = match copy {
            Copy::Staging(session) => session.0,
            Copy::Live | Copy::Retained(_) => 0,
        };
        let scan = self.scans.acquire().await;
        let here = self
            .store
            .call(move |store| {
                let records = store.records(slot, copy)?;
                records
                    .map(|records| Leaves::of(records, MAX_DEPTH))
                    .transpose()
            })
            .await?;
        drop(scan);
        let Some(here) = here.map(Leaves::fitted) else {
            return Ok(None);
        };
        let request = v1::LeavesRequest {
            stamp: Some(source.stamp.clone().into()),
            session,
            slot: slot.0,
            depth: here.depth(),
        };
        let there = self.peer(&source.endpoint)?.leaves(request).await;
        let there = there.map_err(|status| source.answered(&status))?;
        let there = there.into_inner();
        let cut = required("cut", there.cut).map_err(|error| source.misspoke(error))?;
        let cut = source.of_its_reign(cut.into())?;
        let unlike = here.unlike(&there.sums).ok_or_else(|| source.torn())?;
        let mut mended = Mended {
            cut,
            fetched: 0,
            given_up: 0,
            named: Vec::new(),
        };
        for leaves in here.questions(unlike) {
            let told = self.told(slot, copy, here.depth(), leaves.clone()).await?;
            let question = v1::CompareRequest {
                stamp: Some(source.stamp.clone().into()),
                session,
                slot: slot.0,
                depth: here.depth(),
                leaves: leaves.into_iter().collect(),
                held: told.iter().map(held).collect(),
            };
            self.ask(&source, slot, copy, question, &told, &mut mended)
                .await?;
        }
        self.metrics.mended.inc_by(mended.fetched + mended.given_up);
        Ok(Some(mended))
    }

    /// What this copy holds in these leaves.
    async fn told(
        &self,
        slot: Slot,
        copy: Copy,
        depth: u32,
        leaves: BTreeSet<u32>,
    ) -> Result<Vec<Told>, StoreError> {
        self.store
            .call(move |store| {
                let mut told = Vec::new();
                for record in store.records(slot, copy)?.into_iter().flatten() {
                    let record = record?;
                    if leaves.contains(&leaf_of(&record.key, depth)) {
                        told.push(Told::of(&record));
                    }
                }
                Ok(told)
            })
            .await
    }

    async fn ask(
        self: &Arc<Self>,
        source: &Source,
        slot: Slot,
        copy: Copy,
        question: v1::CompareRequest,
        told: &[Told],
        mended: &mut Mended,
    ) -> Result<(), FetchError> {
        let answer = self.peer(&source.endpoint)?.compare(question).await;
        let mut stream = answer
            .map_err(|status| source.answered(&status))?
            .into_inner();
        while let Some(chunk) = stream
            .message()
            .await
            .map_err(|status| source.answered(&status))?
        {
            let cut = required("cut", chunk.cut).map_err(|error| source.misspoke(error))?;
            source.of_its_reign(cut.into())?;
            let missing = chunk.missing.into_iter().map(record);
            let missing = missing
                .collect::<Result<Vec<Record>, _>>()
                .map_err(|error| source.misspoke(error))?;
            let mut strays = Vec::new();
            for stray in chunk.strays {
                let at = usize::try_from(stray.at).unwrap_or(usize::MAX);
                let told = told.get(at).ok_or_else(|| source.torn())?;
                let instead = stray.instead.map(record).transpose();
                let instead = instead.map_err(|error| source.misspoke(error))?;
                // What came of a newer reign since is no business of this owner's.
                if told.version.reign <= source.stamp.reign {
                    strays.push(Stray {
                        key: told.key.clone(),
                        version: told.version,
                        instead,
                    });
                }
            }
            missing.iter().for_each(|record| mended.name(&record.key));
            strays.iter().for_each(|stray| mended.name(&stray.key));
            mended.fetched += missing.len() as u64;
            mended.given_up += strays.len() as u64;
            let standing = strays.iter().filter_map(|stray| stray.instead.as_ref());
            let bytes = missing.iter().chain(standing).map(Record::payload_bytes);
            let bytes: usize = bytes.sum();
            if matches!(copy, Copy::Staging(_)) && bytes > 0 {
                let zone = source.other_zone.as_ref();
                self.throttles.take_in(zone, bytes).await;
                self.board.copied(bytes as u64);
                self.metrics.copied_bytes.inc_by(bytes as u64);
            }
            self.store
                .call(move |store| {
                    if !missing.is_empty() {
                        store.merge(slot, copy, missing, None)?;
                    }
                    if !strays.is_empty() {
                        store.give_up(slot, copy, strays)?;
                    }
                    Ok(())
                })
                .await?;
        }
        Ok(())
    }

    /// Begins an empty staging copy with what this node kept of the range, then takes what differs
    /// from the owner, and marks it complete. The cut; none: the store cannot list what it kept,
    /// and nothing was done.
    pub(crate) async fn seed(
        self: &Arc<Self>,
        slot: Slot,
        session: SessionId,
        kept: SessionId,
    ) -> Result<Option<(Position, Mended)>, FetchError> {
        let copy = Copy::Staging(session);
        let source = self.source(slot)?;
        let limit = self.pulls_from(&source.node);
        let _turn = limit.acquire().await;
        let begun = self
            .store
            .call(move |store| {
                let Some(records) = store.records(slot, Copy::Retained(kept))? else {
                    return Ok(false);
                };
                let mut some = Vec::new();
                for record in records {
                    some.push(record?);
                    if some.len() == CHUNK_RECORDS {
                        store.merge(slot, copy, std::mem::take(&mut some), None)?;
                    }
                }
                store.merge(slot, copy, some, None)?;
                Ok(true)
            })
            .await?;
        if !begun {
            return Ok(None);
        }
        let Some(mended) = self.mend(slot, copy).await? else {
            return Ok(None);
        };
        let cut = mended.cut;
        self.store
            .call(move |store| store.mark_complete(slot, session, cut))
            .await?;
        self.metrics.seeded.inc();
        Ok(Some((cut, mended)))
    }
}

fn held(told: &Told) -> v1::HeldRecord {
    v1::HeldRecord {
        key: told.key.clone(),
        version: Some(told.version.into()),
        hash: told.hash,
    }
}
