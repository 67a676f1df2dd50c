//! Deliberate bugs that the suites must catch. Compiled out unless the feature `bait` is on;
//! then chosen by name at run time, through `ANNULUS_BAIT`.

/// Whether the bug called `name` is wanted.
#[cfg(feature = "bait")]
pub(super) fn on(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN
        .get_or_init(|| std::env::var("ANNULUS_BAIT").ok())
        .as_deref()
        == Some(name)
}

/// Never, in what is shipped.
#[cfg(not(feature = "bait"))]
pub(super) const fn on(_name: &str) -> bool {
    false
}

#[cfg(all(test, not(feature = "bait")))]
mod tests {
    #[test]
    fn no_bait_is_in_what_is_shipped() {
        assert!(!super::on("ack-before-sync") && !super::on("sync-file-range"));
    }
}
