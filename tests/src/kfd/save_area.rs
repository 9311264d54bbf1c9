//! The sizes of a queue's context save area and control stack, as the thunk and newer drivers compute them
//! (`update_ctx_save_restore_size` in libhsakmt's queues.c, `kfd_queue_ctx_save_restore_size` in the driver's
//! kfd_queue.c). In: properties of a topology node. Out: bytes. Pure.

/// Bytes that CREATE_QUEUE is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub ctl_stack: u32,
    /// Of the whole save area of an XCC, with its control stack.
    pub save_area: u32,
}

const PAGE: u32 = 0x1000;

/// `HsaUserContextSaveAreaHeader`
const HEADER: u32 = 40;

/// `gfx_target_version`: major, minor and stepping, two digits each.
const CARRIZO: u32 = 8_00_01;
const ARCTURUS: u32 = 9_00_08;
const ALDEBARAN: u32 = 9_00_10;
const MI300: u32 = 9_04_02;
const MI350: u32 = 9_05_00;
const NAVI10: u32 = 10_01_00;

/// The hardware's limit in gfx10.
const CTL_STACK_OF_GFX10: u32 = 0x7000;

/// `property` reads a line of the node's `properties`. `None`: it does not describe its compute units, or
/// the generation is one whose sizes are not known here.
pub fn sizes(property: impl Fn(&str) -> Option<u32>) -> Option<Sizes> {
    let gfx = property("gfx_target_version")?;
    if gfx < CARRIZO {
        return None;
    }
    let xccs = property("num_xcc").unwrap_or(1);
    let units = property("simd_count")?.checked_div(property("simd_per_cu")?)?.checked_div(xccs)?;
    let waves = if gfx < NAVI10 {
        let arrays = property("array_count")?.checked_div(property("simd_arrays_per_engine")?)?;
        (units * 40).min(arrays * 512)
    } else {
        units * 32
    };
    let per_wave = if gfx < NAVI10 { 8 } else { 12 };
    let ctl_stack = (HEADER + waves * per_wave + 8).next_multiple_of(PAGE);
    let ctl_stack = if gfx / 1_00_00 == 10 { ctl_stack.min(CTL_STACK_OF_GFX10) } else { ctl_stack };
    let data = units * per_unit(gfx, property("lds_size_in_kb"))?;
    Some(Sizes { ctl_stack, save_area: ctl_stack + data.next_multiple_of(PAGE) })
}

/// Registers and local memory of a compute unit.
fn per_unit(gfx: u32, lds_kb: Option<u32>) -> Option<u32> {
    let vgprs = match gfx {
        ARCTURUS | ALDEBARAN | MI300 | MI350 => 0x8_0000,
        11_00_00 | 11_00_01 | 11_05_01 | 12_00_00 | 12_00_01 => 0x6_0000,
        // gfx12.5 has other sizes of everything.
        12_05_00.. => return None,
        _ => 0x4_0000,
    };
    let lds = if gfx == MI350 { lds_kb? << 10 } else { 0x1_0000 };
    let (sgprs, hardware_registers) = (0x4000, 0x1000);
    Some(vgprs + sgprs + lds + hardware_registers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(properties: &[(&str, u32)]) -> Option<Sizes> {
        sizes(|name| properties.iter().find(|(other, _)| *other == name).map(|(_, value)| *value))
    }

    /// An MI300X as its node describes it, unpartitioned.
    const MI300X: [(&str, u32); 6] = [
        ("gfx_target_version", MI300),
        ("num_xcc", 8),
        ("simd_count", 1216),
        ("simd_per_cu", 4),
        ("array_count", 32),
        ("simd_arrays_per_engine", 1),
    ];

    fn with(changed: &[(&'static str, u32)]) -> Option<Sizes> {
        let kept = MI300X.iter().filter(|(name, _)| changed.iter().all(|(other, _)| other != name));
        of(&kept.chain(changed).copied().collect::<Vec<_>>())
    }

    #[test]
    fn an_mi300x_needs_22_mib_for_each_xcc() {
        // 38 units of 40 waves; registers, local memory and hardware registers of 0x95000 bytes each.
        assert_eq!(of(&MI300X), Some(Sizes { ctl_stack: 0x3000, save_area: 0x3000 + 38 * 0x9_5000 }));
    }

    #[test]
    fn waves_are_limited_by_the_shader_arrays_of_gfx9() {
        // Vega 10: 64 units, 4 engines of one array.
        let vega = [("gfx_target_version", 9_00_01), ("num_xcc", 1), ("simd_count", 256), ("array_count", 4)];
        assert_eq!(with(&vega).map(|sizes| sizes.ctl_stack), Some(0x5000));
        let many = [&vega[..3], &[("array_count", 8)]].concat();
        assert_eq!(with(&many).map(|sizes| sizes.ctl_stack), Some(0x6000), "64 units of 40 waves");
        let few = [&vega[..3], &[("array_count", 1)]].concat();
        assert_eq!(with(&few).map(|sizes| sizes.ctl_stack), Some(0x2000));
    }

    #[test]
    fn later_generations_have_their_own_sizes() {
        let navi = |gfx| {
            with(&[("gfx_target_version", gfx), ("num_xcc", 1), ("simd_count", 160), ("simd_per_cu", 2)])
        };
        // 80 units of 32 waves of 12 bytes are 0x7830 bytes, more than gfx10 allows.
        let of_gfx10 = Sizes { ctl_stack: 0x7000, save_area: 0x7000 + 80 * 0x5_5000 };
        assert_eq!(navi(10_03_00), Some(of_gfx10));
        let of_gfx11 = Sizes { ctl_stack: 0x8000, save_area: 0x8000 + 80 * 0x7_5000 };
        assert_eq!(navi(11_00_00), Some(of_gfx11));
        assert_eq!((navi(12_05_00), navi(7_00_01)), (None, None));
        let mi350 = with(&[("gfx_target_version", MI350), ("lds_size_in_kb", 160)]);
        assert_eq!(
            mi350.map(|sizes| sizes.save_area),
            Some(0x3000 + 38 * (0x9_5000 - 0x1_0000 + (160 << 10)))
        );
    }

    #[test]
    fn a_node_that_does_not_describe_its_units_has_no_sizes() {
        assert_eq!(of(&MI300X[..4]), None);
        assert_eq!(with(&[("simd_per_cu", 0)]), None);
    }
}
