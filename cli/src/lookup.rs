//! `annulus lookup`: where a key lives, by the newest snapshot of the ring.

use std::io::{self, Write};

use annulus_ring::{Lookup, Route};
use serde::Serialize;

use crate::{
    args::{Global, LookupArgs},
    connect,
    exit::{Failure, Result},
    key,
    render::{self, Hex64, Render, Wide},
};

#[derive(Debug, Serialize)]
struct Found {
    ring: String,
    generation: Wide,
    epoch: Wide,
    /// Hexadecimal, as keys are bytes.
    key_hex: String,
    hash: Hex64,
    slot: u32,
    range: Span,
    replicas: Vec<Replica>,
    #[serde(skip)]
    shown_key: String,
}

/// `(start, end]`.
#[derive(Debug, Serialize)]
struct Span {
    start: Hex64,
    end: Hex64,
}

#[derive(Debug, Serialize)]
struct Replica {
    node: String,
    zone: String,
    endpoint: String,
    state: &'static str,
    owner: bool,
}

impl Found {
    fn new(key: &[u8], lookup: &Lookup, route: &Route<'_>) -> Self {
        let snapshot = lookup.snapshot();
        let range = route.range();
        let replicas = route.members().enumerate().map(|(at, member)| Replica {
            node: member.node_id.to_string(),
            zone: member.zone.to_string(),
            endpoint: member.endpoint.to_string(),
            state: member.state.as_str(),
            owner: at == 0,
        });
        Self {
            ring: snapshot.ring.to_string(),
            generation: Wide(snapshot.generation.0),
            epoch: Wide(snapshot.epoch.0),
            key_hex: hex::encode(key),
            hash: Hex64(route.hash),
            slot: route.slot.0,
            range: Span {
                start: Hex64(range.start.0),
                end: Hex64(range.end.0),
            },
            replicas: replicas.collect(),
            shown_key: key::show(key),
        }
    }
}

impl Render for Found {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "key    {}", self.shown_key)?;
        writeln!(out, "hash   {}", self.hash)?;
        writeln!(
            out,
            "range  ({},{}]  slot {}",
            self.range.start, self.range.end, self.slot
        )?;
        writeln!(out, "epoch  {}", self.epoch)?;
        writeln!(out)?;
        let mut table = render::columns(&["NODE", "ZONE", "ENDPOINT", "STATE", "ROLE"]);
        for replica in &self.replicas {
            let role = if replica.owner { "owner" } else { "replica" };
            let Replica {
                node,
                zone,
                endpoint,
                state,
                ..
            } = replica;
            table.add_row([node.as_str(), zone, endpoint, state, role]);
        }
        render::write_table(out, &table)
    }
}

/// Runs `annulus lookup`.
pub async fn run(global: &Global, args: &LookupArgs) -> Result {
    let key = key::read(&args.key)?;
    let snapshot = connect::newest_snapshot(global, &args.ring).await?;
    let lookup = Lookup::compile(snapshot).map_err(|error| {
        Failure::failed(
            format!("ring {}: the snapshot makes no sense: {error}", args.ring),
            "compare `annulus ring epochs` of all servers; this must not happen",
        )
    })?;
    let route = lookup.route(&key).map_err(|error| {
        Failure::refused(
            format!("ring {}: {error}", args.ring),
            format!(
                "`annulus ring found {}` makes registered nodes its first members",
                args.ring
            ),
        )
    })?;
    render::print(global.output, &Found::new(&key, &lookup, &route))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_never_a_number_in_json() {
        let found = Found {
            ring: "users".to_owned(),
            generation: Wide(1),
            epoch: Wide(u64::MAX),
            key_hex: "00".to_owned(),
            hash: Hex64(u64::MAX - 1),
            slot: 1,
            range: Span {
                start: Hex64(1),
                end: Hex64(u64::MAX),
            },
            replicas: Vec::new(),
            shown_key: String::new(),
        };
        let json = serde_json::to_value(&found).expect("serializes");
        assert_eq!(json["hash"], "fffffffffffffffe");
        assert_eq!(json["epoch"], u64::MAX.to_string());
        assert_eq!(json["range"]["end"], "ffffffffffffffff");
    }
}
