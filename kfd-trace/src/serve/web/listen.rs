//! The listening sockets: addresses that are bound here, or sockets that systemd has bound.
//!
//! In: addresses, or the descriptors that systemd passed. Out: listeners, or one line.

use super::settings::Settings;
use listenfd::ListenFd;
use nix::errno::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpListener};

/// Default address: loopback only.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 20_200));

/// Connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 1024;

/// An address with a port. `:9100` is every address of the machine, as in exporters.
///
/// # Errors
/// One line.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let every = text.strip_prefix(':').and_then(|port| port.parse().ok());
    let every = every.map(|port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    every
        .or_else(|| text.parse().ok())
        .ok_or_else(|| "must be an IP address and a port; try 127.0.0.1:20200, [::1]:20200 or :20200".into())
}

/// Why an address cannot be served on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; {} with {option}", hint(source))]
pub struct BindError {
    pub address: SocketAddr,
    /// The option that has it.
    option: &'static str,
    source: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "stop what listens there, or choose another",
        io::ErrorKind::AddrNotAvailable => "no interface of this machine has it: choose another",
        io::ErrorKind::PermissionDenied => "choose a port above 1023",
        _ => "choose another",
    }
}

/// Binds all addresses of an option, or none. The listeners do not block.
///
/// # Errors
/// The first that cannot be bound, in one line.
pub fn bind(addresses: &[SocketAddr], option: &'static str) -> Result<Vec<TcpListener>, BindError> {
    let bind = |address: &SocketAddr| {
        bind_one(*address).map_err(|source| BindError { address: *address, option, source })
    };
    addresses.iter().map(bind).collect()
}

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)) {
        // A kernel without IPv6: there, every address means every IPv4 address.
        Err(error) if error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32) && is_every(address) => {
            return bind_one(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())));
        }
        socket => socket?,
    };
    if address.is_ipv6() {
        // Else net.ipv6.bindv6only decides whether `[::]` includes IPv4, too.
        socket.set_only_v6(!is_every(address))?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Whether the socket listens.
pub fn listens(listener: &TcpListener) -> bool {
    SockRef::from(listener).is_listener().unwrap_or(false)
}

/// Has a socket listen again on its address that does not any more: a process that was taken over can shut it down, and connect
/// it then, for all that share it. Also one that systemd has bound. `false`: it listens.
///
/// # Errors
/// If the kernel refuses.
pub fn restore(listener: &TcpListener, address: SocketAddr) -> io::Result<bool> {
    if listens(listener) {
        return Ok(false);
    }
    rustix::net::connect_unspec(listener)?;
    let socket = SockRef::from(listener);
    match socket.bind(&address.into()) {
        // A port that was requested stays the socket's own meanwhile, one that the kernel chose does not (net/ipv4/tcp.c,
        // tcp_set_state).
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
        bound => bound?,
    }
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(true)
}

fn is_every(address: SocketAddr) -> bool {
    address.ip() == Ipv6Addr::UNSPECIFIED
}

/// Takes the sockets that systemd passed (sd_listen_fds(3)). Must be called before there is a second thread,
/// since it removes variables from the environment. The listeners do not block.
///
/// # Errors
/// One line: there is none, or one that cannot be served on.
pub fn from_systemd() -> Result<Vec<TcpListener>, String> {
    let mut passed = ListenFd::from_env();
    let mut listeners = Vec::new();
    for index in 0..passed.len() {
        let listener = passed.take_tcp_listener(index).and_then(|listener| {
            let Some(listener) = listener else { return Ok(None) };
            if !SockRef::from(&listener).is_listener()? {
                return Err(io::Error::other("it does not listen"));
            }
            listener.set_nonblocking(true)?;
            Ok(Some(listener))
        });
        let cannot = |error| {
            format!(
                "cannot serve on socket {index} that systemd passed: {error}; ListenStream= with a port makes it"
            )
        };
        listeners.extend(listener.map_err(cannot)?);
    }
    if listeners.is_empty() {
        return Err("systemd passed no socket (LISTEN_FDS, LISTEN_PID): start the .socket unit, or leave \
                    --web.systemd-socket out"
            .into());
    }
    Ok(listeners)
}

/// The message for an address that other machines may reach.
#[must_use]
pub fn exposed(address: SocketAddr, settings: &Settings) -> Option<String> {
    let how = match (settings.tls.is_some(), settings.asks_who()) {
        _ if address.ip().to_canonical().is_loopback() => return None,
        (true, true) => return None,
        (false, false) => "to any client, without TLS and without passwords",
        (false, true) => "without TLS: passwords can be read on their way",
        (true, false) => "to any client: no password or client certificate is required",
    };
    Some(format!("{address} is served {how}; see --web.config.file"))
}

#[cfg(test)]
mod tests;
