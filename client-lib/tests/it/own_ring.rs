//! C45: clients that invent their own ring. A member that does not answer one client moves no key:
//! not for that client, and not for anybody else. All of it without a control plane (step 5).

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use annulus_client::{CallError, CallKind, Client, Error, Reach, Router, RouterConfig};
use annulus_ring::{Epoch, Replication, Snapshot};
use prost::Message as _;

use crate::{
    rings::{chained, seal},
    stub::{NOBODY, builder},
};

const KEYS: usize = 12;
const DEADLINE: Duration = Duration::from_secs(20);

/// Two clients that hold the same epoch, and never hear of another one.
fn cut_off(snapshot: &Snapshot) -> [Client; 2] {
    let bytes = seal(snapshot).encode_to_vec();
    [1, 2].map(|seed| {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cache.snapshot"), &bytes).unwrap();
        let client = builder([NOBODY])
            .cache_dir(dir.path())
            .seed(seed)
            .connect_lazy()
            .unwrap();
        assert_eq!(client.held().unwrap().epoch, Epoch(2));
        client
    })
}

fn router(client: &Client) -> Router {
    let config = RouterConfig {
        pause: (Duration::from_millis(1), Duration::from_millis(2)),
        refresh_wait: Duration::from_millis(5),
        ..RouterConfig::default()
    };
    Router::new(client.clone(), config)
}

/// The list as this client has it, in its order.
fn list(client: &Client, key: &[u8]) -> Vec<String> {
    let route = client.lookup(key).unwrap();
    let members = route.members();
    members.map(|member| member.node_id.to_string()).collect()
}

/// Asks for `key`; the owner answers unless it is silent. Who was asked, and who answered.
async fn ask(
    router: &Router,
    reach: Reach,
    key: &[u8],
    silent: &AtomicBool,
) -> (BTreeSet<String>, Result<String, Error>) {
    let owner = list(router.client(), key).swap_remove(0);
    let asked = Arc::new(Mutex::new(BTreeSet::new()));
    let kind = CallKind {
        reach,
        repeatable: true,
    };
    let answer = router.call_as(kind, key, DEADLINE, |target| {
        let node = target.node_id.to_string();
        asked.lock().unwrap().insert(node.clone());
        let refuses = node == owner && silent.load(Ordering::SeqCst);
        std::future::ready(if refuses {
            Err(CallError::Unavailable("connection refused".into()))
        } else {
            Ok(node)
        })
    });
    let answer = answer.await;
    let asked = asked.lock().unwrap().clone();
    (asked, answer)
}

/// With `snapshot`, for every key: the owner flaps ten times for one client alone.
async fn flaps(snapshot: &Snapshot) {
    let [sick, well] = cut_off(snapshot);
    let (sick, well) = (router(&sick), router(&well));
    let keys: Vec<String> = (0..KEYS).map(|number| format!("key {number}")).collect();
    let lists: Vec<_> = keys
        .iter()
        .map(|key| list(sick.client(), key.as_bytes()))
        .collect();
    let never = AtomicBool::new(false);
    for flap in 0..20 {
        let silent = AtomicBool::new(flap % 2 == 0);
        for (key, list_before) in keys.iter().zip(&lists) {
            let key = key.as_bytes();
            let owner = &list_before[0];
            // Writes and exact reads: the owner or nobody.
            let (asked, answer) = ask(&sick, Reach::Owner, key, &silent).await;
            assert_eq!(asked, BTreeSet::from([owner.clone()]), "flap {flap}");
            if silent.load(Ordering::SeqCst) {
                assert!(
                    matches!(answer, Err(Error::Unavailable { .. })),
                    "{answer:?}"
                );
            } else {
                assert_eq!(&answer.unwrap(), owner);
            }
            // Other reads: the list or nobody.
            let (asked, answer) = ask(&sick, Reach::Any, key, &silent).await;
            assert!(
                asked.iter().all(|node| list_before.contains(node)),
                "flap {flap}: {asked:?} were asked, the list is {list_before:?}"
            );
            match answer {
                Ok(node) => assert!(list_before.contains(&node)),
                Err(error) => assert!(
                    list_before.len() == 1 && matches!(error, Error::Unavailable { .. }),
                    "{error:?}"
                ),
            }
            // The other client knows nothing of it, and both agree.
            let (asked, answer) = ask(&well, Reach::Owner, key, &never).await;
            assert_eq!(asked, BTreeSet::from([owner.clone()]));
            assert_eq!(&answer.unwrap(), owner);
            for client in [sick.client(), well.client()] {
                assert_eq!(&list(client, key), list_before, "flap {flap}");
                assert_eq!(client.held().unwrap().epoch, Epoch(2));
            }
        }
    }
}

#[tokio::test]
async fn c45_with_two_replicas_only_the_list_is_ever_asked() {
    flaps(&chained(2)).await;
}

#[tokio::test]
async fn c45_with_one_replica_it_is_an_error_and_no_other_node() {
    let mut ring = chained(2);
    ring.layout.replication = Replication { rf: 1, w: 1, r: 1 };
    let mut slots = annulus_ring::SlotTable::empty(crate::rings::BITS, 1);
    for slot in slots.slots() {
        slots.set(slot, &ring.layout.slots.list(slot)[..1]);
    }
    ring.layout.slots = slots;
    flaps(&ring).await;
}
