//! The manifests of deploy/kubernetes fit the daemon: flags, ports, pages, mounts and capabilities. `cargo
//! xtask manifests` checks that they are valid for Kubernetes, and also renders each component with
//! kustomize.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use kfd_trace::cli::{Cli, Command, DaemonArgs, DriverTypesArgs, Global, ReturnProbesAct};
use kfd_trace::output::api::{Refusal, Resource};
use kfd_trace::output::page::Place;
use kfd_trace::serve::question::PageSource;
use kfd_trace::serve::router;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tower::ServiceExt as _;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn documents(path: &Path) -> Vec<Value> {
    serde_saphyr::from_multiple(&read(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn base() -> Vec<Value> {
    documents(&repository().join("deploy/kubernetes/base/kfd-trace.yaml"))
}

/// The output of kustomize, by name.
fn rendered() -> Vec<(String, Vec<Value>)> {
    let folder =
        std::env::var("KFD_TRACE_MANIFESTS").expect("KFD_TRACE_MANIFESTS: run `cargo xtask manifests`");
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let name = |file: &Path| file.file_stem().expect("a name").to_string_lossy().into_owned();
    files.map(|file| (name(&file), documents(&file))).collect()
}

fn one<'a>(all: &'a [Value], kind: &str) -> &'a Value {
    all.iter().find(|value| value["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// The pod of the DaemonSet, its only container, and the result of parsing its arguments.
fn pod(all: &[Value]) -> (&Value, &Value, Global, DaemonArgs) {
    let pod = &one(all, "DaemonSet")["spec"]["template"];
    let [container] = list(&pod["spec"]["containers"]) else { panic!("one container") };
    let line = std::iter::once("kfd-trace").chain(list(&container["args"]).iter().map(text));
    let cli = Cli::from_arguments(line).unwrap_or_else(|error| panic!("{error}"));
    let Some(Command::Daemon(daemon)) = cli.command else { panic!("not the daemon: {}", container["args"]) };
    (pod, container, cli.global, daemon)
}

struct Pages;

impl PageSource for Pages {
    fn metrics(&self, _: kfd_trace::output::metrics::Format) -> Result<String, String> {
        Ok(String::new())
    }

    fn page(&self, _: Place, _: &[(String, String)]) -> Result<String, Refusal> {
        Ok(String::new())
    }

    fn api(&self, _: Resource, _: &[(String, String)]) -> Result<String, Refusal> {
        Ok(String::new())
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn healthy(&self) -> Result<(), String> {
        Ok(())
    }
}

async fn served(router: fn(Arc<dyn PageSource>) -> Router, path: &str) -> bool {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    router(Arc::new(Pages)).oneshot(request).await.expect("infallible").status() == StatusCode::OK
}

/// What the operator reports about kfd-trace's own pod must not replace the labels of kfd_process_info about
/// a process.
fn owners(endpoint: &Value) {
    let dropping = list(&endpoint["relabelings"]).iter().filter(|rule| rule["action"] == "labeldrop");
    let dropped: Vec<&str> =
        dropping.filter_map(|rule| rule["regex"].as_str()).flat_map(|regex| regex.split('|')).collect();
    for name in ["namespace", "pod", "container"] {
        assert!(dropped.contains(&name), "{name} of each process would be kfd-trace's own: {endpoint}");
    }
}

/// Every named port is the one that the daemon listens on, and every requested page exists.
async fn ports(all: &[Value]) {
    let (pod, container, _, daemon) = pod(all);
    let [port, health] = list(&container["ports"]) else { panic!("two ports") };
    for (port, addresses) in [(port, &daemon.listen), (health, &daemon.health)] {
        let [address] = addresses.as_slice() else { panic!("one address") };
        assert_eq!(port["containerPort"], address.port());
        assert!(address.ip().is_unspecified(), "the kubelet and Prometheus come from outside");
    }
    let service = one(all, "Service");
    let monitors: Vec<&Value> = all.iter().filter(|value| value["kind"] == "PodMonitor").collect();
    let selectors = monitors.iter().map(|monitor| &monitor["spec"]["selector"]["matchLabels"]);
    let selectors = selectors
        .chain([&service["spec"]["selector"], &one(all, "DaemonSet")["spec"]["selector"]["matchLabels"]]);
    for selector in selectors {
        let wanted = selector.as_object().expect("a selector");
        assert!(!wanted.is_empty());
        wanted.iter().for_each(|(key, value)| assert_eq!(&pod["metadata"]["labels"][key], value, "{key}"));
    }
    monitors.iter().flat_map(|monitor| list(&monitor["spec"]["podMetricsEndpoints"])).for_each(owners);
    for probe in ["livenessProbe", "readinessProbe"].map(|name| &container[name]["httpGet"]) {
        assert_eq!(probe["port"], health["name"], "{probe}");
        let path = probe["path"].as_str().expect("a path");
        assert!(served(router::health, path).await, "{path}");
    }
    let endpoints = monitors.iter().flat_map(|monitor| list(&monitor["spec"]["podMetricsEndpoints"]));
    for endpoint in endpoints {
        assert_eq!(endpoint["port"], port["name"], "{endpoint}");
        if let Some(path) = endpoint["path"].as_str() {
            assert!(served(router::router, path).await, "{path}");
        }
    }
    for of_service in list(&service["spec"]["ports"]) {
        assert_eq!((&of_service["targetPort"], &of_service["port"]), (&port["name"], &port["containerPort"]));
    }
}

/// Every mount is named by a flag, read-only; and every path of a flag is mounted.
fn mounts(all: &[Value]) {
    let (pod, container, global, daemon) = pod(all);
    let defaults = Cli::from_arguments(["kfd-trace"]).expect("no arguments").global;
    let global_sysfs = global.sysfs.clone();
    let own = [
        (global.procfs, defaults.procfs),
        (global.sysfs, defaults.sysfs),
        (global.logs, defaults.logs),
        (global.drivers, defaults.drivers),
    ];
    let named: BTreeSet<PathBuf> =
        own.into_iter().filter(|(path, own)| path != own).map(|(path, _)| path).collect();
    let config = daemon.web_config.map(|file| file.parent().expect("a folder").to_owned());
    let named: BTreeSet<PathBuf> = named.into_iter().chain(config).collect();
    // The container has a sysfs of its own, without what is mounted below the node's.
    let tracefs = global_sysfs.join("kernel/tracing");
    let mounted: Vec<&Path> =
        list(&container["volumeMounts"]).iter().map(|mount| Path::new(text(&mount["mountPath"]))).collect();
    assert!(mounted.contains(&tracefs.as_path()), "{mounted:?}");
    let mounted: Vec<&Path> = mounted.into_iter().filter(|path| *path != tracefs).collect();
    for path in &mounted {
        assert!(named.iter().any(|name| path.starts_with(name)), "no flag names {}", path.display());
    }
    for name in &named {
        assert!(mounted.iter().any(|path| path.starts_with(name)), "{} is not mounted", name.display());
    }
    let volumes: BTreeSet<&str> =
        list(&pod["spec"]["volumes"]).iter().map(|volume| text(&volume["name"])).collect();
    let used = list(&container["volumeMounts"]).iter().map(|mount| {
        assert_eq!(mount["readOnly"], true, "{mount}");
        text(&mount["name"])
    });
    let before = list(&pod["spec"]["initContainers"]).iter().flat_map(|first| list(&first["volumeMounts"]));
    let used = used.chain(before.map(|mount| text(&mount["name"])));
    assert_eq!(used.collect::<BTreeSet<_>>(), volumes);
    for volume in list(&pod["spec"]["volumes"]) {
        // Read-only is that one mount: all others of the node, /proc/sys and /run among them, are below it and writable.
        assert_ne!(volume["hostPath"]["path"], "/", "{volume}");
    }
}

/// The containers that run before the daemon: one defines return probes, a component's makes types of the driver.
fn before(name: &str, all: &[Value]) {
    let (pod, ..) = pod(all);
    let mut commands = BTreeSet::new();
    for first in list(&pod["spec"]["initContainers"]) {
        let line = std::iter::once("kfd-trace").chain(list(&first["args"]).iter().map(text));
        let Cli { global, command, .. } = Cli::from_arguments(line).unwrap_or_else(|error| panic!("{error}"));
        let context = &first["securityContext"];
        assert_eq!(
            (&context["allowPrivilegeEscalation"], &context["readOnlyRootFilesystem"]),
            (&false.into(), &true.into())
        );
        assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]));
        commands.insert(match command {
            Some(Command::ReturnProbes { act, best_effort }) => {
                assert!(act == ReturnProbesAct::Define && best_effort, "{}", first["args"]);
                defines(all, first, &global);
                "return-probes"
            }
            Some(Command::DriverTypes(types)) => {
                makes_types(all, first, &global, types);
                "driver-types"
            }
            _ => panic!("{}", first["args"]),
        });
    }
    let expected =
        ["return-probes", "driver-types"].into_iter().take(if name == "driver-types" { 2 } else { 1 });
    assert_eq!(commands, expected.collect(), "{name}");
}

/// The path of a volume on the node, if it is a folder of the node.
fn on_the_node(all: &[Value], name: &str) -> Option<PathBuf> {
    let volumes = list(&pod(all).0["spec"]["volumes"]);
    let volume = volumes.iter().find(|volume| volume["name"] == name).expect("a volume");
    volume["hostPath"]["path"].as_str().map(PathBuf::from)
}

/// It may write the node's tracefs, which the daemon has read-only, and nothing else. The profiles of container runtimes refuse
/// to write below /sys.
fn defines(all: &[Value], first: &Value, global: &Global) {
    assert!(first["securityContext"]["capabilities"]["add"].is_null(), "root owns the files");
    assert!(!global.sysfs.starts_with("/sys"), "{}", global.sysfs.display());
    let mounts: BTreeSet<_> = list(&first["volumeMounts"])
        .iter()
        .map(|mount| {
            let path =
                Path::new(text(&mount["mountPath"])).strip_prefix(&global.sysfs).expect("below --path.sysfs");
            assert_eq!(on_the_node(all, text(&mount["name"])), Some(Path::new("/sys").join(path)), "{mount}");
            (path.to_owned(), mount["readOnly"] == true)
        })
        .collect();
    assert_eq!(mounts, BTreeSet::from([("kernel/tracing".into(), false), ("module".into(), true)]));
    let (_, daemon, daemons, _) = pod(all);
    let path = daemons.sysfs.join("kernel/tracing");
    let mount =
        list(&daemon["volumeMounts"]).iter().find(|mount| Path::new(text(&mount["mountPath"])) == path);
    let name = text(&mount.expect("the daemon has it, too")["name"]);
    assert_eq!(on_the_node(all, name), Some("/sys/kernel/tracing".into()));
}

/// It makes types of the driver, below the node's root folder and where the daemon looks for them; it cannot keep the daemon from
/// starting, and has no privilege for anything else.
fn makes_types(all: &[Value], first: &Value, own: &Global, types: DriverTypesArgs) {
    let (pod, _, global, _) = pod(all);
    assert!(types.best_effort && types.if_missing, "{}", first["args"]);
    let root = types.root.expect("the node's root folder");
    let mounts = list(&first["volumeMounts"]);
    let volume = |path: &Path| {
        let mount = mounts.iter().find(|mount| Path::new(text(&mount["mountPath"])) == path);
        let mount = mount.unwrap_or_else(|| panic!("no mount on {}", path.display()));
        (text(&mount["name"]).to_owned(), mount["readOnly"] == true)
    };
    let host = |name: &str| on_the_node(all, name);
    let below = |path: &Path| root.join(path.strip_prefix("/").expect("an absolute path"));
    let work = list(&first["env"]).iter().find(|variable| variable["name"] == "TMPDIR").expect("TMPDIR");
    let work = Path::new(text(&work["value"]));
    let written = [below(&own.drivers), below(work)];
    let mut read = BTreeSet::new();
    for mount in mounts {
        let path = Path::new(text(&mount["mountPath"]));
        if written.iter().any(|written| written == path) {
            continue;
        }
        assert_eq!(
            (&mount["readOnly"], &mount["recursiveReadOnly"]),
            (&true.into(), &"IfPossible".into()),
            "{mount}"
        );
        let of_host =
            Path::new("/").join(path.strip_prefix(&root).expect("below the folder that is entered"));
        assert_eq!(host(text(&mount["name"])), Some(of_host.clone()), "{mount}");
        read.insert(of_host);
    }
    // The programs of a build and what they load, the headers, the driver's source, and accounts and processes, which have
    // user IDs.
    let needed = [
        "/usr",
        "/lib",
        "/lib64",
        "/bin",
        "/sbin",
        "/etc/alternatives",
        "/etc/passwd",
        "/etc/group",
        "/var/lib/dkms",
        "/proc",
        "/dev/null",
    ];
    assert_eq!(read, needed.iter().map(PathBuf::from).collect());
    let (made, read_only) = volume(&below(&own.drivers));
    assert!(!read_only && host(&made) == Some(own.drivers.clone()));
    let daemons = list(&pod["spec"]["containers"][0]["volumeMounts"]);
    assert!(daemons.iter().any(|m| m["name"] == *made && Path::new(text(&m["mountPath"])) == global.drivers));
    assert_eq!(host(&volume(&below(work)).0), None, "a folder that ends with the pod");
    let needed = ["CHOWN", "SETGID", "SETUID", "SYS_CHROOT"];
    assert_eq!(first["securityContext"]["capabilities"]["add"], serde_json::json!(needed));
}

/// Capabilities of the table of docs/privileges.md, and those of them that the daemon always needs without
/// any option.
fn documented() -> (BTreeSet<String>, BTreeSet<String>) {
    let page = read(&repository().join("docs/privileges.md"));
    let (mut all, mut needed) = (BTreeSet::new(), BTreeSet::new());
    for line in page.lines().filter(|line| line.starts_with("| `CAP_")) {
        let cells: Vec<&str> = line.trim_matches([' ', '|']).split(" | ").collect();
        let names = cells[0].split('`').filter_map(|word| word.strip_prefix("CAP_")).map(str::to_owned);
        let names: Vec<String> = names.collect();
        let when = cells.last().expect("when");
        if when.starts_with("always") || when.starts_with("in the daemon") {
            needed.extend(names.iter().cloned());
        }
        all.extend(names);
    }
    (all, needed)
}

fn privileges(all: &[Value]) -> BTreeSet<String> {
    let (pod, container, ..) = pod(all);
    assert_eq!(pod["spec"]["hostPID"], true);
    for wide in ["hostNetwork", "hostIPC"] {
        assert!(pod["spec"][wide].is_null(), "{wide}");
    }
    let context = &container["securityContext"];
    assert_eq!((&context["readOnlyRootFilesystem"], &context["runAsUser"]), (&true.into(), &0.into()));
    if context["privileged"] == true {
        // The API server refuses these in combination with it.
        assert!(context["allowPrivilegeEscalation"].is_null() && context["capabilities"].is_null());
        return documented().1;
    }
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(pod["spec"]["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]));
    list(&context["capabilities"]["add"]).iter().map(|name| text(name).to_owned()).collect()
}

#[tokio::test]
async fn the_daemon_takes_what_the_base_gives_it() {
    let all = base();
    ports(&all).await;
    mounts(&all);
    before("base", &all);
    assert_eq!(one(&all, "ServiceAccount")["automountServiceAccountToken"], false);
    let (_, needed) = documented();
    assert_eq!(needed.len(), 7, "{needed:?}");
    assert_eq!(privileges(&all), needed);
}

#[test]
fn the_image_starts_the_program() {
    let file = read(&repository().join("deploy/kubernetes/Containerfile"));
    for line in ["FROM scratch", "COPY kfd-trace /kfd-trace", "USER 0:0", "ENTRYPOINT [\"/kfd-trace\"]"] {
        assert!(file.lines().any(|other| other == line), "{line}");
    }
    assert!(pod(&base()).1["command"].is_null(), "the image's entry point is meant");
}

#[tokio::test]
#[ignore = "needs cargo xtask manifests"]
async fn the_daemon_takes_what_each_component_gives_it() {
    let (known, needed) = documented();
    let all = rendered();
    assert!(all.len() > 5, "{:?}", all.iter().map(|(name, _)| name).collect::<Vec<_>>());
    for (name, all) in &all {
        println!("{name}");
        ports(all).await;
        mounts(all);
        before(name, all);
        let added = privileges(all);
        assert!(added.is_superset(&needed) && added.is_subset(&known), "{name}: {added:?}");
    }
}
