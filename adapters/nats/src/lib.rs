//! The JetStream log; nothing stands here until the log on JetStream is built.
