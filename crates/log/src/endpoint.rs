// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Fields `as endpoint`: the address of one side of a socket, as [`ENDPOINT_BYTES`] describes it.

use klogger_schema::model::ENDPOINT_BYTES;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

/// Address families of Linux.
const UNSPECIFIED: u16 = 0;
const UNIX: u16 = 1;
const INET: u16 = 2;
const INET6: u16 = 10;

/// `127.0.0.1:80`, `[::1]:80`, `unix`, `-` without a family, `family:17` of others; `None` if these
/// are not the bytes of an endpoint.
pub fn text(bytes: &[u8]) -> Option<String> {
    let bytes: &[u8; ENDPOINT_BYTES as usize] = bytes.try_into().ok()?;
    let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let address: [u8; 16] = bytes[4..].try_into().ok()?;
    let [a, b, c, d, ..] = address;
    let port = word(2);
    Some(match word(0) {
        UNSPECIFIED => "-".into(),
        UNIX => "unix".into(),
        INET => SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port).to_string(),
        INET6 => SocketAddrV6::new(Ipv6Addr::from(address), port, 0, 0).to_string(),
        other => format!("family:{other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(family: u16, port: u16, address: &[u8]) -> Vec<u8> {
        let mut all = [family.to_le_bytes(), port.to_le_bytes()].concat();
        all.extend_from_slice(address);
        all.resize(ENDPOINT_BYTES as usize, 0);
        all
    }

    #[test]
    fn each_family() {
        let of = |family, port, address: &[u8]| text(&bytes(family, port, address)).unwrap();
        let one = Ipv6Addr::LOCALHOST.octets();
        assert_eq!(of(INET, 80, &[127, 0, 0, 1]), "127.0.0.1:80");
        assert_eq!(of(INET, 65535, &[0; 4]), "0.0.0.0:65535");
        assert_eq!(of(INET6, 80, &one), "[::1]:80");
        assert_eq!(of(INET6, 0, &[0; 16]), "[::]:0");
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        assert_eq!(of(INET6, 443, &mapped), "[::ffff:127.0.0.1]:443");
        assert_eq!(of(UNIX, 7, &[1; 16]), "unix");
        assert_eq!(of(UNSPECIFIED, 0, &[]), "-");
        assert_eq!(of(17, 0, &[]), "family:17");
        assert_eq!(text(&[2, 0, 80, 0]), None);
    }
}
