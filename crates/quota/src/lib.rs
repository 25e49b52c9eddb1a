//! Exact resource quantities and a hierarchical quota forest.
//!
//! Three things that a scheduler with quotas needs, without I/O, clocks or floating point in decisions:
//! [`Quantity`] and [`Amount`] count, [`Names`] turns names into dense numbers, and the [`Forest`] says how much of what is
//! free where.
//!
//! # Counting
//!
//! A [`Quantity`] is what a manifest says: `500m`, `16Gi`, `1e3`, exact and printed as Kubernetes prints it. Quota is counted
//! in integers: thousandths of cpu, whole units of everything else. [`request_value`] rounds requests up into these, and
//! [`Amount::from_quantity`] makes quotas of them, which may be unlimited.
//!
//! ```
//! use slicegate_quota::{Amount, Quantity, request_value};
//!
//! assert_eq!(request_value("cpu", "1.5".parse()?), 1500);
//! assert_eq!(request_value("memory", "100m".parse()?), 1, "a fraction of a byte is a byte");
//! assert!(Amount::from_quantity("cpu", "10P".parse()?).is_unlimited());
//! let error = "16gb".parse::<Quantity>().unwrap_err();
//! assert!(error.to_string().starts_with("\"16gb\" is not a quantity: its suffix is none of"));
//! # Ok::<(), slicegate_quota::ParseQuantityError>(())
//! ```
//!
//! # The forest
//!
//! Leaves are ClusterQueues, inner nodes are Cohorts. A node has a nominal quota for each *(flavor, resource)* it uses, and may
//! limit what it borrows from above and what it lends. Unused quota flows up to the parent and from there to whoever asks.
//!
//! ```
//! use slicegate_quota::{Amount, Forest, Limits, Names, NodeQuota};
//!
//! let mut names = Names::new();
//! let tpu = names.intern("v5p", "google.com/tpu");
//! let quota = |nominal, borrowing: Option<i64>| NodeQuota {
//!     parent: Some("research".into()),
//!     limits: [(
//!         tpu,
//!         Limits { nominal: Amount::new(nominal), borrowing: borrowing.map(Amount::new), lending: None },
//!     )]
//!     .into(),
//!     ..NodeQuota::default()
//! };
//!
//! let mut forest = Forest::new();
//! let vision = forest.set_cluster_queue("vision", quota(8, Some(4)));
//! let speech = forest.set_cluster_queue("speech", quota(16, None));
//!
//! assert_eq!(forest.available(vision, tpu).value(), 12, "its own 8 and up to 4 of speech's");
//! forest.add_usage(vision, tpu, Amount::new(12));
//! assert_eq!(forest.available(speech, tpu).value(), 12, "vision has borrowed 4");
//! assert_eq!(forest.level(vision, tpu, Amount::new(1)).0, 1, "more would have to come from the Cohort");
//! ```
//!
//! # What if
//!
//! A question that starts with "if those were gone" changes usage under a [`Mark`] and rolls back. Nothing is copied.
//!
//! ```
//! # use slicegate_quota::{Amount, Forest, Limits, Names, NodeQuota};
//! # let mut names = Names::new();
//! # let tpu = names.intern("v5p", "google.com/tpu");
//! # let limits = [(tpu, Limits { nominal: Amount::new(8), borrowing: None, lending: None })].into();
//! # let mut forest = Forest::new();
//! # let queue = forest.set_cluster_queue("vision", NodeQuota { limits, ..NodeQuota::default() });
//! forest.add_usage(queue, tpu, Amount::new(8));
//!
//! let mark = forest.mark();
//! forest.remove_usage(queue, tpu, Amount::new(4));
//! let fits = forest.available(queue, tpu) >= Amount::new(4);
//! forest.rollback(mark);
//!
//! assert!(fits);
//! assert_eq!(forest.available(queue, tpu), Amount::ZERO);
//! ```
//!
//! # Why not
//!
//! [`Forest::available_limit`] names the node that makes the answer what it is, and whether its quota or its borrowing limit does.
//!
//! ```
//! # use slicegate_quota::{Amount, Forest, LimitKind, Limits, Names, NodeQuota};
//! # let mut names = Names::new();
//! # let tpu = names.intern("v5p", "google.com/tpu");
//! # let limits = [(tpu, Limits { nominal: Amount::new(8), borrowing: None, lending: None })].into();
//! # let mut forest = Forest::new();
//! # let queue = forest.set_cluster_queue("vision", NodeQuota { limits, ..NodeQuota::default() });
//! let limit = forest.available_limit(queue, tpu);
//! assert_eq!(limit.node, queue);
//! assert_eq!(limit.kind, LimitKind::Quota { quota: Amount::new(8), usage: Amount::ZERO });
//! ```
//!
//! # Fair shares
//!
//! [`Forest::share`] is the dominant resource share of a node: the largest part that it has borrowed of what its parent can lend,
//! over its weight. [`Share`]s are exact ratios, so that comparing them never depends on rounding.

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
