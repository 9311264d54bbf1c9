//! Runs in the VM before amdgpu is inserted.

#[test]
fn there_is_no_kfd_yet() {
    assert!(!std::path::Path::new("/dev/kfd").exists());
}
