//! Bugs that can be switched on by name, to show that the tests would notice them.
//!
//! Compiled only with the cargo feature `bait`; a shipped binary cannot be told to misbehave.

/// Acknowledgement by both lists begins only at the switch, not at the joint step.
pub const JOINT_AFTER_SWITCH: &str = "joint-after-switch";

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
