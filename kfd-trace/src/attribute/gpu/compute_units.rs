//! The active compute units of a GPU. In: its node in sysfs. Out: [`ComputeUnits`], or `None` where sysfs does not
//! describe them, or contradicts itself.
//!
//! The properties of a node have how many there are; which array has how many follows from its caches alone: each
//! cache of level 1 names the CUs that it serves, and fused-off ones have none (`kfd_fill_cache_non_crat_info`,
//! kfd_topology.c).

use crate::attribute::sysfs_file::{Reader, property};
use crate::model::compute_units::{ComputeUnits, MOST_IN_ARRAY};
use std::path::Path;

/// Bits of a node's `xcc_mask` (kfd_priv.h).
const MOST_XCCS: u32 = 32;
/// Most engines that a mask can reach (`KFD_MAX_NUM_SE`, kfd_mqd_manager.h).
const MOST_ENGINES: u32 = 8;
/// Engines up to which each has a row of its own in amdgpu's bitmap of CUs. The arrays of further ones are beside
/// those of the first four, and with two arrays the topology reads other places than the mapping of masks does.
const OWN_ROW: u32 = 4;

/// What the properties of a node have of its compute units.
pub(super) struct Shape {
    xccs: u32,
    /// In one XCC.
    engines: u32,
    /// In one engine.
    arrays: u32,
    /// Places for CUs in one array.
    places: u32,
    /// CUs that are not fused off, of the whole node.
    active: u32,
    /// The number of the first place in `processor_id_low` of a cache.
    first: u32,
    in_pairs: bool,
}

/// `number`: a property.
pub(super) fn shape(mut number: impl FnMut(&str) -> Option<u32>) -> Option<Shape> {
    let divided = |whole: u32, by: u32| whole.checked_rem(by).filter(|rest| *rest == 0).map(|_| whole / by);
    let simd_per_cu = number("simd_per_cu")?;
    let active = divided(number("simd_count")?, simd_per_cu)?;
    let arrays = number("simd_arrays_per_engine").filter(|arrays| (1..=2).contains(arrays))?;
    let places = number("cu_per_simd_array").filter(|places| (1..=MOST_IN_ARRAY).contains(places))?;
    let num_xcc = number("num_xcc");
    let xccs = num_xcc.unwrap_or(1);
    let engines = divided(number("array_count")?, xccs.checked_mul(arrays)?)?;
    let in_pairs = match number("gfx_target_version") {
        // 5.10 does not report it. Up to gfx9 a CU has four SIMD units, later ones two.
        None => (simd_per_cu == 4 && arrays == 1).then_some(false),
        Some(..100_000) => Some(false),
        // Before pairs came into the driver (6.0) single CUs were handed out: only what is newer can be known.
        // gfx1250 has a mapping of its own.
        Some(100_000..120_100) => (num_xcc == Some(1)).then_some(true),
        Some(_) => None,
    }?;
    let is_possible = (1..=MOST_ENGINES).contains(&engines) && active > 0 && xccs <= MOST_XCCS;
    let first = number("simd_id_base")?;
    is_possible.then_some(Shape { xccs, engines, arrays, places, active, first, in_pairs })
}

/// `folder`: that of the node.
pub(super) fn read(reader: &mut Reader, folder: &Path, shape: &Shape) -> Option<ComputeUnits> {
    let by_array = if shape.active == shape.all_places() {
        vec![shape.places; shape.all_arrays()]
    } else {
        by_caches(reader, folder, shape)?
    };
    let is_whole = by_array.iter().sum::<u32>() == shape.active;
    let has_pairs = by_array.iter().all(|count| count.is_multiple_of(2));
    (is_whole && (has_pairs || !shape.in_pairs)).then(|| shape.units(&by_array))
}

/// Active CUs of each array.
fn by_caches(reader: &mut Reader, folder: &Path, shape: &Shape) -> Option<Vec<u32>> {
    if shape.engines > OWN_ROW && shape.arrays > 1 {
        return None;
    }
    let mut found = vec![0_u32; shape.all_arrays()];
    for (_, cache) in reader.numbered(&folder.join("caches")) {
        let text = reader.text(&cache.join("properties"))?;
        let number = |name| property(&text, name)?.trim().parse::<u32>().ok();
        if number("level")? != 1 {
            continue;
        }
        let begin = number("processor_id_low")?.checked_sub(shape.first)?;
        let siblings = property(&text, "sibling_map")?.split(',').map(str::trim);
        for (place, _) in (begin..).zip(siblings).filter(|(_, is_served)| *is_served == "1") {
            let array = found.get_mut(usize::try_from(place / shape.places).ok()?)?;
            *array |= 1 << (place % shape.places);
        }
    }
    Some(found.into_iter().map(u32::count_ones).collect())
}

impl Shape {
    fn all_places(&self) -> u32 {
        self.xccs * self.engines * self.arrays * self.places
    }

    fn all_arrays(&self) -> usize {
        usize::try_from(self.xccs * self.engines * self.arrays).unwrap_or(0)
    }

    fn units(&self, by_array: &[u32]) -> ComputeUnits {
        let [engines, arrays] = [self.engines, self.arrays].map(|count| usize::try_from(count).unwrap_or(1));
        let engine =
            |arrays: &[u32]| [arrays.first(), arrays.get(1)].map(|count| count.copied().unwrap_or(0));
        let xcc = |of_xcc: &[u32]| of_xcc.chunks(arrays).map(engine).collect();
        ComputeUnits { active: by_array.chunks(engines * arrays).map(xcc).collect(), in_pairs: self.in_pairs }
    }
}

#[cfg(test)]
mod tests {
    use crate::attribute::Topology;
    use std::fs;
    use std::path::Path;

    /// Properties of one node, with what differs from a Vega 10.
    fn properties(other: &[(&str, u32)]) -> String {
        let usual = [
            ("simd_count", 256),
            ("simd_id_base", 0x8000_1000),
            ("array_count", 4),
            ("simd_arrays_per_engine", 1),
            ("cu_per_simd_array", 16),
            ("simd_per_cu", 4),
            ("gfx_target_version", 90_000),
        ];
        let value =
            |name, usual| other.iter().find(|(other, _)| *other == name).map_or(usual, |(_, value)| *value);
        let mut lines: Vec<_> =
            usual.iter().map(|(name, usual)| format!("{name} {}", value(*name, *usual))).collect();
        let added = other.iter().filter(|(name, _)| usual.iter().all(|(usual, _)| usual != name));
        lines.extend(added.map(|(name, value)| format!("{name} {value}")));
        lines.join("\n")
    }

    fn node(sysfs: &Path, properties: &str, caches: &[&str]) {
        let folder = sysfs.join("class/kfd/kfd/topology/nodes/1");
        drop(fs::remove_dir_all(&folder));
        for (number, cache) in caches.iter().enumerate() {
            let folder = folder.join("caches").join(number.to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("properties"), cache).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("gpu_id"), "7\n").unwrap();
        fs::write(folder.join("properties"), properties).unwrap();
    }

    fn whole(sysfs: &Path) -> Topology {
        Topology::read_with_compute_units(sysfs, &Topology::default())
    }

    fn active(other: &[(&str, u32)], caches: &[&str]) -> Option<Vec<Vec<[u32; 2]>>> {
        let sysfs = tempfile::tempdir().unwrap();
        node(sysfs.path(), &properties(other), caches);
        let topology = whole(sysfs.path());
        assert_eq!(topology.errors, []);
        topology.gpu(7).unwrap().compute_units.clone().map(|units| units.active)
    }

    /// The text of a cache of level 1; `place`: that of its first CU.
    fn cache(place: u32, siblings: &str) -> String {
        format!("processor_id_low {}\nlevel 1\nsize 16\nsibling_map {siblings}\n", 0x8000_1000 + place)
    }

    #[test]
    fn a_chip_with_all_its_cus_needs_no_caches() {
        assert_eq!(active(&[], &[]), Some(vec![vec![[16, 0]; 4]]));
        let navi = [
            ("gfx_target_version", 100_100),
            ("num_xcc", 1),
            ("simd_per_cu", 2),
            ("simd_count", 80),
            ("array_count", 4),
            ("simd_arrays_per_engine", 2),
            ("cu_per_simd_array", 10),
        ];
        assert_eq!(active(&navi, &[]), Some(vec![vec![[10; 2]; 2]]));
    }

    /// Two XCCs of two engines with four places each: the first lacks one CU in engine 1, the second one in engine 0.
    #[test]
    fn fused_off_cus_have_no_caches() {
        let shape = [("num_xcc", 2), ("array_count", 4), ("cu_per_simd_array", 4), ("simd_count", 4 * 14)];
        let caches = [
            cache(0, "1,1,0"),
            cache(2, "1,1"),
            cache(4, "1,0,1,1"),
            cache(9, "1,1,1,0,0"),
            cache(12, "1,1,1,1,0,0,0,0"),
            // A second type of cache serves the same CUs; those of other levels say nothing.
            cache(0, "1"),
            "processor_id_low 2147487744\nlevel 2\nsibling_map 1,1,1,1,1,1\n".to_owned(),
        ];
        let caches = caches.each_ref().map(String::as_str);
        assert_eq!(active(&shape, &caches), Some(vec![vec![[4, 0], [3, 0]], vec![[3, 0], [4, 0]]]));
        assert_eq!(active(&shape, &caches[1..5]), None, "fewer caches than CUs");
        let beyond = cache(16, "1");
        assert_eq!(active(&shape, &[&caches[..], &[&beyond]].concat()), None, "a CU that no array has");
        assert_eq!(active(&shape, &[]), None);
    }

    #[test]
    fn what_is_not_certain_is_not_known() {
        let navi = |version| [("gfx_target_version", version), ("simd_per_cu", 2), ("simd_count", 128)];
        assert_eq!(active(&navi(110_000), &[]), None, "the driver may be older than pairs");
        let one_xcc = |version| [&navi(version)[..], &[("num_xcc", 1)]].concat();
        assert!(active(&one_xcc(110_000), &[]).is_some() && active(&one_xcc(120_001), &[]).is_some());
        assert_eq!(active(&one_xcc(120_500), &[]), None, "it has a mapping of its own");
        for other in [
            ("simd_count", 255),
            ("simd_per_cu", 0),
            ("array_count", 0),
            ("array_count", 9),
            ("num_xcc", 0),
            ("num_xcc", 3),
            ("simd_arrays_per_engine", 3),
            ("cu_per_simd_array", 17),
            ("cu_per_simd_array", 0),
            ("simd_count", 0),
        ] {
            assert_eq!(active(&[other], &[]), None, "{other:?}");
        }
        let text = properties(&[]).replace("simd_id_base", "other");
        let sysfs = tempfile::tempdir().unwrap();
        node(sysfs.path(), &text, &[]);
        assert_eq!(whole(sysfs.path()).gpu(7).unwrap().compute_units, None);
    }

    #[test]
    fn caches_of_the_same_gpu_are_read_once() {
        let sysfs = tempfile::tempdir().unwrap();
        let shape = [("array_count", 1), ("cu_per_simd_array", 4), ("simd_count", 8)];
        let (first, second) = (cache(0, "1"), cache(3, "1"));
        node(sysfs.path(), &properties(&shape), &[&first, &second]);
        let known = whole(sysfs.path());
        let active =
            |topology: &Topology| topology.gpu(7)?.compute_units.as_ref().map(|units| units.active.clone());
        assert_eq!(active(&known), Some(vec![vec![[2, 0]]]));
        assert_eq!(active(&Topology::read(sysfs.path())), None, "not requested");
        node(sysfs.path(), &properties(&shape), &[]);
        assert_eq!(active(&Topology::read_with_compute_units(sysfs.path(), &known)), active(&known));
        node(sysfs.path(), &properties(&[&shape[..], &[("gfx_target_version", 90_010)]].concat()), &[]);
        assert_eq!(active(&Topology::read_with_compute_units(sysfs.path(), &known)), None, "another GPU");
    }
}
