"""A history of producers and their mishaps at random; what must be found is written down."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from evidence_events import account, digest, event

from penstock_platform.reconciliation.model.claims import StoredRecords
from penstock_platform.testing.windows import make_window


@dataclass
class History:
    """Producers into two partitions, mishaps at random; what must be found is written down."""

    rng: random.Random
    log: dict = field(default_factory=lambda: {0: [], 1: []})
    claims: list = field(default_factory=list)  # (incarnation, partition, offset, sequence)
    failed: dict = field(default_factory=dict)
    expected: dict = field(default_factory=dict)

    def expect(self, kind, partition, offset):
        self.expected.setdefault(kind, set()).add((partition, offset))

    def produce(self, incarnation, sequence):
        partition = self.rng.randrange(2)
        log = self.log[partition]
        offset = len(log)
        fate = self.rng.random()
        if fate < 0.03:  # acknowledged; the record was then lost, and its place taken by a stranger
            log.append((-1, -1, None))
            self.claims.append((incarnation, partition, offset, sequence))
            self.expect("missing", partition, offset)
            self.expect("unstamped", partition, offset)
        elif fate < 0.06:  # stored, the answer lost, stored again, acknowledged
            log += [(incarnation, sequence, None)] * 2
            self.claims.append((incarnation, partition, offset + 1, sequence))
            self.expect("duplicate", partition, offset)
        elif fate < 0.09:  # stored; the client got an error
            log.append((incarnation, sequence, None))
            self.failed.setdefault(incarnation, []).append((sequence, sequence + 1, "timed out"))
            self.expect("unacknowledged", partition, offset)
        elif fate < 0.12:  # stored; the producer never reported it
            log.append((incarnation, sequence, None))
            self.expect("loose", partition, offset)
        elif fate < 0.14:  # acknowledged; changed on the disk
            log.append((incarnation, sequence, 12345))
            self.claims.append((incarnation, partition, offset, sequence))
            self.expect("corrupt", partition, offset)
        elif fate < 0.16:
            log.append((-1, -1, None))
            self.expect("unstamped", partition, offset)
        else:
            log.append((incarnation, sequence, None))
            self.claims.append((incarnation, partition, offset, sequence))

    def events(self, digest_of):
        """The claims as runs of consecutive offsets, cut at random, in events that are shuffled."""
        runs = []
        for incarnation, partition, offset, sequence in sorted(self.claims):
            last = runs[-1] if runs else None
            joins = last and last[:2] == [incarnation, partition] and last[3] == offset
            if joins and self.rng.random() < 0.7:
                last[3] = offset + 1
                last[4] += digest_of(incarnation, sequence)
            else:
                made = digest_of(incarnation, sequence)
                runs.append([incarnation, partition, offset, offset + 1, made, []])
            runs[-1][5].append((sequence, sequence + 1))
        found = [
            event(i, 1, account(failed=f), uuid=f"failed-{i}") for i, f in self.failed.items()
        ] + [
            event(i, 1, account((p, s, e, d % 2**64), sequences=sequences), uuid=f"run-{n}")
            for n, (i, p, s, e, d, sequences) in enumerate(runs)
        ]
        self.rng.shuffle(found)
        return found, runs

    def undigested(self, runs, bounds):
        """What is left in a window of claims that lost a record in the window before."""
        lost = self.expected.get("missing", set())
        found = set()
        for _, p, start, end, *_ in runs:
            low = max(b for b in bounds[p][:3] if b < end)
            here = {(p, o) for o in range(max(start, low), end)}
            if any((p, o) in lost for o in range(start, end)) and not here & lost:
                found |= here
        return found

    def stored(self):
        return {
            p: StoredRecords.of(
                range(len(log)),
                [i for i, _, _ in log],
                [s for _, s, _ in log],
                [0 if i < 0 else digest(i, s) if d is None else d for i, s, d in log],
            )
            for p, log in self.log.items()
        }


def random_history(seed):
    """Up to 200 records of three producers."""
    history = History(random.Random(seed))
    sequences = {101: 0, 102: 0, 103: 0}
    for _ in range(history.rng.randrange(20, 200)):
        incarnation = history.rng.choice(sorted(sequences))
        history.produce(incarnation, sequences[incarnation])
        sequences[incarnation] += 1
    return history


def cut_into_windows(history, count=3):
    """The history's log as windows of random size, a chain."""
    ends = {p: len(log) for p, log in history.log.items()}
    bounds = {}
    for p, end in ends.items():
        cuts = sorted(history.rng.randrange(end + 1) for _ in range(count - 1))
        bounds[p] = [0, *cuts, end]
    windows = []
    for n in range(count):
        ranges = {p: (b[n], b[n + 1]) for p, b in bounds.items()}
        windows.append(make_window(ranges, previous=windows[-1] if windows else None))
    return windows, bounds
