//! How long work tells how far it is; the terminal is somebody else's business.

/// Listens to long work.
pub trait Progress {
    /// A piece of work begins; `total` in the unit of [`Progress::at`], if known.
    fn start(&self, what: &str, total: Option<u64>);
    /// So much of it is done.
    fn at(&self, done: u64);
}

/// Nobody listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn start(&self, _: &str, _: Option<u64>) {}
    fn at(&self, _: u64) {}
}
