//! A failover of slot 0, as a leader drives it, one move at a time.

use annulus_proto::v1;

use crate::{leader::Reported, ring::Ring};

impl Ring {
    /// The intent: an epoch that changes the slot for writes. The epoch.
    pub async fn intend(&self) -> u64 {
        let intent = self
            .leader
            .publish(|script| script.last_changes[0] = script.epoch);
        let hearing: Vec<_> = {
            let script = self.leader.script();
            let all = script.members.iter().copied();
            all.filter(|node| !script.frozen.contains(node)).collect()
        };
        self.leader.adopted(&hearing, intent).await;
        intent
    }

    fn wave(&self, id: u64, successor: &str, tails: Option<&[&str]>) -> v1::Directive {
        let of = |nodes: &[&str]| nodes.iter().map(ToString::to_string).collect();
        v1::Directive {
            wave: Some(v1::Wave {
                id,
                owner: self.leader.script().lists[0][0].to_owned(),
                successor: successor.to_owned(),
                slots: vec![0],
                silent_owner: true,
                tails: tails.map(|nodes| v1::Tails { of: of(nodes) }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// These members are told to refuse the owner, and do.
    pub async fn refuse(&self, id: u64, successor: &str, members: &[&str]) {
        for member in members {
            self.leader.direct(member, self.wave(id, successor, None));
            let fenced = |one: &Reported| one.fenced == Some(id);
            self.leader.until(member, "refusal", fenced).await;
        }
    }

    /// The successor is told to store the tails of these others.
    pub fn ask_for_tails(&self, id: u64, successor: &str, others: &[&str]) {
        let wave = self.wave(id, successor, Some(others));
        self.leader.direct(successor, wave);
    }

    /// The same, and it has.
    pub async fn take_tails(&self, id: u64, successor: &str, others: &[&str]) {
        self.ask_for_tails(id, successor, others);
        let stored = |one: &Reported| one.succeeded.as_ref().is_some_and(|it| it.wave == id);
        let stored = self.leader.until(successor, "tails", stored).await;
        assert_eq!(stored.succeeded.unwrap().read, others);
    }

    /// The successor is first in O and N, under a new reign. The epoch.
    pub async fn take_over(&self, successor: &'static str) -> u64 {
        let lead = |list: &mut Vec<&'static str>| {
            list.retain(|node| *node != successor);
            list.insert(0, successor);
        };
        let committed = self.leader.publish(|script| {
            lead(&mut script.lists[0]);
            if let Some((_, _, target)) = &mut script.transition {
                lead(target);
            }
            script.reigns[0] = script.epoch;
            script.last_changes[0] = script.epoch;
        });
        self.leader.adopted(&[successor], committed).await;
        committed
    }

    /// All of it, where the successor and one other are enough.
    pub async fn fail_over(&self, id: u64, successor: &'static str, other: &str) -> u64 {
        self.intend().await;
        self.refuse(id, successor, &[successor, other]).await;
        self.take_tails(id, successor, &[other]).await;
        self.take_over(successor).await
    }
}
