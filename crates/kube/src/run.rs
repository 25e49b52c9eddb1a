//! The controller on a cluster: what is seen goes in, what is decided goes out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use slicegate_api::{Kind, Object, ObjectRef, kueue};
use slicegate_controller::{Configuration, Controller, Effects, Write, WriteError, WriteId, WriteOutcome, keys};
use slicegate_workload::Timestamp;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::events::Sink;
use crate::health::Health;
use crate::lease::{self, Leads, LeaseOptions, now_micros};
use crate::pace::Pace;
use crate::perform::{self, Seen as Base};
use crate::watch::{self as watches, Seen};

/// Objects that nothing is decided about.
const UNWATCHED: [Kind; 4] = [Kind::ConfigMap, Kind::Pod, Kind::Secret, Kind::Slice];
/// How many sightings are taken in before the controller is asked what follows.
const MOST_AT_ONCE: usize = 4_096;
/// How long Events may still be sent at the end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How the controller runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is decided and how.
    pub configuration: Configuration,
    /// Leader election; `None`: this is the only one.
    pub lease: Option<LeaseOptions>,
    /// Who this is, in Events.
    pub identity: String,
    /// Requests a second; 0: as many as come.
    pub qps: f32,
    /// Requests at once after a pause.
    pub burst: u32,
    /// Writes side by side.
    pub concurrency: usize,
    /// How long a write may take.
    pub write_timeout: Duration,
}

impl Options {
    /// The defaults of Kueue.
    pub fn new(configuration: Configuration, identity: String) -> Self {
        Self {
            configuration,
            lease: None,
            identity,
            qps: 300.0,
            burst: 500,
            concurrency: 32,
            write_timeout: Duration::from_secs(5),
        }
    }
}

/// The kinds that are watched from the start.
fn kinds() -> Vec<Kind> {
    Kind::ALL.iter().copied().filter(|k| !UNWATCHED.contains(k)).collect()
}

/// Runs until `shutdown` is ready. What was begun is brought to an end then, and the Lease given back.
pub async fn run(client: Client, options: Options, health: Health, shutdown: impl Future<Output = ()>) {
    tokio::pin!(shutdown);
    let (tell, mut leads) = watch::channel::<Leads>(None);
    let campaign = options.lease.clone().map(|lease| tokio::spawn(lease::campaign(client.clone(), lease, tell)));
    let mut driver = Driver::new(client, options, health);
    driver.watch_all();
    let mut led = campaign.is_none();
    loop {
        let leading: Leads = if campaign.is_some() { *leads.borrow_and_update() } else { Some(far_away()) };
        let now_leads = leading.is_some_and(|until| until > Instant::now());
        if now_leads && !led {
            // What others did in the meantime must be seen before anything is decided.
            driver.start_over();
        }
        if led && !now_leads {
            driver.stop_deciding();
        }
        led = now_leads;
        driver.leading = leading.filter(|_| now_leads);
        driver.step();
        tokio::select! {
            () = &mut shutdown => break,
            () = driver.turn() => {}
            changed = leads.changed(), if campaign.is_some() => if changed.is_err() { break },
            () = at(leading), if campaign.is_some() && led => {}
        }
    }
    driver.finish().await;
    drop(leads);
    if let Some(campaign) = campaign {
        let _ = campaign.await;
    }
}

/// A time that does not come.
fn far_away() -> Instant {
    Instant::now() + Duration::from_hours(24 * 365)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The wall clock, as the controller counts time.
fn now() -> Timestamp {
    Timestamp::from_micros(now_micros())
}

/// How a write ended.
type Done = (WriteId, ObjectRef, Result<Option<Object>, WriteError>);

struct Driver {
    client: Client,
    options: Options,
    health: Health,
    controller: Controller,
    cache: Cache,
    events: Sink,
    pace: Arc<Option<Pace>>,
    permits: Arc<Semaphore>,
    seen_from: mpsc::Sender<Seen>,
    seen: mpsc::Receiver<Seen>,
    tasks: Vec<JoinHandle<()>>,
    /// Until when this process may write; `None`: it may not.
    leading: Leads,
    /// Until when it may write, as writes that wait for their turn see it.
    allowed: watch::Sender<Leads>,
    writes: JoinSet<Done>,
    /// Writes of an object of which one is on its way.
    waiting: BTreeMap<ObjectRef, VecDeque<Write>>,
    wake_at: Option<Timestamp>,
    was_synced: bool,
}

impl Driver {
    fn new(client: Client, options: Options, health: Health) -> Self {
        let (seen_from, seen) = mpsc::channel(MOST_AT_ONCE);
        Self {
            controller: Controller::new(options.configuration.clone()),
            cache: Cache::default(),
            events: Sink::start(client.clone(), options.identity.clone(), options.write_timeout),
            pace: Arc::new(Pace::new(options.qps, options.burst)),
            permits: Arc::new(Semaphore::new(options.concurrency.max(1))),
            seen_from,
            seen,
            tasks: Vec::new(),
            leading: None,
            allowed: watch::channel(None).0,
            writes: JoinSet::new(),
            waiting: BTreeMap::new(),
            wake_at: None,
            was_synced: false,
            client,
            options,
            health,
        }
    }

    fn watch_all(&mut self) {
        for kind in kinds() {
            self.tasks.push(watches::start(self.client.clone(), kind, self.seen_from.clone()));
        }
    }

    /// Forgets everything and looks at the cluster afresh.
    fn start_over(&mut self) {
        self.stop_deciding();
        for task in self.tasks.drain(..) {
            task.abort();
        }
        let (seen_from, seen) = mpsc::channel(MOST_AT_ONCE);
        (self.seen_from, self.seen) = (seen_from, seen);
        self.cache = Cache::default();
        self.was_synced = false;
        self.health.set_synced(false);
        self.controller = Controller::new(self.options.configuration.clone());
        self.watch_all();
    }

    /// No more writes; those on their way are not waited for.
    fn stop_deciding(&mut self) {
        self.leading = None;
        self.allowed.send_replace(None);
        self.writes = JoinSet::new();
        self.waiting.clear();
        self.wake_at = None;
        // The controller has writes on its way that nobody will tell it of.
        self.controller = Controller::new(self.options.configuration.clone());
        self.was_synced = false;
    }

    fn is_synced(&self) -> bool {
        kinds().iter().all(|kind| self.cache.is_synced(*kind))
    }

    /// Decides, if it is time to, and sends off what follows.
    fn step(&mut self) {
        let synced = self.is_synced();
        self.health.set_synced(synced);
        self.health.set_leading(self.leading.is_some());
        self.allowed.send_replace(self.leading);
        if !synced || self.leading.is_none() {
            return;
        }
        if !std::mem::replace(&mut self.was_synced, true) {
            // It is told everything at once, so that it decides nothing on a part.
            self.controller = Controller::new(self.options.configuration.clone());
            let time = now();
            for kind in kinds() {
                for object in self.cache.of_kind(kind) {
                    self.controller.observe(time, slicegate_controller::Change::Applied(object.clone()));
                }
            }
            tracing::info!("all objects are known; deciding");
        }
        let effects = self.controller.reconcile(now());
        self.send_off(effects);
    }

    fn send_off(&mut self, effects: Effects) {
        for record in &effects.events {
            self.events.put(record, self.cache.get(&record.object));
        }
        for note in &effects.notes {
            tracing::info!(workload = %note.workload, "{}", note.text);
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
        let (client, permits, pace) = (self.client.clone(), self.permits.clone(), self.pace.clone());
        let timeout = self.options.write_timeout;
        let allowed = self.allowed.subscribe();
        self.writes.spawn(async move {
            let _permit = permits.acquire_owned().await;
            if let Some(pace) = pace.as_ref() {
                pace.wait().await;
            }
            let until = *allowed.borrow();
            // Whatever is sent must have arrived before another can lead.
            let may = until.is_some_and(|until| until > Instant::now() + timeout.min(Duration::from_secs(1)));
            let result = if may {
                perform::perform(&client, &write, &base, timeout).await
            } else {
                Err(WriteError::Unavailable { object: object.clone(), why: "this process does not lead".to_owned() })
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
    async fn turn(&mut self) {
        let wake = self.wake_at.filter(|_| self.was_synced).map(|wake| {
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
            () = at(wake) => {}
        }
    }

    fn take(&mut self, seen: Seen) {
        let time = now();
        for change in self.cache.take(seen) {
            if self.was_synced {
                self.controller.observe(time, change);
            }
        }
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
            Err(error @ (WriteError::Conflict(_) | WriteError::NotFound(_) | WriteError::AlreadyExists(_))) => {
                tracing::debug!(%error, "a write came too late");
            }
            Err(error) => tracing::warn!(%error, "a write failed"),
        }
        self.health.count_write(result.is_ok());
        if self.was_synced {
            self.controller.complete(now(), WriteOutcome { id, result });
        }
        let next = self.waiting.get_mut(&object).and_then(VecDeque::pop_front);
        match next {
            Some(write) => self.launch(write),
            None => drop(self.waiting.remove(&object)),
        }
    }

    /// Lets the writes that are on their way come to an end.
    async fn finish(mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
        }
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
