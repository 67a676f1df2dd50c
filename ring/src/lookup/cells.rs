//! Lists side by side, each in one aligned cell with its length: one load finds a whole list.
//!
//! ```text
//!   rf 1 to 3   | h0 | h1 | h2 | n |                       8 bytes
//!   rf 4 to 7   | h0 | h1 | h2 | h3 | h4 | h5 | h6 | n |  16 bytes
//! ```
//!
//! A cell never straddles a cache line, and the length costs no scan for padding.

use crate::{Handle, slots::MAX_RF};

/// A list of fewer than `N` handles; the last place is its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub(super) struct Cell<const N: usize>([Handle; N]);

impl<const N: usize> Cell<N> {
    /// # Panics
    /// If the list does not fit: the table that it is from bounds it by rf.
    pub fn new(list: &[Handle]) -> Self {
        assert!(list.len() < N, "{} handles in a cell of {N}", list.len());
        let mut places = [Handle::NONE; N];
        places[..list.len()].copy_from_slice(list);
        places[N - 1] = Handle(list.len() as u16);
        Self(places)
    }

    #[inline(always)]
    pub fn list(&self) -> &[Handle] {
        // The length is below N already; saying so again is cheaper than a branch that panics.
        let length = usize::from(self.0[N - 1].0).min(N - 1);
        &self.0[..length]
    }
}

/// Places of a short cell: lists of up to three handles.
pub(super) const SHORT: usize = 4;
/// Places of a long one: lists of up to [`MAX_RF`].
pub(super) const LONG: usize = MAX_RF as usize + 1;

/// One list per slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cells {
    Short(Box<[Cell<SHORT>]>),
    Long(Box<[Cell<LONG>]>),
}

impl Cells {
    /// Lays out lists of at most `rf` handles, in order.
    pub fn new<'a>(rf: u8, lists: impl Iterator<Item = &'a [Handle]>) -> Self {
        if usize::from(rf) < SHORT {
            Self::Short(lists.map(Cell::new).collect())
        } else {
            Self::Long(lists.map(Cell::new).collect())
        }
    }

    /// # Panics
    /// If there are not so many.
    #[inline(always)]
    pub fn list(&self, at: usize) -> &[Handle] {
        match self {
            Self::Short(cells) => cells[at].list(),
            Self::Long(cells) => cells[at].list(),
        }
    }

    pub fn set(&mut self, at: usize, list: &[Handle]) {
        match self {
            Self::Short(cells) => cells[at] = Cell::new(list),
            Self::Long(cells) => cells[at] = Cell::new(list),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_a_power_of_two_and_gives_back_its_list() {
        assert_eq!(size_of::<Cell<SHORT>>(), 8);
        assert_eq!(size_of::<Cell<LONG>>(), 16);
        let list: Vec<_> = (0..7).map(Handle).collect();
        for rf in 1..=7 {
            let lists: Vec<_> = (0..=usize::from(rf))
                .map(|length| &list[..length])
                .collect();
            let mut cells = Cells::new(rf, lists.iter().copied());
            for (at, list) in lists.iter().enumerate() {
                assert_eq!(cells.list(at), *list);
            }
            cells.set(0, &list[1..2]);
            assert_eq!(cells.list(0), [Handle(1)]);
            assert_eq!(cells.list(1), [Handle(0)]);
        }
    }
}
