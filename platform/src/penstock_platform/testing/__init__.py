"""Simulations of the outside world, shipped for tests: archive, clock, and a cluster's offsets."""
