//! Which copies this node holds, in one small file beside the agent's. The entries themselves are
//! the server's.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use annulus_agent::{Copy, Holding};
use annulus_ring::{SessionId, Slot};
use serde::{Deserialize, Serialize};

const FILE: &str = "copies.json";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    Live,
    Staging,
    Retained,
}

/// One copy's line in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    slot: Slot,
    role: Role,
    #[serde(default)]
    session: SessionId,
    #[serde(default)]
    attempt: u32,
}

/// The copies held. Changed as a whole: a change that cannot be synced did not happen.
#[derive(Debug)]
pub(crate) struct Copies {
    path: PathBuf,
    held: BTreeMap<(Slot, Copy), State>,
}

/// What is known of one copy besides what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub attempt: u32,
    /// In memory only: a copy that is filled again costs time and nothing else.
    pub complete: bool,
}

impl Copies {
    /// Opens the file in `dir`, or begins without copies.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let path = dir.join(FILE);
        let rows: Vec<Row> = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let held = rows.into_iter().map(|row| {
            let copy = match row.role {
                Role::Live => Copy::Live,
                Role::Staging => Copy::Staging(row.session),
                Role::Retained => Copy::Retained(row.session),
            };
            let attempt = row.attempt;
            let complete = false;
            ((row.slot, copy), State { attempt, complete })
        });
        Ok(Self {
            path,
            held: held.collect(),
        })
    }

    pub(crate) fn get(&self, slot: Slot, copy: Copy) -> Option<State> {
        self.held.get(&(slot, copy)).copied()
    }

    /// The slot's copies, in order.
    pub(crate) fn of(&self, slot: Slot) -> Vec<(Copy, State)> {
        let last = Copy::Retained(SessionId(u64::MAX));
        let of_slot = self.held.range((slot, Copy::Live)..=(slot, last));
        of_slot.map(|((_, copy), state)| (*copy, *state)).collect()
    }

    /// Slots with a staging copy of the session.
    pub(crate) fn staging(&self, session: SessionId) -> Vec<Slot> {
        let keys = self.held.keys();
        keys.filter(|(_, copy)| *copy == Copy::Staging(session))
            .map(|(slot, _)| *slot)
            .collect()
    }

    pub(crate) fn holdings(&self) -> Vec<Holding> {
        let holding = |((slot, copy), state): (&(Slot, Copy), &State)| Holding {
            slot: *slot,
            copy: *copy,
            attempt: state.attempt,
            watermark: None,
            complete: state.complete || *copy == Copy::Live,
        };
        self.held.iter().map(holding).collect()
    }

    /// The whole copy is there.
    pub(crate) fn complete(&mut self, slot: Slot, copy: Copy) {
        if let Some(state) = self.held.get_mut(&(slot, copy)) {
            state.complete = true;
        }
    }

    /// Changes what is held, and syncs it before anybody sees it.
    pub(crate) fn change(
        &mut self,
        change: impl FnOnce(&mut BTreeMap<(Slot, Copy), State>),
    ) -> io::Result<()> {
        let mut held = self.held.clone();
        change(&mut held);
        if held == self.held {
            return Ok(());
        }
        self.write(&held)?;
        self.held = held;
        Ok(())
    }

    fn write(&self, held: &BTreeMap<(Slot, Copy), State>) -> io::Result<()> {
        let row = |((slot, copy), state): (&(Slot, Copy), &State)| {
            let (role, session) = match copy {
                Copy::Live => (Role::Live, SessionId(0)),
                Copy::Staging(session) => (Role::Staging, *session),
                Copy::Retained(session) => (Role::Retained, *session),
            };
            Row {
                slot: *slot,
                role,
                session,
                attempt: state.attempt,
            }
        };
        let rows: Vec<Row> = held.iter().map(row).collect();
        // Written beside and renamed over: a reader finds the old file or the new one, whole.
        let beside = self.path.with_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(&rows)?)?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        let dir = self.path.parent().unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "an expectation of the test")]
mod tests {
    use super::*;

    #[test]
    fn copies_outlive_the_process_and_markers_need_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut copies = Copies::open(dir.path()).unwrap();
        let staging = Copy::Staging(SessionId(7));
        copies
            .change(|held| {
                held.insert((Slot(1), Copy::Live), State::default());
                let attempt = 2;
                held.insert(
                    (Slot(2), staging),
                    State {
                        attempt,
                        complete: false,
                    },
                );
                held.insert((Slot(2), Copy::Retained(SessionId(5))), State::default());
            })
            .unwrap();
        copies.complete(Slot(2), staging);
        assert!(copies.get(Slot(2), staging).unwrap().complete);
        let again = Copies::open(dir.path()).unwrap();
        assert_eq!(again.held.len(), 3);
        assert_eq!(again.get(Slot(2), staging).unwrap().attempt, 2);
        assert!(!again.get(Slot(2), staging).unwrap().complete);
        assert_eq!(again.of(Slot(2)).len(), 2);
        assert_eq!(again.staging(SessionId(7)), [Slot(2)]);
    }

    #[test]
    fn a_damaged_file_is_refused_and_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), b"[{\"slot\":").unwrap();
        assert!(Copies::open(dir.path()).is_err());
    }
}
