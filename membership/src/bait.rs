//! Deliberate bugs: one rule of `decide` left out, chosen by name at run time through
//! `ANNULUS_BAIT`. Compiled out unless the feature `bait` is on.

/// Whether the rule called `name` is left out.
#[cfg(feature = "bait")]
pub(crate) fn on(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN
        .get_or_init(|| std::env::var("ANNULUS_BAIT").ok())
        .as_deref()
        == Some(name)
}

/// Never, in what is shipped.
#[cfg(not(feature = "bait"))]
pub(crate) const fn on(_name: &str) -> bool {
    false
}

#[cfg(all(test, not(feature = "bait")))]
mod tests {
    #[test]
    fn no_rule_is_left_out_in_what_is_shipped() {
        assert!(!super::on("evidence-of-any-life") && !super::on("copies-without-grace"));
    }
}
