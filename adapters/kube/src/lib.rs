//! Server-side apply, watch and lease; nothing stands here until the projector applies to a cluster.
