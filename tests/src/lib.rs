//! The harness, and the tests that run real processes and simulated networks
