//! On data nodes: the link, the epoch guard and the movement of ranges
