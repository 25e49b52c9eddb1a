//! Taints, tolerations, selectors and affinity.

use std::collections::BTreeMap;

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TaintEffect {
    /// New pods stay away.
    NoSchedule,
    /// New pods stay away if they can.
    PreferNoSchedule,
    /// Running pods are driven out too.
    NoExecute,
}

impl TaintEffect {
    /// The name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// A mark on a node or flavor that keeps pods away.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Taint {
    /// Its key.
    pub key: Box<str>,
    /// Its value, may be empty.
    pub value: Box<str>,
    /// What it does.
    pub effect: TaintEffect,
}

/// How a toleration compares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum TolerationOperator {
    /// Key and value are equal.
    #[default]
    Equal,
    /// The key is there; an empty key matches every key.
    Exists,
    /// The taint's value is an integer less than the toleration's.
    Lt,
    /// The taint's value is an integer greater than the toleration's.
    Gt,
}

/// A pod's leave to run in spite of a taint.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Toleration {
    /// The key; empty with `Exists` for every key.
    pub key: Box<str>,
    /// How to compare.
    pub operator: TolerationOperator,
    /// The value to compare with.
    pub value: Box<str>,
    /// The effect; `None` for every effect.
    pub effect: Option<TaintEffect>,
    /// How long a `NoExecute` taint is borne.
    pub seconds: Option<i64>,
}

/// How a label is compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operator {
    /// The value is one of those listed.
    In,
    /// The value is none of those listed, or the label is absent.
    NotIn,
    /// The label is there.
    Exists,
    /// It is not.
    DoesNotExist,
    /// The value is an integer greater than the one given.
    Gt,
    /// The value is an integer less than the one given.
    Lt,
}

/// One requirement on a label (or, in `match_fields`, on a field).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Requirement {
    /// The label's key.
    pub key: Box<str>,
    /// The comparison.
    pub operator: Operator,
    /// Its operands.
    pub values: Vec<Box<str>>,
}

/// Requirements that must all hold.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SelectorTerm {
    /// On labels.
    pub match_expressions: Vec<Requirement>,
    /// On fields; only `metadata.name` exists.
    pub match_fields: Vec<Requirement>,
}

/// A term that counts in favour of a node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PreferredTerm {
    /// How much, 1 to 100.
    pub weight: i32,
    /// Where it holds.
    pub term: SelectorTerm,
}

/// Node affinity of a pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeAffinity {
    /// One of these must hold; `None` if nothing is required.
    pub required: Option<Vec<SelectorTerm>>,
    /// These count in favour.
    pub preferred: Vec<PreferredTerm>,
}

/// A selector over labels: everything in it must hold; an empty one matches everything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LabelSelector {
    /// Labels with exactly these values.
    pub match_labels: BTreeMap<Box<str>, Box<str>>,
    /// Further requirements.
    pub match_expressions: Vec<Requirement>,
}
