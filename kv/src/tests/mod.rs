//! Three nodes and more in one process, under views that the test gives them.

mod cluster;
mod paths;
mod stories;
