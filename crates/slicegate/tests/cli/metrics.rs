//! `slicegate simulate --metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::simulate::{root, run, run_on};

/// A place for a file of a test.
fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The metrics that a run on standard input writes.
fn metrics_of(name: &str, text: &str, more: &[&str]) -> (String, String) {
    let path = place(name);
    let (_, out, err) = run_on(text, &[&["simulate", "--metrics", path.to_str().unwrap(), "-"], more].concat());
    (std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{out}{err}")), out)
}

/// A point of a series.
#[derive(Clone, PartialEq, Debug)]
struct Point {
    labels: BTreeMap<String, String>,
    value: f64,
    at: f64,
}

/// Reads OpenMetrics text and panics at whatever is wrong with it: the order of the lines of a family, names that do not suit its
/// type, families or series that are not in one piece, points that do not ascend, bad escapes, no end.
fn read(text: &str) -> BTreeMap<String, Vec<Point>> {
    assert!(text.ends_with("# EOF\n"), "no end");
    let body = text.strip_suffix("# EOF\n").unwrap();
    let mut points: BTreeMap<String, Vec<Point>> = BTreeMap::new();
    let mut families = BTreeSet::new();
    let (mut family, mut kind, mut stage) = (String::new(), String::new(), 0);
    let mut done: BTreeSet<(String, Vec<(String, String)>)> = BTreeSet::new();
    let mut current: Option<(String, Vec<(String, String)>)> = None;
    let mut last = f64::MIN;
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut parts = rest.splitn(3, ' ');
            let (word, name, rest) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap_or_default());
            let order = ["HELP", "TYPE", "UNIT"].iter().position(|w| *w == word).unwrap_or_else(|| panic!("{line}"));
            if order == 0 {
                assert!(families.insert(name.to_owned()), "{name} is there twice");
                assert!(!rest.contains('"') || rest.contains("\\\""), "{line}");
                (family, kind, stage) = (name.to_owned(), String::new(), 0);
                done.extend(current.take());
            } else {
                assert_eq!(name, family, "{line}");
                assert_eq!(order, stage + 1, "{line}");
                stage = order;
                match word {
                    "TYPE" => kind = rest.to_owned(),
                    _ => assert!(name.ends_with(&format!("_{rest}")), "{line}"),
                }
            }
            continue;
        }
        let (name, labels, value, at) = sample(line);
        let suffixes: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "gauge" | "unknown" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("{other}: {line}"),
        };
        assert!(suffixes.iter().any(|s| format!("{family}{s}") == name), "{name} is no part of {kind} {family}");
        let series: Vec<_> = labels
            .iter()
            .filter(|(l, _)| kind != "histogram" || *l != "le")
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let series = (family.clone(), series);
        if current.as_ref() != Some(&series) {
            done.extend(current.take());
            assert!(!done.contains(&series), "{series:?} is there twice");
            last = f64::MIN;
            current = Some(series);
        }
        assert!(at > last || (kind == "histogram" && at >= last), "{line}");
        last = at;
        points.entry(name).or_default().push(Point { labels: labels.into_iter().collect(), value, at });
    }
    points
}

fn sample(line: &str) -> (String, Vec<(String, String)>, f64, f64) {
    let (name, mut rest) = match line.find(['{', ' ']) {
        Some(i) => line.split_at(i),
        None => panic!("{line}"),
    };
    assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':'), "{line}");
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, value) = rest.split_once("=\"").unwrap();
            let mut text = String::new();
            let mut chars = value.char_indices();
            let end = loop {
                match chars.next().unwrap_or_else(|| panic!("{line}")) {
                    (_, '\\') => match chars.next().unwrap().1 {
                        'n' => text.push('\n'),
                        c @ ('"' | '\\') => text.push(c),
                        _ => panic!("{line}"),
                    },
                    (i, '"') => break i,
                    (_, c) => text.push(c),
                }
            };
            assert!(labels.iter().all(|(known, _)| known != label), "{line}");
            labels.push((label.to_owned(), text));
            rest = &value[end + 1..];
            match rest.split_at(1) {
                (",", more) => rest = more,
                ("}", more) => {
                    rest = more;
                    break;
                }
                _ => panic!("{line}"),
            }
        }
    }
    let numbers: Vec<f64> = rest.split_whitespace().map(|n| n.replace("+Inf", "inf").parse().unwrap()).collect();
    let [value, at] = numbers[..] else { panic!("{line}") };
    (name.to_owned(), labels, value, at)
}

/// The value of a series at its end.
fn last(points: &BTreeMap<String, Vec<Point>>, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let fits = |p: &&Point| labels.iter().all(|(k, v)| p.labels.get(*k).is_some_and(|found| found == v));
    points.get(name)?.iter().rfind(fits).map(|p| p.value)
}

/// What `sum(sum_over_time(name{labels}[...]))` over the whole run gives.
fn sum_over_time(points: &BTreeMap<String, Vec<Point>>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let fits = |p: &&Point| labels.iter().all(|(k, v)| p.labels.get(*k).is_some_and(|found| found == v));
    points.get(name).into_iter().flatten().filter(fits).map(|p| p.value).sum()
}

/// What `histogram_quantile(0.5, sum by (le) (sum_over_time(name_bucket[...])))` gives: within its bucket a value lies where its
/// rank is.
fn median(points: &BTreeMap<String, Vec<Point>>, name: &str) -> f64 {
    let mut buckets: BTreeMap<u64, f64> = BTreeMap::new();
    for point in &points[name] {
        let bound = point.labels["le"].replace("+Inf", "inf").parse::<f64>().unwrap();
        *buckets.entry(bound.to_bits()).or_default() += point.value;
    }
    let all: Vec<(f64, f64)> = buckets.into_iter().map(|(bits, count)| (f64::from_bits(bits), count)).collect();
    let rank = all.last().unwrap().1 / 2.0;
    let at = all.iter().position(|(_, count)| *count >= rank).unwrap();
    let (low, below) = if at == 0 { (0.0, 0.0) } else { all[at - 1] };
    low + (all[at].0 - low) * (rank - below) / (all[at].1 - below)
}

/// A queue, two pools of one slice each and a JobSet of one slice that is drained three times. Its nodes are there after 2 min.
const DRAINED: &str = r#"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: v5e}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: "team"}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [google.com/tpu]
    flavors: [{name: v5e, resources: [{name: google.com/tpu, nominalQuota: 8}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team, namespace: default}
spec: {clusterQueue: team}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train, labels: {kueue.x-k8s.io/queue-name: team}}
spec:
  failurePolicy: {maxRestarts: 9}
  replicatedJobs:
  - name: slice
    replicas: 1
    template:
      spec:
        parallelism: 2
        completions: 2
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            nodeSelector:
              cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice
              cloud.google.com/gke-tpu-topology: 2x4
            containers: [{name: c, image: x, resources: {limits: {google.com/tpu: 4}}}]
---
apiVersion: slicegate.dev/v1alpha1
kind: Scenario
metadata: {name: drained}
spec:
  runTimes: {train: 50m}
  nodeProvisioning: 2m
  scaleDownAfter: 30s
  events:
  - {at: 10m2s, evictNode: {job: JobSet/train}}
  - {at: 30m, evictNode: {job: JobSet/train}}
  - {at: 1h, evictNode: {job: JobSet/train}}
"#;

#[test]
fn the_tutorials_questions_about_availability_get_the_right_answers() {
    let (text, out) = metrics_of("drained.txt", DRAINED, &[]);
    let points = read(&text);
    let up = |line: &str| line.contains("running: ") || line.contains("starts again");
    let times: Vec<&str> = out.lines().filter(|l| up(l)).map(|l| l.split_whitespace().next().unwrap()).collect();
    // Available from 2:02, 12:04, 32:02 and 1:02:02 on.
    assert_eq!(times, ["00:02:02", "00:10:02", "00:12:03", "00:30:00", "00:32:01", "01:00:00", "01:02:01"], "{out}");
    let train = [("entity_type", "jobset"), ("entity_name", "train"), ("monitored_resource", "k8s_entity")];
    let mean = |what: &str| {
        let name = format!("kubernetes_io:jobset_{what}");
        sum_over_time(&points, &format!("{name}_sum"), &train)
            / sum_over_time(&points, &format!("{name}_count"), &train)
    };
    // Down for 121 s three times; up for 480, 1077 and 1679 s before each. The last uptime ends well and does not count.
    assert!((mean("times_to_recover") - 121.0).abs() < 1e-9, "{}", mean("times_to_recover"));
    assert!((mean("times_between_interruptions") - (480.0 + 1077.0 + 1679.0) / 3.0).abs() < 1e-9);
    let middle = median(&points, "kubernetes_io:jobset_times_between_interruptions_bucket");
    // The second of three, half a rank into the bucket from 600 to 1200 s.
    assert!((middle - 900.0).abs() < 1e-9, "{middle}");
    assert_eq!(last(&points, "kubernetes_io:jobset_uptime", &train), Some(480.0 + 1077.0 + 1679.0 + 3000.0));
    assert_eq!(last(&points, "kubernetes_io:jobset_startup_duration", &train), Some(121.0));
    assert_eq!(last(&points, "kube_jobset_restarts", &[("jobset_name", "train")]), Some(3.0));
    let done = [("jobset_name", "train"), ("condition", "Completed"), ("status", "true")];
    assert_eq!(last(&points, "kube_jobset_status_condition", &done), Some(1.0));
}

#[test]
fn queues_are_measured_as_kueue_does() {
    let path = place("multislice.txt");
    let (status, _, err) = run(&["simulate", "--quiet", "--metrics", path.to_str().unwrap(), "examples/multislice"]);
    assert_eq!(status, 0, "{err}");
    let points = read(&std::fs::read_to_string(&path).unwrap());
    let queue = ("cluster_queue", "cluster-queue");
    let value = |name: &str, labels: &[(&str, &str)]| last(&points, name, &[&[queue], labels].concat());
    let class = |class| ("priority_class", class);
    // Four JobSets; one was preempted once and admitted again.
    assert_eq!(value("kueue_admitted_workloads_total", &[class("")]), Some(4.0));
    assert_eq!(value("kueue_admitted_workloads_total", &[class("low-priority")]), Some(1.0));
    assert_eq!(value("kueue_finished_workloads_total", &[class("")]), Some(3.0));
    assert_eq!(value("kueue_finished_workloads", &[]), Some(4.0));
    assert_eq!(value("kueue_evicted_workloads_total", &[("reason", "Preempted"), ("underlying_cause", "")]), Some(1.0));
    assert_eq!(
        last(
            &points,
            "kueue_preempted_workloads_total",
            &[("preempting_cluster_queue", "cluster-queue"), ("reason", "InClusterQueue")]
        ),
        Some(1.0)
    );
    // Waits: 0 s, 175 s, 174 s, and 4 s after the preemption.
    assert_eq!(value("kueue_admission_wait_time_seconds_sum", &[class("")]), Some(353.0));
    assert_eq!(value("kueue_admission_wait_time_seconds_bucket", &[class(""), ("le", "2.5")]), Some(1.0));
    assert_eq!(value("kueue_admission_wait_time_seconds_bucket", &[class(""), ("le", "160.0")]), Some(2.0));
    assert_eq!(value("kueue_admission_wait_time_seconds_bucket", &[class(""), ("le", "320.0")]), Some(4.0));
    let at = |name: &str, second: f64, labels: &[(&str, &str)]| {
        let start = points["kueue_build_info"][0].at;
        let fits = |p: &&Point| {
            (p.at - start - second).abs() < 0.5
                && labels.iter().all(|(k, v)| p.labels.get(*k).is_some_and(|found| found == v))
        };
        points.get(name).unwrap_or_else(|| panic!("no {name}")).iter().find(fits).map(|p| p.value)
    };
    // After two minutes: one runs on all 24 chips, two wait and were looked at.
    assert_eq!(at("kueue_cluster_queue_resource_usage", 120.0, &[("resource", "google.com/tpu")]), Some(24.0));
    assert_eq!(at("kueue_cluster_queue_nominal_quota", 120.0, &[("flavor", "vlp-24")]), Some(24.0));
    assert_eq!(at("kueue_pending_workloads", 120.0, &[("status", "inadmissible")]), Some(2.0));
    assert_eq!(at("kueue_pending_workloads", 120.0, &[("status", "active")]), Some(0.0));
    assert_eq!(at("kueue_cluster_queue_resource_pending", 120.0, &[("resource", "google.com/tpu")]), Some(24.0));
    assert_eq!(at("kueue_admitted_active_workloads", 120.0, &[]), Some(1.0));
    assert_eq!(at("kueue_unadmitted_workloads", 120.0, &[("underlying_cause", "WaitingForQuota")]), Some(2.0));
    assert_eq!(at("kueue_local_queue_pending_workloads", 120.0, &[("status", "inadmissible")]), Some(2.0));
    assert_eq!(at("kueue_cluster_queue_status", 120.0, &[("status", "active")]), Some(1.0));
}

#[test]
fn checks_and_provisioning_are_measured() {
    let path = place("dws.txt");
    let (status, _, err) = run(&["simulate", "--quiet", "--metrics", path.to_str().unwrap(), "examples/dws"]);
    assert_eq!(status, 0, "{err}");
    let points = read(&std::fs::read_to_string(&path).unwrap());
    // The second job waits 300 s for DWS after its quota was reserved; the first has no check.
    let name = "kueue_admission_checks_wait_time_seconds";
    assert_eq!(last(&points, &format!("{name}_sum"), &[("cluster_queue", "cluster-queue")]), Some(300.0));
    assert_eq!(last(&points, &format!("{name}_count"), &[("cluster_queue", "cluster-queue")]), Some(1.0));
    assert_eq!(last(&points, "kueue_quota_reserved_wait_time_seconds_sum", &[]), Some(0.0));
    assert_eq!(last(&points, "kueue_cluster_queue_borrowing_limit", &[]), Some(f64::INFINITY));
}

#[test]
fn samples_are_taken_as_often_as_asked_for() {
    for (every, seconds) in [("60s", 60.0), ("5m", 300.0)] {
        let (text, _) = metrics_of("every.txt", DRAINED, &["--metrics-every", every]);
        let points = read(&text);
        let times: Vec<f64> = points["kueue_build_info"].iter().map(|p| p.at).collect();
        let steps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
        let (end, even) = steps.split_last().unwrap();
        assert!(even.iter().all(|step| (step - seconds).abs() < 1e-6), "{steps:?}");
        assert!(*end <= seconds, "{steps:?}");
        // What came to distributions is told once, however often.
        let name = "kubernetes_io:jobset_times_to_recover_count";
        assert!((sum_over_time(&points, name, &[]) - 3.0).abs() < 1e-9, "{every}");
    }
    let (status, _, err) = run(&["simulate", "--metrics-every", "0", "--metrics", "x", "examples/multislice"]);
    assert!(status == 2 && err.contains("--metrics-every 0"), "{err}");
    let (status, _, err) = run(&["simulate", "--metrics", "no-such-folder/x", "examples/multislice"]);
    assert!(status == 2 && err.contains("no-such-folder"), "{err}");
}

#[test]
fn the_same_input_gives_the_same_metrics() {
    assert_eq!(metrics_of("same-1.txt", DRAINED, &[]), metrics_of("same-2.txt", DRAINED, &[]));
}

/// With the path of Prometheus' own tool in `PROMTOOL`, it takes the file and answers the tutorial's questions.
#[test]
fn prometheus_takes_the_file_and_answers() {
    let Some(promtool) = std::env::var_os("PROMTOOL") else {
        eprintln!("PROMTOOL is not set: not asked (see tests/promtool)");
        return;
    };
    let (text, _) = metrics_of("promtool.txt", DRAINED, &[]);
    let data = place("promtool-data");
    let _ = std::fs::remove_dir_all(&data);
    let mut import = Command::new(&promtool);
    import.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(place("promtool.txt")).arg(&data);
    let import = import.output().unwrap();
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));

    let mut rules = String::from("rule_files: []\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let start = samples.filter_map(|l| l.rsplit_once(' ')?.1.parse::<f64>().ok()).fold(f64::MAX, f64::min);
    let mut series: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
    for line in text.lines().filter(|l| l.starts_with("kubernetes_io:")) {
        let mut parts = line.rsplitn(3, ' ');
        let (at, value, name) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let minute = ((at.parse::<f64>().unwrap() - start) / 60.0).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
        series.entry(name.to_owned()).or_default().push((minute as usize, value.to_owned()));
    }
    for (name, points) in &series {
        let mut values = Vec::new();
        for (minute, value) in points {
            values.resize(*minute, "_".to_owned());
            values.push(value.clone());
        }
        let _ = writeln!(rules, "  - {{series: '{name}', values: '{}'}}", values.join(" "));
    }
    let labels = r#"{monitored_resource="k8s_entity",entity_type="jobset",entity_name=~"train",cluster_name=~".*"}"#;
    rules += "  promql_expr_test:\n";
    for (expr, value) in [
        (
            format!(
                "sum(sum_over_time(kubernetes_io:jobset_times_to_recover_sum{labels}[3h])) / sum(sum_over_time(kubernetes_io:jobset_times_to_recover_count{labels}[3h]))"
            ),
            "121".to_owned(),
        ),
        (
            format!(
                "sum(sum_over_time(kubernetes_io:jobset_times_between_interruptions_sum{labels}[3h])) / sum(sum_over_time(kubernetes_io:jobset_times_between_interruptions_count{labels}[3h]))"
            ),
            ((480.0 + 1077.0 + 1679.0) / 3.0).to_string(),
        ),
        (
            format!(
                "histogram_quantile(0.50, sum by (le) (sum_over_time(kubernetes_io:jobset_times_between_interruptions_bucket{labels}[3h])))"
            ),
            "900".to_owned(),
        ),
    ] {
        let _ = writeln!(
            rules,
            "  - expr: '{expr}'\n    eval_time: 150m\n    exp_samples: [{{labels: '{{}}', value: {value}}}]"
        );
    }
    let path = place("promtool-test.yaml");
    std::fs::write(&path, rules).unwrap();
    let test = Command::new(&promtool).args(["test", "rules"]).arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&test.stdout).into_owned() + &String::from_utf8_lossy(&test.stderr);
    assert!(test.status.success(), "{said}");
}

#[test]
fn examples_of_readings_are_sound() {
    assert!(root().join("examples/multislice").is_dir());
    let line = "x{a=\"q\\\"b\\\\c\\nd\",le=\"+Inf\"} +Inf 12.500";
    let (name, labels, value, at) = sample(line);
    assert_eq!((name.as_str(), value, at), ("x", f64::INFINITY, 12.5));
    assert_eq!(labels[0], ("a".to_owned(), "q\"b\\c\nd".to_owned()));
}
