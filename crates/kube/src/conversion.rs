//! The webhook that converts Kueue's objects between v1beta1 and v1beta2.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use slicegate_api::crd::ConversionWebhook;
use slicegate_api::{Kind, kueue, v1beta1};
use tokio::sync::Semaphore;

use crate::http_server::{Answer, Asked};

/// What is no longer than this is converted at once, beside everything else.
const SHORT: usize = 256 << 10;
/// The most values that a review may have, so that it does not take many times its length in memory. Objects have one in some
/// twenty bytes.
const MOST_VALUES: usize = 1 << 20;

/// Answers a request to the webhook. Long ones wait for their turn, and hold up nothing else.
pub(crate) async fn answer(turns: Arc<Semaphore>, asked: Asked) -> Answer {
    if asked.body.len() <= SHORT {
        return handle(&asked);
    }
    let turn = turns.acquire_owned().await;
    let done = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        handle(&asked)
    });
    done.await.unwrap_or_else(|_| Answer::text(StatusCode::INTERNAL_SERVER_ERROR, "the conversion failed\n"))
}

/// Answers a request to the webhook.
fn handle(asked: &Asked) -> Answer {
    if asked.path != ConversionWebhook::PATH {
        return Answer::text(StatusCode::NOT_FOUND, format!("nothing is served at {}\n", asked.path));
    }
    if asked.method != Method::POST {
        return Answer::text(StatusCode::METHOD_NOT_ALLOWED, "a ConversionReview must be posted\n");
    }
    if asked.body.split(|byte| *byte == b',').count() > MOST_VALUES {
        return Answer::text(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a review may have {MOST_VALUES} values, no more\n"),
        );
    }
    match serde_json::from_slice::<Value>(&asked.body) {
        Ok(review) => {
            let body = review_of(&review).to_string();
            Answer { status: StatusCode::OK, content_type: "application/json", body }
        }
        Err(error) => Answer::text(StatusCode::BAD_REQUEST, format!("no ConversionReview: {error}\n")),
    }
}

/// The answer to a ConversionReview.
fn review_of(review: &Value) -> Value {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let objects = request["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
    let converted: Result<Vec<Value>, String> = objects.iter().map(|o| convert(o, wanted)).collect();
    let mut response = json!({"uid": request["uid"]});
    match converted {
        Ok(objects) => {
            response["result"] = json!({"status": "Success"});
            response["convertedObjects"] = objects.into();
        }
        Err(why) => response["result"] = json!({"status": "Failure", "message": why}),
    }
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
}

/// An object in another version. Its metadata stay as they are: the API server insists.
fn convert(object: &Value, wanted: &str) -> Result<Value, String> {
    let kind_name = object["kind"].as_str().unwrap_or_default();
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let fail = |why: String| format!("{kind_name} {name:?}: {why}");
    if version == wanted {
        return Ok(object.clone());
    }
    let mut converted = object.clone();
    let older = match (version, wanted) {
        (v1beta1::API_VERSION, kueue::API_VERSION) => false,
        (kueue::API_VERSION, v1beta1::API_VERSION) => true,
        _ => return Err(fail(format!("there is no conversion from {version} to {wanted}"))),
    };
    if kind_name == "MultiKueueCluster" {
        multi_kueue_cluster(&mut converted, older);
    } else {
        let kind = Kind::ALL.iter().copied().find(|k| k.as_str() == kind_name && k.api_version() == kueue::API_VERSION);
        let kind = kind.ok_or_else(|| fail("this kind is not converted here".to_owned()))?;
        if older {
            v1beta1::from_held(kind, &mut converted);
        } else {
            // What v1beta1 does not have was dropped by the API server already.
            let _ = v1beta1::to_held(kind, &mut converted);
        }
    }
    converted["apiVersion"] = wanted.into();
    Ok(converted)
}

/// The newer version keeps the two ways to reach a cluster together.
fn multi_kueue_cluster(object: &mut Value, older: bool) {
    const WAYS: [&str; 2] = ["clusterProfileRef", "kubeConfig"];
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if older {
        if let Some(Value::Object(source)) = spec.shift_remove("clusterSource") {
            spec.extend(source);
        }
    } else {
        let found = WAYS.iter().filter_map(|way| Some(((*way).to_owned(), spec.shift_remove(*way)?)));
        let source: serde_json::Map<String, Value> = found.collect();
        spec.insert("clusterSource".to_owned(), source.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(objects: &Value, wanted: &str) -> Value {
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "u", "desiredAPIVersion": wanted, "objects": objects}});
        let body = review.to_string().into_bytes();
        let answer = handle(&Asked { method: Method::POST, path: "/convert".to_owned(), body: body.into() });
        assert_eq!(answer.status, StatusCode::OK);
        let value: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(value["response"]["uid"], "u");
        value["response"].clone()
    }

    #[test]
    fn objects_are_converted_both_ways() {
        let older = json!([{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue",
            "metadata": {"name": "cq"}, "spec": {"cohort": "all"}},
            {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "MultiKueueCluster", "metadata": {"name": "c"},
            "spec": {"kubeConfig": {"location": "x", "locationType": "Secret"}}}]);
        let response = review(&older, kueue::API_VERSION);
        assert_eq!(response["result"]["status"], "Success");
        let newer = &response["convertedObjects"];
        assert_eq!(newer[0]["spec"]["cohortName"], "all");
        assert_eq!(newer[1]["spec"]["clusterSource"]["kubeConfig"]["location"], "x");
        assert_eq!(review(newer, v1beta1::API_VERSION)["convertedObjects"], older);
        assert_eq!(review(newer, kueue::API_VERSION)["convertedObjects"], *newer);
    }

    #[test]
    fn what_cannot_be_converted_is_named() {
        for (object, wanted, why) in [
            (
                json!({"apiVersion": "kueue.x-k8s.io/v1alpha1", "kind": "Cohort", "metadata": {"name": "c"}}),
                "kueue.x-k8s.io/v1beta2",
                "v1alpha1",
            ),
            (
                json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Pod", "metadata": {"name": "c"}}),
                "kueue.x-k8s.io/v1beta2",
                "not converted here",
            ),
        ] {
            let response = review(&json!([object]), wanted);
            assert_eq!(response["result"]["status"], "Failure");
            assert!(response["result"]["message"].as_str().unwrap().contains(why), "{response}");
        }
    }

    #[test]
    fn other_requests_are_refused() {
        let ask = |method: Method, path: &str, body: &'static str| {
            handle(&Asked { method, path: path.to_owned(), body: body.into() }).status
        };
        assert_eq!(ask(Method::POST, "/other", "{}"), StatusCode::NOT_FOUND);
        assert_eq!(ask(Method::GET, "/convert", ""), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(ask(Method::POST, "/convert", "nonsense"), StatusCode::BAD_REQUEST);
        assert_eq!(ask(Method::POST, "/convert", "[]"), StatusCode::OK, "a review of nothing converts nothing");
    }

    #[test]
    fn objects_of_any_shape_are_answered() {
        let shapes = [json!(7), json!("x"), json!([]), json!({}), json!(null), json!([{"a": [1]}]), json!({"a": 1})];
        for kind in Kind::ALL.iter().map(|k| k.as_str()).chain(["MultiKueueCluster", "MultiKueueConfig"]) {
            for shape in &shapes {
                for (from, to) in
                    [(v1beta1::API_VERSION, kueue::API_VERSION), (kueue::API_VERSION, v1beta1::API_VERSION)]
                {
                    for field in ["metadata", "spec", "status"] {
                        let object = json!({"apiVersion": from, "kind": kind, field: shape});
                        let inner = json!({"apiVersion": from, "kind": kind, "spec": {"resourceGroups": shape,
                            "podSets": shape, "cohort": shape, "fairSharing": shape, "admissionChecks": shape},
                            "status": {"admission": shape, "conditions": shape, "flavorsUsage": shape}});
                        review(&json!([object, inner]), to);
                    }
                    review(shape, to);
                    review(&json!([shape]), to);
                }
            }
        }
    }

    #[tokio::test]
    async fn what_would_take_much_memory_is_refused() {
        let ask = async |body: String| {
            let asked = Asked { method: Method::POST, path: "/convert".to_owned(), body: body.into() };
            answer(Arc::new(Semaphore::new(1)), asked).await.status
        };
        assert_eq!(ask(format!("[{}0]", "0,".repeat(MOST_VALUES + 1))).await, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(ask("[".repeat(1 << 20)).await, StatusCode::BAD_REQUEST, "too deep");
        let long = json!({"request": {"uid": "u", "x": "y".repeat(SHORT)}});
        assert_eq!(ask(long.to_string()).await, StatusCode::OK);
    }
}
