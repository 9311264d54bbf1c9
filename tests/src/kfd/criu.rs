//! CRIU_OP as CRIU's plugin for amdgpu uses it: the state of one process (`kfd_chardev.c:criu_process_info`,
//! `criu_checkpoint`), passed back to the driver in another one (`criu_restore`). For processes without
//! buffers: a GPU made of memory has none.

use super::Client;
use super::errno::Errno;
use super::uapi::{Criu, CriuBoBucket, CriuDeviceBucket, criu_op};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::AsRawFd;

/// One stopped process. Only the driver reads the contents of `private`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Checkpoint {
    pub devices: Vec<CriuDeviceBucket>,
    /// Queues, events and ranges of shared memory.
    pub objects: u32,
    pub private: Vec<u8>,
}

/// A CRIU_OP unknown to every driver: the check of capabilities comes first.
pub fn nothing(client: &mut Client) -> Result<(), Errno> {
    client.criu(&mut Criu { op: u32::MAX, ..Criu::default() })
}

/// Evicts the queues of the process until [`unpause`], and returns how much there is to save.
pub fn process_info(client: &mut Client) -> Result<Criu, Errno> {
    let mut args = Criu { op: criu_op::PROCESS_INFO, ..Criu::default() };
    client.criu(&mut args)?;
    Ok(args)
}

/// Saves the process with this [`process_info`]. EINVAL if it has buffers.
pub fn checkpoint(client: &mut Client, info: &Criu) -> Result<Checkpoint, Errno> {
    let size = usize::try_from(info.priv_data_size).map_err(|_| Errno(libc::EFBIG))?;
    let mut private = vec![0; size];
    let address = private.as_mut_ptr().expose_provenance() as u64;
    let made = checkpoint_at(client, info, address)?;
    Ok(Checkpoint { private, ..made })
}

/// The same; the driver's private data is written to this address, in memory that outlives the call.
pub fn checkpoint_at(client: &mut Client, info: &Criu, private: u64) -> Result<Checkpoint, Errno> {
    let mut made = Checkpoint {
        devices: vec![CriuDeviceBucket::default(); info.num_devices as usize],
        objects: info.num_objects,
        private: Vec::new(),
    };
    // the driver requires an address even for no buffers
    let mut buffers = [CriuBoBucket::default()];
    let bos = buffers.as_mut_ptr().expose_provenance() as u64;
    let (priv_data, priv_data_size) = (private, info.priv_data_size);
    let mut args = Criu { bos, priv_data, priv_data_size, ..made.args(criu_op::CHECKPOINT) };
    client.criu(&mut args)?;
    Ok(made)
}

/// Lets the queues run again.
pub fn unpause(client: &mut Client) -> Result<(), Errno> {
    client.criu(&mut Criu { op: criu_op::UNPAUSE, ..Criu::default() })
}

/// Creates the queues anew, evicted until [`resume`], in a process that has opened the device and done
/// nothing else. `render` takes the place of each GPU's render node.
pub fn restore(client: &mut Client, mut from: Checkpoint, render: &File) -> Result<(), Errno> {
    for device in &mut from.devices {
        device.drm_fd = render.as_raw_fd().cast_unsigned();
    }
    let mut args = from.args(criu_op::RESTORE);
    client.criu(&mut args)
}

/// Lets the restored queues of the process `pid` run.
pub fn resume(client: &mut Client, pid: u32) -> Result<(), Errno> {
    client.criu(&mut Criu { op: criu_op::RESUME, pid, ..Criu::default() })
}

impl Checkpoint {
    /// With the addresses of the fields of `self`, which must not be moved while they are used.
    fn args(&mut self, op: u32) -> Criu {
        Criu {
            devices: self.devices.as_mut_ptr().expose_provenance() as u64,
            priv_data: self.private.as_mut_ptr().expose_provenance() as u64,
            priv_data_size: self.private.len() as u64,
            num_devices: u32::try_from(self.devices.len()).expect("their number was a u32"),
            num_objects: self.objects,
            op,
            ..Criu::default()
        }
    }
}
