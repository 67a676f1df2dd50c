//! C42 and C47, step 1 (the other steps are in `watch`), with stub data nodes: closures that answer
//! as the case says.

use std::{
    collections::BTreeSet,
    fs,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use annulus_client::{CallError, CallKind, Client, Error, Reach, Router, RouterConfig, Target};
use annulus_ring::{Epoch, NodeId};
use prost::Message as _;

use crate::{
    rings::{bytes, chained, seal},
    stub::{Event, NOBODY, Stub, at_epoch, builder},
};

const KEY: &[u8] = b"key";
const DEADLINE: Duration = Duration::from_secs(20);
const ANY: CallKind = CallKind {
    reach: Reach::Any,
    repeatable: true,
};

/// A client at epoch 2 whose control plane is gone; C42, step 6, for every test that uses it.
fn cut_off() -> Client {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("cache.snapshot"), bytes(2).encode_to_vec()).unwrap();
    let client = builder([NOBODY])
        .cache_dir(dir.path())
        .connect_lazy()
        .unwrap();
    assert_eq!(client.held().unwrap().epoch, Epoch(2));
    client
}

/// Short waits: the ring cannot be refreshed anyway.
fn router(client: Client) -> Router {
    let config = RouterConfig {
        pause: (Duration::from_millis(2), Duration::from_millis(20)),
        refresh_wait: Duration::from_millis(30),
        ..RouterConfig::default()
    };
    Router::new(client, config)
}

/// Notes who was asked.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<Target>>>);

impl Asked {
    fn note(&self, target: &Target) -> usize {
        let mut asked = self.0.lock().unwrap();
        asked.push(target.clone());
        asked.len()
    }

    fn nodes(&self) -> Vec<String> {
        let asked = self.0.lock().unwrap();
        asked
            .iter()
            .map(|target| target.node_id.to_string())
            .collect()
    }

    fn hops(&self) -> Vec<u8> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .map(|target| target.stamp.hops)
            .collect()
    }
}

async fn always(router: &Router, answer: impl Fn(&Target) -> CallError) -> (Asked, Error) {
    let asked = Asked::default();
    let called = router.call(KEY, DEADLINE, |target| {
        asked.note(&target);
        std::future::ready(Err::<(), _>(answer(&target)))
    });
    let error = called.await.unwrap_err();
    (asked, error)
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn not_owner(epoch: u64, owner: Option<&str>) -> CallError {
    CallError::NotOwner {
        epoch: Epoch(epoch),
        owner: owner.map(node),
    }
}

/// Step 1: always "not owner, epoch newer than yours". Step 6: nobody to refresh from.
#[tokio::test]
async fn c42_always_newer_ends_in_an_error_with_both_epochs() {
    let (asked, error) = always(&router(cut_off()), |_| not_owner(9, None)).await;
    let Error::Stale {
        held: Epoch(2),
        seen: Epoch(9),
        tries: 8,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert!(error.is_retryable());
    let text = error.to_string();
    assert!(
        text.contains("epoch 9") && text.contains("epoch 2"),
        "{text}"
    );
    assert_eq!(asked.nodes().len(), 8);
}

/// Step 2: "not owner, epoch older than yours".
#[tokio::test]
async fn c42_an_older_node_never_takes_the_client_back() {
    let client = cut_off();
    let (asked, error) = always(&router(client.clone()), |_| not_owner(1, Some("b"))).await;
    assert!(
        matches!(
            error,
            Error::Stale {
                held: Epoch(2),
                seen: Epoch(1),
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(client.held().unwrap().epoch, Epoch(2));
    assert_eq!(
        asked.nodes().iter().collect::<BTreeSet<_>>().len(),
        1,
        "the owner, always"
    );
    let behind = |_: &Target| CallError::Behind { epoch: Epoch(1) };
    let (_, error) = always(&router(client), behind).await;
    assert!(
        matches!(
            error,
            Error::Behind {
                held: Epoch(2),
                seen: Epoch(1),
                ..
            }
        ),
        "{error:?}"
    );
}

/// Steps 3, 4 and 5: hints in a circle, at itself, at a stranger.
#[tokio::test]
async fn c42_hints_never_loop() {
    let client = cut_off();
    let owner = client.lookup(KEY).unwrap().owner().node_id.clone();
    let other = if owner.as_str() == "a" { "b" } else { "a" };

    let (asked, error) = always(&router(client.clone()), |target| {
        let names = if target.node_id == owner {
            other
        } else {
            owner.as_str()
        };
        not_owner(9, Some(names))
    })
    .await;
    assert!(matches!(error, Error::Stale { .. }), "{error:?}");
    assert_eq!(asked.nodes().len(), 8);
    assert!(
        asked.hops().windows(2).all(|two| two != [2, 2]),
        "{:?}",
        asked.hops()
    );
    assert!(
        asked.nodes().contains(&other.to_owned()),
        "a member's hint is tried"
    );

    for names in [owner.as_str(), "stranger"] {
        let (asked, _) = always(&router(client.clone()), |_| not_owner(9, Some(names))).await;
        assert!(
            asked.nodes().iter().all(|asked| *asked == owner.as_str()),
            "{names}"
        );
        assert!(asked.hops().iter().all(|hops| *hops == 1), "{names}");
    }
}

#[tokio::test]
async fn c42_a_retry_goes_where_the_refreshed_ring_says() {
    let stub = Stub::start(|_, _| vec![Event::Full(bytes(1))]).await;
    let client = builder([&*stub.endpoint()]).connect_lazy().unwrap();
    at_epoch(&client, 1).await;
    let mut second = chained(2);
    let slot = client.lookup(KEY).unwrap().slot;
    let old_owner = client.lookup(KEY).unwrap().owner().node_id.clone();
    let mut list = second.layout.slots.list(slot).to_vec();
    if second.member_by_handle(list[0]).unwrap().node_id == old_owner {
        list.reverse();
        second.layout.slots.set(slot, &list);
    }
    let new_owner = second.member_by_handle(list[0]).unwrap().node_id.clone();
    assert_ne!(old_owner, new_owner);

    let asked = Asked::default();
    let slow = RouterConfig {
        refresh_wait: DEADLINE,
        ..RouterConfig::default()
    };
    let router = Router::new(client.clone(), slow);
    let answer = router.call(KEY, DEADLINE, |target| {
        if asked.note(&target) == 1 {
            stub.send(Event::Full(seal(&second)));
        }
        let old = target.stamp.epoch == Epoch(1);
        std::future::ready(if old {
            Err(not_owner(2, Some("a")))
        } else {
            Ok(target.node_id)
        })
    });
    assert_eq!(answer.await.unwrap(), new_owner);
    assert_eq!(
        asked.nodes(),
        [old_owner.to_string(), new_owner.to_string()]
    );
    assert_eq!(client.status().refresh_count, 1);
}

#[tokio::test]
async fn c42_what_may_have_run_is_not_sent_again() {
    let client = cut_off();
    let lost = |_: &Target| CallError::Unknown("connection reset".into());
    let (asked, error) = always(&router(client.clone()), lost).await;
    assert_eq!(asked.nodes().len(), 1);
    assert!(
        matches!(error, Error::Unknown { held: Epoch(2), .. }),
        "{error:?}"
    );
    assert!(!error.is_retryable());

    // Repeatable, it is; and the end still says that it may have been done.
    let asked = Asked::default();
    let kind = CallKind {
        repeatable: true,
        ..CallKind::default()
    };
    let patient = router(client.clone());
    let called = patient.call_as(kind, KEY, DEADLINE, |target| {
        let error = match asked.note(&target) {
            1 => CallError::Unknown("connection reset".into()),
            _ => CallError::Unavailable("connection refused".into()),
        };
        std::future::ready(Err::<(), _>(error))
    });
    let error = called.await.unwrap_err();
    assert_eq!(asked.nodes().len(), 8);
    assert!(
        matches!(error, Error::Unknown { tries: 8, .. }),
        "{error:?}"
    );

    // Not reached is not run: tried again, whatever the request.
    let refused = |_: &Target| CallError::Unavailable("connection refused".into());
    let (asked, error) = always(&router(client), refused).await;
    assert_eq!(asked.nodes().len(), 8);
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn c42_the_deadline_holds_whatever_nodes_answer() {
    let client = cut_off();
    let endless = RouterConfig {
        max_tries: 1_000_000.try_into().unwrap(),
        ..RouterConfig::default()
    };
    let router = Router::new(client, endless);
    let begun = Instant::now();
    let called = router.call(KEY, Duration::from_millis(200), |_| {
        std::future::ready(Err::<(), _>(CallError::Sealed))
    });
    let Error::Sealed { tries, .. } = called.await.unwrap_err() else {
        panic!("sealed")
    };
    assert!(tries < 200, "a busy loop: {tries} tries");
    assert!(begun.elapsed() < DEADLINE);

    // An attempt that hangs is cut at the deadline, and may have been done.
    let called = router.call(KEY, Duration::from_millis(50), |_| {
        std::future::pending::<Result<(), CallError>>()
    });
    let error = called.await.unwrap_err();
    assert!(
        matches!(error, Error::Unknown { tries: 1, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_final_answer_is_final() {
    let (asked, error) = always(&router(cut_off()), |_| {
        CallError::Failed("key too long".into())
    })
    .await;
    assert_eq!(asked.nodes().len(), 1);
    assert!(matches!(error, Error::Failed { .. }), "{error:?}");
    assert!(error.to_string().contains("key too long"));
}

/// C47, step 1: one member of the list is a black hole.
#[tokio::test]
async fn c47_a_silent_member_is_paid_for_once() {
    let client = cut_off();
    let router = router(client.clone());
    let silent = client.lookup(KEY).unwrap().owner().node_id.clone();
    let mut cut = 0;
    for _ in 0..40 {
        let asked = Asked::default();
        let called = router.call_as(ANY, KEY, Duration::from_millis(500), |target| {
            asked.note(&target);
            let silent = target.node_id == silent;
            async move {
                if silent {
                    std::future::pending().await
                } else {
                    Ok(target.node_id)
                }
            }
        });
        let answered = called.await.unwrap();
        assert_ne!(answered, silent);
        cut += asked.nodes().len() - 1;
    }
    // Forgiven after a second and asked again by chance, so now and then, but not each time.
    assert!((1..=10).contains(&cut), "{cut} of 40 requests paid");
}

#[tokio::test]
async fn any_member_may_answer_and_all_of_them_do() {
    let client = cut_off();
    let router = router(client.clone());
    let mut answered = BTreeSet::new();
    for _ in 0..100 {
        let call = router.call_as(ANY, KEY, DEADLINE, |target| std::future::ready(Ok(target)));
        answered.insert(call.await.unwrap().node_id.to_string());
    }
    let route = client.lookup(KEY).unwrap();
    let listed: BTreeSet<_> = route
        .members()
        .map(|member| member.node_id.to_string())
        .collect();
    assert_eq!(answered, listed);
}

#[tokio::test]
async fn a_routed_call_can_be_spawned() {
    let router = router(cut_off());
    let call = tokio::spawn(async move {
        router
            .call(KEY, DEADLINE, |target| std::future::ready(Ok(target.stamp)))
            .await
    });
    let stamp = call.await.unwrap().unwrap();
    assert_eq!(
        (stamp.ring.as_str(), stamp.epoch, stamp.hops),
        ("cache", Epoch(2), 1)
    );
}
