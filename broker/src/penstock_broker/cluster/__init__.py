"""What the brokers of a cluster agree on: who they are, which topics there are."""
