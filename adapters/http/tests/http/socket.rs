//! The socket: long paths, its mode, and what it replaces.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use decklog_engine::ingest::Check;
use decklog_http::socket::{BindError, bind};
use tokio::net::UnixListener;

use crate::events;
use crate::served::Served;

/// What a folder holds, hidden or not.
fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_path_may_be_longer_than_an_address() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("x".repeat(90)).join("y".repeat(90));
    fs::create_dir_all(&deep).unwrap();
    let socket = deep.join("decklog.sock");
    assert!(socket.as_os_str().len() > 200);
    let mut served = Served::start_at(socket, folder).await;
    let client = served.client().await;
    client.append(&[events::json("1", "shop/checkout")], Check::Valid).await.unwrap();
    assert_eq!(served.stored().await.len(), 1);
    assert!(matches!(bind(&served.socket).await, Err(BindError::InUse { .. })));
    assert_eq!(names(served.folder()), ["decklog.sock"]);
    served.server.stop().await.unwrap();
    bind(&served.socket).await.unwrap();
}

#[tokio::test]
async fn only_this_user_may_connect() {
    let served = Served::start().await;
    let mode = fs::metadata(&served.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(names(served.folder()), ["decklog.sock"]);
}

#[tokio::test]
async fn a_socket_with_a_listener_is_left_alone() {
    let served = Served::start().await;
    let refused = bind(&served.socket).await.unwrap_err();
    assert!(matches!(&refused, BindError::InUse { socket } if *socket == served.socket), "{refused:?}");
    served.client().await.status().await.unwrap();
}

#[tokio::test]
async fn a_socket_of_a_dead_process_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("decklog.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let left = folder.path().join(format!(".decklog.sock.{}", std::process::id()));
    fs::create_dir(&left).unwrap();
    drop(UnixListener::bind(left.join("socket")).unwrap());
    let served = Served::start_at(socket, folder).await;
    served.client().await.status().await.unwrap();
    assert_eq!(names(served.folder()), ["decklog.sock"]);
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("decklog.sock");
    fs::write(&file, "mine").unwrap();
    let refused = bind(&file).await.unwrap_err();
    assert!(matches!(refused, BindError::NotASocket { .. }), "{refused:?}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    for nowhere in [folder.path().join("none/decklog.sock"), PathBuf::from("/")] {
        let refused = bind(&nowhere).await.unwrap_err();
        assert!(matches!(refused, BindError::Failed { .. } | BindError::NotASocket { .. }), "{refused:?}");
    }
}
