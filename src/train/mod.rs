//! Training: the loop, metrics, progress and checkpoints.
