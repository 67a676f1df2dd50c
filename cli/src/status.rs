//! `annulus status`: one screen that says whether all is well, and what a change waits for.

use crate::{
    args::{Global, StatusArgs},
    connect::{Admin, Read},
    exit::{Kind, Result},
    render,
};

/// Runs `annulus status`.
///
/// Without a leader, what some server knows is shown all the same, marked stale, and the command
/// still fails: a script must not take it for an answer.
pub async fn run(global: &Global, args: &StatusArgs) -> Result {
    let admin = Admin::new(global)?;
    if args.local {
        return render::print(global.output, &admin.cluster(Read::Local).await?);
    }
    let failure = match admin.cluster(Read::Leader).await {
        Ok(cluster) => return render::print(global.output, &cluster),
        Err(failure) => failure,
    };
    if failure.kind() == Kind::Unavailable
        && let Some(stale) = admin.survey().await.stale
    {
        render::print(global.output, &stale)?;
    }
    Err(failure)
}
