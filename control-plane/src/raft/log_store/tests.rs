//! openraft's own suite on both stores, and what it does not ask.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};

use super::{LogStore, MemoryStorage, Writer, open_directory};
use crate::raft::fatal::FatalBell;
use crate::raft::log_snapshot::LogSnapshots;
use crate::raft::machine::Machine;
use crate::raft::testing::Log;
use crate::raft::types::TypeConfig;
use crate::raft::{Shared, StartError};

struct InDirectory;
struct InMemory;

impl StoreBuilder<TypeConfig, LogStore, Machine, tempfile::TempDir> for InDirectory {
    async fn build(
        &self,
    ) -> Result<(tempfile::TempDir, LogStore, Machine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let (store, loaded) = open_directory(&dir.path().join("data"), 1).unwrap();
        let log = LogStore::new(loaded, Writer::spawn(store, FatalBell::new()).unwrap());
        let snapshots = LogSnapshots::directory(dir.path().join("snapshots")).unwrap();
        Ok((dir, log, Machine::new(Arc::new(Shared::new()), snapshots)))
    }
}

impl StoreBuilder<TypeConfig, LogStore, Machine> for InMemory {
    async fn build(&self) -> Result<((), LogStore, Machine), StorageError<TypeConfig>> {
        let disk = MemoryStorage::default();
        let log = LogStore::new(disk.load().unwrap(), Writer::inline(disk.clone()));
        Ok((
            (),
            log,
            Machine::new(Arc::new(Shared::new()), LogSnapshots::Memory(disk)),
        ))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openrafts_suite_passes_on_sled() {
    Suite::test_all(InDirectory).await.unwrap();
}

#[tokio::test]
async fn openrafts_suite_passes_in_memory() {
    Suite::test_all(InMemory).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_when_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("data");
    let mut log = Log::open(&dir, 1).unwrap();
    log.vote(3, 2).await.unwrap();
    // An entry of several parts among small ones.
    log.append(3, 0, 7, &[10, 100_000, 10])
        .await
        .unwrap()
        .acknowledged()
        .await
        .unwrap();
    log.append(3, 3, 8, &[10, 10])
        .await
        .unwrap()
        .acknowledged()
        .await
        .unwrap();
    log.truncate_from(4).await.unwrap();
    let held = log.held().await.unwrap();
    assert_eq!(held.entries.len(), 4);
    log.close().await;

    let mut log = Log::open(&dir, 1).unwrap();
    assert_eq!(log.held().await.unwrap(), held);
    log.purge(1).await.unwrap();
    log.append(3, 4, 9, &[10])
        .await
        .unwrap()
        .acknowledged()
        .await
        .unwrap();
    let held = log.held().await.unwrap();
    log.close().await;
    let mut log = Log::open(&dir, 1).unwrap();
    assert_eq!(log.held().await.unwrap(), held);
    assert_eq!((held.purged, held.entries[0].0), (Some(1), 2));

    // As after installing a log snapshot: the log begins again behind a gap.
    log.purge_beyond(3, 99).await.unwrap();
    log.append(3, 100, 9, &[10])
        .await
        .unwrap()
        .acknowledged()
        .await
        .unwrap();
    log.close().await;
    let mut log = Log::open(&dir, 1).unwrap();
    let held = log.held().await.unwrap();
    assert_eq!(
        (held.purged, held.entries.as_slice()),
        (Some(99), &[(100, 3, 9)][..])
    );
    log.close().await;
}

/// sled writes pages over a quarter of a segment to blob files, which it never syncs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_is_large_enough_to_become_a_blob() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("data");
    let mut log = Log::open(&dir, 1).unwrap();
    log.vote(1, 1).await.unwrap();
    let mut index = 0;
    for round in 0_usize..40 {
        let sizes = [
            100,
            60_000,
            6_000,
            1_000_000 * usize::from(round % 8 == 0),
            12_000,
        ];
        let pending = log.append(1, index, 0, &sizes).await.unwrap();
        index += sizes.len() as u64;
        pending.acknowledged().await.unwrap();
        if round % 5 == 4 {
            log.truncate_from(index - 3).await.unwrap();
            index -= 3;
            log.purge(index - 4).await.unwrap();
        }
    }
    log.close().await;
    let blobs: Vec<_> = std::fs::read_dir(dir.join("store").join("blobs"))
        .unwrap()
        .collect();
    assert!(blobs.is_empty(), "{} blobs", blobs.len());
    Log::open(&dir, 1).unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_servers_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("data");
    Log::open(&dir, 1).unwrap().close().await;
    let error = Log::open(&dir, 2).unwrap_err();
    assert!(
        matches!(
            error,
            StartError::OtherServer {
                found: 1,
                expected: 2,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_waits_and_is_then_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("data");
    let log = Log::open(&dir, 1).unwrap();
    let error = tokio::task::spawn_blocking({
        let dir = dir.clone();
        move || Log::open(&dir, 1).unwrap_err()
    });
    let error = error.await.unwrap();
    assert!(matches!(error, StartError::Locked { .. }), "{error}");
    assert!(error.to_string().contains(dir.to_str().unwrap()), "{error}");

    // One that comes while the first is ending gets in.
    let second = tokio::task::spawn_blocking(move || Log::open(&dir, 1));
    log.close().await;
    second.await.unwrap().unwrap().close().await;
}
