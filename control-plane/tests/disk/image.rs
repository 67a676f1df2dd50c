//! What a power cut leaves.
//!
//! Of each file: what was synced, and of every later write nothing, all, or some of its sectors,
//! in any combination. Of the folder: names up to the last sync of a folder, and of later
//! changes of names a prefix, as a journal would have it; syncing a file does not make its name
//! durable.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::Op;

const SECTOR: usize = 512;

type Inode = usize;

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

#[derive(Clone, Debug)]
enum NameChange {
    Made(PathBuf, Inode),
    Renamed(PathBuf, PathBuf),
    Removed(PathBuf),
}

#[derive(Clone, Debug, Default)]
struct Content {
    durable: Vec<u8>,
    since: Vec<Change>,
}

/// The disk after some operations.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, Inode>,
    durable_names: BTreeMap<PathBuf, Inode>,
    names_since: Vec<NameChange>,
    /// Syncs of files with this name do nothing: a lying disk, or sled as it is shipped.
    deaf: Option<String>,
}

fn apply(bytes: &mut Vec<u8>, change: &Change, keep: impl Fn(usize) -> bool) {
    match change {
        Change::Truncate(length) => {
            if keep(0) {
                bytes.resize(usize::try_from(*length).unwrap(), 0);
            }
        }
        Change::Write(offset, written) => {
            let offset = usize::try_from(*offset).unwrap();
            for (at, sector) in written.chunks(SECTOR).enumerate() {
                if keep(at) {
                    let from = offset + at * SECTOR;
                    let end = from + sector.len();
                    if bytes.len() < end {
                        bytes.resize(end, 0);
                    }
                    bytes[from..end].copy_from_slice(sector);
                }
            }
        }
    }
}

fn change_name(names: &mut BTreeMap<PathBuf, Inode>, change: &NameChange) {
    match change {
        NameChange::Made(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        NameChange::Removed(path) => {
            names.remove(path);
        }
        NameChange::Renamed(from, to) => {
            // A folder takes what is in it along.
            let moved: Vec<PathBuf> = names
                .keys()
                .filter(|path| path.starts_with(from))
                .cloned()
                .collect();
            for path in moved {
                let inode = names.remove(&path).unwrap();
                let rest = path.strip_prefix(from).unwrap();
                let new = if rest.as_os_str().is_empty() {
                    to.clone()
                } else {
                    to.join(rest)
                };
                names.insert(new, inode);
            }
        }
    }
}

impl Disk {
    /// One that does not hear syncs of files called `name`.
    pub fn deaf_to(name: &str) -> Self {
        Self {
            deaf: Some(name.to_owned()),
            ..Self::default()
        }
    }

    fn inode(&mut self, path: &Path) -> Inode {
        if let Some(inode) = self.names.get(path) {
            return *inode;
        }
        let inode = self.files.len();
        self.files.push(Content::default());
        self.name(NameChange::Made(path.to_owned(), inode));
        inode
    }

    fn name(&mut self, change: NameChange) {
        change_name(&mut self.names, &change);
        self.names_since.push(change);
    }

    /// Takes the next operation.
    pub fn take(&mut self, op: &Op) {
        match op {
            Op::Write {
                path,
                offset,
                bytes,
            } => {
                let inode = self.inode(path);
                self.files[inode]
                    .since
                    .push(Change::Write(*offset, bytes.clone()));
            }
            Op::Truncate { path, length } => {
                let inode = self.inode(path);
                self.files[inode].since.push(Change::Truncate(*length));
            }
            Op::Sync { path } => {
                if path.file_name().and_then(|name| name.to_str()) == self.deaf.as_deref() {
                    return;
                }
                match self.names.get(path) {
                    Some(inode) => {
                        let content = &mut self.files[*inode];
                        for change in content.since.drain(..) {
                            apply(&mut content.durable, &change, |_| true);
                        }
                    }
                    // A folder, or a file that nothing was ever written to.
                    None => {
                        self.names_since.clear();
                        self.durable_names = self.names.clone();
                    }
                }
            }
            Op::Rename { from, to } => {
                self.name(NameChange::Renamed(from.clone(), to.clone()));
            }
            Op::Remove { path } => self.name(NameChange::Removed(path.clone())),
            Op::Begun(_) | Op::Acknowledged(_) => {}
        }
    }

    /// Cuts the power and writes what is left to `to`, which stands for `root`.
    pub fn cut(&self, random: &mut fastrand::Rng, root: &Path, to: &Path) {
        let mut names = self.durable_names.clone();
        let kept = random.usize(0..=self.names_since.len());
        self.names_since[..kept]
            .iter()
            .for_each(|change| change_name(&mut names, change));

        fs::create_dir_all(to).unwrap();
        let mut folders = BTreeSet::new();
        for (path, inode) in &names {
            let content = &self.files[*inode];
            let mut bytes = content.durable.clone();
            // Most cuts lose a mixture; some lose everything, some nothing but the order.
            let mood = random.u8(0..4);
            for change in &content.since {
                let whole = random.bool();
                let torn = random.u64(..);
                apply(&mut bytes, change, |sector| match mood {
                    0 => false,
                    1 => true,
                    2 => whole,
                    _ => torn >> (sector % 64) & 1 == 1,
                });
            }
            let place = to.join(path.strip_prefix(root).unwrap());
            let folder = place.parent().unwrap().to_owned();
            fs::create_dir_all(&folder).unwrap();
            fs::write(&place, bytes).unwrap();
            folders.insert(folder);
        }
        // sled's folder for blobs is made with the store and never holds anything.
        for folder in folders.iter().filter(|folder| folder.ends_with("store")) {
            fs::create_dir_all(folder.join("blobs")).unwrap();
        }
    }
}
