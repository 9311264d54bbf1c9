//! PCI address and partition of a GPU, which the topology encodes in one number.

/// `domain` and `location_id` of a topology node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) domain: u32,
    /// Bits 0-15: bus, device and function. The partition of a partitioned chip is ORed into the function
    /// (6.12, 7.2: kfd_topology.c, kfd_topology_add_device), or is in bits 28-31 (ROCm's driver).
    pub(super) id: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlaceOnGpu {
    pub(super) pci: String,
    /// `None` for a chip that is not partitioned.
    pub(super) partition: Option<u32>,
}

impl Location {
    fn address(self, function: u32) -> String {
        let (bus, device) = (self.id >> 8 & 0xff, self.id >> 3 & 0x1f);
        format!("{:04x}:{bus:02x}:{device:02x}.{function}", self.domain)
    }

    /// PCI function and partition. A function without a PCI device is a partition of function 0.
    fn resolve(self, exists: &impl Fn(&str) -> bool) -> (u32, u32) {
        let (low, high) = (self.id & 7, self.id >> 28);
        if high != 0 || low == 0 {
            return (low, high);
        }
        let partition = !exists(&self.address(low)) && exists(&self.address(0));
        if partition { (0, low) } else { (low, 0) }
    }
}

/// One place per location. `exists`: whether the machine has a PCI device at this address.
pub(super) fn places(
    locations: &[Option<Location>],
    exists: impl Fn(&str) -> bool,
) -> Vec<Option<PlaceOnGpu>> {
    let resolved: Vec<_> = locations
        .iter()
        .map(|location| {
            location.map(|location| {
                let (function, partition) = location.resolve(&exists);
                (location.address(function), partition)
            })
        })
        .collect();
    let shared = |pci: &str| resolved.iter().flatten().filter(|(other, _)| other == pci).count() > 1;
    let place = |(pci, partition): &(String, u32)| {
        let partition = (*partition != 0 || shared(pci)).then_some(*partition);
        PlaceOnGpu { pci: pci.clone(), partition }
    };
    resolved.iter().map(|one| one.as_ref().map(place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(ids: &[u32], devices: &[&str]) -> Vec<(String, Option<u32>)> {
        let locations: Vec<_> = ids.iter().map(|id| Some(Location { domain: 0, id: *id })).collect();
        let places = places(&locations, |address| devices.contains(&address));
        places.into_iter().flatten().map(|place| (place.pci, place.partition)).collect()
    }

    fn at(pci: &str, partition: Option<u32>) -> (String, Option<u32>) {
        (pci.to_owned(), partition)
    }

    #[test]
    fn partitions_share_the_address_of_their_chip() {
        let both = [at("0000:c1:00.0", Some(0)), at("0000:c1:00.0", Some(3)), at("0000:05:00.0", None)];
        assert_eq!(shown(&[0xc100, 0xc103, 0x0500], &["0000:c1:00.0", "0000:05:00.0"]), both);
        assert_eq!(shown(&[0xc100, 0x3000_c100, 0x0500], &[]), both);
    }

    #[test]
    fn a_function_that_exists_is_a_gpu_of_its_own() {
        let functions = ["0000:c1:00.0", "0000:c1:00.3"];
        assert_eq!(shown(&[0xc103], &functions), [at("0000:c1:00.3", None)]);
        assert_eq!(shown(&[0xc103], &[]), [at("0000:c1:00.3", None)]);
    }

    #[test]
    fn a_container_may_see_one_partition_only() {
        assert_eq!(shown(&[0xc103], &["0000:c1:00.0"]), [at("0000:c1:00.0", Some(3))]);
    }
}
