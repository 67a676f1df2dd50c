//! Configuration files: TOML with known keys only, and what flags override.
//!
//! A key that is not known is an error that names the nearest one that is: a setting that is
//! silently ignored is worse than one that is refused.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::exit::{Failure, Result};

/// Reads `path` as TOML into `T`.
///
/// `known` lists the keys of `T`, dotted for those in tables (`"peers.id"`).
///
/// # Errors
/// [`crate::exit::Kind::Usage`]: the file cannot be read, is no TOML, has an unknown key, or a
/// value of the wrong kind.
pub fn load<T: DeserializeOwned>(path: &Path, known: &[&str]) -> Result<T> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(
            format!("configuration {shown}: {error}"),
            "name a readable file with --config, or give the settings as flags",
        )
    })?;
    parse(&text, known).map_err(|(message, next)| {
        Failure::usage(format!("configuration {shown}: {message}"), next)
    })
}

/// [`load`] from text; the error is (message, what to do next).
fn parse<T: DeserializeOwned>(text: &str, known: &[&str]) -> Result<T, (String, String)> {
    let syntax = "correct the file; README.md lists every key with its default";
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| (one_line(&error), syntax.to_owned()))?;
    check_keys(&table, "", known)?;
    toml::from_str(text).map_err(|error| (one_line(&error), syntax.to_owned()))
}

fn one_line(error: &toml::de::Error) -> String {
    error.to_string().trim_end().replace('\n', "\n    ")
}

fn check_keys(table: &toml::Table, prefix: &str, known: &[&str]) -> Result<(), (String, String)> {
    for (key, value) in table {
        let full = format!("{prefix}{key}");
        let inner = format!("{full}.");
        let is_table = known.iter().any(|known| known.starts_with(&inner));
        if !is_table && !known.contains(&full.as_str()) {
            return Err(unknown(&full, known));
        }
        match value {
            toml::Value::Table(table) => check_keys(table, &inner, known)?,
            toml::Value::Array(items) => {
                for table in items.iter().filter_map(toml::Value::as_table) {
                    check_keys(table, &inner, known)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn unknown(found: &str, known: &[&str]) -> (String, String) {
    let nearest = known
        .iter()
        .max_by(|a, b| {
            let likeness = |key| strsim::jaro_winkler(found, key);
            likeness(a).total_cmp(&likeness(b))
        })
        .expect("every configuration has keys");
    let message = format!("unknown key {found:?}; the nearest known one is {nearest:?}");
    (
        message,
        format!(
            "write {nearest:?} if that is what you meant; known: {}",
            known.join(", ")
        ),
    )
}

/// Refuses to listen where others could reach what nobody protects.
///
/// # Errors
/// [`crate::exit::Kind::Usage`] unless `listen` is loopback or `insecure` is set.
pub fn loopback_unless(insecure: bool, listen: std::net::SocketAddr) -> Result {
    if insecure || listen.ip().is_loopback() {
        return Ok(());
    }
    Err(Failure::usage(
        format!("{listen} is not loopback, and nothing here is encrypted or authenticated yet"),
        "listen on 127.0.0.1, or say --insecure (insecure = true) if the network is your fence",
    ))
}

/// The value of a flag or of the file, or a usage error that names both.
///
/// # Errors
/// [`crate::exit::Kind::Usage`] if neither has it.
pub fn required<T>(value: Option<T>, flag: &str, key: &str) -> Result<T> {
    value.ok_or_else(|| {
        Failure::usage(
            format!("{flag} is missing"),
            format!("give {flag}, or {key} in the file named by --config"),
        )
    })
}

/// An address that others are to use: host and a port that is not 0.
///
/// # Errors
/// [`crate::exit::Kind::Usage`], naming `flag`.
pub fn endpoint(text: &str, flag: &str) -> Result<annulus_ring::Endpoint> {
    annulus_ring::Endpoint::new(text)
        .map_err(|error| Failure::usage(format!("{flag}: {error}"), "write host:port"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Example {
        listen: Option<String>,
        #[serde(default)]
        limits: Limits,
    }
    #[derive(Debug, Default, Deserialize)]
    struct Limits {
        soak_ms: Option<u64>,
    }
    const KNOWN: &[&str] = &["listen", "limits.soak_ms"];

    #[test]
    fn known_keys_are_read() {
        let text = "listen = \"127.0.0.1:1\"\n[limits]\nsoak_ms = 5\n";
        let example: Example = parse(text, KNOWN).expect("all known");
        assert_eq!(example.listen.as_deref(), Some("127.0.0.1:1"));
        assert_eq!(example.limits.soak_ms, Some(5));
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let (message, _) = parse::<Example>("lisen = 1\n", KNOWN).expect_err("misspelt");
        assert_eq!(
            message,
            r#"unknown key "lisen"; the nearest known one is "listen""#
        );
        let (message, _) = parse::<Example>("[limits]\nsoak = 1\n", KNOWN).expect_err("no unit");
        assert!(message.contains(r#""limits.soak"; the nearest known one is "limits.soak_ms""#));
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_an_error_with_its_line() {
        let (message, _) =
            parse::<Example>("[limits]\nsoak_ms = \"x\"\n", KNOWN).expect_err("kind");
        assert!(message.contains("line 2"), "{message}");
    }

    #[test]
    fn other_addresses_than_loopback_need_insecure() {
        let open = "0.0.0.0:7001".parse().expect("an address");
        assert!(loopback_unless(false, open).is_err());
        assert!(loopback_unless(true, open).is_ok());
        assert!(loopback_unless(false, "[::1]:7001".parse().expect("an address")).is_ok());
    }
}
