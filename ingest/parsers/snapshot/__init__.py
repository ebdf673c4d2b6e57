"""CUDA memory snapshots: never executed, read in a confined process, given as columns (`columns.SnapshotColumns`)."""
