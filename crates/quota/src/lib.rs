//! Exact resource quantities and a hierarchical quota forest.
//!
//! The forest's leaves are ClusterQueues, its inner nodes are Cohorts. Each node may have a nominal quota, a borrowing
//! limit and a lending limit per *(flavor, resource)*, and the forest answers how much of it is free at any leaf.

mod amount;
mod decimal;
mod forest;
mod ids;
mod quantity;
mod units;
mod wide;

pub use amount::Amount;
pub use decimal::Decimal;
pub use forest::{Forest, Limit, LimitKind, Limits, Mark, NodeKind, NodeQuota, Share, Weight};
pub use ids::{FlavorId, FlavorResourceId, Names, NodeId, ResourceId};
pub use quantity::{Format, ParseQuantityError, Quantity, QuantityFault};
pub use units::{AmountText, CPU, byte_quantity, is_extended_resource, is_in_bytes, request_quantity, request_value};
