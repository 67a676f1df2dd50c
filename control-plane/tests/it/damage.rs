//! C27: a local store that is half written, damaged or held by somebody else. Either it recovers
//! with nothing acknowledged lost, or the server stops with a message that names the place and
//! the remedy. It never starts empty under its old id.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use annulus_control_plane::raft::StartError;
use annulus_control_plane::raft::testing::{Held, Log};

struct Store {
    dir: tempfile::TempDir,
    held: Held,
}

impl Store {
    /// A directory with a vote and some hundred acknowledged entries.
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(&dir.path().join("data")).await.unwrap();
        log.vote(3, 1).await.unwrap();
        for index in 0..60 {
            let pending = log
                .append(3, index * 3, index, &[100, 2_000, 9_000])
                .await
                .unwrap();
            pending.acknowledged().await.unwrap();
        }
        let held = log.held().await.unwrap();
        log.close().await;
        Self { dir, held }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A copy, so that one making serves many damages.
    fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(&self.data(), &copy.path().join("data"));
        copy
    }

    /// All is there, or the refusal names the place and a remedy.
    async fn assert_whole_or_refused(&self, dir: &Path, what: &str) -> bool {
        match open(dir).await {
            Ok(mut log) => {
                assert_eq!(log.held().await.unwrap(), self.held, "{what}");
                log.close().await;
                true
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(dir.to_str().unwrap()), "{what}: {text}");
                assert!(
                    text.contains("emedy") || text.contains("check that"),
                    "{what}: {text}"
                );
                false
            }
        }
    }
}

async fn open(dir: &Path) -> Result<Log, StartError> {
    let dir = dir.to_owned();
    tokio::task::spawn_blocking(move || Log::open(&dir, 1))
        .await
        .unwrap()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c27_a_truncated_store_is_whole_or_refused() {
    let store = Store::new().await;
    let length = fs::metadata(store.data().join("store/db")).unwrap().len();
    let mut refused = 0;
    for eighth in 0..8 {
        let copy = store.copy();
        let data = copy.path().join("data");
        let file = OpenOptions::new()
            .write(true)
            .open(data.join("store/db"))
            .unwrap();
        file.set_len(length * eighth / 8).unwrap();
        let what = format!("truncated to {eighth}/8");
        refused += u32::from(!store.assert_whole_or_refused(&data, &what).await);
    }
    assert!(refused > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c27_a_flipped_byte_is_harmless_or_refused() {
    let store = Store::new().await;
    let length = fs::metadata(store.data().join("store/db")).unwrap().len();
    let mut random = fastrand::Rng::with_seed(27);
    for _ in 0..12 {
        let copy = store.copy();
        let data = copy.path().join("data");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(data.join("store/db"))
            .unwrap();
        let at = random.u64(..length);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
        store
            .assert_whole_or_refused(&data, &format!("byte {at} flipped"))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c27_a_removed_file_is_harmless_or_refused_by_name() {
    let store = Store::new().await;
    for file in files(&store.data()) {
        let name = file.strip_prefix(store.data()).unwrap().to_owned();
        let copy = store.copy();
        let data = copy.path().join("data");
        fs::remove_file(data.join(&name)).unwrap();
        let whole = store
            .assert_whole_or_refused(&data, &format!("{name:?} removed"))
            .await;
        // The lock holds nothing; all else of ours is missed.
        let ours = ["identity", "mark", "store/db", "store/conf"];
        if ours.iter().any(|known| name.ends_with(known)) {
            assert!(!whole, "{name:?} was not missed");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c27_empty_leftovers_are_harmless_or_refused() {
    let store = Store::new().await;
    for name in [
        "store/snap.0000000000001000.generating",
        "store/snap.7FFFFFFFFFFFFFFF",
        "store/blobs/9999999",
        "store.new",
        "identity.tmp",
        "snapshots.tmp",
    ] {
        let copy = store.copy();
        let data = copy.path().join("data");
        OpenOptions::new()
            .create_new(true)
            .write(true)
            .open(data.join(name))
            .unwrap();
        store
            .assert_whole_or_refused(&data, &format!("empty {name}"))
            .await;
    }
}

/// An emptied store, or an older copy of it, beside an identity that is in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c27_a_lost_store_never_starts_empty_or_old_under_its_id() {
    let store = Store::new().await;
    let copy = store.copy();
    let data = copy.path().join("data");
    fs::remove_dir_all(data.join("store")).unwrap();
    let error = open(&data).await.unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");

    // Put back from a copy that is older than what was acknowledged since.
    let old = store.copy();
    let mut log = open(&store.data()).await.unwrap();
    let pending = log.append(3, 180, 9, &[10]).await.unwrap();
    pending.acknowledged().await.unwrap();
    log.close().await;
    fs::remove_dir_all(store.data().join("store")).unwrap();
    copy_folder(&old.path().join("data/store"), &store.data().join("store"));
    let error = open(&store.data()).await.unwrap_err();
    assert!(error.to_string().contains("old copy"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c27_a_damaged_identity_is_refused_by_name() {
    let store = Store::new().await;
    let path = store.data().join("identity");
    for (text, part) in [
        ("", "identity"),
        ("{\"format\":1,", "identity"),
        ("{\"format\":9,\"server_id\":1}", "format 9"),
        ("{\"format\":1,\"server_id\":2}", "server 2"),
    ] {
        fs::File::create(&path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        let error = open(&store.data()).await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// openraft before these can lose committed entries (#1802, #1808, #1810).
#[test]
fn the_lock_file_names_an_openraft_without_known_losses() {
    let lock = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
    let versions: Vec<&str> = lock
        .split("[[package]]")
        .filter(|package| package.contains("name = \"openraft\"\n"))
        .filter_map(|package| package.split("version = \"").nth(1)?.split('"').next())
        .collect();
    assert_eq!(versions.len(), 1, "{versions:?}");
    assert!(
        is_safe(versions[0]),
        "openraft {} is known to lose entries",
        versions[0]
    );

    for (version, safe) in [
        ("0.9.24", false),
        ("0.9.25", true),
        ("0.10.0-alpha.26", false),
        ("0.10.0-alpha.27", true),
        ("0.10.0-alpha.37", true),
        ("0.10.0", true),
        ("0.10.1", true),
        ("0.8.9", false),
        ("1.0.0", true),
    ] {
        assert_eq!(is_safe(version), safe, "{version}");
    }
}

/// 0.9.25 or later of 0.9; 0.10.0-alpha.27 or later.
fn is_safe(version: &str) -> bool {
    let (numbers, alpha) = match version.split_once("-alpha.") {
        Some((numbers, alpha)) => (numbers, alpha.parse::<u64>().ok()),
        None => (version, Some(u64::MAX)),
    };
    let numbers: Vec<u64> = numbers
        .split('.')
        .filter_map(|number| number.parse().ok())
        .collect();
    match (numbers.as_slice(), alpha) {
        ([0, 9, patch], _) => *patch >= 25,
        ([0, 10, 0], Some(alpha)) => alpha >= 27,
        ([major, minor, _], Some(_)) => (*major, *minor) >= (0, 10),
        _ => false,
    }
}
