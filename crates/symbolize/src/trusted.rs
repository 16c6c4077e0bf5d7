// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Whose certificates are believed when a server of https is asked: those that this machine trusts,
//! as other programs do. A company's servers often have certificates of its own.

use std::path::PathBuf;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Variables that name files and folders with certificates, instead of the distribution's.
const VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// What the environment names: `SSL_CERT_DIR` may name several.
pub fn named() -> Vec<PathBuf> {
    let values = VARIABLES.iter().filter_map(std::env::var_os);
    values.flat_map(|value| std::env::split_paths(&value).collect::<Vec<_>>()).collect()
}

/// Where the machine has no certificates, those that browsers trust; but not if others are named.
pub fn trusted() -> TlsConfig {
    let found = rustls_native_certs::load_native_certs().certs;
    let found: Vec<_> = found.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    let roots = match found.is_empty() && named().is_empty() {
        true => RootCerts::WebPki,
        false => RootCerts::from(found),
    };
    TlsConfig::builder().root_certs(roots).build()
}
