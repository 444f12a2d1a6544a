//! Sockets on loopback.

use super::*;
use crate::epoll::{Epoll, Events, Interest};
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn bound(ip: IpAddr) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::new(ip.is_ipv6()).unwrap();
    socket.set_receive_errors().unwrap();
    socket.set_path_mtu_probe().unwrap();
    socket.set_receive_traffic_class().unwrap();
    socket.bind((ip, 0).into()).unwrap();
    let address = socket.local_address().unwrap();
    (socket, address)
}

fn homes() -> [IpAddr; 2] {
    [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
}

fn wait_readable(socket: &UdpSocket) {
    let (epoll, mut events) = (Epoll::new().unwrap(), Events::new(1));
    epoll.add(socket.as_raw_fd(), 0, Interest::READ).unwrap();
    while epoll.wait(&mut events, None).unwrap() == 0 {}
}

fn recv_all(socket: &UdpSocket, bytes: usize) -> Vec<(Vec<u8>, Received)> {
    let (mut queue, mut buffers) = (RecvQueue::new(4), vec![vec![0u8; 65_536]; 4]);
    let (mut out, mut got) = (Vec::new(), 0);
    while got < bytes {
        wait_readable(socket);
        let count = socket.recv_many(&mut queue, buffers.iter_mut().map(|b| &mut b[..])).unwrap();
        for (index, buffer) in buffers.iter().enumerate().take(count) {
            let received = queue.get(index).unwrap();
            got += received.bytes;
            out.push((buffer[..received.bytes].to_vec(), received));
        }
        assert!(queue.get(count).is_none());
    }
    out
}

#[test]
fn a_gathered_datagram_arrives_with_sender_and_mark() {
    for home in homes() {
        let ((a, a_address), (b, b_address)) = (bound(home), bound(home));
        a.set_traffic_class(3).unwrap();
        let slices: Vec<IoSlice> = (0..200).map(|_| IoSlice::new(b"xyz")).collect();
        assert_eq!(a.send_to(Some(b_address), &slices, None, None).unwrap(), 600);
        let got = recv_all(&b, 600);
        assert_eq!(got[0].0, b"xyz".repeat(200));
        assert_eq!((got[0].1.from, got[0].1.ecn, got[0].1.truncated), (a_address, 3, false));
    }
}

#[test]
fn a_train_arrives_as_groups_of_its_stride() {
    for home in homes() {
        let ((a, _), (b, b_address)) = (bound(home), bound(home));
        b.set_gro(true).unwrap();
        assert!(a.knows_gso());
        let train: Vec<u8> = (0..5_500u32).map(|n| n as u8).collect();
        assert_eq!(a.send_to(Some(b_address), &[IoSlice::new(&train)], Some(1_000), None).unwrap(), 5_500);
        let got = recv_all(&b, train.len());
        assert_eq!(got.iter().flat_map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>(), train);
        assert!(got.iter().all(|(bytes, r)| r.stride.is_none_or(|s| s == 1_000) && bytes.len() >= 500));
        assert_eq!(got[0].1.stride, Some(1_000));
    }
}

#[test]
fn segments_go_one_by_one_in_one_call() {
    let ((a, _), (b, b_address)) = (bound(homes()[0]), bound(homes()[0]));
    let (one, two) = ([IoSlice::new(b"one")], [IoSlice::new(b"t"), IoSlice::new(b"wo")]);
    assert_eq!(a.send_segments(Some(b_address), &[&one, &two], None).unwrap(), 2);
    let got = recv_all(&b, 6);
    assert_eq!(got.iter().map(|(bytes, _)| &bytes[..]).collect::<Vec<_>>(), [b"one", b"two"]);
}

/// The DSCP and ECN mark of each of so many datagrams.
fn marks(socket: &UdpSocket, count: usize) -> Vec<(u8, u8)> {
    recv_all(socket, 10 * count).iter().map(|(_, received)| (received.dscp, received.ecn)).collect()
}

#[test]
fn a_mark_goes_with_a_datagram_a_train_or_all_that_a_socket_sends() {
    for home in homes() {
        let ((a, _), (b, b_address)) = (bound(home), bound(home));
        let (to, one, train) = (Some(b_address), [IoSlice::new(&[1; 10])], [IoSlice::new(&[3; 30])]);
        a.send_to(to, &one, None, None).unwrap();
        assert_eq!(marks(&b, 1), [(0, 0)]);
        a.send_to(to, &one, None, Some(46 << 2 | 2)).unwrap();
        assert_eq!(marks(&b, 1), [(46, 2)]);
        a.send_to(to, &train, Some(10), Some(8 << 2 | 1)).unwrap();
        assert_eq!(marks(&b, 3), [(8, 1); 3]);
        assert_eq!(a.send_segments(to, &[&one, &one], Some(18 << 2 | 2)).unwrap(), 2);
        assert_eq!(marks(&b, 2), [(18, 2); 2]);
        a.set_traffic_class(48 << 2 | 2).unwrap();
        a.send_to(to, &one, None, None).unwrap();
        a.send_to(to, &one, None, Some(2)).unwrap();
        assert_eq!(marks(&b, 2), [(48, 2), (0, 2)]);
    }
}

#[test]
fn nothing_there_would_block_and_too_large_is_told() {
    let (a, address) = bound(homes()[0]);
    let (mut queue, mut buffer) = (RecvQueue::new(1), [0u8; 10]);
    let error = a.recv_many(&mut queue, std::iter::once(&mut buffer[..])).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    let error = a.send_to(Some(address), &[IoSlice::new(&[0; 65_508])], None, None).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    let queued = a.take_error().unwrap().unwrap();
    // Until it is taken, this error would fail the next call, although the datagram has been refused already.
    assert_eq!((queued.to, queued.errno), (Some(address), libc::EMSGSIZE));
    assert_eq!(a.take_error().unwrap(), None);
    a.send_to(Some(address), &[IoSlice::new(&[7; 20])], None, None).unwrap();
    wait_readable(&a);
    assert_eq!(a.recv_many(&mut queue, std::iter::once(&mut buffer[..])).unwrap(), 1);
    let got = queue.get(0).unwrap();
    assert!(got.truncated && got.bytes == 10);
    assert_eq!(a.readiness().unwrap(), Readiness { readable: false, writable: true, error: false });
    assert_eq!(a.queued_bytes().unwrap(), 0);
}

#[test]
fn a_closed_port_is_an_entry_in_the_error_queue() {
    for home in homes() {
        let ((a, _), (b, b_address)) = (bound(home), bound(home));
        drop(b);
        a.send_to(Some(b_address), &[IoSlice::new(b"anybody?")], None, None).unwrap();
        wait_readable(&a);
        let error = a.take_error().unwrap().unwrap();
        assert_eq!(
            (error.to, error.offender, error.errno),
            (Some(b_address), Some(home), libc::ECONNREFUSED)
        );
        let expected = match home {
            IpAddr::V4(_) => (ErrorOrigin::Icmp, 3, 3),
            IpAddr::V6(_) => (ErrorOrigin::Icmp6, 1, 4),
        };
        assert_eq!((error.origin, error.icmp_type, error.icmp_code), expected);
        assert_eq!(a.take_error().unwrap(), None);
    }
}

#[test]
fn the_kernel_tells_what_buffer_it_granted() {
    let (a, _) = bound(homes()[0]);
    assert_eq!(a.set_receive_buffer(100_000).unwrap(), 100_000);
    assert_eq!(a.set_send_buffer(60_000).unwrap(), 60_000);
    assert!(a.set_send_buffer(1).unwrap() > 1, "the kernel has a minimum");
}

#[test]
fn multicast_is_heard_by_every_member_on_the_machine() {
    let group: IpAddr = [239, 255, 74, 31].into();
    let lo = crate::interface::list().unwrap().into_iter().find(|i| i.name == "lo").unwrap();
    let port = bound(homes()[0]).1.port();
    let open = || {
        let socket = UdpSocket::new(false).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind_to_device("lo").unwrap();
        socket.bind((group, port).into()).unwrap();
        socket.join(group, lo.index).unwrap();
        socket.set_multicast_own_only().unwrap();
        socket.set_multicast_interface(lo.index, homes()[0]).unwrap();
        socket.set_multicast_hops(1).unwrap();
        socket.set_multicast_loop(true).unwrap();
        socket
    };
    let (a, b) = (open(), open());
    a.send_to(Some((group, port).into()), &[IoSlice::new(b"hello")], None, None).unwrap();
    for socket in [&a, &b] {
        let got = recv_all(socket, 5);
        assert_eq!((&got[0].0[..], got[0].1.from), (&b"hello"[..], (homes()[0], port).into()));
    }
}

#[test]
fn an_unknown_device_is_refused() {
    let socket = UdpSocket::new(false).unwrap();
    assert_eq!(socket.bind_to_device("none-such").unwrap_err().raw_os_error(), Some(libc::ENODEV));
}

fn connected(home: IpAddr) -> (UdpSocket, UdpSocket) {
    let ((a, _), (b, b_address)) = (bound(home), bound(home));
    a.connect(b_address).unwrap();
    (a, b)
}

#[test]
fn lent_pages_arrive_wherever_the_bytes_begin() {
    let Some(lender) = PageLender::new().unwrap() else { return };
    let memory: Vec<u8> = (0..80_000u32).map(|i| (i / 7) as u8).collect();
    for home in homes() {
        let (a, b) = connected(home);
        b.set_gro(true).unwrap();
        for (segment, len) in
            [(0, 1), (0, 4_096), (0, 16_000), (1_200, 60_000), (1_472, 64_768), (1_400, 65_000)]
        {
            a.set_segment(segment).unwrap();
            for start in [0, 1, 4_000, 4_095] {
                lender.send(&a, &memory[start..start + len]).unwrap();
                let got = recv_all(&b, len);
                let bytes: Vec<u8> = got.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
                assert!(bytes == memory[start..start + len], "{len} bytes from {start} to {home}");
                let mut groups = got.iter().filter(|(bytes, _)| segment > 0 && bytes.len() > segment.into());
                assert!(groups.all(|(_, received)| received.stride == Some(segment.into())));
            }
        }
    }
}

#[test]
fn lent_pages_that_are_refused_leave_nothing_behind() {
    let Some(lender) = PageLender::new().unwrap() else { return };
    let memory = vec![7; 140_000];
    for home in homes() {
        let (a, b) = connected(home);
        for too_large in [70_000, 140_000] {
            assert!(
                lender.send(&a, &memory[..too_large]).is_err(),
                "larger than any datagram, or than the pipe"
            );
            lender.send(&a, b"next").unwrap();
            assert_eq!(recv_all(&b, 4)[0].0, b"next");
        }
    }
}
