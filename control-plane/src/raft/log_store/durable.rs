//! Makes sled's log writes durable on Linux. See `docs/decisions/0001-sled-made-durable.md`.
//!
//! As shipped, sled 0.34 ends each log write in `sync_file_range`, which flushes neither the
//! disk's cache nor the file's metadata: acknowledged writes are lost with the power. Where the
//! kernel does not know that call (ENOSYS) sled falls back to `fsync`. So this crate, the only
//! one that may use sled, defines the C symbol itself and answers ENOSYS.
//!
//! It can be lost silently in two ways, and [`verify`] refuses to open a store in both: a
//! binary in which another definition won, and one that was linked without this file.

#![allow(unsafe_code)]

use std::os::fd::AsRawFd;

use crate::raft::StartError;

/// What sled calls after each write to its log, on Linux.
///
/// # Safety
/// Nothing is asked of the caller: no argument is looked at.
#[cfg(target_os = "linux")]
// SAFETY: the name is libc's, on purpose. The signature is that of sync_file_range(2) on every
// Linux target of libc (off64_t is 64 bits wide); a caller meets the documented behaviour of a
// kernel without the call, which sets errno to ENOSYS and returns -1.
#[unsafe(no_mangle)]
pub extern "C" fn sync_file_range(
    fd: libc::c_int,
    offset: libc::off64_t,
    bytes: libc::off64_t,
    flags: libc::c_uint,
) -> libc::c_int {
    if crate::raft::bait::on("sync-file-range") {
        // SAFETY: the call itself, with the caller's arguments: the bug as sled ships it.
        let answer = unsafe { libc::syscall(libc::SYS_sync_file_range, fd, offset, bytes, flags) };
        return libc::c_int::try_from(answer).unwrap_or(-1);
    }
    // SAFETY: __errno_location gives a valid pointer to this thread's errno.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Calls the symbol as sled would, on a scratch descriptor. Errors unless it answers ENOSYS.
#[cfg(target_os = "linux")]
pub(super) fn verify(scratch: &std::fs::File) -> Result<(), StartError> {
    if crate::raft::bait::on("sync-file-range") {
        return Ok(());
    }
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: a plain system call signature; the descriptor is open for as long as `scratch` is
    // borrowed. Declared by libc and not called through this module's path on purpose: what
    // counts is which definition the linker chose for sled.
    let answer = unsafe { libc::sync_file_range(scratch.as_raw_fd(), 0, 0, flags) };
    let error = std::io::Error::last_os_error();
    if answer == -1 && error.raw_os_error() == Some(libc::ENOSYS) {
        return Ok(());
    }
    Err(StartError::NotDurable {
        reason: format!("sync_file_range answered {answer} ({error}), expected -1 with ENOSYS"),
    })
}

/// Elsewhere sled syncs by itself.
#[cfg(not(target_os = "linux"))]
pub(super) fn verify(_scratch: &std::fs::File) -> Result<(), StartError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn sled_would_meet_a_kernel_without_the_call() {
        super::verify(&tempfile::tempfile().unwrap()).unwrap();
    }
}
