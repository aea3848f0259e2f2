"""The test kit that is shipped: twins of the machine that do what a test tells them to.

``SimClock`` is time that moves when told to; ``MemFiles`` a disk that can be cut off from power,
filled up, and made to fail.
"""

from penstock_broker.testing.mem_files import MemFiles
from penstock_broker.testing.sim_clock import SimClock

__all__ = ["MemFiles", "SimClock"]
