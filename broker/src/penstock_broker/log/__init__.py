"""The storage layer: a log is a list of segments, a segment a file of batches and its indexes."""
