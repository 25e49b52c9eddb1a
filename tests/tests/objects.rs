//! Every object of the conformance corpus can be read.

use std::path::{Path, PathBuf};

use serde_json::Value;
use slicegate_tests::objects;

/// Reads every object within a value; how many there were.
fn read_all(value: &Value, problems: &mut Vec<String>) -> usize {
    match value {
        Value::Array(items) => items.iter().map(|v| read_all(v, problems)).sum(),
        Value::Object(fields) => {
            let result = match (value["kind"].as_str(), value["apiVersion"].as_str()) {
                (Some("Workload"), Some(_)) => objects::workload(value).map(drop),
                (Some("ClusterQueue"), Some(_)) => objects::cluster_queue(value).map(drop),
                (Some("Cohort"), Some(_)) => objects::cohort(value).map(drop),
                (Some("LocalQueue"), Some(_)) => objects::local_queue(value).map(drop),
                (Some("ResourceFlavor"), Some(_)) => objects::flavor(value).map(drop),
                (Some("Topology"), Some(_)) => objects::topology(value).map(drop),
                (Some("LimitRange"), Some(_)) => objects::limit_range(value).map(drop),
                _ => return fields.values().map(|v| read_all(v, problems)).sum(),
            };
            problems.extend(result.err().map(|e| format!("{e} in {value}")));
            1
        }
        _ => 0,
    }
}

#[test]
fn the_corpus_can_be_read() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let corpus = std::env::var_os("SLICEGATE_CONFORMANCE").map_or(kept, PathBuf::from);
    assert!(corpus.is_dir(), "{} is not a folder", corpus.display());
    let (mut read, mut problems) = (0, Vec::new());
    // `validation` holds objects that are wrong on purpose.
    for kind in ["quota", "flavor", "preemption", "cycle", "random", "placement", "checks", "jobs"] {
        for file in std::fs::read_dir(corpus.join(kind)).into_iter().flatten() {
            let path = file.unwrap().path();
            let stored = std::fs::read(&path).unwrap();
            let mut text = Vec::new();
            match path.extension().and_then(|e| e.to_str()) {
                Some("xz") => lzma_rs::xz_decompress(&mut stored.as_slice(), &mut text).unwrap(),
                Some("json") => text = stored,
                _ => continue,
            }
            read += read_all(&serde_json::from_slice(&text).unwrap(), &mut problems);
        }
    }
    assert!(read > 1000, "only {read} objects");
    assert!(problems.is_empty(), "{} of {read}: {:#?}", problems.len(), &problems[..problems.len().min(5)]);
}
