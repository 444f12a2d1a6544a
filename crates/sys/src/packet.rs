//! Packet sockets: whole Ethernet frames past IP, sent by one call each and received from a ring that the kernel fills
//! in shared memory, so that looking for one costs no call at all (packet(7), TPACKET_V2).

mod ring;

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::call::{check, check_size, get_option, own, set_option};
use ring::Ring;

/// Bytes of an Ethernet header: to, from, type.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// Most bytes of a frame, its header among them; longer ones are passed over. A place of the ring holds so many.
const FRAME_BYTES_MAX: u32 = 1_900;

/// A socket for the frames of one Ethernet type on one interface.
#[derive(Debug)]
pub struct PacketSocket {
    ring: Ring,
    fd: OwnedFd,
    hardware_address: [u8; 6],
}

impl PacketSocket {
    /// Opens one on the interface with this index for frames of `ether_type` to this machine or to everybody, of at most
    /// 1,900 bytes, whose 16-bit word at `word_at` (counted from the start of the frame, in network order) is `word`:
    /// the kernel passes over all others.
    ///
    /// # Errors
    /// PermissionDenied without CAP_NET_RAW; Unsupported if the interface does not carry Ethernet frames.
    pub fn open(interface_index: u32, ether_type: u16, word_at: u32, word: u16) -> io::Result<PacketSocket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Protocol 0 hears nothing until the socket is bound.
        // SAFETY: the call takes no pointers.
        let fd = own(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        attach_filter(fd.as_fd(), word_at, word)?;
        // What others on this machine send is not for us. Where kernels before 4.20 do not know the option, the filter is
        // asked about it.
        let _ = set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        set_option(
            fd.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V2 as i32,
        )?;
        let ring = Ring::new(fd.as_fd())?;
        bind(fd.as_fd(), interface_index, ether_type)?;
        let hardware_address = hardware_address(fd.as_fd())?;
        Ok(PacketSocket { ring, fd, hardware_address })
    }

    /// The interface's own address.
    pub fn hardware_address(&self) -> [u8; 6] {
        self.hardware_address
    }

    /// Sends `slices`, one after the other, as one frame, its Ethernet header among them. Never waits.
    pub fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // SAFETY: the structure is plain data; zeros are a valid value of it.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = slices.as_ptr().cast_mut().cast();
        message.msg_iovlen = slices.len() as _;
        // SAFETY: `message` points to the slices, which outlive the call and are only read by it. `IoSlice` has the
        // layout of `iovec`.
        check_size(unsafe { libc::sendmsg(self.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) })
    }

    /// Takes away the error that is pending, for example that the interface went down; until then the descriptor counts
    /// as ready.
    pub fn clear_error(&self) {
        let _ = get_option::<i32>(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR);
    }

    /// The oldest frame that has arrived and was not passed over, whole, its Ethernet header among it. Looking makes no
    /// system call.
    #[inline]
    pub fn peek(&mut self) -> Option<&[u8]> {
        self.ring.peek()
    }

    /// Gives the place of the frame that `peek` found back to the kernel.
    #[inline]
    pub fn pass(&mut self) {
        self.ring.pass();
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Opens a socket that hears every frame that arrives on an interface, whoever it is for, and sends frames there: each behind
/// a `struct virtio_net_hdr` of 10 bytes that describes it, so that large segments and missing checksums pass as they are.
///
/// # Errors
/// PermissionDenied without CAP_NET_RAW.
pub fn open_wire(interface_index: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers.
    let fd = own(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    bind(fd.as_fd(), interface_index, libc::ETH_P_ALL as u16)?;
    Ok(fd)
}

/// Lets through what is to this machine or to everybody, fits a place of the ring and has `word` at `word_at`. The kernel
/// does this before it fills a place, so that others' frames cannot crowd out ours.
fn attach_filter(fd: BorrowedFd<'_>, word_at: u32, word: u16) -> io::Result<()> {
    let step = |code: u32, skip_if: u8, skip_unless: u8, value: u32| libc::sock_filter {
        code: code as u16,
        jt: skip_if,
        jf: skip_unless,
        k: value,
    };
    let packet_type_at = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let mut program = [
        // The types in the order of their numbers: to this machine, to everybody, to some, to others, sent by it.
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, packet_type_at),
        step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 5, 0, libc::PACKET_BROADCAST.into()),
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 3, 0, FRAME_BYTES_MAX),
        step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, word_at),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, word.into()),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let (at, length) = ((&raw const filter).cast(), size_of_val(&filter) as libc::socklen_t);
    // SAFETY: the pointer and the length describe `filter`, whose program outlives the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, at, length) })?;
    Ok(())
}

fn empty_address() -> libc::sockaddr_ll {
    // SAFETY: the structure is plain data; zeros are a valid value of it.
    unsafe { std::mem::zeroed() }
}

fn bind(fd: BorrowedFd<'_>, interface_index: u32, ether_type: u16) -> io::Result<()> {
    let mut address = empty_address();
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ether_type.to_be();
    address.sll_ifindex = interface_index as i32;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the pointer and the length describe `address`.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(())
}

fn hardware_address(fd: BorrowedFd<'_>) -> io::Result<[u8; 6]> {
    let mut address = empty_address();
    let mut length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the pointer and the length describe `address`.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut length) })?;
    match address.sll_addr.first_chunk() {
        Some(bytes) if address.sll_hatype == libc::ARPHRD_ETHER && address.sll_halen == 6 => Ok(*bytes),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::{Epoll, Events, Interest};
    use crate::interface::{self, LinkMonitor};
    use crate::process::unshare_netns;

    /// Whether the process may open packet sockets; says aloud if not.
    fn may(result: &io::Error) -> bool {
        println!("skipped: no packet sockets here: {result}");
        result.kind() != io::ErrorKind::PermissionDenied
    }

    #[test]
    fn an_interface_without_ethernet_frames_is_refused() {
        let lo = crate::interface::list().unwrap().into_iter().find(|i| i.name == "lo").unwrap();
        let error = PacketSocket::open(lo.index, TYPE, WORD_AT, 7).unwrap_err();
        assert!(!may(&error) || error.kind() == io::ErrorKind::Unsupported, "{error}");
    }

    const TYPE: u16 = 0x88b5;
    /// Where the tests' frames have the word that is looked for.
    const WORD_AT: u32 = 16;
    /// Nothing on one machine takes so long.
    const PATIENCE_NS: u64 = 20_000_000_000;

    fn ip(arguments: &str) {
        let done = std::process::Command::new("ip").args(arguments.split(' ')).status().unwrap();
        assert!(done.success(), "ip {arguments}");
    }

    /// Both ends of a cable, in a network name space of the calling thread's own.
    fn cable() -> io::Result<[PacketSocket; 2]> {
        unshare_netns()?;
        let (mut monitor, epoll) = (LinkMonitor::open()?, Epoll::new()?);
        epoll.add(monitor.as_raw_fd(), 0, Interest::READ)?;
        ip("link add va mtu 4000 type veth peer name vb mtu 4000");
        for end in ["va", "vb"] {
            ip(&format!("link set {end} up addrgenmode none"));
        }
        while interface::list()?.iter().filter(|one| one.running && one.name.starts_with('v')).count() < 2 {
            epoll.wait(&mut Events::new(1), None)?;
            monitor.drain(&mut Vec::new())?;
        }
        let open = |name: &str| {
            let index = interface::list()?.iter().find(|one| one.name == name).map_or(0, |one| one.index);
            PacketSocket::open(index, TYPE, WORD_AT, 7)
        };
        Ok([open("va")?, open("vb")?])
    }

    /// A frame of `len` bytes to `to`, with `word` where it is looked for, and with a `mark` behind that.
    fn frame(to: [u8; 6], word: u16, mark: u8, len: usize) -> Vec<u8> {
        let mut bytes =
            [&to[..], &[2; 6], &TYPE.to_be_bytes(), &[0; 2], &word.to_be_bytes(), &[mark]].concat();
        bytes.resize(len, 0);
        bytes
    }

    #[test]
    fn only_what_is_for_this_socket_takes_a_place_of_the_ring() {
        let there = std::thread::spawn(|| {
            let [near, mut far] = match cable() {
                Err(error) if !may(&error) => return,
                result => result.unwrap(),
            };
            let (here, everybody, some, other) =
                (far.hardware_address(), [0xff; 6], [1, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 9]);
            let send = |bytes: &[u8]| assert_eq!(near.send(&[IoSlice::new(bytes)]).unwrap(), bytes.len());
            // More than the ring has places for.
            for _ in 0..100 {
                send(&frame(some, 7, 0, 60));
                send(&frame(other, 7, 0, 60));
                send(&frame(here, 8, 0, 60));
                send(&frame(here, 7, 0, FRAME_BYTES_MAX as usize + 1));
            }
            send(&frame(here, 7, 1, 60));
            send(&frame(everybody, 7, 2, 60));
            send(&frame(here, 7, 3, FRAME_BYTES_MAX as usize));
            let (epoll, mut got) = (Epoll::new().unwrap(), Vec::new());
            epoll.add(far.as_raw_fd(), 0, Interest::READ).unwrap();
            while got.last() != Some(&3) {
                match far.peek() {
                    Some(frame) => {
                        got.push(frame[18]);
                        far.pass();
                    }
                    None => assert_eq!(epoll.wait(&mut Events::new(1), Some(PATIENCE_NS)).unwrap(), 1),
                }
            }
            assert_eq!(got, [1, 2, 3]);
        });
        there.join().unwrap();
    }
}
