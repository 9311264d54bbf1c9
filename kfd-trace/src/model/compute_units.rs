//! Which compute units (CUs) a mask enables. In: the mask as its caller passed it, and the active CUs of the GPU. Out:
//! how many of them it enables in each shader engine.

use super::incident::CuMask;
use serde::{Deserialize, Serialize};

/// CUs of one array that a mask can reach: half a register each (`KFD_MAX_NUM_SH_PER_SE`, kfd_mqd_manager.h).
pub const MOST_IN_ARRAY: u32 = 16;

/// The active CUs of a topology node; those that are fused off are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputeUnits {
    /// By XCC, shader engine and array. An engine with one array has 0 in the second.
    pub active: Vec<Vec<[u32; 2]>>,
    /// From gfx10 on CUs are enabled in pairs (WGPs).
    pub in_pairs: bool,
}

impl ComputeUnits {
    #[must_use]
    pub fn total(&self) -> u32 {
        self.active.iter().flatten().flatten().sum()
    }

    /// Enabled CUs by XCC and shader engine, as the driver hands out the bits of the mask
    /// (`mqd_symmetrically_map_cu_mask`, kfd_mqd_manager.c): to the XCCs in turn; in each of them to the engines in
    /// turn, then to the next array, then to the next CU, where an array has that many. CUs beyond the mask's end are
    /// disabled, and bits beyond the last CU ignored. Of a pair, one bit enables both.
    #[must_use]
    pub fn enabled(&self, mask: &CuMask) -> Vec<Vec<u32>> {
        let end = self.total().min(mask.bits());
        let xccs = self.active.len();
        let (width, stride) = if self.in_pairs { (2, 2 * xccs) } else { (1, xccs) };
        let of_xcc = |(first, engines): (u32, &Vec<[u32; 2]>)| {
            let mut counts = vec![0; engines.len()];
            let bits = (first..end).step_by(stride);
            for (engine, bit) in places(engines, width).zip(bits) {
                if (bit..bit + width).any(|bit| mask.has(bit)) {
                    counts[engine] += width;
                }
            }
            counts
        };
        (0..).zip(&self.active).map(of_xcc).collect()
    }
}

/// The engine of each CU, or of each pair, in the order of the mask's bits.
fn places(engines: &[[u32; 2]], width: u32) -> impl Iterator<Item = usize> {
    let steps = (0..MOST_IN_ARRAY / width).map(move |step| step * width);
    steps.flat_map(|unit| [0, 1].map(|array| (unit, array))).flat_map(move |(unit, array)| {
        let has = move |(_, arrays): &(usize, &[u32; 2])| arrays[array] > unit;
        engines.iter().enumerate().filter(has).map(|(engine, _)| engine)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(words: &[u32]) -> CuMask {
        CuMask { words: words.to_vec() }
    }

    /// A number of XCCs with these engines.
    fn units(xccs: usize, engines: &[[u32; 2]]) -> ComputeUnits {
        ComputeUnits { active: vec![engines.to_vec(); xccs], in_pairs: false }
    }

    /// Vega 10: four engines, one array each. Bit 32 is CU 8 of engine 0.
    #[test]
    fn engines_take_bits_in_turn() {
        let vega = units(1, &[[16, 0]; 4]);
        assert_eq!(vega.total(), 64);
        assert_eq!(vega.enabled(&mask(&[0xff, 1])), [[3, 2, 2, 2]]);
        assert_eq!(vega.enabled(&mask(&[0b110, 0])), [[0, 1, 1, 0]]);
        assert_eq!(vega.enabled(&mask(&[u32::MAX])), [[8; 4]], "what the mask does not have is disabled");
        assert_eq!(vega.enabled(&mask(&[u32::MAX; 4])), [[16; 4]], "bits beyond the last CU");
    }

    /// Engine 1 has two CUs, the others three: bits 0 to 3 are CU 0, 4 to 7 CU 1, 8 to 10 CU 2 of engines 0, 2 and 3.
    #[test]
    fn an_engine_with_fewer_cus_is_passed_over() {
        let harvested = units(1, &[[3, 0], [2, 0], [3, 0], [3, 0]]);
        assert_eq!(harvested.total(), 11);
        assert_eq!(harvested.enabled(&mask(&[0b111_0000_0000])), [[1, 0, 1, 1]]);
        assert_eq!(harvested.enabled(&mask(&[0b010_0010_0000])), [[0, 1, 1, 0]]);
        assert_eq!(harvested.enabled(&mask(&[0xffff_f800])), [[0; 4]], "there are eleven");
    }

    /// Two engines with two arrays: bits 0 and 1 are CU 0 of array 0, 2 and 3 CU 0 of array 1, 4 and 5 CU 1 of array 0,
    /// 6 CU 1 of array 1 in engine 1, since that of engine 0 has one CU.
    #[test]
    fn arrays_take_bits_after_engines() {
        let arrays = units(1, &[[2, 1], [2, 2]]);
        assert_eq!(arrays.enabled(&mask(&[0b100_0100])), [[1, 1]]);
        assert_eq!(arrays.enabled(&mask(&[0b000_0101])), [[2, 0]]);
        assert_eq!(arrays.enabled(&mask(&[0b001_0000])), [[1, 0]]);
        assert_eq!(arrays.enabled(&mask(&[0b111_1111])), [[3, 4]]);
    }

    /// Three XCCs: bits 0, 3, 6, ... are XCC 0's, of which bits 0 and 3 are CU 0 of engines 0 and 1, bit 6 CU 1 of
    /// engine 0.
    #[test]
    fn xccs_take_bits_before_engines() {
        let xccs = units(3, &[[2, 0], [1, 0]]);
        assert_eq!(xccs.total(), 9);
        assert_eq!(xccs.enabled(&mask(&[0b0_0000_0111])), [[1, 0], [1, 0], [1, 0]]);
        assert_eq!(xccs.enabled(&mask(&[0b0_0100_1001])), [[2, 1], [0, 0], [0, 0]]);
        assert_eq!(xccs.enabled(&mask(&[0b1_0010_0000])), [[0, 0], [0, 0], [1, 1]]);
    }

    /// The first XCC has three CUs, the second one: the third of the first would be bit 4 of four.
    #[test]
    fn no_bit_is_beyond_the_number_of_cus() {
        let mut uneven = units(2, &[[3, 0]]);
        uneven.active[1] = vec![[1, 0]];
        assert_eq!(uneven.enabled(&mask(&[u32::MAX])), [[2], [1]]);
    }

    /// An MI300X has 38 of 40 CUs in each of eight XCCs. The mask gives each of them its first eight: two rounds.
    #[test]
    fn a_whole_chip_of_eight_xccs() {
        let mi300 = units(8, &[[10, 0], [10, 0], [9, 0], [9, 0]]);
        assert_eq!(mi300.total(), 304);
        assert_eq!(mi300.enabled(&mask(&[u32::MAX, u32::MAX])), [[2; 4]; 8]);
        assert_eq!(mi300.enabled(&mask(&[u32::MAX; 10])), [[10, 10, 9, 9]; 8]);
    }

    /// Bits 0 and 1 are the first pair of engine 0, 2 and 3 that of engine 1; 4 and 5 engine 0's in its other array.
    #[test]
    fn pairs_take_two_bits() {
        let pairs = ComputeUnits { in_pairs: true, ..units(1, &[[4, 2], [2, 2]]) };
        assert_eq!(pairs.enabled(&mask(&[0b11_0011])), [[4, 0]]);
        assert_eq!(pairs.enabled(&mask(&[0b00_1100])), [[0, 2]]);
        assert_eq!(pairs.enabled(&mask(&[0b00_1000])), [[0, 2]], "one bit enables both");
        assert_eq!(pairs.enabled(&mask(&[0b11_0000_0000])), [[2, 0]], "the second pair of array 0");
    }
}
