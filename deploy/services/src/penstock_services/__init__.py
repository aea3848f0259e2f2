"""Installation checks and the managed services behind ``penstock up``."""
