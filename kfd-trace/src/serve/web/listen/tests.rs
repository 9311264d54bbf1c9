use super::*;
use crate::serve::web::settings::SettingsSource;
use crate::serve::web::users::tests::hash;
use std::net::TcpStream;
use std::process::{Command, Stdio};

const ANY: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

#[test]
fn addresses_as_exporters_take_them() {
    assert_eq!(address(":9100"), Ok("[::]:9100".parse().unwrap()));
    assert_eq!(address("127.0.0.1:1"), Ok("127.0.0.1:1".parse().unwrap()));
    assert_eq!(address("[::1]:2"), Ok("[::1]:2".parse().unwrap()));
    for text in ["", ":", ":x", ":65536", "9100", "127.0.0.1", "localhost:9100", "::1:9100x"] {
        assert!(address(text).unwrap_err().contains("try 127.0.0.1:20200"), "{text}");
    }
    assert!(DEFAULT_ADDRESS.ip().is_loopback());
}

#[tokio::test]
async fn an_address_in_use_is_one_clear_line() {
    let taken = bind(&[ANY], "--web.listen-address").expect("a free port");
    let address = taken[0].local_addr().expect("bound");
    for option in ["--web.listen-address", "--web.health-address"] {
        let error = bind(&[ANY, address], option).expect_err("in use").to_string();
        assert!(error.starts_with(&format!("cannot listen on {address}: ")), "{error}");
        assert!(
            error.ends_with(&format!("choose another with {option}")) && !error.contains('\n'),
            "{error}"
        );
    }
}

#[tokio::test]
async fn every_address_has_those_of_ipv4_too() {
    let every = bind(&[address(":0").unwrap()], "--web.listen-address").expect("a free port");
    let port = every[0].local_addr().unwrap().port();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
}

#[test]
fn an_unprotected_address_is_reported() {
    let of = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.yml");
        std::fs::write(&path, text).unwrap();
        SettingsSource::open(&path).unwrap().1.settings
    };
    let (open, users) = (of(""), of(&format!("basic_auth_users:\n  a: {}\n", hash("a"))));
    let outside: SocketAddr = "[::]:9100".parse().unwrap();
    assert!(exposed(outside, &open).unwrap().contains("[::]:9100 is served to any client"));
    assert!(exposed(outside, &users).unwrap().contains("passwords can be read"));
    for inside in ["127.0.0.2:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(exposed(inside.parse().unwrap(), &open), None, "{inside}");
    }
}

/// Run below by a test in its own process: variables and descriptors belong to the whole process.
#[test]
#[ignore = "a part of sockets_are_taken_from_systemd"]
fn child() {
    match from_systemd() {
        Ok(listeners) => {
            let (stream, _) = listeners[0].accept().expect("somebody connects");
            println!("taken {} of port {}", listeners.len(), listeners[0].local_addr().unwrap().port());
            stream.shutdown(std::net::Shutdown::Write).expect("ends");
        }
        Err(line) => println!("refused: {line}"),
    }
}

/// The output of `child` when it is started as systemd starts a service: `passed` as descriptor 3, and these
/// variables.
fn started(passed: impl Into<Stdio>, variables: &str) -> String {
    let (_, module) = module_path!().split_once("::").expect("the crate");
    let script =
        format!("{variables} exec \"$0\" --exact {module}::child --ignored --nocapture 3<&0 </dev/null");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg(std::env::current_exe().unwrap()).stdin(passed);
    shell.env_remove("LISTEN_FDS").env_remove("LISTEN_PID").env_remove("LISTEN_FDNAMES");
    let output = shell.output().expect("sh");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn sockets_are_taken_from_systemd() {
    let socket = std::net::TcpListener::bind(ANY).unwrap();
    let address = socket.local_addr().unwrap();
    let client = TcpStream::connect(address).expect("it waits in the kernel");
    let message = started(std::os::fd::OwnedFd::from(socket), "LISTEN_PID=$$ LISTEN_FDS=1");
    assert!(message.contains(&format!("taken 1 of port {}", address.port())), "{message}");
    drop(client);
}

#[test]
fn what_is_no_socket_of_ours_is_refused() {
    let socket = || std::os::fd::OwnedFd::from(std::net::TcpListener::bind(ANY).unwrap());
    let none = ["", "LISTEN_PID=1 LISTEN_FDS=1", "LISTEN_PID=$$ LISTEN_FDS=0"];
    for variables in none {
        let message = started(socket(), variables);
        assert!(message.contains("refused: systemd passed no socket"), "{variables}: {message}");
    }
    let message = started(Stdio::null(), "LISTEN_PID=$$ LISTEN_FDS=1");
    assert!(message.contains("refused: cannot serve on socket 0"), "{message}");
    let local =
        std::os::unix::net::UnixListener::bind(tempfile::tempdir().unwrap().path().join("s")).unwrap();
    let message = started(std::os::fd::OwnedFd::from(local), "LISTEN_PID=$$ LISTEN_FDS=1");
    assert!(message.contains("refused: cannot serve on socket 0"), "{message}");
    let deaf = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let message = started(std::os::fd::OwnedFd::from(deaf), "LISTEN_PID=$$ LISTEN_FDS=1");
    assert!(message.contains("it does not listen"), "{message}");
}

/// What a process that shares the socket can do to it: end it, and even connect it to something else.
#[test]
fn a_socket_that_was_shut_down_listens_again() {
    let connects = |listener: &TcpListener| {
        let client = TcpStream::connect(listener.local_addr().unwrap());
        client.is_ok()
            && (0..1000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                listener.accept().is_ok()
            })
    };
    // One with a port of the kernel's choice, and then one with a port that was requested.
    let [listener] = bind(&[ANY], "--web.listen-address").expect("a free port").try_into().unwrap();
    let address = listener.local_addr().unwrap();
    shut_down_and_restored(listener, address, connects);
    let [listener] = bind(&[address], "--web.listen-address").expect("it is free").try_into().unwrap();
    shut_down_and_restored(listener, address, connects);
}

#[expect(clippy::needless_pass_by_value, reason = "its port is free after that")]
fn shut_down_and_restored(
    listener: TcpListener,
    address: SocketAddr,
    connects: impl Fn(&TcpListener) -> bool,
) {
    assert!(listens(&listener) && connects(&listener) && !restore(&listener, address).unwrap());
    let inside = TcpListener::bind(ANY).unwrap();
    for connected in [false, true] {
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        if connected {
            let to = inside.local_addr().unwrap();
            // In progress, since the socket does not block.
            let _ = rustix::net::connect(&listener, &to);
            inside.accept().unwrap();
        }
        assert!(!listens(&listener) && TcpStream::connect(address).is_err(), "{connected}");
        assert!(restore(&listener, address).unwrap(), "{connected}");
        assert_eq!(listener.local_addr().unwrap(), address);
        assert!(connects(&listener), "{connected}");
    }
}
