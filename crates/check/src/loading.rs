//! Findings of the reader, by the codes of rules.

use slicegate_manifest::{Code, Diagnostic};

use crate::rule::Sink;
use crate::rules::by_code;

pub(crate) fn findings(diagnostics: &[Diagnostic], out: &mut Sink<'_>) {
    for diagnostic in diagnostics {
        let code = special(diagnostic).unwrap_or_else(|| general(diagnostic.code));
        if let Some(rule) = by_code(code) {
            let help = advice(diagnostic);
            out.take(rule, Diagnostic { help: help.unwrap_or_else(|| diagnostic.help.clone()), ..diagnostic.clone() });
        }
    }
}

/// What to write instead where that takes more than the name of a field.
fn advice(d: &Diagnostic) -> Option<String> {
    let text = d.message.strip_prefix("expected a mapping, found the text ").map(|t| t.trim_matches('"'));
    match (d.path.as_str(), text) {
        ("spec.preemption.borrowWithinCohort", Some(policy)) => {
            Some(format!("write `borrowWithinCohort: {{policy: {policy}}}`"))
        }
        ("spec.admissionChecks", _) if d.code == Code::UnknownField => {
            Some("write `admissionChecksStrategy: {admissionChecks: [{name: CHECK}]}`".to_owned())
        }
        _ => None,
    }
}

fn general(code: Code) -> &'static str {
    match code {
        Code::Syntax => "SG0001",
        Code::DuplicateKey => "SG0002",
        Code::UnsupportedYaml => "SG0003",
        Code::TooLarge => "SG0004",
        Code::NotAnObject | Code::MissingType => "SG0005",
        Code::UnknownKind => "SG0006",
        Code::UnknownVersion => "SG0007",
        Code::UnsetVariable => "SG0008",
        Code::UnknownField => "SG0009",
        Code::MissingField => "SG0010",
        Code::WrongType => "SG0011",
        Code::Rule(code) => code,
        _ => "SG0012",
    }
}

/// Fields about which more is to be said than that they are wrong.
fn special(d: &Diagnostic) -> Option<&'static str> {
    let kind = d.object.split(' ').next().unwrap_or_default();
    let path = d.path.as_str();
    let field = path.rsplit('.').next().unwrap_or_default();
    match kind {
        "ClusterQueue" | "Cohort" => of_queue(d, path, field),
        "JobSet" if path == "spec.replicatedJobs" && d.message.contains("at most 18") => Some("SG0606"),
        "JobSet" if d.message.starts_with("makes ") && d.message.contains(" characters") => Some("SG0605"),
        "RayJob" if path == "metadata.name" && d.message.contains("KubeRay takes") => Some("SG0653"),
        "RayJob" | "RayCluster" => match field {
            "shutdownAfterJobFinishes" => Some("SG0651"),
            "workerGroupSpecs" if d.message.contains("at most") => Some("SG0606"),
            "enableInTreeAutoscaling" if d.code == Code::InvalidValue => Some("SG0652"),
            _ => None,
        },
        "LocalQueue" | "Workload" if d.code == Code::UnknownField && is_renamed(path) => Some("SG0101"),
        _ => None,
    }
}

fn is_renamed(path: &str) -> bool {
    let renamed = slicegate_api::v1beta1::RENAMED.iter();
    renamed.into_iter().any(|(_, held, written)| path == *held || path == *written)
}

fn of_queue(d: &Diagnostic, path: &str, field: &str) -> Option<&'static str> {
    let of_groups = path.starts_with("spec.resourceGroups");
    match d.code {
        Code::UnknownField if is_renamed(path) || path == "spec.concurrentAdmissionPolicy" => Some("SG0101"),
        Code::WrongType if d.message.starts_with("expected a mapping, found the text") => Some("SG0103"),
        Code::InvalidValue => match field {
            "whenCanBorrow" | "whenCanPreempt" => Some("SG0102"),
            "name" | "resources" if of_groups && path.contains("].resources") => Some("SG0104"),
            "borrowingLimit" | "lendingLimit" if d.message.contains("without") => Some("SG0105"),
            "lendingLimit" if d.message.contains("nominalQuota") => Some("SG0106"),
            "preference" => Some("SG0107"),
            "preemption" => Some("SG0108"),
            _ if path.contains("onFlavors") => Some("SG0109"),
            _ => None,
        },
        _ => None,
    }
}
