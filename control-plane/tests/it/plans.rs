//! Plans through the API of three servers: made, shown, committed to their very target, and
//! explained afterwards.

use std::collections::BTreeMap;

use crate::support::*;
use annulus_proto::{
    snapshot::{Expect, verify_and_decode},
    v1::{self, explain_range_request::What, planned_change::Change},
};
use annulus_ring::{RingName, Snapshot};
use tonic::{Code, Status};

const LINEARIZABLE: i32 = v1::ReadMode::Linearizable as i32;
const LOCAL: i32 = v1::ReadMode::Local as i32;

/// Bytes and keys of each range, as agents here report them.
const RANGE: (u64, u64) = (1_000, 10);

fn planned(change: Change) -> v1::PlannedChange {
    v1::PlannedChange {
        change: Some(change),
    }
}

fn join_of(node: &str) -> v1::PlannedChange {
    planned(Change::Join(v1::PlannedJoin {
        node: node.to_owned(),
        ..v1::PlannedJoin::default()
    }))
}

fn weight_of(node: &str, weight: u32) -> v1::PlannedChange {
    planned(Change::Weight(v1::PlannedWeight {
        node: node.to_owned(),
        weight,
    }))
}

fn make(changes: Vec<v1::PlannedChange>) -> v1::MakePlanRequest {
    v1::MakePlanRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        changes,
    }
}

fn plan(plan_id: u64) -> v1::PlanRequest {
    v1::PlanRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        plan_id,
    }
}

fn get(plan_id: u64, mode: i32) -> v1::GetPlanRequest {
    v1::GetPlanRequest {
        ring: "r".to_owned(),
        mode,
        plan_id,
        copy_bytes_per_second: Some(500),
        lists: true,
    }
}

async fn shown(cluster: &Cluster, at: usize, plan_id: u64) -> v1::PlanStatus {
    let answer = within(
        "plan",
        cluster.admin(at).get_plan(get(plan_id, LINEARIZABLE)),
    )
    .await;
    answer.expect("shown").into_inner().plan.expect("a plan")
}

async fn made(cluster: &Cluster, at: usize, changes: Vec<v1::PlannedChange>) -> u64 {
    let answer = within("make", cluster.admin(at).make_plan(make(changes))).await;
    answer.expect("the plan is made").into_inner().plan_id
}

async fn hold(cluster: &Cluster, reason: Option<&str>) {
    let request = v1::BrakeRequest {
        request_id: fresh_id(),
        ring: "r".to_owned(),
        reason: reason.map(str::to_owned),
    };
    let held = within("hold", cluster.admin(1).hold_ring(request)).await;
    held.expect("the brake is set");
}

async fn kept(cluster: &Cluster, node: Option<&str>) -> Vec<v1::KeptCopies> {
    let request = v1::WhyKeptRequest {
        ring: "r".to_owned(),
        mode: LINEARIZABLE,
        node: node.map(str::to_owned),
        slot: None,
    };
    let answer = within("why kept", cluster.admin(2).why_kept(request)).await;
    answer.expect("told").into_inner().copies
}

async fn range(cluster: &Cluster, what: What) -> v1::ExplainRangeResponse {
    let request = v1::ExplainRangeRequest {
        ring: "r".to_owned(),
        mode: LINEARIZABLE,
        what: Some(what),
    };
    let answer = within("range", cluster.admin(3).explain_range(request)).await;
    answer.expect("explained").into_inner()
}

async fn change(cluster: &Cluster, change_id: u64) -> v1::ExplainChangeResponse {
    let request = v1::ExplainChangeRequest {
        ring: "r".to_owned(),
        mode: LINEARIZABLE,
        change_id,
    };
    let answer = within("change", cluster.admin(2).explain_change(request)).await;
    answer.expect("explained").into_inner()
}

async fn done(cluster: &Cluster, change_id: u64) {
    until("the change's end", || async {
        let story = change(cluster, change_id).await;
        (story.change?.state() == v1::ChangeState::Done).then_some(())
    })
    .await;
}

async fn snapshot(cluster: &Cluster, epoch: u64) -> Snapshot {
    let request = v1::GetSnapshotRequest {
        ring: "r".to_owned(),
        mode: LINEARIZABLE,
        epoch,
    };
    let answer = within("snapshot", cluster.admin(1).get_snapshot(request)).await;
    let bytes = answer.expect("kept").into_inner().snapshot.expect("bytes");
    let expect = Expect {
        cluster_id: None,
        ring: &RingName::new("r").unwrap(),
        held: None,
    };
    verify_and_decode(&bytes, expect).expect("a whole snapshot")
}

/// The lists that a snapshot's transition is to end with, by slot.
fn target(snapshot: &Snapshot) -> BTreeMap<u32, Vec<String>> {
    let transition = snapshot.transition.as_ref().expect("a transition runs");
    let names = |list: &annulus_ring::List| -> Vec<String> {
        let member = |handle| snapshot.member_by_handle(handle).unwrap();
        list.iter()
            .map(|handle| member(*handle).node_id.to_string())
            .collect()
    };
    let target = transition.target.iter();
    target
        .map(|change| (change.slot.0, names(&change.to)))
        .collect()
}

/// A founded ring of a, b and c, and d registered in the zone of a.
async fn four() -> (Cluster, Vec<Agent>) {
    let cluster = Cluster::start(3, |config| {
        config.limits.epoch_interval_ms = std::num::NonZeroU32::new(40).expect("not 0");
    })
    .await;
    cluster.init().await;
    let mut agents = cluster.founded().await;
    let newcomer = v1::Hello {
        zone: "zone-a".to_owned(),
        ..hello("d")
    };
    agents.push(Agent::start(&cluster, newcomer).await);
    agents[3].welcomed().await;
    for agent in &agents[..3] {
        agent.sees(2).await;
    }
    (cluster, agents)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_made_anywhere_shown_and_committed_to_its_very_target() {
    let (cluster, _agents) = four().await;
    let follower = cluster.follower().await;
    let before = snapshot(&cluster, 0).await;

    let request = make(vec![join_of("d")]);
    let answer = within("make", cluster.admin(follower).make_plan(request.clone())).await;
    let answer = answer.expect("a follower passes it on").into_inner();
    assert_eq!((answer.plan_id, answer.change_id), (1, 0));
    assert_eq!(answer.epoch, before.epoch.0, "a plan is no epoch");
    let again = within("make", cluster.admin(3).make_plan(request)).await;
    assert_eq!(
        again.expect("the same answer").into_inner().plan_id,
        1,
        "EXACTLY-ONCE"
    );

    let told = until("what agents hold is known", || async {
        let told = shown(&cluster, follower, 1).await;
        let outlook = told.outlook.as_ref()?;
        outlook.unknown.is_empty().then_some(told)
    })
    .await;
    let outlook = told.outlook.clone().expect("the layout is the ring's");
    assert_eq!(told.lists.len(), outlook.changed_ranges as usize);
    assert!(outlook.copies > 0);
    let bytes = u64::from(outlook.copies) * RANGE.0;
    let keys = u64::from(outlook.copies) * RANGE.1;
    assert_eq!(outlook.copied, Some(v1::Amount { bytes, keys }));
    assert_eq!(outlook.copy_ms, Some(bytes * 1_000 / 500));
    let gainer = outlook.nodes.iter().find(|node| node.node == "d").unwrap();
    assert_eq!((gainer.weight_before, gainer.weight_after), (None, Some(1)));
    assert_eq!((gainer.gained, gainer.lost), (outlook.copies, 0));
    assert_eq!(outlook.unspread_ranges_after, 0);
    for list in &told.lists {
        assert!(!list.before.contains(&"d".to_owned()));
        assert_eq!((list.before.len(), list.after.len()), (3, 3));
    }
    let steps: Vec<u32> = outlook.undo.iter().map(|undo| undo.step).collect();
    assert_eq!(steps, [0, 1, 2, 3, 4, 5, 6, 7, 8]);

    // A server that does not lead knows the ranges, and says that it knows no bytes.
    let local = within("plan", cluster.admin(follower).get_plan(get(1, LOCAL))).await;
    let local = local.expect("shown").into_inner().plan.expect("a plan");
    assert_eq!(local.lists, told.lists);
    let outlook = local.outlook.expect("from its own state");
    assert_eq!(outlook.copied, None);
    assert!(
        outlook
            .warnings
            .iter()
            .any(|warning| warning.contains("does not lead")),
        "{:?}",
        outlook.warnings
    );

    commit_and_look_back(&cluster, told).await;
}

async fn commit_and_look_back(cluster: &Cluster, told: v1::PlanStatus) {
    hold(cluster, Some("a look")).await;
    let commit = plan(1);
    let answer = within("commit", cluster.admin(2).commit_plan(commit.clone())).await;
    let answer = answer.expect("the plan is committed").into_inner();
    assert_eq!((answer.plan_id, answer.change_ids.len()), (1, 1));
    let change_id = answer.change_id;
    let planned: BTreeMap<u32, Vec<String>> = told
        .lists
        .iter()
        .map(|list| (list.slot, list.after.clone()))
        .collect();
    assert_eq!(target(&snapshot(cluster, answer.epoch).await), planned);

    let again = within("commit", cluster.admin(3).commit_plan(commit)).await;
    assert_eq!(
        again.expect("the same answer").into_inner(),
        answer,
        "EXACTLY-ONCE"
    );
    let twice = within("commit", cluster.admin(3).commit_plan(plan(1))).await;
    let error = twice.unwrap_err();
    assert_eq!(
        cause(&error),
        ("PlanCommitted".to_owned(), Code::AlreadyExists)
    );

    done(cluster, change_id).await;
    // The plan is told as it was, from the kept snapshot of its layout.
    let later = shown(cluster, 1, 1).await;
    assert_eq!(later.committed, [change_id]);
    assert!(later.layout_epoch > later.base_layout_epoch);
    assert_eq!(later.lists, told.lists);
    assert_eq!(
        later.outlook.expect("kept").copies,
        told.outlook.clone().expect("shown").copies
    );

    let story = change(cluster, change_id).await;
    let moves = &story.moves[0];
    assert_eq!((moves.node.as_str(), moves.lost), ("d", 0));
    assert_eq!(moves.gained, told.outlook.expect("shown").copies);
    assert_eq!(story.first_epoch, Some(answer.epoch));
    assert!(story.end_epoch > story.first_epoch);

    let moved = &told.lists[0];
    let story = range(cluster, What::Slot(moved.slot)).await;
    let first = &story.history[0];
    assert_eq!(first.cause(), v1::RangeCause::Founded);
    let last = story
        .history
        .iter()
        .find(|event| event.cause() == v1::RangeCause::Transition)
        .expect("it moved");
    assert_eq!(
        (&first.replicas, &last.replicas),
        (&moved.before, &moved.after)
    );
    assert_eq!(last.changes[0].id, change_id);
    // A key's story is its range's.
    let by_key = range(cluster, What::Key("key".into())).await;
    let slot = annulus_ring::Slot::of(by_key.hash.expect("of a key"), 4);
    assert_eq!(by_key.slot, slot.0);
    let by_slot = range(cluster, What::Slot(by_key.slot)).await;
    assert_eq!(by_key.history, by_slot.history);

    why_copies_are_kept(cluster, moved).await;
}

async fn why_copies_are_kept(cluster: &Cluster, moved: &v1::PlannedList) {
    let loser = moved
        .before
        .iter()
        .find(|node| !moved.after.contains(node))
        .expect("somebody gave it up");
    let copies = kept(cluster, Some(loser)).await;
    assert_eq!((copies.len(), copies[0].node.as_str()), (1, loser.as_str()));
    assert!(copies[0].kept > 0);
    let held = copies[0].waits.iter().find(|wait| wait.name == "Held");
    let held = held.expect("the hold is named");
    assert_eq!(held.ranges, copies[0].kept);
    assert!(held.words.contains("a look") && held.words.contains("unhold"));
    assert!(kept(cluster, Some("d")).await.is_empty());

    hold(cluster, None).await;
    until("nothing is kept", || async {
        kept(cluster, None).await.is_empty().then_some(())
    })
    .await;
}

type Refused = (&'static str, Status, &'static str, Code);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_that_cannot_be_are_refused_by_name_and_change_nothing() {
    use Code::{Aborted, FailedPrecondition, InvalidArgument, NotFound};
    let (cluster, _agents) = four().await;
    let before = snapshot(&cluster, 0).await;
    let mut admin = cluster.admin(2);
    let mut calls: Vec<Refused> = Vec::new();
    macro_rules! bad {
        ($what:literal, $call:expr, $name:literal, $code:ident) => {
            let error = within($what, $call).await.expect_err($what);
            calls.push(($what, error, $name, $code));
        };
    }
    bad!(
        "nothing",
        admin.make_plan(make(vec![])),
        "EmptyPlan",
        InvalidArgument
    );
    let nobody = make(vec![join_of("nobody")]);
    bad!(
        "unregistered",
        admin.make_plan(nobody),
        "NotRegistered",
        NotFound
    );
    let unknown = make(vec![v1::PlannedChange { change: None }]);
    bad!(
        "no change",
        admin.make_plan(unknown),
        "MissingField",
        InvalidArgument
    );
    let heavy = make(vec![weight_of("a", u32::MAX)]);
    bad!(
        "weight",
        admin.make_plan(heavy),
        "BadField",
        InvalidArgument
    );
    let many = make(vec![join_of("d"); 101]);
    bad!(
        "many",
        admin.make_plan(many),
        "TooManyPlanned",
        InvalidArgument
    );
    let twice = make(vec![join_of("d"), weight_of("d", 7)]);
    bad!(
        "two steps",
        admin.make_plan(twice),
        "PlanSplits",
        FailedPrecondition
    );
    bad!(
        "no plan",
        admin.commit_plan(plan(7)),
        "UnknownPlan",
        NotFound
    );
    bad!(
        "none to drop",
        admin.drop_plan(plan(7)),
        "UnknownPlan",
        NotFound
    );
    bad!(
        "none to show",
        admin.get_plan(get(7, LINEARIZABLE)),
        "UnknownPlan",
        NotFound
    );
    let elsewhere = v1::MakePlanRequest {
        ring: "nowhere".to_owned(),
        ..make(vec![join_of("d")])
    };
    bad!(
        "no ring",
        admin.make_plan(elsewhere),
        "UnknownRing",
        NotFound
    );
    let request = |what| v1::ExplainRangeRequest {
        ring: "r".to_owned(),
        mode: LINEARIZABLE,
        what,
    };
    bad!(
        "of what",
        admin.explain_range(request(None)),
        "MissingField",
        InvalidArgument
    );
    let beyond = request(Some(What::Slot(16)));
    bad!(
        "no range",
        admin.explain_range(beyond),
        "BadField",
        InvalidArgument
    );
    let request = v1::ExplainChangeRequest {
        ring: "r".to_owned(),
        mode: LINEARIZABLE,
        change_id: 99,
    };
    bad!(
        "no change",
        admin.explain_change(request),
        "UnknownChange",
        NotFound
    );
    assert_eq!(snapshot(&cluster, 0).await, before, "nothing changed");

    // Of two plans on one layout the second to be committed comes too late.
    let first = made(&cluster, 1, vec![weight_of("b", 2)]).await;
    let second = made(&cluster, 3, vec![join_of("d")]).await;
    let list = v1::ListPlansRequest {
        ring: "r".to_owned(),
        mode: LINEARIZABLE,
    };
    let listed = within("list", admin.list_plans(list)).await;
    let listed = listed.expect("listed").into_inner().plans;
    let listed: Vec<u64> = listed.iter().map(|plan| plan.id).collect();
    assert_eq!(listed, [first, second]);
    let committed = within("commit", admin.commit_plan(plan(second))).await;
    let change_id = committed.expect("committed").into_inner().change_id;
    done(&cluster, change_id).await;
    bad!(
        "stale",
        admin.commit_plan(plan(first)),
        "StalePlan",
        Aborted
    );
    let dropped = within("drop", admin.drop_plan(plan(first))).await;
    dropped.expect("dropped");
    bad!(
        "dropped",
        admin.commit_plan(plan(first)),
        "UnknownPlan",
        NotFound
    );

    for (what, status, name, code) in calls {
        assert_eq!(cause(&status), (name.to_owned(), code), "{what}: {status}");
    }
}
