//! The `annulus` command: everything is in the library, so that tests can call the same.

fn main() -> std::process::ExitCode {
    annulus_cli::run()
}
