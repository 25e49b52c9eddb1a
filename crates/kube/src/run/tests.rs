//! Rules of the life of a controller, before an API server in memory.

use std::sync::{Arc, Mutex};

use http::Method;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::certificates::CertificateSecret;
use crate::serve::{CertificateSource, Servers, Serving, WebhookServing, serve};
use crate::testing::{Api, Asked, Reply};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A queue with four cpus.
fn queue() -> Api {
    let kueue = "/apis/kueue.x-k8s.io/v1beta2";
    let flavors = json!([{"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]);
    let groups = json!([{"coveredResources": ["cpu"], "flavors": flavors}]);
    let of = |path: &str| -> &'static str { Box::leak(format!("{kueue}/{path}").into_boxed_str()) };
    Api::new([
        ("/api/v1/namespaces", json!({"metadata": {"name": "default"}})),
        (of("resourceflavors"), json!({"metadata": {"name": "plain"}, "spec": {}})),
        (
            of("clusterqueues"),
            json!({"metadata": {"name": "q"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}}),
        ),
        (
            of("namespaces/default/localqueues"),
            json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"clusterQueue": "q"}}),
        ),
    ])
}

fn job(name: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({"metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"parallelism": 1, "completions": 1, "suspend": true,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}})
}

fn is_started(api: &Api, job: &str) -> bool {
    api.objects(JOBS).iter().any(|o| o["metadata"]["name"] == job && o["spec"]["suspend"] == false)
}

/// A Lease that somebody else holds for two seconds after each renewal.
fn lease_of_another(renewed: u32) -> Value {
    json!({"metadata": {"name": "lease", "namespace": "kueue-system"}, "spec": {"holderIdentity": "other",
        "leaseDurationSeconds": 2, "renewTime": format!("2026-01-01T00:00:{renewed:02}.000000Z"), "leaseTransitions": 1}})
}

fn options() -> Options {
    Options::new(Configuration::default(), "this".to_owned())
}

fn electing() -> Options {
    let lease = LeaseOptions {
        namespace: "kueue-system".to_owned(),
        name: "lease".to_owned(),
        identity: "this".to_owned(),
        lease_duration: Duration::from_secs(4),
        renew_deadline: Duration::from_millis(1_500),
        retry_period: Duration::from_millis(50),
        release_on_cancel: true,
    };
    Options { lease: Some(lease), ..options() }
}

/// A controller that runs.
struct Running {
    health: Health,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), RunError>>,
}

impl Running {
    fn start(api: &Api, options: Options) -> Self {
        Self::beside(api, options, Health::default())
    }

    fn beside(api: &Api, options: Options, health: Health) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let running = run(api.client(), options, health.clone(), async { drop(stopped.await) });
        Self { health, stop, task: tokio::spawn(running) }
    }

    /// As SIGTERM does.
    async fn end(self) -> Duration {
        let began = Instant::now();
        let _ = self.stop.send(());
        let ended = tokio::time::timeout(Duration::from_secs(20), self.task).await;
        ended.expect("it ends").unwrap().unwrap();
        began.elapsed()
    }
}

fn count(api: &Api, which: impl Fn(&Asked) -> bool) -> usize {
    api.asked().iter().filter(|a| which(a)).count()
}

/// Whether a request changes an object of a kind.
fn changes(asked: &Asked, plural: &str) -> bool {
    asked.is_write() && asked.path.split('/').any(|part| part == plural)
}

#[tokio::test]
async fn a_job_is_started() {
    let api = queue();
    api.put(JOBS, job("a"));
    let running = Running::start(&api, options());
    api.until("started", |api| is_started(api, "a")).await;
    assert!(running.health.is_synced() && running.health.is_leading());
    running.end().await;
}

#[tokio::test]
async fn nothing_is_written_before_the_lead_is_won() {
    let api = queue();
    api.put(LEASES, lease_of_another(0));
    api.put(JOBS, job("a"));
    let running = Running::start(&api, electing());
    api.until("ready", |_| running.health.is_synced()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(count(&api, Asked::is_write), 0, "another leads");
    assert!(!running.health.is_leading());
    // The other has gone without a word.
    api.until("started", |api| is_started(api, "a")).await;
    let asked = api.asked();
    let won = asked.iter().position(|a| a.method == Method::PUT && a.path.starts_with(LEASES)).unwrap();
    let wrote = asked.iter().position(Asked::is_write).unwrap();
    for plural in ["workloads", "clusterqueues", "jobs"] {
        let between = asked[won..wrote].iter().filter(|a| a.lists(plural)).count();
        assert_eq!(between, 1, "{plural} are listed anew after the lead is won and before anything is decided");
    }
    running.end().await;
}

#[tokio::test]
async fn nothing_is_written_once_the_lead_is_lost() {
    let api = queue();
    let running = Running::start(&api, electing());
    api.put(JOBS, job("a"));
    api.until("started", |api| is_started(api, "a")).await;
    let others = api.clone();
    let renewing = tokio::spawn(async move {
        for second in 0..60 {
            others.put(LEASES, lease_of_another(second));
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
    api.until("lost", |_| !running.health.is_leading()).await;
    let before = count(&api, Asked::is_write);
    api.put(JOBS, job("b"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(count(&api, Asked::is_write), before, "another leads");
    assert!(running.health.is_synced(), "a standby is ready");
    let lists = |api: &Api| count(api, |a| a.lists("workloads"));
    let listed = lists(&api);
    renewing.abort();
    api.until("started by who leads again", |api| is_started(api, "b")).await;
    assert_eq!(lists(&api), listed + 1, "whoever leads again looks at everything anew");
    running.end().await;
}

#[tokio::test]
async fn a_lease_that_cannot_be_renewed_ends_the_lead_in_time() {
    let api = queue();
    let running = Running::start(&api, electing());
    api.until("leading", |_| running.health.is_leading()).await;
    let last = Arc::new(Mutex::new(Instant::now()));
    let (seen, mut away) = (last.clone(), 0);
    api.answering(move |asked| {
        let renews = asked.path.starts_with(LEASES);
        away += usize::from(renews);
        if renews && away == 1 {
            *seen.lock().unwrap() = asked.at;
        }
        renews.then_some(Reply::Refuse(500, "InternalError"))
    });
    api.until("lost", |_| !running.health.is_leading()).await;
    let lasted = last.lock().unwrap().elapsed();
    assert!(lasted < Duration::from_secs(4), "it led {lasted:?} longer, and others wait 4 s only");
    running.end().await;
}

#[tokio::test]
async fn a_write_has_no_more_time_than_the_lead_lasts() {
    let api = queue();
    let renewed = Arc::new(Mutex::new(Instant::now()));
    let (seen, mut stuck) = (renewed.clone(), false);
    api.answering(move |asked| {
        let renews = asked.path.starts_with(LEASES) && asked.method != Method::GET;
        if changes(asked, "jobs") {
            stuck = true;
            return Some(Reply::Never);
        }
        if renews && !stuck {
            *seen.lock().unwrap() = asked.at;
        }
        (renews && stuck).then_some(Reply::Refuse(500, "InternalError"))
    });
    api.put(JOBS, job("a"));
    let running = Running::start(&api, Options { write_timeout: Duration::from_mins(1), ..electing() });
    api.until("given up", |api| !api.given_up().is_empty()).await;
    let lasted = api.given_up()[0].duration_since(*renewed.lock().unwrap());
    assert!(lasted < Duration::from_secs(4), "it was on its way {lasted:?} after the last renewal; others wait 4 s");
    assert!(lasted > Duration::from_millis(800), "it was given up early: {lasted:?}");
    running.end().await;
}

#[tokio::test]
async fn a_write_that_is_refused_is_tried_again_later_and_later() {
    let api = queue();
    let mut left = 2;
    api.answering(move |asked| {
        let refuse = left > 0 && changes(asked, "workloads");
        left -= usize::from(refuse);
        refuse.then_some(Reply::Refuse(500, "InternalError"))
    });
    api.put(JOBS, job("a"));
    let running = Running::start(&api, options());
    api.until("started", |api| is_started(api, "a")).await;
    let at: Vec<Instant> = api.asked().iter().filter(|a| changes(a, "workloads")).map(|a| a.at).collect();
    let waits: Vec<u128> = at.windows(2).take(2).map(|w| (w[1] - w[0]).as_millis()).collect();
    assert!((450..4_000).contains(&waits[0]) && (950..4_000).contains(&waits[1]), "{waits:?} ms");
    running.end().await;
}

#[tokio::test]
async fn a_write_without_an_answer_is_given_up_and_tried_again() {
    let api = queue();
    let mut first = true;
    api.answering(move |asked| {
        (changes(asked, "jobs") && std::mem::replace(&mut first, false)).then_some(Reply::Never)
    });
    api.put(JOBS, job("a"));
    let running = Running::start(&api, Options { write_timeout: Duration::from_millis(300), ..options() });
    api.until("started", |api| is_started(api, "a")).await;
    let at: Vec<Instant> = api.asked().iter().filter(|a| changes(a, "jobs")).map(|a| a.at).collect();
    let (given_up, again) = (api.given_up()[0] - at[0], at[1] - at[0]);
    assert!((250..4_000).contains(&given_up.as_millis()), "{given_up:?}");
    assert!((750..8_000).contains(&again.as_millis()), "{again:?}");
    running.end().await;
}

#[tokio::test]
async fn a_write_that_comes_too_late_is_decided_anew_at_once() {
    let api = queue();
    let (mut left, store) = (4, api.clone());
    api.answering(move |asked| {
        if left == 0 || !changes(asked, "jobs") {
            return None;
        }
        left -= 1;
        let (store, label) = (store.clone(), left.to_string());
        tokio::spawn(async move {
            let mut changed = store.objects(JOBS).remove(0);
            changed["metadata"]["labels"]["others"] = label.into();
            store.put(JOBS, changed);
        });
        Some(Reply::Refuse(409, "Conflict"))
    });
    api.put(JOBS, job("a"));
    let running = Running::start(&api, options());
    api.until("started", |api| is_started(api, "a")).await;
    let at: Vec<Instant> = api.asked().iter().filter(|a| changes(a, "jobs")).map(|a| a.at).collect();
    let took = at[4] - at[0];
    assert!(took < Duration::from_secs(4), "{took:?}; with pauses it were 7.5 s");
    assert_eq!(api.objects(JOBS)[0]["metadata"]["labels"]["others"], "0", "what others write stays");
    running.end().await;
}

#[tokio::test]
async fn at_the_end_writes_are_waited_for_and_the_lease_is_given_back() {
    let api = queue();
    api.answering(|asked| changes(asked, "jobs").then_some(Reply::Late(Duration::from_millis(400))));
    api.put(JOBS, job("a"));
    let running = Running::start(&api, electing());
    api.until("on its way", |api| count(api, |a| changes(a, "jobs")) > 0).await;
    let told = Instant::now();
    let took = running.end().await;
    assert!(is_started(&api, "a"), "the write was cut off");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(api.objects(LEASES)[0]["spec"]["holderIdentity"], "", "the Lease");
    assert_eq!(count(&api, |a| a.is_write() && a.at > told), 0, "nothing new is begun");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(count(&api, |a| a.at > told + took), 0, "nothing is asked any more");
}

#[tokio::test]
async fn the_end_waits_for_no_answer_that_does_not_come() {
    let api = queue();
    api.answering(|asked| changes(asked, "jobs").then_some(Reply::Never));
    api.put(JOBS, job("a"));
    let running = Running::start(&api, Options { write_timeout: Duration::from_millis(500), ..options() });
    api.until("on its way", |api| count(api, |a| changes(a, "jobs")) > 0).await;
    let took = running.end().await;
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// A webhook whose certificate is given, at an address of its own or behind a service.
async fn webhook(api: &Api, url: Option<&str>) -> (Health, Servers) {
    let conversion = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "s"}}}});
    api.put(DEFINITIONS, json!({"metadata": {"name": "workloads.kueue.x-k8s.io"}, "spec": {"conversion": conversion}}));
    let webhook = WebhookServing {
        address: ([127, 0, 0, 1], 0).into(),
        certificates: CertificateSource::Secret(CertificateSecret {
            namespace: "kueue-system".to_owned(),
            name: "certificate".to_owned(),
            names: vec!["localhost".to_owned()],
        }),
        url: url.map(str::to_owned),
    };
    let health = Health::default();
    let servers =
        serve(&api.client(), Serving { webhook: Some(webhook), ..Serving::default() }, &health).await.unwrap();
    (health, servers)
}

/// The steps that matter, each once: `told` when a definition is changed, `listed` when Workloads are.
fn steps(api: &Api) -> Vec<&'static str> {
    let step = |a: &Asked| match a {
        a if changes(a, "customresourcedefinitions") => Some("told"),
        a if a.lists("workloads") => Some("listed"),
        _ => None,
    };
    api.asked().iter().filter_map(step).collect()
}

#[tokio::test]
async fn watches_begin_when_the_api_server_knows_the_webhook() {
    for url in [None, Some("https://127.0.0.1:1/convert")] {
        let api = queue();
        let (health, _servers) = webhook(&api, url).await;
        let running = Running::beside(&api, options(), health);
        api.until("synced", |_| running.health.is_synced()).await;
        assert_eq!(steps(&api), ["told", "listed"], "{url:?}");
        running.end().await;
    }
}

#[tokio::test]
async fn a_standby_behind_a_service_tells_and_then_watches() {
    let api = queue();
    api.put(LEASES, lease_of_another(0));
    let (health, _servers) = webhook(&api, None).await;
    let running = Running::beside(&api, electing(), health);
    api.until("leading", |_| running.health.is_leading() && running.health.is_synced()).await;
    assert_eq!(steps(&api), ["told", "listed", "listed"], "the second time as leader");
    running.end().await;
}

#[tokio::test]
async fn a_standby_with_an_address_of_its_own_tells_it_when_it_leads_and_before_it_watches() {
    let api = queue();
    api.put(LEASES, lease_of_another(0));
    let (health, _servers) = webhook(&api, Some("https://127.0.0.1:1/convert")).await;
    let running = Running::beside(&api, electing(), health);
    api.until("ready", |_| running.health.is_synced()).await;
    assert_eq!(steps(&api), ["listed"], "the leader's address is not to be changed");
    api.until("leading", |_| running.health.is_leading() && running.health.is_synced()).await;
    assert_eq!(steps(&api), ["listed", "told", "listed"]);
    running.end().await;
}

#[tokio::test]
async fn watches_do_not_wait_for_ever_for_what_is_not_allowed() {
    let api = queue();
    api.answering(|asked| asked.path.contains("customresourcedefinitions").then_some(Reply::Refuse(403, "Forbidden")));
    let (health, _servers) = webhook(&api, None).await;
    let began = Instant::now();
    let running = Running::beside(&api, options(), health);
    api.until("synced", |_| running.health.is_synced()).await;
    assert!(began.elapsed() >= Duration::from_secs(2));
    running.end().await;
}
