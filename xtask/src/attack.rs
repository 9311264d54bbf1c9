//! `cargo xtask attack`: what a hostile client can do to a daemon that waits for a driver, on loopback; and to one with 10,000
//! queues, which are generated (tests/load/src/serve.rs); and what becomes of it where one of its processes hangs.
//!
//! In: a binary. Out: a figure for each attack, beside what is accepted.

mod health;
mod processes;

use crate::run::{self, Ended, step};
use crate::{bench, build, paths};
use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use processes::{asks_without_pause, few_descriptors, tracer_hangs, web_hangs, web_hangs_at_the_end};
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _, copy, sink};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, scope, sleep};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Attack this binary, not the one of this tree: to compare the two
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Make only attacks whose name contains this
    #[arg(value_name = "TEXT")]
    only: Option<String>,
}

/// One row of the table.
struct Attack {
    name: &'static str,
    /// What is accepted.
    goal: &'static str,
    run: fn(&Path) -> Result<Seen>,
}

struct Seen {
    figure: String,
    well: bool,
}

const ATTACKS: [Attack; 13] = [
    Attack { name: "connections that end at once, six clients", goal: "peak under 40 MB", run: ended },
    Attack { name: "2,000 silent connections a second", goal: "no health check fails", run: silent },
    Attack { name: "the same of 64 addresses, health address", goal: "no health check fails", run: siege },
    Attack {
        name: "10,000 queues, 64 clients at once",
        goal: "none fails, peak under 120 MB",
        run: many_at_once,
    },
    Attack { name: "wrong passwords, and the file changes", goal: "10 of 10 scrapes", run: passwords },
    Attack { name: "a FIFO as web configuration", goal: "refused in one line", run: fifo },
    Attack { name: "another site's name as Host", goal: "421", run: other_host },
    Attack { name: "the process that serves is killed", goal: "200 within 5 s", run: killed },
    Attack { name: "the process that serves hangs", goal: "200 within 45 s", run: web_hangs },
    Attack { name: "it hangs at the end", goal: "ends well within 3 s", run: web_hangs_at_the_end },
    Attack { name: "the process that traces hangs", goal: "not healthy, then healthy", run: tracer_hangs },
    Attack {
        name: "10,000 queues, clients without pauses",
        goal: "under 60 % of a CPU",
        run: asks_without_pause,
    },
    Attack { name: "48 descriptors, 100 idle", goal: "no health check fails", run: few_descriptors },
];

/// How long each of them lasts.
const LASTS: Duration = Duration::from_secs(5);

/// A pause between questions, and how long some of them wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// Of any other client.
const TIMEOUT: Duration = Duration::from_secs(10);

const ATTACKER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A user `scraper` whose password is `wonder`, at the usual cost.
const USERS: &str =
    "basic_auth_users:\n  scraper: $2b$10$abcdefghijklmnopqrstuuM.QYO9dYACpw171TZl5APB53ah0sCme\n";
const RIGHT: &str = "Authorization: Basic c2NyYXBlcjp3b25kZXI=\r\n";
const WRONG: &str = "Authorization: Basic c2NyYXBlcjp3cm9uZw==\r\n";

/// `Ok(false)`: a figure is worse than what is accepted, and was printed.
pub(crate) fn attack(args: &Args) -> Result<bool> {
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => build::build()?,
    };
    let mut all_well = true;
    let chosen = ATTACKS.iter().filter(|attack| attack.name.contains(args.only.as_deref().unwrap_or("")));
    for Attack { name, goal, run } in chosen {
        step(format!("attack: {name}"));
        let Seen { figure, well } = run(&binary).with_context(|| (*name).to_owned())?;
        println!("{} {name:<42} {figure} (goal: {goal})", if well { "ok  " } else { "FAIL" });
        all_well &= well;
    }
    Ok(all_well)
}

/// The check of the test command.
pub(crate) fn check() -> Result<()> {
    if !attack(&Args { binary: None, only: None })? {
        bail!("the daemon does not hold");
    }
    Ok(())
}

/// A daemon that waits for a driver, as a machine without one has it.
struct Daemon {
    process: Ended,
    port: u16,
    /// Of `--web.health-address`.
    health: Option<u16>,
}

/// The status of the response. `headers`: lines that end in CRLF, the Host among them.
fn status(mut stream: TcpStream, path: &str, headers: &str) -> Result<u16> {
    write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no HTTP response")
}

/// A folder for the files of one attack, and in it a sysfs without a driver.
fn folder(name: &str) -> Result<PathBuf> {
    let dir = paths::target().join("attack").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("sysfs")).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

fn command(binary: &Path, dir: &Path) -> Command {
    let mut command = Command::new(binary);
    command.args(["daemon", "--web.listen-address", "127.0.0.1:0", "--path.sysfs"]).arg(dir.join("sysfs"));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

impl Daemon {
    fn start(command: &mut Command) -> Result<Self> {
        let mut process = Ended(command.spawn().context("cannot run it")?);
        let mut lines = BufReader::new(process.0.stderr.take().context("no stderr")?).lines();
        let mut port = |page: &str| {
            lines.by_ref().map_while(Result::ok).find_map(|line| {
                let (_, address) = line.split_once("serving http://127.0.0.1:")?;
                address.strip_suffix(page)?.parse().ok()
            })
        };
        let wants_health = command.get_args().any(|word| word == "--web.health-address");
        let (all, health) = (port("/metrics"), if wants_health { port("/-/healthy") } else { None });
        // It must not wait for somebody who reads what it writes.
        thread::spawn(move || lines.for_each(drop));
        Ok(Daemon { process, port: all.context("the daemon does not serve")?, health })
    }

    fn connect(&self, from: Ipv4Addr) -> Result<TcpStream> {
        self.connect_to(from, self.port)
    }

    fn connect_to(&self, from: Ipv4Addr, port: u16) -> Result<TcpStream> {
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let stream = if from == ATTACKER {
            // It has this address anyway. A port that was bound would not be free again for a minute.
            TcpStream::connect(to)?
        } else {
            let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
            bind(socket.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(from, 0)))?;
            connect(socket.as_raw_fd(), &SockaddrIn::from(to))?;
            TcpStream::from(socket)
        };
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(stream)
    }

    fn status(&self, from: Ipv4Addr, path: &str, headers: &str) -> Result<u16> {
        status(self.connect(from)?, path, headers)
    }

    /// Its processes: the tracer's, and the one that serves.
    fn processes(&self) -> Result<Vec<PathBuf>> {
        run::family(self.process.0.id())
    }

    /// Bytes, of all its processes.
    fn highest_memory(&self) -> Result<i64> {
        let highest = |process: PathBuf| run::status_number(&process.join("status"), "VmHWM");
        Ok(self.processes()?.into_iter().map(highest).sum::<Result<i64>>()? * 1024)
    }
}

const HOST: &str = "Host: 127.0.0.1\r\n";

fn ended(binary: &Path) -> Result<Seen> {
    let daemon = Daemon::start(&mut command(binary, &folder("ended")?))?;
    let end = Instant::now() + LASTS;
    scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while Instant::now() < end {
                    // What a full table of ports or a daemon that was killed refuses is seen below.
                    let _ = daemon.connect(ATTACKER).map(|stream| stream.shutdown(Shutdown::Both));
                }
            });
        }
    });
    let bytes = daemon.highest_memory()?;
    Ok(Seen { figure: format!("peak {:.1} MB", bytes as f64 / 1e6), well: bytes < 40_000_000 })
}

fn silent(binary: &Path) -> Result<Seen> {
    let daemon = Daemon::start(&mut command(binary, &folder("silent")?))?;
    besieged(&daemon, &[ATTACKER], daemon.port)
}

fn siege(binary: &Path) -> Result<Seen> {
    let mut command = command(binary, &folder("siege")?);
    let daemon = Daemon::start(command.args(["--web.health-address", "127.0.0.1:0"]))?;
    let health = daemon.health.context("it has no address for health")?;
    let crowd: Vec<Ipv4Addr> = (1..=64).map(|host| Ipv4Addr::new(127, 0, 1, host)).collect();
    besieged(&daemon, &crowd, health)
}

/// Asks the port whether the daemon is healthy, while 2,000 connections a second come from these addresses.
fn besieged(daemon: &Daemon, attackers: &[Ipv4Addr], health: u16) -> Result<Seen> {
    const A_SECOND: u32 = 2_000;
    const CROWD: u32 = 16;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    // More than the kernel keeps until they are accepted, where so many descriptors can be had.
    let each = usize::try_from(most / 2).unwrap_or(usize::MAX).min(3_200) / CROWD as usize;
    let begin = Instant::now();
    let (made, checks) = scope(|scope| {
        // Many, since one waits where the daemon accepts too slowly.
        let crowd = [(); CROWD as usize].map(|()| {
            scope.spawn(|| {
                let (mut open, mut made, mut turns) = (VecDeque::new(), 0_u32, 0_u32);
                for attacker in attackers.iter().cycle() {
                    if begin.elapsed() > LASTS {
                        break;
                    }
                    // It may be refused: then the next one is due.
                    made += u32::from(daemon.connect(*attacker).map(|stream| open.push_back(stream)).is_ok());
                    if open.len() > each {
                        open.pop_front();
                    }
                    turns += 1;
                    let due = Duration::from_secs(1) * turns * CROWD / A_SECOND;
                    sleep(due.saturating_sub(begin.elapsed()));
                }
                made
            })
        });
        let mut checks = health::Checks::default();
        while begin.elapsed() < LASTS {
            for from in [ATTACKER, OTHER] {
                let asks = Instant::now();
                let answer =
                    daemon.connect_to(from, health).and_then(|stream| status(stream, "/-/healthy", HOST));
                checks.add(answer.ok(), asks.elapsed());
            }
            sleep(Duration::from_millis(100));
        }
        let made: u32 = crowd.into_iter().map(|one| one.join().unwrap_or(0)).sum();
        (made, checks)
    });
    // Fewer than some times the table of the daemon are no crowd.
    ensure!(made > 500, "only {made} connections were made");
    let rate = u64::from(made) / LASTS.as_secs();
    Ok(Seen { figure: format!("{checks}, at {rate} a second"), well: checks.are_well() })
}

/// Of a client that waits for many others to be served.
const LONG: Duration = Duration::from_secs(120);

/// A daemon with 10,000 queues.
fn large() -> Result<Daemon> {
    let program = bench::daemon::build()?;
    let mut command = Command::new(program);
    // It runs until its standard input ends.
    command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    Daemon::start(&mut command)
}

/// Of 64 clients, half ask for the exposition, a quarter for the page, a quarter for the API's queues, three times each.
fn many_at_once(_: &Path) -> Result<Seen> {
    let daemon = large()?;
    let read = |path: &str| -> Result<usize> {
        let mut stream = daemon.connect(ATTACKER)?;
        stream.set_read_timeout(Some(LONG))?;
        write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n{HOST}\r\n")?;
        let mut answer = BufReader::new(stream);
        let mut line = String::new();
        answer.read_line(&mut line)?;
        ensure!(line.contains(" 200 "), "{}", line.trim());
        Ok(usize::try_from(copy(&mut answer, &mut sink())?)?)
    };
    for (path, least) in [("/metrics", 1 << 20), ("/", 100 << 10), ("/api/v1/queues", 1 << 20)] {
        let bytes = read(path)?;
        ensure!(bytes > least, "{path}: {bytes} bytes are not those of 10,000 queues");
    }
    let failed: usize = scope(|scope| {
        let clients: Vec<_> = (0..64)
            .map(|number| {
                let path = ["/metrics", "/", "/metrics", "/api/v1/queues"][number % 4];
                scope.spawn(move || (0..3).filter(|_| read(path).is_err()).count())
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap_or(3)).sum()
    });
    let peak = daemon.highest_memory()? as f64 / 1e6;
    let well = peak < 120.0 && failed == 0;
    Ok(Seen { figure: format!("peak {peak:.1} MB, {failed} of 192 failed"), well })
}

fn passwords(binary: &Path) -> Result<Seen> {
    let dir = folder("passwords")?;
    let config = dir.join("web.yml");
    fs::write(&config, USERS)?;
    let daemon = Daemon::start(command(binary, &dir).arg("--web.config.file").arg(&config))?;
    let scrape = || daemon.status(OTHER, "/metrics", &format!("{HOST}{RIGHT}")).ok() == Some(200);
    ensure!(scrape(), "it is not scraped without an attack either");
    let over = AtomicBool::new(false);
    let good = scope(|scope| {
        for _ in 0..300 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = daemon.status(ATTACKER, "/metrics", &format!("{HOST}{WRONG}"));
                }
            });
        }
        let mut good = 0;
        for number in 0..10 {
            // The daemon looks for changes once a second.
            if number % 5 == 0 {
                let _ = fs::write(&config, format!("{USERS}# {number}\n"));
            }
            good += u32::from(scrape());
            sleep(LASTS / 10);
        }
        over.store(true, Ordering::Relaxed);
        good
    });
    Ok(Seen { figure: format!("{good} of 10 scrapes"), well: good == 10 })
}

fn fifo(binary: &Path) -> Result<Seen> {
    let dir = folder("fifo")?;
    let path = dir.join("web.yml");
    mkfifo(&path, Mode::S_IRUSR)?;
    let mut process = Ended(command(binary, &dir).arg("--web.config.file").arg(&path).spawn()?);
    let end = Instant::now() + LASTS;
    while Instant::now() < end {
        if process.0.try_wait()?.is_some() {
            let mut said = String::new();
            process.0.stderr.take().context("no stderr")?.read_to_string(&mut said)?;
            let well = said.lines().count() == 1 && said.contains("not a regular file");
            return Ok(Seen { figure: format!("ended: {}", said.trim()), well });
        }
        sleep(Duration::from_millis(50));
    }
    Ok(Seen { figure: "hangs".to_owned(), well: false })
}

fn other_host(binary: &Path) -> Result<Seen> {
    let daemon = Daemon::start(&mut command(binary, &folder("host")?))?;
    let status = daemon.status(OTHER, "/metrics", "Host: evil.example\r\n")?;
    Ok(Seen { figure: status.to_string(), well: status == 421 })
}

fn killed(binary: &Path) -> Result<Seen> {
    let daemon = Daemon::start(&mut command(binary, &folder("killed")?))?;
    let [tracer, web] = daemon.processes()?.try_into().ok().context("it serves by no process of its own")?;
    let pid = |process: &Path| process.file_name()?.to_str()?.parse().ok().map(Pid::from_raw);
    kill(pid(&web).context("a PID")?, Signal::SIGKILL)?;
    let begin = Instant::now();
    while begin.elapsed() < LASTS {
        if daemon.status(OTHER, "/metrics", HOST).ok() == Some(200) {
            let well = tracer.exists() && !web.exists();
            return Ok(Seen { figure: format!("200 after {:.1} s", begin.elapsed().as_secs_f64()), well });
        }
        sleep(Duration::from_millis(50));
    }
    Ok(Seen { figure: "no answer".to_owned(), well: false })
}
