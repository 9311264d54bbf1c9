//! How the tracer configures the web server's process: on its standard input, a socket. First what it is to serve,
//! with the descriptors for it; then each configuration that is to be in force. Its end is the request to end.

use crate::runtime::confine::Seccomp;
use crate::runtime::frames::{read_frame, read_rest, write_frame};
use crate::serve::question::LANES;
use crate::serve::web::settings::Files;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Descriptors of one message: include/net/scm.h, SCM_MAX_FD.
const MOST: usize = 253;

/// How long its start may take: milliseconds, on a machine with nothing else to do.
const START: Duration = Duration::from_secs(60);

/// Files of a MiB each, as JSON.
const LONGEST: u32 = 64 << 20;

/// What it is to serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Orders {
    /// Names of `--web.allowed-host`.
    pub(super) allowed_hosts: Vec<String>,
    pub(super) files: Option<Files>,
    /// How many sockets serve all pages; the others serve the health alone.
    pub(super) listeners: usize,
    pub(super) seccomp: Seccomp,
}

/// What comes with the orders.
pub(super) struct Descriptors {
    pub(super) lanes: [UnixStream; LANES],
    /// Each byte that it sends comes back, as long as this process's loop turns.
    pub(super) pulse: UnixStream,
    pub(super) listeners: Vec<TcpListener>,
    pub(super) health: Vec<TcpListener>,
}

/// # Errors
/// If there are too many sockets, or the process has ended.
pub(super) fn send_orders(
    control: &mut UnixStream,
    orders: &Orders,
    lanes: &[UnixStream; LANES],
    pulse: &UnixStream,
    listeners: &[&TcpListener],
) -> io::Result<()> {
    let streams = lanes.iter().chain([pulse]).map(AsFd::as_fd);
    let descriptors: Vec<BorrowedFd<'_>> =
        streams.chain(listeners.iter().map(|listener| listener.as_fd())).collect();
    if descriptors.len() > MOST {
        let most = MOST - LANES - 1;
        return Err(io::Error::other(format!(
            "more than {most} sockets cannot be served: give fewer addresses"
        )));
    }
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !rights.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("the descriptors take more space than there is"));
    }
    let orders = serde_json::to_vec(orders)?;
    let length = u32::try_from(orders.len()).map_err(io::Error::other)?.to_le_bytes();
    if sendmsg(&*control, &[IoSlice::new(&length)], &mut rights, SendFlags::NOSIGNAL)? != length.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    control.write_all(&orders)
}

/// # Errors
/// If this is no such socket, or its other end has not sent that.
pub(super) fn receive_orders(control: &mut UnixStream) -> io::Result<(Orders, Descriptors)> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut length = [0; 4];
    let received =
        recvmsg(&*control, &mut [IoSliceMut::new(&mut length)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes != length.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let passed: Vec<OwnedFd> = rights
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    let orders: Orders = serde_json::from_slice(&read_rest(control, length, LONGEST)?)?;
    let mut passed = passed.into_iter();
    let lanes: Vec<UnixStream> = passed.by_ref().take(LANES).map(UnixStream::from).collect();
    let too_few = || io::Error::other("there are too few descriptors");
    let lanes = lanes.try_into().map_err(|_| too_few())?;
    let pulse = passed.next().map(UnixStream::from).ok_or_else(too_few)?;
    let listeners = passed.by_ref().take(orders.listeners).map(TcpListener::from).collect();
    let health = passed.map(TcpListener::from).collect();
    Ok((orders, Descriptors { lanes, pulse, listeners, health }))
}

/// # Errors
/// If the tracer has ended.
pub(super) fn report_started(control: &mut UnixStream) -> io::Result<()> {
    control.write_all(&[1])
}

/// Waits until the process serves.
///
/// # Errors
/// If it has ended instead, or takes too long.
pub(super) fn wait_started(control: &mut UnixStream) -> io::Result<()> {
    control.set_read_timeout(Some(START))?;
    let started = control.read_exact(&mut [0]);
    started.map_err(|error| io::Error::other(format!("the web server's process does not start: {error}")))
}

/// # Errors
/// If the process has ended, or does not read.
pub(super) fn send_files(control: &mut UnixStream, files: &Files) -> io::Result<()> {
    write_frame(control, &serde_json::to_vec(files)?)
}

/// # Errors
/// At the end.
pub(super) fn receive_files(control: &mut UnixStream) -> io::Result<Files> {
    Ok(serde_json::from_slice(&read_frame(control, LONGEST)?)?)
}
