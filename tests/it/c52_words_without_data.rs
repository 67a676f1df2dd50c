//! C52, (e) and (f): a gainer that has every record except one proof. It copies nothing into any
//! store; it pulls from the owners and says what the test wants. Faults in the data itself, (a) to
//! (d), are found by the real agent: `agent/tests/moving/c52_missing_data.rs`.
//!
//! Only the last report has a proof of its own for every range, so each report before it shows
//! that one thing is missed.

use std::collections::BTreeMap;

use annulus_kv::KvClient;
use annulus_proto::v1::{self, peer_client::PeerClient};
use annulus_ring::{Slot, Snapshot, Step};
use annulus_tests::{
    cluster::{CHANGE, Cluster, RingPlan, SOON},
    liar::{Claim, Liar},
    ports,
    timeline::Timeline,
    wait::until,
};

const RING: &str = "words";
const NODES: [(&str, &str); 3] = [("n1", "z1"), ("n2", "z2"), ("n3", "z3")];

/// What one range's owner has, as a gainer learns it.
#[derive(Clone, Debug)]
struct Proof {
    cut: v1::Position,
    digest: v1::SlotDigest,
}

struct Gainer {
    liar: Liar,
    session: u64,
    epoch: u64,
    gained: Vec<u32>,
}

impl Gainer {
    fn stamp(&self, slot: u32) -> v1::PeerStamp {
        v1::PeerStamp {
            ring: RING.to_owned(),
            generation: 1,
            epoch: self.epoch,
            reign: self.liar.reign(slot),
            node_id: "liar".to_owned(),
            incarnation: self.liar.incarnation,
        }
    }

    /// Pulls a range from its owner and asks for the digest, as an honest gainer would.
    async fn proof(&self, snapshot: &Snapshot, slot: u32) -> Proof {
        let owner = snapshot.sets(Slot(slot)).owner().expect("an owner");
        let owner = snapshot.member_by_handle(owner).expect("a member");
        let at = format!("http://{}", owner.endpoint);
        let mut peer = PeerClient::connect(at).await.expect("the owner listens");
        let stamp = v1::PeerStamp {
            generation: snapshot.generation.0,
            ..self.stamp(slot)
        };
        let request = v1::PullRequest {
            stamp: Some(stamp.clone()),
            session: self.session,
            attempt: 1,
            slot,
        };
        let mut chunks = peer.pull(request).await.expect("a pull").into_inner();
        let (mut cut, mut records) = (None, 0);
        while let Some(chunk) = chunks.message().await.expect("a whole stream") {
            records += chunk.records.len();
            cut = cut.or(chunk.cut);
        }
        assert_ne!(
            records, 0,
            "slot {slot} has no record: nothing would be proved"
        );
        let cut = cut.expect("the last chunk has the cut");
        let request = v1::DigestRequest {
            stamp: Some(stamp),
            session: self.session,
            attempt: 1,
            slot,
            cut: Some(cut),
        };
        let digest = peer.digest(request).await.expect("a digest").into_inner();
        let digest = v1::SlotDigest {
            cut: Some(cut),
            digest: digest.digest,
            peer: String::new(),
            records: digest.records,
        };
        Proof { cut, digest }
    }

    /// Says that every range is staged and copied, with `change` to what it says of each.
    async fn says(
        &mut self,
        proofs: &BTreeMap<u32, Proof>,
        change: impl Fn(u32, &mut v1::SlotReport),
    ) {
        let slots = self.gained.iter().map(|slot| {
            let mut report = v1::SlotReport {
                slot: *slot,
                session: self.session,
                attempt: 1,
                staged: true,
                copied: proofs.get(slot).map(|proof| proof.cut),
                watermark: proofs.get(slot).map(|proof| proof.cut),
                ..v1::SlotReport::default()
            };
            change(*slot, &mut report);
            report
        });
        let report = v1::Report {
            adopted_epoch: self.epoch,
            slots: slots.collect(),
            ..v1::Report::default()
        };
        self.liar.says(report).await;
    }
}

/// Nothing was entered, and status says for how many ranges of whom it waits.
async fn still_waits(cluster: &Cluster, ranges: usize) {
    until(SOON, format!("{ranges} ranges to be named"), || async {
        let show = cluster.show(RING).await;
        assert_eq!(show["transition"]["step"], 4, "{show}");
        let waits = show["transition"]["waiting_for"].to_string();
        let expected = format!("liar to verify {ranges} range(s)");
        if waits.contains(&expected) {
            Ok(())
        } else {
            Err(waits)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c52_success_without_the_right_digest_is_no_success() {
    let mut cluster = Cluster::start(crate::BINARY).await;
    cluster.founded_ring(RingPlan::small(RING), &NODES).await;
    let kv = KvClient::new(cluster.client(RING).await);
    // Enough for every slot to have one.
    for number in 0..400 {
        let key = format!("key {number}");
        let _ = kv.put(key.as_bytes(), "value").await.expect("a write");
    }
    let claim = Claim {
        ring: RING.to_owned(),
        node: "liar".to_owned(),
        zone: "z1".to_owned(),
        endpoint: ports::free_endpoint(),
        weight: 100,
    };
    let liar = Liar::welcomed(&cluster.endpoints, &claim).await;
    let timeline = Timeline::watch(&cluster, RING, 1).await;
    let change = cluster.change("join", RING, "liar").await;
    let prepared = timeline.at_step(CHANGE, Step::Prepared).await;
    let transition = prepared.transition.as_ref().expect("at step 1");
    let mut gainer = Gainer {
        liar: liar.expect("an empty new node"),
        session: transition.id.0,
        epoch: prepared.epoch.0,
        gained: transition.target.iter().map(|moved| moved.slot.0).collect(),
    };
    let nothing = BTreeMap::new();
    gainer.says(&nothing, |_, _| {}).await;
    let copying = timeline.at_step(CHANGE, Step::Copying).await;
    gainer.epoch = copying.epoch.0;
    let mut proofs = BTreeMap::new();
    for slot in gainer.gained.clone() {
        proofs.insert(slot, gainer.proof(&copying, slot).await);
    }
    gainer.says(&proofs, |_, _| {}).await;
    let catching_up = timeline.at_step(CHANGE, Step::CatchingUp).await;
    gainer.epoch = catching_up.epoch.0;

    // (f) Success without any digest.
    let all = gainer.gained.len();
    gainer.says(&proofs, |_, _| {}).await;
    still_waits(&cluster, all).await;

    // (e) The digest of another range, of another cut, of another session, of another try; each of
    // one range alone, and all the others are as they should be.
    let [first, second, ..] = gainer.gained[..] else {
        panic!("two ranges move")
    };
    let other = proofs[&second].digest.clone();
    let honest = |slot: u32, report: &mut v1::SlotReport| {
        report.digest = Some(proofs[&slot].digest.clone());
    };
    type Lie<'a> = &'a dyn Fn(&mut v1::SlotReport);
    let lies: [(&str, Lie<'_>); 4] = [
        ("of another range", &|report| {
            let own = report.copied;
            report.digest = Some(v1::SlotDigest {
                cut: own,
                ..other.clone()
            });
        }),
        ("at a cut before the copy", &|report| {
            if let Some(cut) = report.digest.as_mut().and_then(|one| one.cut.as_mut()) {
                cut.seq = 0;
            }
        }),
        ("of another session", &|report| report.session += 1),
        ("of another try, not copied yet", &|report| {
            (report.attempt, report.copied) = (2, None);
        }),
    ];
    for (what, lie) in lies {
        println!("a digest {what}");
        gainer
            .says(&proofs, |slot, report| {
                honest(slot, report);
                if slot == first {
                    lie(report);
                }
            })
            .await;
        still_waits(&cluster, 1).await;
    }
    let own = timeline.snapshot();
    let liar = own
        .members
        .iter()
        .find(|one| one.node_id.as_str() == "liar");
    let handle = liar.expect("a member that joins").handle;
    for slot in own.layout.slots.slots() {
        let read = own.sets(slot).read_set();
        assert!(!read.contains(&handle), "slot {slot} is routed to it");
    }

    // What was missing, and nothing else, held it up.
    let honest_again = |slot: u32, report: &mut v1::SlotReport| {
        honest(slot, report);
        if slot == first {
            report.attempt = 2;
        }
    };
    gainer.says(&proofs, honest_again).await;
    timeline
        .until(CHANGE, "the proof of every range", |snapshot| {
            let running = snapshot.transition.as_ref();
            running.is_some_and(|running| running.step >= Step::Verified)
        })
        .await;
    let _ = cluster
        .annulus(&["node", "abort", RING, &change.to_string()])
        .await
        .done();
    cluster.change_is(RING, change, "aborted").await;
    cluster.nobody_panicked();
}
