//! Runs in the VM with the real amdgpu and no GPU.

#[test]
fn the_driver_makes_its_device() {
    assert!(std::path::Path::new("/dev/kfd").exists());
}
