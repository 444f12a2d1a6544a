//! The interfaces that bearers use, and whether their carriers may be counted on.

use crate::engine::Attachment;

/// How long the system may take to say that it uses a carrier that is back.
const SERVICE_WAIT_NS: u64 = 50_000_000;

/// An interface that bearers use.
pub(super) struct Device {
    pub name: String,
    /// Its number: an interface that takes its name later is another device.
    index: Option<u32>,
    pub bearers: Vec<usize>,
    /// Whether the engine counts on its carrier.
    pub usable: bool,
    /// Since when its carrier is back without the system saying that it uses it.
    pub waiting_since_ns: Option<u64>,
}

impl Device {
    fn new(name: String, index: Option<u32>) -> Device {
        Device { name, index, bearers: Vec::new(), usable: true, waiting_since_ns: None }
    }

    /// The interfaces of all bearers: those of both address families share one.
    pub fn of_bearers(attachments: Vec<Attachment>) -> Vec<Device> {
        let mut devices: Vec<Device> = Vec::new();
        for Attachment { bearer, interface, interface_index, .. } in attachments {
            let is_it = |device: &Device| device.name == interface && device.index == interface_index;
            let known = devices.iter().position(is_it);
            let index = known.unwrap_or_else(|| {
                devices.push(Device::new(interface, interface_index));
                devices.len() - 1
            });
            devices[index].bearers.push(bearer);
        }
        devices
    }

    /// The same once bearers have come and gone: what is known of the devices that stay. Calls `unusable` with each bearer
    /// that came to a device that has no carrier, for the engine counts on it.
    pub fn renew(
        known: Vec<Device>,
        attachments: Vec<Attachment>,
        mut unusable: impl FnMut(usize),
    ) -> Vec<Device> {
        let mut devices = Device::of_bearers(attachments);
        for device in &mut devices {
            let same = |old: &&Device| old.name == device.name && old.index == device.index;
            let Some(old) = known.iter().find(same) else { continue };
            (device.usable, device.waiting_since_ns) = (old.usable, old.waiting_since_ns);
            let new = device.bearers.iter().filter(|bearer| !device.usable && !old.bearers.contains(bearer));
            new.for_each(|bearer| unusable(*bearer));
        }
        devices
    }

    /// Whether the engine may count on the carrier now.
    ///
    /// A carrier that is back is of use only once the system uses it: what is sent before is lost. The system says when
    /// it does; but of an interface that was set up again, which is in use at once, some systems say so only when their
    /// watch over carriers has its turn, up to a second later. So its word is not waited for any longer than it takes
    /// where it tells something.
    pub fn look(
        &mut self,
        now_ns: u64,
        carrier: impl FnOnce(&str) -> bool,
        in_service: impl FnOnce(&str) -> bool,
    ) -> bool {
        // In this order: newer systems settle the matter when they are asked for the carrier.
        if !carrier(&self.name) {
            self.waiting_since_ns = None;
            return false;
        }
        if self.usable || in_service(&self.name) {
            self.waiting_since_ns = None;
            return true;
        }
        let since_ns = *self.waiting_since_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) >= SERVICE_WAIT_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_NS: u64 = 7_000_000_000;

    /// What a look at this moment finds if the carrier and the system's word are these.
    fn look(device: &mut Device, after_ns: u64, carrier: bool, in_service: bool) -> bool {
        device.usable = device.look(AT_NS + after_ns, |_| carrier, |_| in_service);
        device.usable
    }

    fn on(bearer: usize, interface: &str, index: u32) -> Attachment {
        let address = "10.0.0.1:7430".parse().unwrap();
        let (interface, interface_index) = (interface.to_owned(), Some(index));
        Attachment { bearer, interface, interface_index, address, mtu_bytes: 1_472 }
    }

    #[test]
    fn bearers_of_one_interface_are_one_device() {
        let all = [on(0, "eth0", 2), on(1, "eth0", 2), on(2, "eth1", 3), on(4, "eth0", 2)];
        let devices = Device::of_bearers(all.to_vec());
        let seen: Vec<(&str, &[usize])> = devices.iter().map(|d| (d.name.as_str(), &d.bearers[..])).collect();
        assert_eq!(seen, [("eth0", &[0, 1, 4][..]), ("eth1", &[2])]);
    }

    #[test]
    fn what_is_known_of_a_device_stays_known_but_not_of_another_one_with_its_name() {
        let mut devices = Device::of_bearers(vec![on(0, "eth0", 2), on(1, "eth1", 3)]);
        assert!(!look(&mut devices[0], 0, false, false) && !look(&mut devices[1], 0, false, false));
        let mut told = Vec::new();
        let all = vec![on(0, "eth0", 2), on(3, "eth0", 2), on(4, "eth1", 9), on(5, "eth2", 10)];
        let devices = Device::renew(devices, all, |bearer| told.push(bearer));
        assert_eq!(told, [3], "the engine knows of bearer 0, and counts on the carriers of what is new");
        assert_eq!(devices.iter().map(|d| d.usable).collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn a_carrier_that_is_back_counts_once_the_system_says_so_or_has_had_time_to() {
        let mut device = Device::new("eth0".to_owned(), Some(2));
        assert!(look(&mut device, 0, true, false), "it was there all the time");
        assert!(!look(&mut device, 1, false, true));
        assert!(look(&mut device, 2, true, true));
        assert!(!look(&mut device, 3, false, false));
        assert!(!look(&mut device, 4, true, false));
        assert!(!look(&mut device, 3 + SERVICE_WAIT_NS, true, false));
        assert!(look(&mut device, 4 + SERVICE_WAIT_NS, true, false));
        assert!(device.look(AT_NS, |_| true, |_| false), "and goes on to");
    }

    #[test]
    fn a_carrier_that_left_again_is_waited_for_anew() {
        let mut device = Device::new("eth0".to_owned(), Some(2));
        assert!(!look(&mut device, 0, false, false));
        assert!(!look(&mut device, 1, true, false));
        assert!(!look(&mut device, 2, false, false));
        assert!(device.waiting_since_ns.is_none());
        assert!(!look(&mut device, 1 + SERVICE_WAIT_NS, true, false));
        assert!(!look(&mut device, 2 + SERVICE_WAIT_NS, true, false));
        assert!(look(&mut device, 1 + 2 * SERVICE_WAIT_NS, true, false));
    }
}
