//! The bell that is rung once, when this server can only end.

use tokio::sync::watch;

/// Rung by whatever has failed for good; heard by [`super::Node::fatal`].
#[derive(Clone, Debug)]
pub(super) struct FatalBell(watch::Sender<Option<String>>);

impl FatalBell {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// The first reason stays: what follows is usually its consequence.
    pub(super) fn ring(&self, reason: String) {
        self.0.send_if_modified(|rung| {
            let first = rung.is_none();
            if first {
                tracing::error!(reason, "this server stops");
                *rung = Some(reason);
            }
            first
        });
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    pub(super) async fn heard(&self) -> String {
        let mut bell = self.0.subscribe();
        // The sender is `self`: it cannot be gone while this waits.
        let rung = bell.wait_for(Option::is_some).await;
        rung.ok()
            .and_then(|reason| reason.clone())
            .unwrap_or_default()
    }
}
