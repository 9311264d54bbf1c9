//! What is printed below the options of `--help`: exit codes, and two examples per command.

pub(super) const STREAM: &str = "\
Exit codes:
  0  done
  1  failed
  2  bad usage
  3  nothing to trace here (no amdgpu driver with KFD; `daemon` waits for it instead)
  4  doctor: something is hidden from the usual checks (lsof, fuser, rocm-smi)
  5  doctor: something is wrong (KFD or a GPU keeps what no process has, or an eviction does not end)

Examples:
  kfd-trace --pid 4242 --duration 30s          follow one process, then print the summary
  kfd-trace --container 5d0f3ac7e1b9           what the processes of a container do, once they come
  kfd-trace --json --event queue_create        one JSON object per new queue";

pub(super) const RUN: &str = "\
It ends with the command, and with its exit code: 128 and the number of the signal that ended it, 127 if it was
not found, 126 if it cannot be executed. If it cannot be traced, it is not run.

Examples:
  kfd-trace run ./app --size 4096              its events and the summary on standard error
  kfd-trace run -c -o app.txt --user ann ./app       only the summary, of a command of another user";

pub(super) const RECORD: &str = "\
The summary is printed at its end. A file that was cut by a crash or a full disk is read up to its last whole block.
`kfd-trace --record FILE` and `kfd-trace run --record FILE COMMAND` print the events, too.

Examples:
  kfd-trace record -o night.rec                all of this machine, until Ctrl-C
  kfd-trace record --pid 4242 --duration 1m    one process, into kfd-trace.rec";

pub(super) const REPLAY: &str = "\
It needs no privileges, no driver and no GPU: copy the file to any machine.

Examples:
  kfd-trace replay night.rec                   as the stream would have been
  kfd-trace replay night.rec --at 03:12:45     who had which queue then
  kfd-trace replay night.rec --json --event evict | jq .latency_ns";

pub(super) const TIMELINE: &str = "\
Open it at https://ui.perfetto.dev, which keeps it in the browser.

Examples:
  kfd-trace timeline night.rec                 writes night.pftrace
  kfd-trace timeline night.rec --amd-log app.log     with the dispatches of a log
  kfd-trace timeline --amd-log app.log           a log alone, into app.pftrace
  kfd-trace timeline --duration 10s -o now.pftrace   what happens from now on
  kfd-trace timeline night.rec -o - | gzip > night.pftrace.gz";

pub(super) const PS: &str = "\
Examples:
  kfd-trace ps                                 processes and queues now
  kfd-trace ps --wide                          with addresses and sources
  kfd-trace ps --json | jq '.queues[].pid'     PIDs that have queues
  kfd-trace ps --url https://node7:20200 -u ann --cacert ca.pem    of another node, by its daemon";

pub(super) const FLEET_PS: &str = "\
It exits with 1 if a node does not answer; the list has the others.

Examples:
  kfd-trace fleet ps --targets /etc/prometheus/kfd.json      all nodes that Prometheus scrapes
  kfd-trace fleet ps --targets rack7.yml -u ann --json | jq '.nodes[] | select(.error) | .node'";

pub(super) const TOP: &str = "\
Keys: Tab, arrows or j k, s > < S (sort), / (filter), t (tree), p (pause),
? (help), q. Colours are the terminal's own; none where NO_COLOR is set.
It needs 80 columns and 24 lines.

Examples:
  kfd-trace top                                until q
  kfd-trace top --interval 5s --sample.interval 5s     for a slow connection
  kfd-trace top --url http://node7:20200       another node, by its daemon, without privileges
  kfd-trace top --recording kfd-trace.rec --at 14:03:27    what a recording has from then on";

pub(super) const RUNLIST: &str = "\
Examples:
  kfd-trace runlist                            tables every two seconds, until Ctrl-C
  kfd-trace runlist --duration 1m --interval 1m    one minute in one table";

pub(super) const DAEMON: &str = "\
Examples:
  kfd-trace daemon                             serve http://127.0.0.1:20200/
  kfd-trace daemon --web.listen-address :20200 --web.config.file web.yml
  kfd-trace daemon --record /var/lib/kfd-trace-recordings      for replay and timeline";

pub(super) const STATUS: &str = "\
Examples:
  kfd-trace status                             each probe with its verdict
  kfd-trace status --json | jq .meaning        what cannot be seen";

pub(super) const DOCTOR: &str = "\
Examples:
  kfd-trace doctor                             the whole node
  kfd-trace doctor --pid 4242                  one process
  kfd-trace doctor --url http://node7:20200    another node, by its daemon";

pub(super) const AMD_LOG: &str = "\
Examples:
  kfd-trace amd-log app.log                    queues, dispatches and commands of a log
  kfd-trace amd-log --live --follow app.log    with the driver's queues, until Ctrl-C";

pub(super) const HW: &str = "\
Examples:
  kfd-trace hw --hqds                          queues and their slots, now
  kfd-trace hw --interval 1s                   which of them moved within a second
  kfd-trace hw --mqds mqds.txt --hqds hqds.txt of copies, from any machine";

pub(super) const COMPLETIONS: &str = "\
Examples:
  kfd-trace completions bash > /etc/bash_completion.d/kfd-trace
  kfd-trace completions zsh > /usr/share/zsh/site-functions/_kfd-trace";

pub(super) const MAN: &str = "\
Examples:
  kfd-trace man /usr/local/share/man/man1      for man kfd-trace, man kfd-trace-ps and so on
  kfd-trace man . && man ./kfd-trace.1         without installing them";

pub(super) const DRIVER_TYPES: &str = "\
Examples:
  kfd-trace driver-types                       of the loaded driver, into /var/lib/kfd-trace/drivers
  kfd-trace driver-types --module amdgpu.ko --headers /usr/src/linux-headers-5.10.0-46-amd64 -o .";
