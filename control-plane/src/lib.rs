//! One control-plane server: raft on sled, the APIs, the publisher and the driver
