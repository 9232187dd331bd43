//! The Unix socket of a server: to bind it and to connect to it, however long its path is.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

/// The socket cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody listens there. Talk to it, or stop it first.
    #[error("another process listens on {socket}")]
    InUse {
        /// Path of the socket.
        socket: PathBuf,
    },
    /// There is something else under this name, and it is left as it is.
    #[error("{socket} is there and is no socket")]
    NotASocket {
        /// The path.
        socket: PathBuf,
    },
    /// The system refuses.
    #[error("cannot bind the socket {socket}")]
    Failed {
        /// Path of the socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// How long a path `sockaddr_un` takes, in bytes; a zero follows it.
const LONGEST: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// How often, and after what time, a server is asked again that has too many connections waiting.
const BUSY_TRIES: u32 = 500;
const BUSY_WAIT: Duration = Duration::from_millis(10);

/// Binds a socket that only this user can connect to. A socket that a dead process left is replaced; one that
/// somebody listens on is not.
///
/// Two that bind one path at the same moment may both find it free: let whoever does own the folder, as a process
/// does that has an embedded log in it open. To be called within a runtime.
///
/// # Errors
/// Somebody listens there, or the system refuses.
pub async fn bind(socket: &Path) -> Result<UnixListener, BindError> {
    make_way(socket).await?;
    bind_private(socket).map_err(|source| failed(socket, source))
}

/// Connects, and waits for a server that has too many connections waiting.
pub(crate) async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let mut tries = 1;
    loop {
        match Address::of(socket)?.connect().await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries < BUSY_TRIES => {}
            done => return done,
        }
        tries += 1;
        tokio::time::sleep(BUSY_WAIT).await;
    }
}

/// Whether an error of [`connect`] says that nobody listens, or not any more.
pub(crate) fn nobody_listens(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset)
}

async fn make_way(socket: &Path) -> Result<(), BindError> {
    match fs::symlink_metadata(socket) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(BindError::NotASocket { socket: socket.into() });
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(failed(socket, source)),
    }
    let connected = match Address::of(socket) {
        Ok(address) => address.connect().await,
        Err(source) => return Err(failed(socket, source)),
    };
    match connected {
        Err(error) if nobody_listens(&error) => Ok(()),
        // Too many wait for it already: it listens.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(failed(socket, error)),
        Ok(_) | Err(_) => Err(BindError::InUse { socket: socket.into() }),
    }
}

/// The socket gets its mode in a folder that nobody else can enter, and then its name: there is no moment in which
/// another user could connect, and none in which a name has no listener.
fn bind_private(socket: &Path) -> io::Result<UnixListener> {
    let folder = PrivateFolder::beside(socket)?;
    let fresh = folder.0.join("socket");
    let listener = Address::of(&fresh)?.bind()?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
    fs::rename(&fresh, socket)?;
    Ok(listener)
}

fn failed(socket: &Path, source: io::Error) -> BindError {
    let socket = socket.into();
    BindError::Failed { socket, source }
}

/// A path that is short enough, and what it leads through.
struct Address {
    path: PathBuf,
    /// Open as long as the path is used.
    _folder: Option<File>,
}

impl Address {
    fn of(socket: &Path) -> io::Result<Self> {
        if socket.as_os_str().len() <= LONGEST {
            let path = socket.to_owned();
            return Ok(Self { path, _folder: None });
        }
        Self::through_folder(socket)
    }

    /// An open folder has a short name in `/proc`.
    #[cfg(target_os = "linux")]
    fn through_folder(socket: &Path) -> io::Result<Self> {
        let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::InvalidFilename));
        };
        let folder = File::open(folder)?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }

    #[cfg(not(target_os = "linux"))]
    fn through_folder(socket: &Path) -> io::Result<Self> {
        let length = socket.as_os_str().len();
        let problem = format!(
            "its path has {length} bytes, and {LONGEST} is the most that this system takes: choose a folder with a shorter name"
        );
        Err(io::Error::new(io::ErrorKind::InvalidFilename, problem))
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(&self.path).await
    }

    fn bind(&self) -> io::Result<UnixListener> {
        UnixListener::bind(&self.path)
    }
}

/// A folder of this user alone, removed when it is dropped.
struct PrivateFolder(PathBuf);

impl PrivateFolder {
    fn beside(socket: &Path) -> io::Result<Self> {
        let Some(name) = socket.file_name() else {
            return Err(io::Error::from(io::ErrorKind::InvalidFilename));
        };
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", std::process::id()));
        let path = socket.with_file_name(hidden);
        // One that a killed process left, whose number has come round again.
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "Folder is left behind");
        }
    }
}
