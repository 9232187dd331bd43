//! Who logs in: the secrets and the files of a login, read before anybody is connected to.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use async_nats::rustls::pki_types::pem::PemObject as _;
use async_nats::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use async_nats::rustls::{self, ClientConfig, RootCertStore};
use async_nats::{ConnectOptions, ServerAddr};

/// Who logs in, with what NATS users know. What is absent is not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// File of a JWT and its seed, `--creds`.
    pub creds: Option<PathBuf>,
    /// File of an nkey seed, `--nkey`.
    pub nkey: Option<PathBuf>,
    /// User name, `--user`.
    pub user: Option<String>,
    /// Password, `--password`.
    pub password: Option<String>,
    /// Token, as NATS CLI contexts have it.
    pub token: Option<String>,
    /// Client certificate in PEM, `--tlscert`.
    pub tls_cert: Option<PathBuf>,
    /// Its key in PEM, `--tlskey`.
    pub tls_key: Option<PathBuf>,
    /// Certificates of authorities in PEM, `--tlsca`.
    pub tls_ca: Option<PathBuf>,
    /// TLS before the server's first line, as NATS CLI contexts have it.
    pub tls_first: bool,
    /// Prefix of reply subjects, `_INBOX` if absent.
    pub inbox_prefix: Option<String>,
    /// JetStream domain.
    pub domain: Option<String>,
}

/// A file of the login is missing, or is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {what} in {}, which {flag}, its variable or the NATS context names", path.display())]
pub struct LoginError {
    /// Such as `the credentials`.
    what: &'static str,
    /// The flag that names such a file.
    flag: &'static str,
    path: PathBuf,
    source: Error,
}

/// A file of a login.
#[derive(Clone, Copy)]
struct File<'a> {
    what: &'static str,
    flag: &'static str,
    path: &'a Path,
}

// === impl Login ===

impl Login {
    /// The login with what the addresses say, unless it says something itself: the client does not look there.
    pub(crate) fn with_userinfo(&self, addresses: &[ServerAddr]) -> Self {
        let mut login = self.clone();
        let says_nothing =
            login.user.is_none() && login.token.is_none() && login.creds.is_none() && login.nkey.is_none();
        if let Some(address) = addresses.iter().find(|address| address.has_user_pass() && says_nothing) {
            match (address.username().map(decoded), address.password().map(decoded)) {
                (Some(user), Some(password)) => (login.user, login.password) = (Some(user), Some(password)),
                (token, _) => login.token = token,
            }
        }
        login
    }

    /// The options of a connection with this login. What is wrong with a file is better told here than by a library that
    /// tells only that it cannot connect.
    pub(crate) fn options(&self) -> Result<ConnectOptions, LoginError> {
        let mut options = ConnectOptions::new();
        if let Some(path) = &self.creds {
            let file = File { what: "the credentials", flag: "--creds", path };
            options = options.credentials(&file.text()?).map_err(|error| file.unusable(error))?;
        }
        if let Some(path) = &self.nkey {
            let file = File { what: "the nkey seed", flag: "--nkey", path };
            let seed = file.text()?.trim().to_owned();
            nkeys::KeyPair::from_seed(&seed).map_err(|error| file.malformed(&error.to_string()))?;
            options = options.nkey(seed);
        }
        if let Some(user) = &self.user {
            options = options.user_and_password(user.clone(), self.password.clone().unwrap_or_default());
        }
        if let Some(token) = &self.token {
            options = options.token(token.clone());
        }
        if let Some(path) = &self.tls_ca {
            authorities(File { what: "the certificate authority", flag: "--tlsca", path })?;
            options = options.add_root_certificates(path.clone());
        }
        let cert = |path| File { what: "the client certificate", flag: "--tlscert", path };
        let key = |path| File { what: "the client certificate's key", flag: "--tlskey", path };
        match (&self.tls_cert, &self.tls_key) {
            (Some(of_cert), Some(of_key)) => {
                client_certificate(cert(of_cert), key(of_key))?;
                options = options.add_client_certificate(of_cert.clone(), of_key.clone());
            }
            (Some(of_cert), None) => return Err(cert(of_cert).malformed("its key is not named, with --tlskey")),
            (None, Some(of_key)) => return Err(key(of_key).malformed("its certificate is not named, with --tlscert")),
            (None, None) => {}
        }
        if self.tls_first {
            options = options.tls_first();
        }
        if let Some(prefix) = &self.inbox_prefix {
            options = options.custom_inbox_prefix(prefix);
        }
        Ok(options)
    }
}

/// A user name or a password of an address, where `%40` stands for `@`. What is no such escape stands for itself.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let escaped = behind.get(..2).filter(|_| *first == b'%').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
            u8::from_str_radix(digits, 16).ok()
        });
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &behind[2..] } else { behind };
    }
    // Servers know names and passwords as text; what decodes to none was not escaped.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Looks at the certificates of authorities as the TLS library will.
fn authorities(file: File<'_>) -> Result<(), LoginError> {
    let mut store = RootCertStore::empty();
    for certificate in file.certificates()? {
        store.add(certificate).map_err(|error| file.malformed(&error.to_string()))?;
    }
    Ok(())
}

/// Looks at a certificate and its key as the TLS library will.
fn client_certificate(cert: File<'_>, key: File<'_>) -> Result<(), LoginError> {
    let certificates = cert.certificates()?;
    let secret = PrivateKeyDer::from_pem_slice(key.text()?.as_bytes());
    let secret = secret.map_err(|_| key.malformed("it holds no private key in PEM"))?;
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
    match config.with_client_auth_cert(certificates, secret) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => Err(key.malformed("it does not belong to the certificate")),
        Err(error @ rustls::Error::InvalidCertificate(_)) => Err(cert.malformed(&error.to_string())),
        Err(error) => Err(key.malformed(&error.to_string())),
    }
}

// === impl File ===

impl File<'_> {
    fn text(self) -> Result<String, LoginError> {
        std::fs::read_to_string(self.path).map_err(|error| self.unusable(error))
    }

    fn certificates(self) -> Result<Vec<CertificateDer<'static>>, LoginError> {
        let text = self.text()?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        match certificates {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) | Err(_) => Err(self.malformed("it holds no certificates in PEM")),
        }
    }

    fn malformed(self, problem: &str) -> LoginError {
        self.unusable(Error::new(ErrorKind::InvalidData, problem))
    }

    fn unusable(self, source: Error) -> LoginError {
        LoginError { what: self.what, flag: self.flag, path: self.path.to_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_passwords_of_addresses_are_decoded() {
        for (text, expected) in [
            ("user%40corp", "user@corp"),
            ("p%3Aw", "p:w"),
            ("p%3aw%2f", "p:w/"),
            ("%C3%A4da", "äda"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
            ("%+1%é", "%+1%é"),
            ("%2540", "%40"),
            ("%ff", "%ff"),
        ] {
            assert_eq!(decoded(text), expected, "{text}");
        }
    }
}
