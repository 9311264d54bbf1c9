//! Events of KFD: what a thread sleeps for in WAIT_EVENTS.

use super::client::Client;
use super::errno::Errno;
use super::uapi::{Command, WRITE, command, iowr};

const CREATE_EVENT: Command = iowr(0x08, size_of::<CreateEvent>());
const DESTROY_EVENT: Command = command(WRITE, 0x09, size_of::<SetEvent>());
const SET_EVENT: Command = command(WRITE, 0x0a, size_of::<SetEvent>());
const WAIT_EVENTS: Command = iowr(0x0c, size_of::<WaitEvents>());

/// `KFD_IOC_EVENT_HW_EXCEPTION`
const HW_EXCEPTION: u32 = 3;

/// An event of the type `KFD_IOC_EVENT_SIGNAL` if all but `auto_reset` is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateEvent {
    pub event_page_offset: u64,
    pub event_trigger_data: u32,
    pub event_type: u32,
    pub auto_reset: u32,
    pub node_id: u32,
    /// Out.
    pub event_id: u32,
    pub event_slot_index: u32,
}

/// Arguments of SET_EVENT and DESTROY_EVENT.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SetEvent {
    pub event_id: u32,
    pub pad: u32,
}

/// `struct kfd_event_data`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct EventData {
    pub data: [u64; 4],
    pub ext: u64,
    pub event_id: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitEvents {
    pub events_ptr: u64,
    pub num_events: u32,
    pub wait_for_all: u32,
    /// Milliseconds; `u32::MAX` for no end.
    pub timeout: u32,
    /// Out: 0 complete, 1 time-out, 2 failure.
    pub wait_result: u32,
}

/// What threads wait for.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub id: u32,
    is_signal: bool,
}

/// A signal that stays set once it is; on 7.3, where these need a page of the process that the GPU writes to
/// (kfd_events.c, `allocate_event_notification_slot`), an event that only the GPU would set.
pub fn create(client: &mut Client) -> Result<Event, Errno> {
    let mut args = CreateEvent::default();
    match client.issue(CREATE_EVENT, &mut args) {
        Err(Errno(nix::libc::ENOMEM)) => {
            args = CreateEvent { event_type: HW_EXCEPTION, ..CreateEvent::default() };
            client.issue(CREATE_EVENT, &mut args)?;
            Ok(Event { id: args.event_id, is_signal: false })
        }
        created => created.map(|()| Event { id: args.event_id, is_signal: true }),
    }
}

/// Wakes all who wait for it: a signal is set, and they succeed; another is destroyed, and they fail with EIO.
pub fn wake(client: &mut Client, event: Event) -> Result<(), Errno> {
    let command = if event.is_signal { SET_EVENT } else { DESTROY_EVENT };
    client.issue(command, &mut SetEvent { event_id: event.id, pad: 0 })
}

/// Sleeps until the event is set, or for so many milliseconds; `u32::MAX` for no end. Returns `wait_result`.
pub fn wait(client: &mut Client, event_id: u32, timeout: u32) -> Result<u32, Errno> {
    let mut awaited = EventData { event_id, ..EventData::default() };
    let events_ptr = (&raw mut awaited).expose_provenance() as u64;
    let mut args = WaitEvents { events_ptr, num_events: 1, wait_for_all: 1, timeout, wait_result: 0 };
    client.issue(WAIT_EVENTS, &mut args)?;
    Ok(args.wait_result)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values printed by a C program compiled against the header of Linux 5.10.
    #[test]
    fn commands_equal_the_compiled_header() {
        let [create, destroy] = [0xc020_4b08, 0x4008_4b09];
        let [set, wait] = [0x4008_4b0a, 0xc018_4b0c];
        assert_eq!([CREATE_EVENT, DESTROY_EVENT, SET_EVENT, WAIT_EVENTS], [create, destroy, set, wait]);
    }
}
