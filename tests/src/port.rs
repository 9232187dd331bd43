//! Ports of the loopback for servers of tests, kept apart between all test processes of the machine.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the range from which the kernel hands out local ports.
const FIRST: u32 = 10_000;
const END: u32 = 32_768;

/// A port that no other test takes as long as this lives, whether or not something listens on it.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// The UDP port of the same number is the lock: exclusive, and given back by the kernel however we end.
    _lock: Option<UdpSocket>,
}

impl Port {
    /// A free port. What knows nothing of our locks can still take it before a server does.
    #[must_use]
    pub fn find() -> Self {
        Self::listen().0
    }

    /// A free port, and the listener on it.
    #[must_use]
    pub fn listen() -> (Self, TcpListener) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Each process begins at a place of its own.
        let start = process::id().wrapping_mul(61);
        let numbers = (FIRST..END).map(|_| start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)));
        let mut numbers = numbers.filter_map(|number| u16::try_from(FIRST + number % (END - FIRST)).ok());
        let taken = numbers.find_map(|number| {
            let lock = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
            Some((Self { number, _lock: Some(lock) }, listener))
        });
        taken.expect("a port is free")
    }

    /// The port that a test asks for, whoever has it.
    #[must_use]
    pub fn fixed(number: u16) -> Self {
        Self { number, _lock: UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok() }
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}
