//! `kfd-trace driver-types` on packages in the forms that dkms.conf has, and on packages whose scripts are hostile. The
//! packages and a kernel's headers are written by these tests, and small; the compiler and make are this machine's.

mod attacks;
mod forms;
mod host;
