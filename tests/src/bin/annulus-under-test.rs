//! The `annulus` binary, built by this package so that its tests have it: `cargo test` builds no
//! other package's binaries.

use std::process::ExitCode;

fn main() -> ExitCode {
    annulus_cli::run()
}
