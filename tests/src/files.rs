//! Whole directories, as a backup or a cloned machine would copy them.

use std::path::Path;

/// Copies a directory and everything in it.
///
/// # Panics
/// If something in it cannot be read or written.
pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory of the test");
    for entry in std::fs::read_dir(from)
        .expect("a directory of the test")
        .flatten()
    {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file of the test");
        }
    }
}
