//! `slicegate controller`, as far as it goes without a cluster.

use std::path::PathBuf;

use crate::simulate::run_on;

/// Nothing listens at port 1.
const NOWHERE: &str = "apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: x
";

fn file(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

#[test]
fn without_an_api_server_it_ends_with_one_line() {
    let kubeconfig = file("nowhere.kubeconfig", NOWHERE);
    let (status, out, err) = run_on("", &["controller", "--kubeconfig", &kubeconfig]);
    assert_eq!((status, out.as_str()), (1, ""), "{err}");
    let line = last_line(&err);
    assert!(line.starts_with("error: the API server http://127.0.0.1:1/ does not answer: "), "{err}");
    let (status, _, err) = run_on("", &["controller", "--kubeconfig", "no-such-file"]);
    assert_eq!(status, 1);
    assert!(last_line(&err).starts_with("error: the kubeconfig no-such-file cannot be used: "), "{err}");
}

#[test]
fn the_context_says_which_api_server() {
    let two = NOWHERE
        .replace("clusters: [", "clusters: [{name: d, cluster: {server: 'http://127.0.0.1:2'}}, ")
        .replace("contexts: [", "contexts: [{name: y, context: {cluster: d, user: u}}, ");
    let kubeconfig = file("two.kubeconfig", &two);
    let run = |context: &str| run_on("", &["controller", "--kubeconfig", &kubeconfig, "--context", context]);
    for (context, server) in [("x", "http://127.0.0.1:1/"), ("y", "http://127.0.0.1:2/"), ("", "http://127.0.0.1:1/")] {
        let (status, _, err) = run(context);
        assert_eq!(status, 1);
        assert!(last_line(&err).starts_with(&format!("error: the API server {server} does not answer: ")), "{err}");
    }
    let (status, _, err) = run("z");
    assert_eq!(status, 1);
    let says =
        format!("error: the kubeconfig {kubeconfig} cannot be used: there is no context \"z\"; there are \"y\", \"x\"");
    assert_eq!(last_line(&err), says);
}

#[test]
fn what_is_wrong_with_a_configuration_is_told_before_anything_else() {
    let head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    for (name, text, says) in [
        ("unknown.yaml", "leaderElecton: {}\n", "leaderElecton"),
        (
            "lease.yaml",
            "leaderElection: {renewDeadline: 20s}\n",
            "lease.yaml:3:33: leaderElection.renewDeadline: 20 s is not less than",
        ),
        ("address.yaml", "metrics: {bindAddress: nowhere}\n", "metrics.bindAddress: \"nowhere\" has no port"),
    ] {
        let config = file(name, &(head.to_owned() + text));
        let (status, out, err) = run_on("", &["controller", "--config", &config]);
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        assert!(err.lines().all(|line| line.starts_with("error: ")) && err.contains(says), "{err}");
    }
    let (status, _, err) = run_on("", &["controller", "--log-level", "a=b=c"]);
    assert_eq!(status, 2, "{err}");
    assert!(last_line(&err).starts_with("error: --log-level a=b=c: "), "{err}");
}

#[test]
fn logs_can_be_json() {
    let kubeconfig = file("json.kubeconfig", NOWHERE);
    let (_, _, err) = run_on("", &["controller", "--kubeconfig", &kubeconfig, "--log-format", "json"]);
    let first: serde_json::Value = serde_json::from_str(err.lines().next().unwrap_or_default()).unwrap();
    assert_eq!(first["message"], "slicegate controller");
    assert_eq!(first["level"], "INFO");
    assert!(err.contains("there are no admission webhooks yet"), "{err}");
}
