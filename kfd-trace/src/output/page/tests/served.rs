//! Pages to look at with a browser, and for `cargo xtask browser`.

use super::*;
use crate::output::api::Resource;
use crate::serve::question::PageSource;
use crate::serve::router;
use crate::serve::web::names::Names;
use crate::serve::web::settings::{Settings, SettingsSource};
use crate::serve::web::{self, Site, listen};
use std::fs;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

const S: u64 = 1_000_000_000;

/// A world in which something has happened at each request: a packet more than the last time, and a new queue.
struct Moving(Mutex<World>);

impl Moving {
    fn new() -> Self {
        let mut world = World::with_queues(2, 12, 3).with_trouble();
        world.history.begin(HOUR, BOOT);
        Moving(Mutex::new(world))
    }
}

/// A world that stays as it is, but for the time.
struct Still(World);

impl PageSource for Still {
    fn metrics(&self, _: crate::output::metrics::Format) -> Result<String, String> {
        Ok(String::new())
    }

    fn page(&self, place: Place, pairs: &[(String, String)]) -> Result<String, Refusal> {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.0.shows(place, &pairs)
    }

    fn api(&self, _: Resource, _: &[(String, String)]) -> Result<String, Refusal> {
        Err(Refusal::NotTraced("synthetic".to_owned()))
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn healthy(&self) -> Result<(), String> {
        Ok(())
    }
}

impl PageSource for Moving {
    fn metrics(&self, _: crate::output::metrics::Format) -> Result<String, String> {
        Ok(String::new())
    }

    fn page(&self, place: Place, pairs: &[(String, String)]) -> Result<String, Refusal> {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut world = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        world.now_ns += 5 * S;
        let now_ns = world.now_ns;
        // A rate that rises and falls: 21 parts in each seven steps.
        let (sevens, step) = (now_ns / (5 * S) / 7, now_ns / (5 * S) % 7);
        let done = (sevens * 21 + step * (step + 1) / 2) * 400;
        sampled(&mut world.state, 0, Ok(Counts { submitted: done + 3, retired: done }), now_ns);
        let World { state, rates, .. } = &mut *world;
        rates.add(state, now_ns);
        let next = u32::try_from(now_ns / (5 * S) % 1_000).unwrap_or(0) + 100;
        world.take(&event(now_ns, 1, 4_000, Body::QueueCreate(facts(next))));
        world.shows(place, &pairs)
    }

    fn api(&self, _: Resource, _: &[(String, String)]) -> Result<String, Refusal> {
        Err(Refusal::NotTraced("synthetic".to_owned()))
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn healthy(&self) -> Result<(), String> {
        Ok(())
    }
}

/// TLS with a certificate of its own, and the user `sre` with the password `queue`.
fn guarded() -> Settings {
    let folder = tempfile::tempdir().expect("a folder");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let hash = bcrypt::hash("queue", 4).expect("a hash");
    let config = format!(
        "tls_server_config: {{cert_file: cert.pem, key_file: key.pem}}\nbasic_auth_users: {{sre: {hash:?}}}\n"
    );
    for (name, text) in
        [("cert.pem", made.cert.pem()), ("key.pem", made.signing_key.serialize_pem()), ("web.yml", config)]
    {
        fs::write(folder.path().join(name), text).expect("a file");
    }
    SettingsSource::open(&folder.path().join("web.yml")).expect("a configuration").1.settings
}

/// Serves sample pages: `SHOW_PAGES=1 cargo test -p kfd-trace --lib -- --ignored sample_pages`. On 127.0.0.1, from port
/// 20300 on: 0, 35, 1,000 and 10,000 queues, hostile names, no driver, and a node where something happens; from 20310 on
/// the same with TLS, for the user `sre` with the password `queue`.
#[tokio::test]
#[ignore = "serves until it is stopped"]
async fn sample_pages() {
    // A run of all tests, including ignored ones, must not wait forever.
    if std::env::var_os("SHOW_PAGES").is_none() {
        return;
    }
    let mut hostile = World::with_queues(2, 20, 5).with_trouble();
    for (process, name) in (100..).zip(HOSTILE.into_iter().chain(["x".repeat(10 << 10).as_str()])) {
        let tgid = u32::try_from(process).unwrap();
        hostile.come(process, tgid, name);
        hostile.take(&event(HOUR, process, tgid, Body::QueueCreate(facts(1))));
    }
    let mut away = World::with_queues(1, 1, 1);
    away.why_not = Some("the amdgpu driver is not loaded".to_owned());
    away.probes = vec![];
    let still = |world: World| -> Arc<dyn PageSource> { Arc::new(Still(world)) };
    let worlds = [
        still(World::new(8)),
        still(World::with_queues(8, 35, 5)),
        still(World::with_queues(8, 1_000, 10).with_trouble()),
        still(World::with_queues(8, 10_000, 20).with_trouble()),
        still(hostile),
        still(away),
        Arc::new(Moving::new()),
    ];
    let mut servers = tokio::task::JoinSet::new();
    for (port, world) in (20_300..).zip(worlds) {
        for (port, settings) in [(port, Settings::default()), (port + 10, guarded())] {
            let listeners =
                listen::bind(&[SocketAddr::from(([127, 0, 0, 1], port))], "").expect("a free port");
            let pages = router::router(Arc::clone(&world));
            let site = Site { pages, names: Names::new("localhost", &[]), most: 128 };
            let (sender, settings) = tokio::sync::watch::channel(Arc::new(settings));
            servers.spawn(async move {
                let served = web::serve(listeners, site, settings, std::future::pending()).await;
                drop(sender);
                served
            });
        }
    }
    servers.join_all().await;
}
