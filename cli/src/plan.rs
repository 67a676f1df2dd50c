//! `annulus plan`: what changes would do, before they are made.

use std::io::{self, Write};

use annulus_ring::RingName;
use serde::Serialize;

use self::{
    diff::Diff,
    table::PlanList,
    view::{Export, Head, PlanView},
};
use crate::{
    args::{
        Global, Output,
        plan::{LookArgs, PlanCommand},
    },
    connect::{Accepted, Admin, Read},
    exit::Result,
    progress,
    render::{self, Render, Wide},
};

mod diff;
mod table;
mod view;
mod words;

/// Runs `annulus plan ..`.
pub async fn run(global: &Global, command: PlanCommand) -> Result {
    let admin = Admin::new(global)?;
    match command {
        PlanCommand::Make {
            ring,
            changes,
            look,
        } => {
            let changes = words::parse(&changes)?;
            let made = admin.make_plan(&ring, changes).await?;
            made.notes.iter().for_each(|note| eprintln!("note: {note}"));
            show(global, &admin, &ring, made.plan_id, look, Read::Leader).await?;
            if global.output == Output::Table {
                let id = made.plan_id;
                eprintln!("do it with `annulus plan commit {ring} {id}`");
            }
            Ok(())
        }
        PlanCommand::Show {
            ring,
            plan,
            look,
            local,
        } => show(global, &admin, &ring, plan, look, Read::from(local)).await,
        PlanCommand::List { ring, local } => {
            let plans = admin.plans(&ring, Read::from(local)).await?;
            let plans = plans.iter().map(|plan| Head::new(ring.as_str(), plan));
            let plans = PlanList {
                ring: ring.to_string(),
                plans: plans.collect(),
            };
            render::print(global.output, &plans)
        }
        PlanCommand::Export { ring, plan, look } => {
            let plan = admin
                .plan(&ring, plan, look.throttle, true, Read::Leader)
                .await?;
            render::print(Output::Json, &Export::new(ring.as_str(), plan))
        }
        PlanCommand::Diff {
            ring,
            one,
            other,
            look,
        } => {
            let mut both = Vec::with_capacity(2);
            for plan in [one, other] {
                let plan = admin
                    .plan(&ring, plan, look.throttle, true, Read::Leader)
                    .await?;
                let lists = view::lists(&plan);
                both.push((PlanView::new(ring.as_str(), plan), lists));
            }
            let other = both.pop().expect("two were pushed");
            let one = both.pop().expect("two were pushed");
            render::print(global.output, &Diff::new(one, other))
        }
        PlanCommand::Commit { ring, plan, detach } => {
            commit(global, &admin, &ring, plan, detach).await
        }
        PlanCommand::Drop { ring, plan } => {
            let dropped = admin.drop_plan(&ring, plan).await?;
            let done = Done::new(&ring, plan, "is dropped".to_owned(), &dropped);
            render::print(global.output, &done)
        }
    }
}

async fn show(
    global: &Global,
    admin: &Admin,
    ring: &RingName,
    plan: u64,
    look: LookArgs,
    read: Read,
) -> Result {
    let plan = admin.plan(ring, plan, look.throttle, false, read).await?;
    render::print(global.output, &PlanView::new(ring.as_str(), plan))
}

async fn commit(
    global: &Global,
    admin: &Admin,
    ring: &RingName,
    plan: u64,
    detach: bool,
) -> Result {
    // Who leaves is told at the end, when the plan may be gone.
    let planned = admin.plan(ring, plan, None, false, Read::Leader).await?;
    let mut accepted = admin.commit_plan(ring, plan).await?;
    let ids: Vec<String> = accepted.change_ids.iter().map(u64::to_string).collect();
    let changes = format!("change {}", ids.join(", "));
    let first = accepted.change_id;
    if detach {
        let what = format!("is committed as {changes}");
        render::print(global.output, &Done::new(ring, plan, what, &accepted))?;
        eprintln!("{}", progress::how_to_go_on(global, ring, first));
        return Ok(());
    }
    let sentence = format!("plan {plan} is committed as {changes}");
    progress::say_accepted(global, &sentence, &accepted.notes);
    // They run, and end, together.
    progress::wait(global, admin, ring, first).await?;
    let leavers: Vec<&str> = planned.changes.iter().filter_map(words::leaver).collect();
    if !leavers.is_empty() {
        accepted.notes.push(format!(
            "keep {} running while `annulus status` lists them; their logs say when they can be \
             stopped",
            leavers.join(", ")
        ));
    }
    let epoch = admin
        .ring(ring, Read::Leader)
        .await
        .map_or(accepted.epoch, |ring| ring.epoch.0);
    let accepted = Accepted { epoch, ..accepted };
    let what = format!("is done, as {changes}");
    render::print(global.output, &Done::new(ring, plan, what, &accepted))
}

#[derive(Serialize)]
struct Done {
    ring: String,
    plan: Wide,
    change_ids: Vec<Wide>,
    epoch: Wide,
    what: String,
    notes: Vec<String>,
}

impl Done {
    fn new(ring: &RingName, plan: u64, what: String, accepted: &Accepted) -> Self {
        Self {
            ring: ring.to_string(),
            plan: Wide(plan),
            change_ids: accepted.change_ids.iter().copied().map(Wide).collect(),
            epoch: Wide(accepted.epoch),
            what,
            notes: accepted.notes.clone(),
        }
    }
}

impl Render for Done {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let (ring, plan, epoch) = (&self.ring, self.plan, self.epoch);
        writeln!(out, "ring {ring}: plan {plan} {}, epoch {epoch}", self.what)?;
        self.notes
            .iter()
            .try_for_each(|note| writeln!(out, "note: {note}"))
    }
}
