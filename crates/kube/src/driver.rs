//! The controller between what is seen and what is written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use slicegate_api::{Kind, Object, ObjectRef, kueue};
use slicegate_controller::metrics::{Metrics, MetricsOptions};
use slicegate_controller::{Change, Controller, Effects, Write, WriteError, WriteId, WriteOutcome, keys};
use slicegate_workload::Timestamp;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::events::Sink;
use crate::failpoint::Failpoint;
use crate::health::{Announced, Health, Scrape};
use crate::kinds;
use crate::lease::{Leads, now_micros};
use crate::pace::Pace;
use crate::perform::{self, Caller, Seen as Base};
use crate::run::{Options, at};
use crate::watch::{self as watches, Seen};

/// How many sightings are taken in before the controller is asked what follows.
const MOST_AT_ONCE: usize = 4_096;
/// How long Events may still be sent at the end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// A write that has less time than this before another may lead is not begun.
const LEAST_TIME: Duration = Duration::from_millis(100);
/// How long watches wait for the API server to be told what would cut them.
const PATIENCE: Duration = Duration::from_secs(2);

async fn next(scrapes: Option<&mut mpsc::Receiver<Scrape>>) -> Option<Scrape> {
    match scrapes {
        Some(scrapes) => scrapes.recv().await,
        None => std::future::pending().await,
    }
}

/// The wall clock, as the controller counts time.
fn now() -> Timestamp {
    Timestamp::from_micros(now_micros())
}

/// How a write ended.
type Done = (WriteId, ObjectRef, Result<Option<Object>, WriteError>);

/// The controller, what it knows, and what it is doing.
pub(crate) struct Driver {
    caller: Caller,
    options: Options,
    health: Health,
    controller: Controller,
    metrics: Metrics,
    cache: Cache,
    events: Sink,
    pace: Arc<Option<Pace>>,
    permits: Arc<Semaphore>,
    seen_from: mpsc::Sender<Seen>,
    seen: mpsc::Receiver<Seen>,
    scrapes: Option<mpsc::Receiver<Scrape>>,
    watches: BTreeMap<Kind, JoinHandle<()>>,
    /// What watches wait for before they begin.
    announced: watch::Receiver<Announced>,
    /// Until when they do.
    patient_until: Instant,
    /// Until when this process may write; `None`: it may not.
    leading: Leads,
    /// Until when it may write, as writes that wait for their turn see it.
    allowed: watch::Sender<Leads>,
    writes: JoinSet<Done>,
    /// Writes of an object of which one is on its way.
    waiting: BTreeMap<ObjectRef, VecDeque<Write>>,
    wake_at: Option<Timestamp>,
    /// Whether the controller was told everything.
    told: bool,
}

impl Driver {
    pub(crate) fn new(client: Client, options: Options, health: Health, failpoint: Failpoint) -> Self {
        let (seen_from, seen) = mpsc::channel(MOST_AT_ONCE);
        Self {
            controller: Controller::new(options.configuration.clone()),
            metrics: Metrics::default(),
            cache: Cache::default(),
            events: Sink::start(&client, options.identity.clone(), options.write_timeout),
            pace: Arc::new(Pace::new(options.qps, options.burst)),
            permits: Arc::new(Semaphore::new(options.concurrency.max(1))),
            seen_from,
            seen,
            scrapes: health.scrapes(),
            watches: BTreeMap::new(),
            announced: health.announced(),
            patient_until: Instant::now() + PATIENCE,
            leading: None,
            allowed: watch::channel(None).0,
            writes: JoinSet::new(),
            waiting: BTreeMap::new(),
            wake_at: None,
            told: false,
            caller: Caller { client, health: health.clone(), failpoint: Arc::new(failpoint) },
            options,
            health,
        }
    }

    /// Takes in until when this process leads, if it does.
    pub(crate) fn lead(&mut self, until: Leads) {
        let until = until.filter(|until| *until > Instant::now());
        let led = self.leads();
        if led && until.is_none() {
            self.stop_deciding();
        }
        self.leading = until;
        self.allowed.send_replace(until);
        self.health.set_leading(until.is_some());
        if until.is_some() && !led {
            // What others did in the meantime must be seen before anything is decided.
            self.start_over();
        }
    }

    /// Whether this process acts.
    pub(crate) const fn leads(&self) -> bool {
        self.leading.is_some()
    }

    fn needed(&self) -> BTreeSet<Kind> {
        kinds::needed(&self.options.configuration.frameworks, self.cache.wanted())
    }

    /// Starts to watch what matters and is not watched yet, jobs once Workloads are listed.
    fn watch_needed(&mut self) {
        if self.hold().is_some() {
            return;
        }
        for kind in self.needed() {
            let may = kinds::waits_for(kind).is_none_or(|first| self.cache.is_synced(first));
            if may && !self.watches.contains_key(&kind) {
                let task = watches::start(self.caller.client.clone(), kind, self.seen_from.clone());
                self.watches.insert(kind, task);
            }
        }
    }

    /// Until when no watch begins.
    fn hold(&self) -> Option<Instant> {
        let until = self.patient_until;
        (!self.health.may_watch() && until > Instant::now()).then_some(until)
    }

    fn stop_watching(&mut self) {
        for task in std::mem::take(&mut self.watches).into_values() {
            task.abort();
        }
    }

    /// Forgets everything and looks at the cluster afresh.
    fn start_over(&mut self) {
        self.stop_watching();
        let (seen_from, seen) = mpsc::channel(MOST_AT_ONCE);
        (self.seen_from, self.seen) = (seen_from, seen);
        self.cache = Cache::default();
        self.health.set_unlisted(self.needed().into_iter().collect());
        self.patient_until = Instant::now() + PATIENCE;
    }

    /// No more writes; those on their way are not waited for.
    fn stop_deciding(&mut self) {
        self.writes = JoinSet::new();
        self.waiting.clear();
        self.wake_at = None;
        // The controller has writes on its way that nobody will tell it of.
        self.controller = Controller::new(self.options.configuration.clone());
        self.told = false;
    }

    /// Decides, if it is time to, and sends off what follows.
    pub(crate) fn step(&mut self) {
        self.watch_needed();
        let unlisted: Vec<Kind> = self.needed().into_iter().filter(|kind| !self.cache.is_synced(*kind)).collect();
        let synced = unlisted.is_empty();
        self.health.set_unlisted(unlisted);
        if !synced || self.leading.is_none() {
            // There is nothing to wake up for.
            self.wake_at = None;
            return;
        }
        if !std::mem::replace(&mut self.told, true) {
            self.tell_all();
        }
        let before = self.controller.attempts();
        let began = Instant::now();
        let effects = self.controller.reconcile(now());
        self.record_attempts(before, began.elapsed());
        self.send_off(effects);
    }

    /// Tells the controller everything at once, so that it decides nothing on a part.
    fn tell_all(&mut self) {
        self.controller = Controller::new(self.options.configuration.clone());
        self.metrics = Metrics::new(self.metrics_options());
        let time = now();
        let mut count = 0_usize;
        for object in self.cache.all() {
            let change = Change::Applied(object.clone());
            self.metrics.observe(time, &change);
            self.controller.observe(time, change);
            count += 1;
        }
        tracing::info!(objects = count, "all objects are known; deciding");
    }

    fn metrics_options(&self) -> MetricsOptions {
        let role = match (&self.options.lease, self.leading) {
            (None, _) => "standalone",
            (Some(_), Some(_)) => "leader",
            (Some(_), None) => "follower",
        };
        MetricsOptions { replica_role: role.into(), ..self.options.metrics.clone() }
    }

    /// Scheduling cycles that ran at once share the time that they took.
    fn record_attempts(&mut self, before: (u64, u64), took: Duration) {
        let after = self.controller.attempts();
        let success = after.0.saturating_sub(before.0);
        let inadmissible = after.1.saturating_sub(before.1);
        let all = u32::try_from(success.saturating_add(inadmissible)).unwrap_or(u32::MAX);
        let each = took.checked_div(all).unwrap_or_default().as_secs_f64();
        (0..success).for_each(|_| self.metrics.record_attempt(true, each));
        (0..inadmissible).for_each(|_| self.metrics.record_attempt(false, each));
    }

    fn scrape(&mut self, tell: Scrape) {
        let time = now();
        if !self.told {
            self.metrics = Metrics::new(self.metrics_options());
        }
        let controller = self.told.then_some(&self.controller);
        let text = self.metrics.gather(time, controller).prometheus(time);
        // Whoever asked may have gone.
        let _ = tell.send(text);
    }

    fn send_off(&mut self, effects: Effects) {
        for record in &effects.events {
            self.events.put(record, self.cache.identity(&record.object));
        }
        for note in &effects.notes {
            tracing::info!(workload = %note.workload, "{}", note.text);
            for detail in &note.details {
                tracing::debug!(workload = %note.workload, "{detail}");
            }
        }
        for write in effects.writes {
            let object = write.operation.object();
            if let Some(queue) = self.waiting.get_mut(&object) {
                queue.push_back(write);
            } else {
                self.waiting.insert(object, VecDeque::new());
                self.launch(write);
            }
        }
        self.wake_at = effects.wake_at;
    }

    fn launch(&mut self, write: Write) {
        let object = write.operation.object();
        let base = Base {
            object: self.cache.get(&object).cloned(),
            provisioning: if object.kind == Kind::Workload { self.provisioning_checks() } else { BTreeSet::new() },
        };
        let (caller, permits, pace) = (self.caller.clone(), self.permits.clone(), self.pace.clone());
        let timeout = self.options.write_timeout;
        let allowed = self.allowed.subscribe();
        self.writes.spawn(async move {
            let _permit = permits.acquire_owned().await;
            if let Some(pace) = pace.as_ref() {
                pace.wait().await;
            }
            // Whatever is sent must have arrived before another can lead.
            let left = allowed.borrow().map(|until| until.saturating_duration_since(Instant::now()));
            let result = match left.filter(|left| *left > LEAST_TIME) {
                Some(left) => perform::perform(&caller, &write, &base, timeout.min(left)).await,
                None => Err(WriteError::Unavailable {
                    object: object.clone(),
                    why: "this process does not lead".to_owned(),
                }),
            };
            (write.id, object, result)
        });
    }

    /// The checks that ProvisioningRequests answer.
    fn provisioning_checks(&self) -> BTreeSet<String> {
        let checks = self.cache.of_kind(Kind::AdmissionCheck).filter_map(|o| match o {
            Object::AdmissionCheck(check) => Some(check.as_ref()),
            _ => None,
        });
        let ours = checks.filter(|c: &&kueue::AdmissionCheck| c.spec.controller_name == keys::PROVISIONING_CONTROLLER);
        ours.filter_map(|c| c.metadata.name.clone()).collect()
    }

    /// Waits for something to happen and takes it in.
    pub(crate) async fn turn(&mut self) {
        let hold = self.hold();
        let wake = self.wake_at.filter(|_| self.told).map(|wake| {
            let micros = u64::try_from(wake.micros_since(now()).max(0)).unwrap_or(0);
            Instant::now() + Duration::from_micros(micros)
        });
        tokio::select! {
            Some(seen) = self.seen.recv() => {
                self.take(seen);
                for _ in 1..MOST_AT_ONCE {
                    match self.seen.try_recv() {
                        Ok(seen) => self.take(seen),
                        Err(_) => break,
                    }
                }
            }
            Some(done) = self.writes.join_next() => {
                self.done(done);
                while let Some(done) = self.writes.try_join_next() {
                    self.done(done);
                }
            }
            Some(tell) = next(self.scrapes.as_mut()) => self.scrape(tell),
            () = at(wake) => {}
            _ = self.announced.changed() => {}
            () = at(hold) => {}
        }
    }

    fn take(&mut self, seen: Seen) {
        let time = now();
        let news = self.cache.take(seen);
        for change in news.changes.into_iter().filter(|_| self.told) {
            self.metrics.observe(time, &change);
            self.controller.observe(time, change);
        }
        for reference in news.unsure {
            self.look_for(reference);
        }
    }

    /// Looks whether an object is still there that a list does not have.
    fn look_for(&self, reference: ObjectRef) {
        let version = self.cache.get(&reference).and_then(|o| o.metadata().resource_version.as_deref()?.parse().ok());
        let (caller, to) = (self.caller.clone(), self.seen_from.clone());
        tokio::spawn(async move {
            loop {
                let seen = match perform::read(&caller, &reference).await {
                    Ok(object) => Seen::Applied(object),
                    Err(WriteError::NotFound(_)) => Seen::Missing(reference, version),
                    Err(error) => {
                        tracing::debug!(%error, "looking again");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        if to.is_closed() {
                            return;
                        }
                        continue;
                    }
                };
                let _ = to.send(seen).await;
                return;
            }
        });
    }

    fn done(&mut self, done: Result<Done, tokio::task::JoinError>) {
        let (id, object, result) = match done {
            Ok(done) => done,
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "a write failed in an unexpected way");
                }
                return;
            }
        };
        match &result {
            Ok(Some(now_is)) => self.cache.written(now_is),
            Ok(None) => {}
            Err(
                error @ (WriteError::Conflict(_)
                | WriteError::NotFound(_)
                | WriteError::AlreadyExists(_)
                | WriteError::NamespaceTerminating(_)),
            ) => tracing::debug!(%error, "a write came too late"),
            Err(error) => tracing::warn!(%error, "a write failed"),
        }
        if self.told {
            self.controller.complete(now(), WriteOutcome { id, result });
        }
        let next = self.waiting.get_mut(&object).and_then(VecDeque::pop_front);
        match next {
            Some(write) => self.launch(write),
            None => drop(self.waiting.remove(&object)),
        }
    }

    /// Lets the writes that are on their way come to an end.
    pub(crate) async fn finish(mut self) {
        self.stop_watching();
        self.waiting.clear();
        let last = Instant::now() + self.options.write_timeout;
        while !self.writes.is_empty() {
            match tokio::time::timeout_at(last, self.writes.join_next()).await {
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let last = Instant::now() + LAST_WORDS;
        while self.events.waiting() > 0 && Instant::now() < last {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slicegate_controller::{Configuration, Operation};

    use super::*;
    use crate::testing::{Api, Asked, Reply};

    fn one_job() -> Api {
        let job = json!({"metadata": {"name": "a", "namespace": "default"}, "spec": {"template": {"spec": {}}}});
        Api::new([("/apis/batch/v1/namespaces/default/jobs", job)])
    }

    /// A driver that knows a Job and may write for so long, and a change of that Job.
    fn driver(api: &Api, left: Option<Duration>) -> (Driver, Write) {
        let options = Options::new(Configuration::default(), "this".to_owned());
        let failpoint = Failpoint::from_environment().unwrap();
        let mut driver = Driver::new(api.client(), options, Health::default(), failpoint);
        let object = Kind::Job.read(api.objects("/apis/batch/v1/namespaces/default/jobs").remove(0)).unwrap();
        driver.take(Seen::Applied(object.clone()));
        driver.allowed.send_replace(left.map(|left| Instant::now() + left));
        let mut changed = object;
        changed.metadata_mut().labels = Some([("a".to_owned(), "b".to_owned())].into());
        (driver, Write { id: WriteId(1), manager: "kueue", operation: Operation::Update(changed) })
    }

    /// What comes of the change, and after how long.
    async fn write(api: &Api, left: Option<Duration>) -> (Result<Option<Object>, WriteError>, Duration) {
        let (mut driver, write) = driver(api, left);
        let began = Instant::now();
        driver.launch(write);
        let (_, _, result) = driver.writes.join_next().await.unwrap().unwrap();
        (result, began.elapsed())
    }

    fn why(result: Result<Option<Object>, WriteError>) -> String {
        result.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_write_is_sent_only_while_nobody_else_can_lead() {
        let api = one_job();
        for left in [None, Some(Duration::from_millis(50))] {
            let (result, _) = write(&api, left).await;
            assert!(why(result).contains("does not lead"));
        }
        assert!(!api.asked().iter().any(Asked::is_write), "nothing was sent");
        api.answering(|_| Some(Reply::Never));
        let (result, took) = write(&api, Some(Duration::from_millis(300))).await;
        assert!(why(result).contains("no answer within 0."));
        assert!(took < Duration::from_secs(3), "{took:?}: the write may take 5 s, and the lead ends before");
        api.answering(|_| None);
        assert!(write(&api, Some(Duration::from_secs(1))).await.0.is_ok());
    }

    #[tokio::test]
    async fn a_namespace_that_ends_is_told_from_a_refusal() {
        let api = one_job();
        for (reply, says) in [
            (Reply::NamespaceTerminating, "Job default/b cannot be made: its namespace is being deleted"),
            (Reply::Refuse(403, "Forbidden"), "Job default/b was refused: Forbidden, says the test"),
        ] {
            let (mut driver, mut write) = driver(&api, Some(Duration::from_secs(5)));
            let mut object = api.objects("/apis/batch/v1/namespaces/default/jobs").remove(0);
            object["metadata"] = json!({"name": "b", "namespace": "default"});
            write.operation = Operation::Create(Kind::Job.read(object).unwrap());
            api.answering(move |asked| asked.is_write().then(|| reply.clone()));
            driver.launch(write);
            let (_, _, result) = driver.writes.join_next().await.unwrap().unwrap();
            assert_eq!(why(result), says);
        }
    }

    #[tokio::test]
    async fn writes_of_an_object_go_one_after_another() {
        const LATE: Duration = Duration::from_millis(150);
        let api = one_job();
        api.answering(|_| Some(Reply::Late(LATE)));
        let (mut driver, first) = driver(&api, Some(Duration::from_secs(5)));
        let object = first.operation.object();
        let second = Operation::Delete { object: object.clone(), uid: "".into() };
        let second = Write { id: WriteId(2), manager: "kueue", operation: second };
        driver.send_off(Effects { writes: vec![first, second], ..Effects::default() });
        while driver.waiting.contains_key(&object) {
            driver.turn().await;
        }
        let at: Vec<Instant> = api.asked().iter().filter(|a| a.is_write()).map(|a| a.at).collect();
        assert_eq!(at.len(), 2);
        assert!(at[1] - at[0] >= LATE, "{:?}", at[1] - at[0]);
    }
}
