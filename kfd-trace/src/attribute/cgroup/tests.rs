use super::*;

const ID: &str = "5d0f3ac7e1b9482f6c75d1e0a94b38f7726e5c1d0b9a8f7e6d5c4b3a29180f7e";
const OTHER: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const UID: &str = "6d1f4a3c-0b7e-4d8a-9c11-5e2f7a90b3c4";
const UID_IN_SLICE: &str = "6d1f4a3c_0b7e_4d8a_9c11_5e2f7a90b3c4";
const STATIC: &str = "8fb2a1c0d9e87f6a5b4c3d2e1f001122";

fn of(path: &str) -> Belongs {
    belongs([path])
}

fn container(runtime: impl Into<Option<Runtime>>) -> Option<Container> {
    Some(Container { id: ID.to_owned(), runtime: runtime.into() })
}

/// Layouts of a container outside of Kubernetes; `ID` is a placeholder for its id.
#[test]
fn containers_of_each_engine_and_driver() {
    for (path, runtime) in [
        // cgroupfs driver, and systemd driver
        ("/docker/ID", Runtime::Docker),
        ("/system.slice/docker-ID.scope", Runtime::Docker),
        // rootless
        ("/user.slice/user-1000.slice/user@1000.service/user.slice/docker-ID.scope", Runtime::Docker),
        (
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container",
            Runtime::Podman,
        ),
        ("/machine.slice/libpod-ID.scope", Runtime::Podman),
        ("/machine.slice/libpod-ID.scope/container", Runtime::Podman),
        ("/libpod_parent/libpod-ID", Runtime::Podman),
        ("/system.slice/train.service/libpod-payload-ID", Runtime::Podman),
        ("/system.slice/nerdctl-ID.scope", Runtime::Containerd),
        ("/system.slice/cri-containerd-ID.scope", Runtime::Containerd),
        ("/crio-ID.scope", Runtime::CriO),
        // a scope below the container's own: systemd runs in it
        ("/machine.slice/libpod-ID.scope/container/system.slice/sshd.service", Runtime::Podman),
        // as a tracer in another cgroup namespace sees it
        ("/../docker-ID.scope", Runtime::Docker),
    ] {
        let found = of(&path.replace("ID", ID));
        assert_eq!(found, Belongs { container: container(runtime), ..Belongs::default() }, "{path}");
    }
}

#[test]
fn pods_of_each_runtime_and_driver() {
    let slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID_.slice";
    for (path, runtime) in [
        // cgroupfs driver: guaranteed pods are siblings of the other classes
        ("/kubepods/podUID/ID", None),
        ("/kubepods/besteffort/podUID/ID", None),
        ("/kubepods/burstable/podUID/ID", None),
        ("/kubepods/burstable/podUID/crio-ID", Some(Runtime::CriO)),
        ("/kubepods.slice/kubepods-podUID_.slice/cri-containerd-ID.scope", Some(Runtime::Containerd)),
        ("SLICE/cri-containerd-ID.scope", Some(Runtime::Containerd)),
        ("SLICE/crio-ID.scope", Some(Runtime::CriO)),
        ("SLICE/crio-ID.scope/container", Some(Runtime::CriO)),
        ("SLICE/docker-ID.scope", Some(Runtime::Docker)),
        (
            "/system.slice/containerd.service/kubepods-burstable-podUID_.slice:cri-containerd:ID",
            Some(Runtime::Containerd),
        ),
        // a node that is a container itself (kind)
        ("/docker/OTHER/kubelet/kubepods/besteffort/podUID/ID", None),
        (
            "/system.slice/docker-OTHER.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podUID_.slice/cri-containerd-ID.scope",
            Some(Runtime::Containerd),
        ),
        // as a tracer in a pod of its own sees a pod of its class and one of another, with either driver
        ("/../../podUID/ID", None),
        ("/../../../besteffort/podUID/ID", None),
        ("/../../kubepods-burstable-podUID_.slice/cri-containerd-ID.scope", Some(Runtime::Containerd)),
        // a container inside a pod's container
        ("SLICE/cri-containerd-ID.scope/docker/OTHER", Some(Runtime::Containerd)),
    ] {
        let path = path.replace("SLICE", slice).replace("UID_", UID_IN_SLICE).replace("UID", UID);
        let found = of(&path.replace("ID", ID).replace("OTHER", OTHER));
        let expected =
            Belongs { container: container(runtime), pod_uid: Some(UID.to_owned()), ..Belongs::default() };
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn a_static_pod_has_a_hash_for_its_uid() {
    let found = of(&format!("/kubepods.slice/kubepods-pod{STATIC}.slice/crio-{ID}.scope"));
    assert_eq!(found.pod_uid.as_deref(), Some(STATIC));
    assert_eq!(found.container, container(Runtime::CriO));
}

#[test]
fn a_pod_that_is_named_without_its_container() {
    let found = of(&format!("/kubepods/pod{UID}"));
    assert_eq!((found.pod_uid.as_deref(), found.container), (Some(UID), None));
}

#[test]
fn a_user_has_no_job_of_slurm_by_the_names_of_own_cgroups() {
    for below in ["user@1000.service/app.slice", "user@1000.service/system.slice"] {
        let path = format!("/user.slice/user-1000.slice/{below}/slurmstepd.scope/job_7/step_0");
        assert_eq!(of(&path).slurm, None, "{path}");
    }
    let seen_from_a_container = of("/../../system.slice/slurmstepd.scope/job_7/step_0");
    assert_eq!(seen_from_a_container.slurm.map(|slurm| slurm.job), Some(7));
}

#[test]
fn slurm_jobs_of_both_versions() {
    let step = |step: Option<&str>, uid| SlurmStep { job: 4242, step: step.map(str::to_owned), uid };
    for (path, expected) in [
        ("/slurm/uid_1000/job_4242/step_0/task_3", step(Some("0"), Some(1000))),
        ("/slurm/uid_1000/job_4242/step_batch", step(Some("batch"), Some(1000))),
        ("/slurm_gpu17/uid_1000/job_4242/step_extern/task_0", step(Some("extern"), Some(1000))),
        ("/slurm/uid_1000/job_4242", step(None, Some(1000))),
        ("/system.slice/slurmstepd.scope/job_4242/step_0/user/task_0", step(Some("0"), None)),
        (
            "/system.slice/slurmstepd.scope/job_4242/step_interactive/user/task_special",
            step(Some("interactive"), None),
        ),
        ("/system.slice/gpu17_slurmstepd.scope/job_4242/step_1/slurm", step(Some("1"), None)),
    ] {
        assert_eq!(of(path), Belongs { slurm: Some(expected), ..Belongs::default() }, "{path}");
    }
}

#[test]
fn a_container_in_a_job_has_both() {
    let found = of(&format!("/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/libpod-{ID}.scope"));
    assert_eq!(found.container, container(Runtime::Podman));
    assert_eq!(found.slurm.map(|slurm| slurm.job), Some(7));
}

#[test]
fn units_of_who_is_in_nothing_else() {
    for (path, unit) in [
        ("/system.slice/train.service", "train.service"),
        ("/system.slice/train.service/worker", "train.service"),
        ("/user.slice/user-1000.slice/session-3.scope", "session-3.scope"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service", "vllm.service"),
        // what is beside a container is not in it
        ("/machine.slice/libpod-conmon-ID.scope", "libpod-conmon-ID.scope"),
        ("/machine.slice/machine-tree.scope/init", "machine-tree.scope"),
    ] {
        let (path, unit) = (path.replace("ID", ID), unit.replace("ID", ID));
        assert_eq!(of(&path), Belongs { unit: Some(unit), ..Belongs::default() }, "{path}");
    }
}

/// What separates tenants is made by the node's own managers. A tenant can make further cgroups below it, and name them as
/// those of others.
#[test]
fn a_tenant_is_what_managers_of_the_node_have_made() {
    let slice = format!("/kubepods.slice/kubepods-pod{UID_IN_SLICE}.slice");
    let job = "/system.slice/slurmstepd.scope/job_7";
    let user = "/user.slice/user-1000.slice";
    for (of, path) in [
        (slice.clone(), format!("{slice}/cri-containerd-{ID}.scope")),
        (slice.clone(), format!("{slice}/crio-{ID}.scope/kubepods/pod{STATIC}/{OTHER}")),
        (format!("/kubepods/burstable/pod{UID}"), format!("/kubepods/burstable/pod{UID}/{ID}")),
        (
            format!("/system.slice/containerd.service/kubepods-pod{UID_IN_SLICE}.slice:cri-containerd:{ID}"),
            format!("/system.slice/containerd.service/kubepods-pod{UID_IN_SLICE}.slice:cri-containerd:{ID}"),
        ),
        (job.to_owned(), format!("{job}/step_0/user/task_3/libpod-{ID}.scope")),
        ("/slurm/uid_5/job_9".to_owned(), "/slurm/uid_5/job_9/step_0".to_owned()),
        (user.to_owned(), format!("{user}/session-3.scope")),
        // whatever the user's own service manager made
        (user.to_owned(), format!("{user}/user@1000.service/user.slice/libpod-{ID}.scope/container")),
        (user.to_owned(), format!("{user}/user@1000.service/kubepods/pod{UID}/{ID}")),
        (format!("/docker/{ID}"), format!("/docker/{ID}/kubepods/pod{UID}/{OTHER}")),
        (format!("/../../pod{UID}"), format!("/../../pod{UID}/{ID}")),
    ] {
        assert_eq!(share(&path), Share::Whole(&of), "{path}");
    }
    for (of, path) in [
        ("/system.slice/train.service", "/system.slice/train.service/worker.service"),
        ("", "/mine/of/root"),
        ("", "/"),
        ("", ""),
    ] {
        assert_eq!(share(path), Share::ByUser(of), "{path}");
    }
}

/// v1 names a job only in some hierarchies, and systemd its unit in the others.
#[test]
fn paths_of_several_hierarchies_are_combined() {
    let found = belongs(["/system.slice/slurmd.service", "/slurm/uid_5/job_9/step_0"]);
    let slurm = SlurmStep { job: 9, step: Some("0".to_owned()), uid: Some(5) };
    assert_eq!(found, Belongs { slurm: Some(slurm), ..Belongs::default() });
    let pod = format!("/kubepods/pod{UID}/{ID}");
    let found = belongs(["/", &format!("/docker/{OTHER}"), &pod]);
    assert_eq!(
        (found.container, found.pod_uid.as_deref()),
        (container(None), Some(UID)),
        "the pod's container"
    );
    assert_eq!(belongs(["/a.service", "/b.service"]).unit.as_deref(), Some("a.service"), "the first one");
}

#[test]
fn similar_paths_give_nothing() {
    for path in [
        "/".to_owned(),
        String::new(),
        "/job_7/step_0".to_owned(),
        "/slurm/uid_x/job_7".to_owned(),
        "/slurm/uid_5/job_/step_0".to_owned(),
        "/system.slice/slurmstepd.scope.d/job_7".to_owned(),
        "/lxc.payload.docker/x".to_owned(),
        format!("/default/{ID}"),
        format!("/docker-{}", &ID[1..]),
        format!("/docker/{}", ID.to_uppercase()),
        format!("/pod{UID}"),
        format!("/mine-pod{UID_IN_SLICE}.slice"),
        "/kubepods/podlike".to_owned(),
        "/kubepods.slice/kubepods-pod.slice".to_owned(),
        ".service/.scope".to_owned(),
    ] {
        assert_eq!(of(&path), Belongs::default(), "{path}");
    }
}

/// The kernel's own record has only the last name.
#[test]
fn the_last_name_alone_gives_the_container() {
    assert_eq!(of(&format!("cri-containerd-{ID}.scope")).container, container(Runtime::Containerd));
    assert_eq!(of(ID).container, container(None));
}
