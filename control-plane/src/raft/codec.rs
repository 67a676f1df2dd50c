//! An entry's payload as bytes: one kind, then JSON. The same in the log and on the wire.
//!
//! JSON, because the log outlives releases and a self-describing form can gain fields.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};

use super::types::{LogEntry, Payload};

const BLANK: u8 = 0;
const NORMAL: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// Bytes that are no payload.
#[derive(Debug, thiserror::Error)]
pub(super) enum CodecError {
    #[error("the payload is empty")]
    Empty,
    #[error("payload kind {0} is unknown to this release")]
    Kind(u8),
    #[error("the payload is not what its kind says: {0}")]
    Json(#[from] serde_json::Error),
}

pub(super) fn encode_payload(payload: &Payload) -> io::Result<Bytes> {
    let mut bytes = BytesMut::new().writer();
    match payload {
        Payload::Blank => bytes.get_mut().put_u8(BLANK),
        Payload::Normal(entry) => {
            bytes.get_mut().put_u8(NORMAL);
            bytes.get_mut().put_slice(entry.json());
        }
        Payload::Membership(membership) => {
            bytes.get_mut().put_u8(MEMBERSHIP);
            serde_json::to_writer(&mut bytes, membership)?;
        }
    }
    Ok(bytes.into_inner().freeze())
}

pub(super) fn decode_payload(bytes: &Bytes) -> Result<Payload, CodecError> {
    let (kind, json) = bytes.split_first().ok_or(CodecError::Empty)?;
    match *kind {
        BLANK => Ok(Payload::Blank),
        NORMAL => Ok(Payload::Normal(LogEntry::from_json(bytes.slice(1..))?)),
        MEMBERSHIP => Ok(Payload::Membership(serde_json::from_slice(json)?)),
        kind => Err(CodecError::Kind(kind)),
    }
}
