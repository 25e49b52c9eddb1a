//! What is said about manifests that are wrong.

use std::collections::BTreeMap;

use slicegate_manifest::{Body, Code, Document, Loaded, Options, Severity, Source, load};

fn with_env(text: &str, env: &[(&str, &str)]) -> Loaded {
    let env: BTreeMap<String, String> = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    load(&[Source { name: "m.yaml".into(), text: text.into(), env }], &Options::default())
}

fn read(text: &str) -> Loaded {
    with_env(text, &[])
}

fn rendered(text: &str) -> String {
    read(text).diagnostics.iter().map(ToString::to_string).collect()
}

fn good(text: &str) -> Vec<Document> {
    let loaded = read(text);
    let text: String = loaded.diagnostics.iter().map(ToString::to_string).collect();
    assert!(text.is_empty(), "{text}");
    loaded.documents
}

/// Line and column, code, path and message of each diagnostic.
fn brief(text: &str) -> Vec<(usize, usize, Code, String, String)> {
    read(text).diagnostics.into_iter().map(|d| (d.line, d.column, d.code, d.path, d.message)).collect()
}

const FLAVOR: &str = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: f}\n";

#[test]
fn every_wrong_field_is_reported_at_once() {
    let text = "\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  name: cq
  labels: {version: 1}
spec:
  cohort: team
  queueingStrategy: [x]
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: 007
      resources:
      - name: cpu
        nominalQuota: 1
        borrowLimit: 2
      - nominalQuota: true
  namespaceSelector: {}
";
    assert_eq!(
        brief(text),
        [
            (5, 21, Code::WrongType, "metadata.labels.version".into(), "expected text, found the number 1".into()),
            (7, 3, Code::UnknownField, "spec.cohort".into(), "there is no field `cohort` here".into()),
            (8, 21, Code::WrongType, "spec.queueingStrategy".into(), "expected text, found a list".into()),
            (
                12,
                13,
                Code::WrongType,
                "spec.resourceGroups[0].flavors[0].name".into(),
                "expected text, found the number 7".into()
            ),
            (
                16,
                9,
                Code::UnknownField,
                "spec.resourceGroups[0].flavors[0].resources[0].borrowLimit".into(),
                "there is no field `borrowLimit` here".into()
            ),
            (
                17,
                9,
                Code::MissingField,
                "spec.resourceGroups[0].flavors[0].resources[1].name".into(),
                "`name` is missing".into()
            ),
            (
                17,
                23,
                Code::WrongType,
                "spec.resourceGroups[0].flavors[0].resources[1].nominalQuota".into(),
                "expected a quantity, such as 500m or 16Gi, found the truth value true".into()
            ),
        ]
    );
    assert!(read(text).documents.is_empty());
}

#[test]
fn a_diagnostic_shows_the_line() {
    let text = FLAVOR.to_owned() + "spec:\n  nodeLabels:\n    enabled: yes\n";
    assert_eq!(
        rendered(&text),
        "error[wrong-type]: expected text, found the truth value true\n \
          --> m.yaml:6:14\n  \
           |\n\
         6 |     enabled: yes\n  \
           |              ^^^\n  \
           = in ResourceFlavor f, spec.nodeLabels.enabled\n  \
           = help: put it in quotes: \"yes\"\n"
    );
}

#[test]
fn all_sources_are_reported_together() {
    let source = |name: &str, text: &str| Source { name: name.into(), text: text.into(), ..Source::default() };
    let loaded = load(
        &[source("a.yaml", "kind: JobSet\n"), source("b.yaml", "a: [\n"), source("c.yaml", FLAVOR)],
        &Options::default(),
    );
    let seen: Vec<_> = loaded.diagnostics.iter().map(|d| (d.file.as_str(), d.code)).collect();
    assert_eq!(seen, [("a.yaml", Code::MissingType), ("b.yaml", Code::Syntax)]);
    assert_eq!(loaded.documents.len(), 1);
    assert_eq!(loaded.documents[0].source, 2);
    assert_eq!(loaded.diagnostics[0].help, "write `apiVersion: jobset.x-k8s.io/v1alpha2`");
}

#[test]
fn what_is_no_object() {
    for (text, code) in [
        ("hello\n", Code::NotAnObject),
        ("42\n", Code::NotAnObject),
        ("a: 1\n", Code::MissingType),
        ("apiVersion: v1\n", Code::MissingType),
        ("apiVersion: 1\nkind: Pod\n", Code::MissingType),
        ("apiVersion: v1\nkind: [Pod]\n", Code::MissingType),
        ("- 1\n", Code::NotAnObject),
        ("{\"a\": \n", Code::Syntax),
        ("a:\n\tb: 1\n", Code::Syntax),
        ("a: 1\na: 2\n", Code::DuplicateKey),
        ("apiVersion: v1\nkind: Namespace\nmetadata: {name: a, name: b}\n", Code::DuplicateKey),
        ("apiVersion: v1\nkind: Namespace\nmetadata: {}\n", Code::MissingField),
        ("apiVersion: v1\nkind: Namespace\nmetadata: 3\n", Code::WrongType),
        ("apiVersion: kueue.x-k8s.io/v1alpha1\nkind: Topology\nmetadata: {name: t}\n", Code::UnknownVersion),
    ] {
        let loaded = read(text);
        assert!(loaded.diagnostics.iter().any(|d| d.code == code && d.is_error()), "{text}: {:?}", loaded.diagnostics);
        assert!(loaded.documents.is_empty(), "{text}");
    }
}

#[test]
fn nothing_is_fine() {
    for text in
        ["", "\n", "---\n---\n", "# only a comment\n", "\u{feff}", "null\n", "apiVersion: v1\nkind: List\nitems: []\n"]
    {
        assert!(good(text).is_empty(), "{text:?}");
    }
}

#[test]
fn unknown_kinds_are_noted_once() {
    let pod = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {x: \"${Y}\"}\n";
    let loaded = read(&format!("{pod}---\n{pod}---\n{FLAVOR}"));
    assert_eq!(loaded.diagnostics.len(), 1);
    assert_eq!((loaded.diagnostics[0].severity, loaded.diagnostics[0].line), (Severity::Note, 2));
    assert_eq!(loaded.documents.len(), 1);
    assert!(!loaded.has_errors());
}

#[test]
fn variables() {
    let text = FLAVOR.to_owned() + "spec:\n  nodeLabels: {pool: ${POOL}, m: \"${N}\"}\n";
    let loaded = with_env(&text, &[("POOL", "a-pool"), ("N", "1")]);
    let object = loaded.documents[0].object().unwrap().to_json().unwrap();
    assert_eq!(object["spec"]["nodeLabels"], serde_json::json!({"pool": "a-pool", "m": "1"}));

    let found = brief(&text);
    assert_eq!(found.len(), 2);
    assert_eq!(
        found[0],
        (5, 22, Code::UnsetVariable, "spec.nodeLabels.pool".into(), "the variable POOL has no value".into())
    );

    // As if the value had been written there: a number is no text.
    let found = with_env(&text, &[("POOL", "7"), ("N", "1")]).diagnostics;
    assert_eq!((found[0].code, found[0].column), (Code::WrongType, 22));
    assert_eq!(found[0].text, "  nodeLabels: {pool: ${POOL}, m: \"${N}\"}");
}

#[test]
fn variables_of_shells_are_left_to_them() {
    let text = "\
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {env: \"${A}\"}}
spec:
  containers:
  - name: ${A}
    command: [bash, -c, 'echo ${X} ${A} ${VAR:-x} $$ $${A}']
    args: [\"${Y}\"]
    env: [{name: Z, value: \"${Z}\"}]
    lifecycle: {preStop: {exec: {command: [\"${Q}\"]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {x.sh: \"echo ${X}\"}
";
    let loaded = with_env(text, &[("A", "a")]);
    assert_eq!(loaded.diagnostics, []);
    let pod = loaded.documents[0].object().unwrap().to_json().unwrap();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["name"], "a");
    assert_eq!(container["command"][2], "echo ${X} a ${VAR:-x} $$ $${A}");
    assert_eq!(container["args"][0], "${Y}");
    let unset: Vec<_> = read(text).diagnostics.into_iter().map(|d| d.path).collect();
    assert_eq!(unset, ["metadata.labels.env", "spec.containers[0].name"]);
}

#[test]
fn lists_hold_objects() {
    let text = "\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Namespace
  metadata: {name: a}
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: ResourceFlavorList
  items:
  - metadata: {name: b}
";
    let documents = good(text);
    let names: Vec<_> = documents.iter().map(|d| d.object().unwrap().reference().to_string()).collect();
    assert_eq!(names, ["Namespace a", "ResourceFlavor b"]);
    assert_eq!((documents[1].line, documents[1].column), (10, 5));
}

#[test]
fn node_pools_and_scenarios() {
    let pool = r#"{"name": "p", "config": {"machineType": "ct5lp-hightpu-4t"}, "selfLink": "x"}"#;
    for text in [format!("[{pool}]"), pool.to_owned(), format!("\t{pool}\n")] {
        let documents = good(&text);
        assert!(matches!(&documents[0].body, Body::NodePool(p) if p.name == "p"), "{text}");
    }
    let scenario =
        "apiVersion: slicegate.dev/v1alpha1\nkind: Scenario\nspec: {events: [{at: 1s, apply: {file: a.yaml}}]}\n";
    assert!(matches!(&good(scenario)[0].body, Body::Scenario(s) if s.spec.events.len() == 1));
    let found = brief(&scenario.replace("apply", "aply"));
    assert_eq!((found[0].2, found[0].3.as_str()), (Code::UnknownField, "spec.events[0].aply"));
}

#[test]
fn fields_know_their_places() {
    let text =
        FLAVOR.to_owned() + "spec:\n  nodeLabels:\n    a.b/c: x\n  nodeTaints:\n  - key: k\n    effect: NoSchedule\n";
    let document = &good(&text)[0];
    let at = |path: &str| {
        let p = document.position_of(path);
        (p.line, p.column)
    };
    assert_eq!(at("spec.nodeLabels[a.b/c]"), (6, 12));
    assert_eq!(at("spec.nodeTaints[0].effect"), (9, 13));
    assert_eq!(at("spec.nodeTaints[0].value"), (8, 5));
    assert_eq!(at("nowhere"), (1, 1));
}

#[test]
fn older_objects_are_read_and_their_fields_keep_their_names() {
    let text = "\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: cq}
spec:
  cohort: team
  admissionChecks: [dws]
";
    let document = &good(text)[0];
    let object = document.object().unwrap().to_json().unwrap();
    assert_eq!(object["spec"]["cohortName"], "team");
    assert_eq!(object["spec"]["admissionChecksStrategy"]["admissionChecks"][0]["name"], "dws");

    let found = brief(&text.replace("team", "7").replace("[dws]", "[dws, 8]"));
    assert_eq!(
        found.iter().map(|f| (f.0, f.1, f.3.as_str())).collect::<Vec<_>>(),
        [(5, 11, "spec.cohort"), (6, 26, "spec.admissionChecks[1]")]
    );

    let found = read(&text.replace("cohort:", "cohortName:")).diagnostics;
    assert_eq!((found[0].line, found[0].code), (5, Code::UnknownField));
    assert!(found[0].help.contains("spec.cohort"), "{}", found[0].help);
}

#[test]
fn line_ends_and_byte_order_marks_do_not_matter() {
    let text = FLAVOR.to_owned() + "spec:\n  nodeLabels: {a: 1}\n";
    let unix = read(&text).diagnostics;
    let dos = read(&("\u{feff}".to_owned() + &text.replace('\n', "\r\n"))).diagnostics;
    assert_eq!(unix, dos);
    assert_eq!((unix[0].line, unix[0].column), (5, 19));
}

#[test]
fn json_is_read_with_places() {
    let text = "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Namespace\",\n\t\"metadata\": {\"name\": 7}\n}\n";
    let found = brief(text);
    assert_eq!((found[0].0, found[0].1, found[0].2), (4, 23, Code::WrongType));
}

#[test]
fn broken_rules_are_shown_where_they_are_broken() {
    let text = "\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: cluster_queue}
spec:
  queueingStrategy: Fifo
  cohort: Team
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: f
      resources:
      - {name: memory, nominalQuota: -1}
      - {name: cpu, nominalQuota: 1.5Zi, lendingLimit: 3}
";
    let found: Vec<_> = brief(text).into_iter().map(|f| (f.0, f.1, f.3)).collect();
    let quota = |i, field| format!("spec.resourceGroups[0].flavors[0].resources[{i}].{field}");
    assert_eq!(
        found,
        [
            (3, 18, "metadata.name".to_owned()),
            (5, 21, "spec.queueingStrategy".to_owned()),
            (6, 11, "spec.cohort".to_owned()),
            (12, 16, quota(0, "name")),
            (12, 38, quota(0, "nominalQuota")),
            (13, 16, quota(1, "name")),
            (13, 35, quota(1, "nominalQuota")),
        ]
    );
}

#[test]
fn misspelt_fields_are_corrected() {
    let text = FLAVOR.to_owned() + "spec:\n  nodeLables: {a: b}\n  qwertyuiop: 1\n";
    let help: Vec<_> = read(&text).diagnostics.into_iter().map(|d| d.help).collect();
    assert_eq!(help, ["write `nodeLabels`", ""]);
}

#[test]
fn nothing_is_the_same_as_left_out() {
    let documents =
        good(&(FLAVOR.to_owned() + "spec:\n  nodeLabels:\n  tolerations: null\n---\n" + FLAVOR + "spec:\n"));
    assert_eq!(documents[0].object(), documents[1].object());
    let found = brief(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: f}\nspec: {nodeLabels: {a: }}\n",
    );
    assert_eq!((found[0].2, found[0].4.as_str()), (Code::WrongType, "expected text, found nothing"));
    let found = brief(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: c}\nspec: {resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: }]}]}]}\n",
    );
    assert_eq!(found[0].2, Code::MissingField);
}

#[test]
fn flow_style_yaml_is_not_judged_as_json() {
    let found = brief("{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n---\na: [\n");
    assert_eq!((found[0].0, found[0].2), (3, Code::Syntax));
    assert!(found[0].4.contains("YAML"), "{}", found[0].4);
    let found = brief("{\"a\": 1,\n\"b\" 2}\n");
    assert!(found[0].4.contains("JSON"), "{}", found[0].4);
}

#[test]
fn the_examples_are_good() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for example in ["multislice", "dws"] {
        let specs = [slicegate_manifest::PathSpec { path: examples.join(example), env: BTreeMap::new() }];
        let loaded = load(&slicegate_manifest::sources_from_paths(&specs).unwrap(), &Options::default());
        let text: String = loaded.diagnostics.iter().map(ToString::to_string).collect();
        assert!(text.is_empty() && !loaded.documents.is_empty(), "{text}");
    }
}

#[test]
fn what_is_applied_has_a_name_of_its_own() {
    for meta in ["{generateName: x-}", "{namespace: team}"] {
        let found = read(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {meta}\n")).diagnostics;
        assert_eq!((found[0].code, found[0].path.as_str()), (Code::MissingField, "metadata.name"), "{meta}");
        assert_eq!(found[0].help.contains("generateName"), meta.contains("generateName"));
    }
}

#[test]
fn templates_are_told_from_mistakes() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Values.name }}\n{{- if .Values.more }}\ndata: {}\n{{- end }}\n";
    let found = read(text).diagnostics;
    assert!(!found.is_empty() && found.iter().all(|d| d.help.contains("template")), "{found:?}");
    let other = read("a: {b: {c: 1}\n").diagnostics;
    assert!(other.iter().all(|d| !d.help.contains("template")), "{other:?}");
}

#[test]
fn generated_names_will_do_where_objects_are_created() {
    let mut how = Options::default();
    how.generated_names = true;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: x-}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: ''}\n";
    let loaded = load(&[Source { name: "a".into(), text: text.into(), ..Source::default() }], &how);
    assert_eq!(loaded.documents.iter().map(Document::title).collect::<Vec<_>>(), ["ConfigMap x-"]);
    assert_eq!(loaded.diagnostics.iter().map(|d| (d.code, d.line)).collect::<Vec<_>>(), [(Code::MissingField, 7)]);
}
