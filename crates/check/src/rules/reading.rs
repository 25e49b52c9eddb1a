//! `SG00xx`: the text and the form of objects. The reader finds these.

use std::collections::BTreeMap;

use super::rule;
use crate::model::Model;
use crate::rule::{Rule, Sink};

pub(super) const RULES: &[Rule] = &[
    rule! {
        "SG0001", Error, "Text that is neither YAML nor JSON",
        why: "nothing of the file after this place is read",
        source: "YAML 1.1 as kubectl reads it, RFC 8259",
    },
    rule! {
        "SG0002", Error, "A key written twice",
        why: "kubectl refuses the file, or one of the two values is lost",
        source: "YAML 1.1 as kubectl reads it with strict validation",
    },
    rule! {
        "SG0003", Error, "YAML that JSON cannot hold",
        why: "the Kubernetes API stores objects as JSON",
        source: "sigs.k8s.io/yaml",
    },
    rule! {
        "SG0004", Error, "A document that is too large or too deep",
        why: "an API server refuses objects of more than about 1.5 MiB",
        source: "etcd's limit for requests",
    },
    rule! {
        "SG0005", Error, "A document that is not an object with apiVersion and kind",
        why: "nobody can tell what it is meant to be",
        source: "Kubernetes API conventions",
    },
    rule! {
        "SG0006", Warning, "A kind that does not exist",
        why: "the object is not created, and what depends on it does not work",
        source: "the kinds of Kubernetes, Kueue, JobSet and Ray",
    },
    rule! {
        "SG0007", Error, "A version that does not exist or is not served any more",
        why: "the API server does not know it, so the object cannot be created",
        source: "the versions of Kubernetes, Kueue, JobSet and Ray",
    },
    rule! {
        "SG0008", Error, "A variable without a value",
        why: "it is applied as it stands, dollar and braces included",
        source: "envsubst, as Google's tutorials use it",
    },
    rule! {
        "SG0009", Error, "A field that does not exist",
        why: "it has no effect, or the API server refuses the object",
        source: "the schema of the kind",
    },
    rule! {
        "SG0010", Error, "A field that must be there",
        why: "the API server refuses the object",
        source: "the schema of the kind",
    },
    rule! {
        "SG0011", Error, "A value of the wrong type",
        why: "the API server refuses the object",
        source: "the schema of the kind",
    },
    rule! {
        "SG0012", Error, "A value that is not allowed",
        why: "the API server or Kueue's webhook refuses the object",
        source: "the schema of the kind; Kueue pkg/webhooks",
    },
    rule! {
        "SG0013", Warning, "The same object twice in one file",
        why: "the later one replaces the earlier one, which then has no effect",
        source: "kubectl apply",
        look: twice,
    },
];

fn twice(model: &Model<'_>, out: &mut Sink<'_>) {
    // A scenario applies one after the other on purpose.
    if model.has_scenario {
        return;
    }
    let mut first: BTreeMap<_, usize> = BTreeMap::new();
    for document in model.documents {
        let Some(object) = document.object().filter(|o| !o.name().is_empty()) else { continue };
        let key = (document.source, object.reference());
        match first.get(&key) {
            Some(line) => {
                let message = format!("{} is already there in line {line} of this file", document.title());
                out.report(document, "metadata.name", message, "remove one of the two, or give it another name");
            }
            None => {
                first.insert(key, document.line);
            }
        }
    }
}
