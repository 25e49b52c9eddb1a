//! Any text: checking it does not panic, and every finding has a place in it.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeMap;

use slicegate_check::{Options, check, json, sarif, text};
use slicegate_manifest::{Source, load};

slicegate_fuzz::fuzz!(|data| {
    let Ok(manifest) = std::str::from_utf8(data) else { return };
    let env = BTreeMap::from([("A".to_owned(), "a: b".to_owned())]);
    let sources = [Source { name: "first".into(), text: manifest.to_owned(), env }];
    let mut how = slicegate_manifest::Options::default();
    how.generated_names = true;
    let report = check(&load(&sources, &how), &sources, &Options::default());
    let lines = manifest.lines().count();
    for finding in &report.findings {
        assert!(finding.diagnostic.line <= lines + 1, "{:?}", finding.diagnostic);
    }
    let _ = (text(&report, true), json(&report), sarif(&report, "0"));
});
