//! The rules of the log and of the checkpoint store, kept by sled.

use decklog_engine::conformance::{CheckpointFixture, LogFixture, checkpoint_suite, log_suite};
use decklog_sled::{SledCheckpoints, SledLog};
use tempfile::TempDir;

struct OnDisk(TempDir);

impl LogFixture for OnDisk {
    type Log = SledLog;

    async fn open(&mut self) -> SledLog {
        SledLog::open(self.0.path()).await.expect("the log opens")
    }
}

struct Checkpoints {
    dir: TempDir,
    open: Option<SledCheckpoints>,
}

impl CheckpointFixture for Checkpoints {
    type Store = SledCheckpoints;

    async fn open(&mut self) -> &mut SledCheckpoints {
        drop(self.open.take());
        let (store, set_aside) = SledCheckpoints::open(&self.dir.path().join("checkpoint")).await.expect("it opens");
        assert_eq!(set_aside, None);
        self.open.insert(store)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_the_rules() {
    log_suite(|| OnDisk(tempfile::tempdir().unwrap())).await;
}

#[tokio::test]
async fn the_checkpoints_keep_the_rules() {
    checkpoint_suite(|| Checkpoints { dir: tempfile::tempdir().unwrap(), open: None }).await;
}
