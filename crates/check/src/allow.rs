//! Findings that are not to be reported.

use std::collections::{BTreeMap, BTreeSet};

use slicegate_manifest::{Document, Source};

use crate::Options;
use crate::rule::{Finding, Place, place};

/// On any object: codes of rules that are not to be reported of it, separated by commas or spaces.
pub(crate) const ANNOTATION: &str = "slicegate.dev/allow";

/// What is allowed everywhere, and what is allowed of single objects.
pub(crate) struct Allowed<'a> {
    everywhere: &'a BTreeSet<String>,
    of_objects: BTreeMap<Place, BTreeSet<&'a str>>,
    /// For findings of the reader: by file, and by the object as the reader calls it.
    of_names: BTreeMap<(&'a str, String), BTreeSet<&'a str>>,
}

impl<'a> Allowed<'a> {
    pub(crate) fn new(documents: &[&'a Document], sources: &'a [Source], options: &'a Options) -> Self {
        let mut of_objects = BTreeMap::new();
        let mut of_names: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for document in documents {
            let Some(object) = document.object() else { continue };
            let Some(codes) = object.metadata().annotations.as_ref().and_then(|a| a.get(ANNOTATION)) else { continue };
            let codes: BTreeSet<&str> = codes.split([',', ' ', '\n']).filter(|c| !c.is_empty()).collect();
            let file = sources.get(document.source).map_or("", |s| s.name.as_str());
            let name = match (object.namespace(), document.title().split_once(' ')) {
                ("", _) | (_, None) => document.title(),
                (namespace, Some((kind, name))) => format!("{kind} {namespace}/{name}"),
            };
            of_names.entry((file, name)).or_default().extend(&codes);
            of_objects.insert(place(document), codes);
        }
        Self { everywhere: &options.allow, of_objects, of_names }
    }

    pub(crate) fn covers(&self, finding: &Finding) -> bool {
        let code = finding.rule.code;
        let of_object = match &finding.object {
            Some(place) => self.of_objects.get(place),
            None => self.of_names.get(&(finding.diagnostic.file.as_str(), finding.diagnostic.object.clone())),
        };
        self.everywhere.contains(code) || of_object.is_some_and(|codes| codes.contains(code))
    }
}
