//! The annulus command
