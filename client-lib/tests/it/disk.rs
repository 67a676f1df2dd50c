//! C46, step 3, and starting with nobody up.

use std::{fs, path::Path};

use annulus_client::{Client, Source};
use annulus_proto::v1;
use annulus_ring::{ClusterId, Epoch};
use prost::Message as _;

use crate::{
    rings::{bytes, damaged},
    stub::{Event, NOBODY, Stub, at_epoch, builder, until},
};

fn file(dir: &Path) -> std::path::PathBuf {
    dir.join("cache.snapshot")
}

fn alone(dir: &Path) -> Client {
    builder([NOBODY]).cache_dir(dir).connect_lazy().unwrap()
}

#[tokio::test]
async fn a_client_starts_from_its_file_with_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    // A folder that does not exist yet.
    let dir = dir.path().join("deep/er");
    let stub = Stub::start(|_, _| vec![Event::Full(bytes(1)), Event::Full(bytes(2))]).await;
    let client = builder([&*stub.endpoint()])
        .cache_dir(&dir)
        .connect_lazy()
        .unwrap();
    until("epoch 2 is on disk", || {
        client
            .status()
            .cached
            .is_some_and(|cached| cached.epoch == Epoch(2))
    })
    .await;
    let written = v1::SnapshotBytes::decode(&*fs::read(file(&dir)).unwrap()).unwrap();
    assert_eq!(written, bytes(2));
    assert_eq!(
        fs::read_dir(&dir).unwrap().count(),
        1,
        "no temporary file stays"
    );
    drop(client);
    stub.stop();

    let client = alone(&dir);
    // At once: no waiting, no server.
    let route = client.lookup(b"key").unwrap();
    assert_eq!(route.epoch(), Epoch(2));
    let status = client.status();
    assert_eq!((status.source, status.accepted_count), (Source::Disk, 0));
    assert!(status.age.is_some());

    // With servers back it asks for what is newer than the file.
    let stub = Stub::start(|_, _| vec![Event::Full(bytes(3))]).await;
    let client = builder([&*stub.endpoint()])
        .cache_dir(&dir)
        .connect_lazy()
        .unwrap();
    at_epoch(&client, 3).await;
    assert_eq!(stub.requests()[0].have.as_ref().unwrap().epoch, 2);
}

#[tokio::test]
async fn c46_a_damaged_file_is_refused_counted_and_kept_aside() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut files: Vec<(String, Vec<u8>)> = damaged(2)
        .into_iter()
        .map(|(name, message, _)| (name.to_owned(), message.encode_to_vec()))
        .collect();
    let good = bytes(2).encode_to_vec();
    files.push(("half a file".into(), good[..good.len() / 2].to_vec()));
    files.push(("an empty file".into(), Vec::new()));
    files.push(("noise".into(), vec![0xff; 4_096]));
    for (name, content) in files {
        fs::write(file(dir), &content).unwrap();
        let client = builder([NOBODY])
            .cache_dir(dir)
            .cluster_id(ClusterId(7))
            .connect_lazy()
            .unwrap();
        assert!(client.lookup(b"key").is_err(), "{name}");
        let status = client.status();
        assert_eq!(
            (status.damaged_file_count, status.epoch),
            (1, None),
            "{name}"
        );
        assert!(status.last_error.is_some(), "{name}");
        assert!(!file(dir).exists(), "{name}");
        assert_eq!(
            fs::read(dir.join("cache.snapshot.damaged")).unwrap(),
            content,
            "{name}"
        );
    }

    // The next good one takes its place.
    let stub = Stub::start(|_, _| vec![Event::Full(bytes(2))]).await;
    let client = builder([&*stub.endpoint()])
        .cache_dir(dir)
        .connect_lazy()
        .unwrap();
    until("a good file", || client.status().cached.is_some()).await;
    assert!(alone(dir).lookup(b"key").is_ok());
}

#[tokio::test]
async fn a_damaged_stream_never_reaches_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (_, damage, _) = damaged(2).remove(0);
    let stub = Stub::start(move |_, count| match count {
        0 => vec![Event::Full(bytes(1)), Event::Full(damage.clone())],
        _ => vec![],
    })
    .await;
    let client = builder([&*stub.endpoint()])
        .cache_dir(dir.path())
        .connect_lazy()
        .unwrap();
    until("refused", || client.status().refused_count == 1).await;
    until("epoch 1 is on disk", || client.status().cached.is_some()).await;
    let written = v1::SnapshotBytes::decode(&*fs::read(file(dir.path())).unwrap()).unwrap();
    assert_eq!(written, bytes(1));
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_told_and_hinders_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // A file where the folder should be.
    let place = dir.path().join("taken");
    fs::write(&place, b"").unwrap();
    let stub = Stub::start(|_, _| vec![Event::Full(bytes(1))]).await;
    let client = builder([&*stub.endpoint()])
        .cache_dir(&place)
        .connect_lazy()
        .unwrap();
    until("the failure is counted", || {
        client.status().cache_failed_count == 1
    })
    .await;
    assert!(client.lookup(b"key").is_ok());
    assert!(client.status().last_error.unwrap().contains("taken"));
}
