//! Topology assignments in the form in which the API keeps them.

use std::path::Path;

use serde_json::{Map, Value, json};
use slicegate_tests::objects;
use slicegate_workload::{EncodedAssignment, EncodedCounts, EncodedValues, TopologyAssignment, TopologyDomain};

use crate::report::{Report, expect_eq};

/// Runs the suites about encoding of the kind `placement`.
pub(crate) fn run(corpus: &Path, kind: &str, report: &mut Report) {
    report.suite(corpus, kind, "assignment-encode", encode);
    report.suite(corpus, kind, "assignment-decode", decode);
}

fn assignment(value: &Value) -> TopologyAssignment {
    let strings = |value: &Value| -> Vec<Box<str>> {
        value.as_array().into_iter().flatten().map(|v| v.as_str().unwrap_or_default().into()).collect()
    };
    let domains = value["domains"].as_array().into_iter().flatten();
    let domains = domains.map(|d| TopologyDomain {
        values: strings(&d["values"]),
        count: d["count"].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or_default(),
    });
    TopologyAssignment { levels: strings(&value["levels"]), domains: domains.collect() }
}

fn to_json(encoded: &EncodedAssignment) -> Value {
    let values = |values: &EncodedValues| match values {
        EncodedValues::Universal(value) => json!({ "universal": value }),
        EncodedValues::Individual { prefix, suffix, roots } => {
            let mut individual = Map::new();
            individual.insert("roots".to_owned(), json!(roots));
            for (key, part) in [("prefix", prefix), ("suffix", suffix)] {
                if !part.is_empty() {
                    individual.insert(key.to_owned(), json!(part));
                }
            }
            json!({ "individual": individual })
        }
    };
    let mut fields = Map::new();
    fields.insert("levels".to_owned(), json!(encoded.levels));
    if !encoded.slices.is_empty() {
        let slices: Vec<Value> = encoded
            .slices
            .iter()
            .map(|s| {
                let counts = match &s.pod_counts {
                    EncodedCounts::Universal(count) => json!({ "universal": count }),
                    EncodedCounts::Individual(counts) => json!({ "individual": counts }),
                };
                let levels: Vec<Value> = s.values_per_level.iter().map(values).collect();
                json!({ "domainCount": s.domain_count, "podCounts": counts, "valuesPerLevel": levels })
            })
            .collect();
        fields.insert("slices".to_owned(), json!(slices));
    }
    Value::Object(fields)
}

fn encode(case: &Value) -> Result<(), String> {
    let encoded = assignment(&case["assignment"]).encode();
    let got = to_json(&encoded);
    // Member order is no part of the form.
    expect_eq("form", &sorted(&got), &sorted(&case["expect"]["topologyAssignment"]))?;
    let read = objects::topology_assignment(&got).map_err(|e| e.to_string())?;
    expect_eq("what is read back", &read, &assignment(&case["assignment"]))
}

fn decode(case: &Value) -> Result<(), String> {
    let read = objects::topology_assignment(&case["topologyAssignment"]).map_err(|e| e.to_string())?;
    expect_eq("assignment", &read, &assignment(&case["expect"]["assignment"]))
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> = fields.iter().map(|(k, v)| (k.clone(), sorted(v))).collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(fields.into_iter().collect())
        }
        other => other.clone(),
    }
}
