//! The forms of dkms.conf: each gives the types of the driver as its own configuration step makes it.

use crate::host::{CONFIGURE, FLAGS, Host, is_running, stderr, word_after};
use kfd_trace::kernel::btf::Btf;
use std::fs;

/// Size of `queue`: 24 bytes that the configuration step found out, and a size.
const CONFIGURED: u32 = 32;

fn makes_types(host: &Host) {
    let output = host.run(&[]);
    assert!(
        output.status.success(),
        "{}{}",
        stderr(&output),
        fs::read_to_string(host.path("types.log")).unwrap_or_default()
    );
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains(" fields, for version 6.12.12"), "{printed}");
    let types = Btf::parse(fs::read(host.types()).expect("a types file"), None).expect("BTF");
    assert_eq!(types.size_of("queue").expect("queue"), CONFIGURED, "not the stale configuration");
    assert_eq!(types.parameters("kfd_process_evict_queues"), Some(2));
    assert!(host.is_clean());
}

/// A package with this configuration step.
fn with_step(conf: &str, step: &str) -> Host {
    Host::new(&format!("PRE_BUILD=configure.sh\n{conf}"), &[("configure.sh", &format!("#!/bin/sh\n{step}"))])
}

/// A step that makes a folder with a random name a link to this one, and configures the driver.
fn linked(from: &str, to: &str) -> String {
    format!("#!/bin/bash\nln -s {from} {to}\necho \"PATH=$PATH\" > {to}/.env\n{CONFIGURE}")
}

/// A step of its own, then kbuild in the folder where DKMS builds.
#[test]
fn a_step_before_kbuild() {
    let conf = r#"
PRE_BUILD="amd/dkms/pre-build.sh $kernelver"
BUILT_MODULE_NAME[1]="amdttm"
MAKE[0]="make TTM_NAME=${BUILT_MODULE_NAME[1]} \
	-C $kernel_source_dir \
	M=$dkms_tree/$module/$module_version/build"
"#;
    let step = format!("#!/bin/bash\n[ \"$1\" = 5.10.0-46-amd64 ] || exit 1\n{CONFIGURE}");
    makes_types(&Host::new(conf, &[("amd/dkms/pre-build.sh", &step)]));
}

/// A name that dkms.conf makes up anew whenever it is read, for both of its commands.
#[test]
fn a_folder_with_a_random_name() {
    let conf = r#"
module_build_dir="$(mktemp -ut amd.XXXXXXXX)"
PRE_BUILD="amd/dkms/pre-build.sh $kernelver $dkms_tree $module $module_version $module_build_dir"
num_cpu_cores()
{
	nproc
}
MAKE[0]=". $module_build_dir/.env && make -j$(num_cpu_cores) KERNELRELEASE=$kernelver \
	-C $kernel_source_dir \
	M=$module_build_dir"
"#;
    makes_types(&Host::new(conf, &[("amd/dkms/pre-build.sh", &linked("$2/$3/$4/build", "$5"))]));
}

/// A Makefile of the driver's own, which configures and then calls kbuild; its headers are those of /lib/modules, unless
/// given.
const TOP: &str = "\
ifneq ($(KERNELRELEASE),)
FLAGS
else
KERNELVER := $(shell uname -r)
kernel_build_dir := /lib/modules/$(KERNELVER)/build
module_build_dir := $(shell mktemp -ut amd.XXXXXXXX)

ifeq ($(wildcard $(kernel_build_dir)/Makefile),)
$(error \"invalid kernel obj dir, is kernel-devel installed?\")
endif

.PHONY: modules pre-build
modules: pre-build
\t@$(shell cat $(module_build_dir)/.env) CALL
\t@amd/dkms/post-build.sh $(module_build_dir)

pre-build:
\t@amd/dkms/pre-build.sh $(KERNELVER) $(CURDIR) $(module_build_dir)
endif
";

fn own_makefile(call: &str) -> Host {
    let top = TOP.replace("FLAGS", FLAGS.trim_end()).replace("CALL", call);
    let step = linked("$2", "$3");
    let files = [
        ("Makefile", top.as_str()),
        ("amd/dkms/pre-build.sh", step.as_str()),
        ("amd/dkms/post-build.sh", "#!/bin/bash\nrm $1\n"),
    ];
    Host::new("MAKE[0]=\"'make' KERNELVER=$kernelver\"\n", &files)
}

#[test]
fn a_makefile_that_calls_kbuild() {
    makes_types(&own_makefile("make -j2 TTM_NAME=amdttm -C $(kernel_build_dir) M=$(module_build_dir)"));
}

#[test]
fn a_makefile_that_calls_kbuild_with_another_path_and_by_its_variable() {
    makes_types(&own_makefile(
        "PATH=/usr/bin:/bin $(MAKE) M=. KCFLAGS=-DX -C $(kernel_build_dir) M=$(CURDIR) modules",
    ));
}

#[test]
fn no_command_at_all() {
    makes_types(&with_step("", CONFIGURE));
}

#[test]
fn a_command_by_its_path_with_a_target_flags_and_a_choice_by_kernel() {
    let conf = r#"
MAKE[0]="exit 1"
MAKE_MATCH[0]="^4"
MAKE[1]="/usr/bin/make KCFLAGS=-DNEEDED=1 M=$dkms_tree/$module/$module_version/build -C $kernel_source_dir modules"
MAKE_MATCH[1]="^5"
"#;
    let host = with_step(conf, CONFIGURE);
    host.put(
        "source/include/kfd_mqd_manager.h",
        "#ifndef NEEDED\n#error the driver's own flag is missing\n#endif\n",
    );
    makes_types(&host);
}

/// Another step on the same folder is not the build.
#[test]
fn a_clean_before() {
    let conf = r#"
MAKE[0]="make -C $kernel_source_dir M=$dkms_tree/$module/$module_version/build clean && make -C $kernel_source_dir M=$dkms_tree/$module/$module_version/build all"
"#;
    let host = with_step(conf, CONFIGURE);
    host.put("source/Makefile", &format!("{FLAGS}clean:\n\trm -f amd/amdgpu/*.o\n"));
    makes_types(&host);
}

#[test]
fn a_failed_build_shows_its_first_error_and_where_the_rest_is() {
    let step =
        "echo 'configure: error: no C compiler'\nseq 100 200\necho '#define WRONG' > include/config.h\n";
    let host = with_step("", step);
    let output = host.run(&[]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = stderr(&output);
    assert!(
        stderr.contains("configure: error: no C compiler\n") && stderr.contains("CONFIGURED"),
        "{stderr}"
    );
    assert!(!stderr.contains("\nkfd-trace:   100\n"), "{stderr}");
    let last = stderr.lines().last().expect("a line");
    let whole = host.path("types.log").display().to_string();
    assert!(last.contains("the driver's build failed") && last.ends_with(&whole), "{last}");
    assert!(host.log().contains("\n100\n"));
    assert!(!host.types().exists() && host.is_clean());
}

#[test]
fn a_failed_configuration_step_is_no_build_with_a_stale_configuration() {
    let host = with_step("", "exit 3\n");
    let output = host.run(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(!host.types().exists());
}

#[test]
fn a_build_that_never_calls_kbuild_says_so() {
    let output = Host::new("MAKE[0]=true\n", &[]).run(&[]);
    assert!(stderr(&output).contains("without calling kbuild"), "{}", stderr(&output));
}

#[test]
fn the_time_ends_a_build_and_all_that_it_started() {
    let host = with_step("", "sleep 600 & echo started=$! ; sleep 600\n");
    let output = host.run(&["--timeout", "20s"]);
    assert!(stderr(&output).contains("--timeout"), "{}", stderr(&output));
    let log = host.log();
    assert!(!is_running(word_after(&log, "started=")), "{log}");
    assert!(host.is_clean());
}
