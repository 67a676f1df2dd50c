//! A disk that can lose its power: notes every write, sync, rename and removal under one
//! folder, and builds what a power cut at any point could have left of it.
//!
//! The C symbols that Rust's std calls are defined here again; each notes the call and makes it.
//! So the store under test runs unchanged, in this process, on a real file system.

#![allow(unsafe_code)]

pub mod image;

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_char, c_int, c_void, off64_t, size_t, ssize_t};

/// One thing that happened under the folder, in order.
#[derive(Clone, Debug)]
pub enum Op {
    Write {
        path: PathBuf,
        offset: u64,
        bytes: Vec<u8>,
    },
    Truncate {
        path: PathBuf,
        length: u64,
    },
    Sync {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Remove {
        path: PathBuf,
    },
    /// Said by the test: so many of its operations were begun.
    Begun(usize),
    /// Said by the test: its operation of this number was acknowledged.
    Acknowledged(usize),
}

static ON: AtomicBool = AtomicBool::new(false);
/// Syncs until one fails; negative: never.
static FAIL_IN: AtomicI64 = AtomicI64::new(-1);
static NOTES: Mutex<Option<Notes>> = Mutex::new(None);

struct Notes {
    root: PathBuf,
    ops: Vec<Op>,
}

fn notes() -> MutexGuard<'static, Option<Notes>> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes what happens under `root` from now on.
pub fn watch(root: &Path) {
    *notes() = Some(Notes {
        root: root.to_owned(),
        ops: Vec::new(),
    });
    ON.store(true, Ordering::SeqCst);
}

/// Ends it and gives what happened.
pub fn stop() -> Vec<Op> {
    ON.store(false, Ordering::SeqCst);
    notes().take().map(|notes| notes.ops).unwrap_or_default()
}

/// Adds the test's own word.
pub fn note(op: Op) {
    if let Some(notes) = &mut *notes() {
        notes.ops.push(op);
    }
}

/// The n-th sync under the folder from now on fails with EIO; 1 is the next.
pub fn fail_sync(n: i64) {
    FAIL_IN.store(n, Ordering::SeqCst);
}

fn path_of(fd: RawFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()
}

/// Runs a call under the lock, so that the order noted is the order made. `describe` is asked
/// before the call, and what it says is noted if the call does not fail.
fn noted<T: PartialOrd + Default>(
    describe: impl FnOnce(&Path) -> Option<Op>,
    call: impl FnOnce() -> T,
) -> T {
    if !ON.load(Ordering::SeqCst) {
        return call();
    }
    let mut notes = notes();
    let op = notes.as_ref().and_then(|notes| describe(&notes.root));
    let answer = call();
    if let (Some(notes), Some(op), true) = (notes.as_mut(), op, answer >= T::default()) {
        notes.ops.push(op);
    }
    answer
}

fn file_under(root: &Path, fd: RawFd) -> Option<PathBuf> {
    path_of(fd).filter(|path| path.starts_with(root))
}

unsafe fn bytes_of(buffer: *const c_void, length: size_t) -> Vec<u8> {
    // SAFETY: the caller of write(2) promises `length` readable bytes at `buffer`.
    unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), length) }.to_vec()
}

unsafe fn name(path: *const c_char) -> PathBuf {
    // SAFETY: the caller of rename(2) or unlink(2) promises a string that ends in 0.
    let path = unsafe { CStr::from_ptr(path) };
    PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes()))
}

// SAFETY of all below: each has the C signature of the function whose name it takes, keeps its
// promises by making that system call, and asks nothing more of its caller than the original.

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    let describe = |root: &Path| {
        let path = file_under(root, fd)?;
        // SAFETY: asks for the position only.
        let offset = unsafe { libc::syscall(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) };
        let offset = u64::try_from(offset).ok()?;
        // SAFETY: as the caller promised.
        Some(Op::Write {
            path,
            offset,
            bytes: unsafe { bytes_of(buffer, length) },
        })
    };
    // SAFETY: the call itself, with the caller's arguments.
    noted(describe, || {
        answer(unsafe { libc::syscall(libc::SYS_write, fd, buffer, length) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    offset: off64_t,
) -> ssize_t {
    let describe = |root: &Path| {
        let path = file_under(root, fd)?;
        let offset = u64::try_from(offset).ok()?;
        // SAFETY: as the caller promised.
        Some(Op::Write {
            path,
            offset,
            bytes: unsafe { bytes_of(buffer, length) },
        })
    };
    noted(describe, || {
        // SAFETY: the call itself, with the caller's arguments.
        answer(unsafe { libc::syscall(libc::SYS_pwrite64, fd, buffer, length, offset) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate64(fd: c_int, length: off64_t) -> c_int {
    let describe = |root: &Path| {
        let path = file_under(root, fd)?;
        Some(Op::Truncate {
            path,
            length: u64::try_from(length).ok()?,
        })
    };
    // SAFETY: the call itself, with the caller's arguments.
    noted(describe, || {
        small(unsafe { libc::syscall(libc::SYS_ftruncate, fd, length) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    sync(libc::SYS_fsync, fd)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(libc::SYS_fdatasync, fd)
}

fn sync(call: libc::c_long, fd: c_int) -> c_int {
    if !ON.load(Ordering::SeqCst) {
        // SAFETY: the call itself, with the caller's arguments.
        return small(unsafe { libc::syscall(call, fd) });
    }
    let mut notes = notes();
    let path = notes.as_ref().and_then(|notes| file_under(&notes.root, fd));
    let last = || FAIL_IN.load(Ordering::SeqCst) > 0 && FAIL_IN.fetch_sub(1, Ordering::SeqCst) == 1;
    if path.is_some() && last() {
        // SAFETY: __errno_location gives a valid pointer to this thread's errno.
        unsafe { *libc::__errno_location() = libc::EIO };
        return -1;
    }
    // The disk itself need not sync: what survives is decided by the notes. Tests are faster so.
    if let (Some(notes), Some(path)) = (notes.as_mut(), path) {
        notes.ops.push(Op::Sync { path });
        return 0;
    }
    // SAFETY: the call itself, with the caller's arguments.
    small(unsafe { libc::syscall(call, fd) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let describe = |root: &Path| {
        // SAFETY: as the caller promised.
        let (from, to) = unsafe { (name(from), name(to)) };
        from.starts_with(root).then_some(Op::Rename { from, to })
    };
    noted(describe, || {
        let at = libc::AT_FDCWD;
        // SAFETY: the call itself, with the caller's arguments.
        small(unsafe { libc::syscall(libc::SYS_renameat2, at, from, at, to, 0) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    let describe = |root: &Path| {
        // SAFETY: as the caller promised.
        let path = unsafe { name(path) };
        path.starts_with(root).then_some(Op::Remove { path })
    };
    noted(describe, || {
        // SAFETY: the call itself, with the caller's arguments.
        small(unsafe { libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path, 0) })
    })
}

fn answer(answer: libc::c_long) -> ssize_t {
    ssize_t::try_from(answer).unwrap_or(-1)
}

fn small(answer: libc::c_long) -> c_int {
    c_int::try_from(answer).unwrap_or(-1)
}
