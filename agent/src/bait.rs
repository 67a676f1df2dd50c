//! Bugs that can be switched on by name, to show that the tests would notice them.
//!
//! Compiled only with the cargo feature `bait`; a shipped binary cannot be told to misbehave.

#[cfg(feature = "bait")]
use annulus_ring::Position;
use annulus_ring::{Epoch, Slot};

use crate::store::{Copy, Cut, StoreError, Watermark};

/// Acknowledgement by both lists begins only at the switch, not at the joint step.
pub const JOINT_AFTER_SWITCH: &str = "joint-after-switch";
/// It ends with the switch, not with the transition.
pub const JOINT_UNTIL_SWITCH: &str = "joint-until-switch";
/// It ends with the flip back, not with the abort that follows.
pub const JOINT_UNTIL_FLIP_BACK: &str = "joint-until-flip-back";
/// A gainer may cut its copy before the owners said that all their writes go to it.
pub const COPY_BEFORE_BARRIER: &str = "copy-before-barrier";
/// Any member that holds a range is a source of copies.
pub const COPY_FROM_ANYBODY: &str = "copy-from-anybody";
/// Copies leave tombstones out.
#[cfg(feature = "bait")]
pub const COPY_WITHOUT_TOMBSTONES: &str = "copy-without-tombstones";
/// Packets of a session that is over are taken.
pub const SESSIONS_NEVER_CLOSE: &str = "sessions-never-close";
/// A gainer reports the highest position it holds, whatever is missing below.
#[cfg(feature = "bait")]
pub const WATERMARK_OVER_HOLES: &str = "watermark-over-holes";
/// A gainer reports a watermark in a reign whose base it lacks.
#[cfg(feature = "bait")]
pub const WATERMARK_WITHOUT_BASE: &str = "watermark-without-base";
/// A new owner of a silent one's ranges takes over without the others' tails.
pub const TAILS_NOT_READ: &str = "tails-not-read";
/// A member gives its tail though it does not refuse the silent owner.
pub const TAILS_BEFORE_REFUSAL: &str = "tails-before-refusal";
/// A member that promised to refuse a reign takes its writes.
pub const WRITES_NOT_FENCED: &str = "writes-not-fenced";
/// A gainer goes on answering reads when the switch was taken back.
pub const READS_NOT_FENCED: &str = "reads-not-fenced";
/// What a deposed owner left behind stays.
pub const STRAYS_KEPT: &str = "strays-kept";
/// A write that is refused for its age is sent again as it is.
pub const NEVER_RESTAMPED: &str = "never-restamped";
/// A sealed owner goes on admitting writes.
pub const NO_SEAL: &str = "no-seal";
/// A seal ends by itself some time after F was told.
pub const SEAL_ENDS_BY_ITSELF: &str = "seal-ends-by-itself";
/// Staging of a session that is over is wiped while others may still write to it.
pub const WIPE_BEFORE_BARRIER: &str = "wipe-before-barrier";
/// A member is compared with its owner without the writes that it missed last.
pub const COMPARED_WITHOUT_TAIL: &str = "compared-without-tail";
/// Clients are served while the ring is being converted.
pub const SERVES_WHILE_CONVERTING: &str = "serves-while-converting";
/// A slot that was named before a conversion is taken for the one of that number after it.
pub const SLOTS_OF_BEFORE: &str = "slots-of-before";
/// Retained copies are deleted without a permit that was read right before.
pub const DELETE_WITHOUT_PERMIT: &str = "delete-without-permit";

/// The watermark that a gainer goes by.
#[cfg(feature = "bait")]
pub async fn watermark(
    store: &crate::shared::StoreHandle,
    slot: Slot,
    copy: Copy,
    mark: Watermark,
    reign: Epoch,
) -> Result<Watermark, StoreError> {
    let (over_holes, without_base) = (on(WATERMARK_OVER_HOLES), on(WATERMARK_WITHOUT_BASE));
    let begin = Some(Position::new(reign, 0));
    let claim = move |store: &dyn crate::store::RangeStore| {
        let mut held = mark.held;
        if over_holes {
            for record in store.versions(slot, copy, held)? {
                held = held.max(Some(record?.1));
            }
        }
        if without_base {
            store.merge(slot, copy, Vec::new(), begin)?;
            held = held.max(begin);
        }
        Ok(Watermark { held, ..mark })
    };
    store.call(claim).await
}

/// The store's own.
#[cfg(not(feature = "bait"))]
#[allow(clippy::unused_async, reason = "the bait asks the store")]
pub async fn watermark(
    _: &crate::shared::StoreHandle,
    _: Slot,
    _: Copy,
    mark: Watermark,
    _: Epoch,
) -> Result<Watermark, StoreError> {
    Ok(mark)
}

/// What a source sends of a cut.
#[cfg(feature = "bait")]
pub fn cut(cut: Cut) -> Cut {
    if !on(COPY_WITHOUT_TOMBSTONES) {
        return cut;
    }
    let living = |record: &Result<crate::store::Record, StoreError>| {
        record
            .as_ref()
            .map_or(true, |record| record.value.is_some())
    };
    let records = Box::new(cut.records.filter(living));
    Cut { records, ..cut }
}

/// All of it.
#[cfg(not(feature = "bait"))]
pub fn cut(cut: Cut) -> Cut {
    cut
}

/// Whether `ANNULUS_BAIT` names this bug.
#[cfg(feature = "bait")]
pub fn on(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN
        .get_or_init(|| std::env::var("ANNULUS_BAIT").ok())
        .as_deref()
        == Some(name)
}

/// Never, without the feature.
#[cfg(not(feature = "bait"))]
pub const fn on(_name: &str) -> bool {
    false
}
