//! The rules, one module for each subject.

mod configuration;
mod jobs;
mod pods;
mod preemption;
mod provisioning;
mod queues;
mod quota;
mod ray;
mod reading;
mod references;
mod shapes;
mod topology;

use slicegate_manifest::nearest;

use crate::rule::Rule;

/// A rule with its case file.
macro_rules! rule {
    (
        $code:literal, $severity:ident, $title:literal,
        why: $why:literal,
        source: $source:literal $(,)?
        $(look: $look:path,)?
    ) => {
        $crate::rule::Rule {
            code: $code,
            severity: slicegate_manifest::Severity::$severity,
            title: $title,
            why: $why,
            source: $source,
            cases: include_str!(concat!("../../tests/cases/", $code, ".yaml")),
            look: rule!(@look $($look)?),
        }
    };
    (@look) => { None };
    (@look $look:path) => { Some($look) };
}
use rule;

/// Every list of rules, in the order of their codes.
static LISTS: [&[Rule]; 12] = [
    reading::RULES,
    queues::RULES,
    preemption::RULES,
    references::RULES,
    quota::RULES,
    shapes::RULES,
    jobs::RULES,
    ray::RULES,
    provisioning::RULES,
    topology::RULES,
    pods::RULES,
    configuration::RULES,
];

/// All rules, in the order of their codes.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    LISTS.iter().copied().flatten()
}

/// The rule with a code such as `SG0301`; case does not matter.
pub fn by_code(code: &str) -> Option<&'static Rule> {
    all().find(|rule| rule.code.eq_ignore_ascii_case(code))
}

/// Names in a row, the first few of many.
fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 6;
    let names: Vec<&str> = names.into_iter().collect();
    match names.get(..SHOWN) {
        Some(first) if names.len() > SHOWN => {
            format!("{} and {} more", first.join(", "), names.len().saturating_sub(SHOWN))
        }
        _ => names.join(", "),
    }
}

/// `a` or `an`.
fn article(kind: slicegate_api::Kind) -> &'static str {
    if kind.as_str().starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" }
}

/// `one`, or the plural with an s.
fn plural(count: i64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The name that was most likely meant.
fn meant<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest(name, &names.into_iter().collect::<Vec<_>>()).filter(|n| *n != name)
}

/// An amount in the unit of requests as people write it.
fn shown(resource: &str, amount: i64) -> String {
    slicegate_quota::request_quantity(resource, amount).to_string()
}
