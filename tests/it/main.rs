//! Real processes on loopback: clusters that are loaded, killed, paused and asked nonsense.
//!
//! Test names are sentences; a case of the design's list has its number in front.

mod bad_input;
mod c11_drain;
mod c12_two_changes;
mod c15_removing_the_dead;
mod c17_two_processes;
mod c18_changed_facts;
mod c20_short_cuts;
mod c21_killed_together;
mod c25_alone;
mod c51_dead_in_mid_copy;
mod c52_words_without_data;
mod c53_write_load;
mod c55_sick_cluster;
mod convert;
mod failover;
mod frozen_clients;
mod killed_at_each_step;
mod main_job;
mod placement_rules;
mod plan;
mod recovery;
mod shipped;
mod told;
mod undo;

/// The binary under test; cargo builds it for this package's tests.
const BINARY: &str = env!("CARGO_BIN_EXE_annulus-under-test");

/// Tests that need most of the machine, one at a time.
async fn heavy() -> tokio::sync::MutexGuard<'static, ()> {
    static HEAVY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    HEAVY.lock().await
}
