//! Configuration files: TOML with known keys only, and what flags override.
//!
//! A key that is not known is an error that names the nearest one that is: a setting that is
//! silently ignored is worse than one that is refused.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::exit::{Failure, Result};

/// Keys of one command's file, dotted for those in tables (`"log.keep_entries"`).
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Whose they are.
    pub command: &'static str,
    /// All of them.
    pub known: &'static [&'static str],
    /// The other command that reads a file, and its keys.
    pub other: (&'static str, &'static [&'static str]),
}

/// How alike two keys must be for one to be taken for a misspelling of the other, 0 to 1.
const NEAR: f64 = 0.6;
/// What to do about most errors.
const NEXT: &str = "correct the file; README.md lists every key with its default";

/// Reads `path` as TOML into `T`. Keys are judged first: a misspelt key that is required must be
/// told by its name, not as missing.
///
/// # Errors
/// [`crate::exit::Kind::Usage`]: the file cannot be read, is no TOML, has an unknown key, or a
/// value of the wrong kind.
pub fn load<T: DeserializeOwned>(path: &Path, keys: Keys) -> Result<T> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(
            format!("configuration {shown}: {error}"),
            "name a readable file with --config, or give the settings as flags",
        )
    })?;
    parse(&text, keys)
        .map_err(|message| Failure::usage(format!("configuration {shown}: {message}"), NEXT))
}

/// [`load`] from text.
fn parse<T: DeserializeOwned>(text: &str, keys: Keys) -> Result<T, String> {
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| for_people(&error))?;
    check_keys(&table, "", keys)?;
    toml::from_str(text).map_err(|error| for_people(&error))
}

/// The parser's message, without the words of the language it is written in.
fn for_people(error: &toml::de::Error) -> String {
    error
        .to_string()
        .trim_end()
        .replace("a nonzero u64", "a number from 1")
        .replace("a nonzero u32", "a number from 1")
        .replace("invalid socket address syntax", "not an address as IP:PORT")
        .replace('\n', "\n    ")
}

fn check_keys(table: &toml::Table, prefix: &str, keys: Keys) -> Result<(), String> {
    let known = keys.known;
    for (key, value) in table {
        let full = format!("{prefix}{key}");
        let inner = format!("{full}.");
        let is_table = known.iter().any(|known| known.starts_with(&inner));
        if !is_table && !known.contains(&full.as_str()) {
            return Err(unknown(&full, keys));
        }
        match value {
            toml::Value::Table(table) => check_keys(table, &inner, keys)?,
            toml::Value::Array(items) => {
                for table in items.iter().filter_map(toml::Value::as_table) {
                    check_keys(table, &inner, keys)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn unknown(found: &str, keys: Keys) -> String {
    let (other, others) = keys.other;
    if others.contains(&found) {
        let command = keys.command;
        return format!("`{found}` is a key of `{other}`, not of `{command}`");
    }
    match nearest(found, keys.known) {
        Some(nearest) => format!("unknown key `{found}`; did you mean `{nearest}`?"),
        None => format!("unknown key `{found}`; known are {}", keys.known.join(", ")),
    }
}

/// The known key that `found` is a misspelling of; a bare key is compared with keys of tables too.
fn nearest(found: &str, known: &[&'static str]) -> Option<&'static str> {
    let likeness = |key: &str| {
        let bare = key.rsplit('.').next().unwrap_or(key);
        strsim::normalized_damerau_levenshtein(found, key)
            .max(strsim::normalized_damerau_levenshtein(found, bare))
    };
    known
        .iter()
        .copied()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|key| likeness(key) >= NEAR)
}

/// Refuses to listen where others could reach what nobody protects.
///
/// # Errors
/// [`crate::exit::Kind::Usage`], naming the flag `what`, unless `listen` is loopback or `insecure`
/// is set.
pub fn loopback_unless(insecure: bool, what: &str, listen: std::net::SocketAddr) -> Result {
    if insecure || listen.ip().is_loopback() {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "{what} {listen} is not loopback, and nothing here is encrypted or authenticated yet"
        ),
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
    const KEYS: Keys = Keys {
        command: "annulus serve",
        known: &["listen", "limits", "limits.soak_ms"],
        other: ("annulus kv serve", &["listen", "node"]),
    };

    fn refused(text: &str) -> String {
        parse::<Example>(text, KEYS).expect_err(text)
    }

    #[test]
    fn known_keys_are_read() {
        let text = "listen = \"127.0.0.1:1\"\n[limits]\nsoak_ms = 5\n";
        let example: Example = parse(text, KEYS).expect("all known");
        assert_eq!(example.listen.as_deref(), Some("127.0.0.1:1"));
        assert_eq!(example.limits.soak_ms, Some(5));
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one_if_any_is_near() {
        assert_eq!(
            refused("lisen = 1\n"),
            "unknown key `lisen`; did you mean `listen`?"
        );
        let told = refused("[limits]\nsoak = 1\n");
        assert!(told.contains("did you mean `limits.soak_ms`"), "{told}");
        let told = refused("colour = 1\n");
        assert!(!told.contains("did you mean"), "{told}");
    }

    #[test]
    fn a_key_of_the_other_command_is_told_as_such() {
        assert_eq!(
            refused("node = \"n1\"\n"),
            "`node` is a key of `annulus kv serve`, not of `annulus serve`"
        );
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_an_error_with_its_line() {
        let told = refused("[limits]\nsoak_ms = \"x\"\n");
        assert!(told.contains("line 2"), "{told}");
    }

    #[test]
    fn other_addresses_than_loopback_need_insecure() {
        let open = "0.0.0.0:7001".parse().expect("an address");
        assert!(loopback_unless(false, "--listen", open).is_err());
        assert!(loopback_unless(true, "--listen", open).is_ok());
        assert!(
            loopback_unless(false, "--listen", "[::1]:7001".parse().expect("an address")).is_ok()
        );
    }
}
