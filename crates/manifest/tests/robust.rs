//! No text makes the reader panic, hang or lose its place.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;
use slicegate_manifest::{Options, Source, load};

const GOOD: &str = "\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: cq, labels: {a: &x b}}
spec:
  cohort: *x
  admissionChecks: [dws, \"${A}\"]
  resourceGroups:
  - coveredResources: [cpu, google.com/tpu]
    flavors:
    - name: f
      resources:
      - {name: cpu, nominalQuota: 1_000}
      - {name: google.com/tpu, nominalQuota: 1.5e3}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: j}
spec:
  replicatedJobs:
  - name: slice
    replicas: 2
    template: {spec: {parallelism: 2, template: {spec: {containers: [{name: c, command: ['${B}']}]}}}}
--- !!map
{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [{\"name\": \"p\", \"config\": {}}]}
";

fn check(text: String) {
    let env = BTreeMap::from([("A".to_owned(), "v\": [\n".to_owned())]);
    let lines = text.lines().count();
    let loaded = load(&[Source { name: "x".into(), text, env }], &Options::default());
    for diagnostic in &loaded.diagnostics {
        assert!(diagnostic.line >= 1 && diagnostic.line <= lines + 1, "{diagnostic:?}");
        assert!(diagnostic.column >= 1 && diagnostic.length >= 1);
        let _ = (diagnostic.render(false), diagnostic.render(true));
    }
    for document in &loaded.documents {
        let _ = document.position_of("spec.resourceGroups[0].flavors[3]");
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        check(String::from_utf8_lossy(&bytes).into_owned());
    }

    #[test]
    fn anything_that_looks_like_yaml(
        parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "a", ":", " ", "\n", "- ", "? ", "{", "}", "[", "]", ",", "\"", "'", "|", ">", "&x ", "*x", "<<: ", "!", "!!str ",
                "${", "${A}", "}", "---\n", "...\n", "%", "#", "\t", "\r\n", "é", "\u{feff}", "apiVersion: v1\n", "kind: Pod\n",
                "metadata:\n", "  ", "0", "1", ".", "e", "spec: ", "\\", "@", "`", "~",
            ]),
            0..60,
        )
    ) {
        check(parts.concat());
    }

    #[test]
    fn a_good_text_with_damage(at in 0..GOOD.len(), cut in 0..40_usize, insert in "[\\PC\n\t]{0,6}") {
        let start = (0..=at).rev().find(|i| GOOD.is_char_boundary(*i)).unwrap_or_default();
        let end = (start + cut..=GOOD.len()).find(|i| GOOD.is_char_boundary(*i)).unwrap_or(GOOD.len());
        check(format!("{}{insert}{}", &GOOD[..start], &GOOD[end..]));
    }
}

#[test]
fn a_large_trace_is_read() {
    let mut text = String::new();
    for i in 0..20_000 {
        let _ = write!(text, "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: n{i}\n");
    }
    let loaded = load(&[Source { name: "x".into(), text, ..Source::default() }], &Options::default());
    assert_eq!((loaded.documents.len(), loaded.diagnostics.len()), (20_000, 0));
}
