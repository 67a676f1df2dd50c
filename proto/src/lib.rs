//! The wire: protobuf messages, the bytes of a snapshot and their checksum.

/// Generated from `annulus/v1/*.proto`.
pub mod v1 {
    #![allow(missing_docs, clippy::all, clippy::unwrap_used)]
    tonic::include_proto!("annulus.v1");
}
