"""Counters, gauges and histograms of the broker; reading them is the server's matter."""
