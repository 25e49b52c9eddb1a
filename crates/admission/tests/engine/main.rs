//! The engine from outside: whole clusters in memory, with every invariant checked after every event.

mod cluster;
mod guard;
mod random;
