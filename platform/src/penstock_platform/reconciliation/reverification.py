"""Proving windows again: cheap where their files are those of the last proof, else by reading.

A proof goes stale. A window whose data and delete files are still there as they were when its rows
were last read (path, size, ETag) has the same rows, so only what changed is read. One window that
cannot be looked at (a malformed object, a broken link) stops no other. A store that does not
answer ends the pass with an error instead: then nothing can be looked at.

Run again at any time: a pass only reads tables, and its books and its proof object supersede the
ones before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from penstock_platform.archive.store import ArchiveError
from penstock_platform.clock import from_iso, to_iso
from penstock_platform.connections import Connections
from penstock_platform.kafka.model import TopicRef
from penstock_platform.lake.content import WindowFiles
from penstock_platform.lake.errors import StoreError
from penstock_platform.reconciliation.books import Bookkeeper, changed
from penstock_platform.reconciliation.model.books import Book, Equation, EquationResult, WindowState
from penstock_platform.reconciliation.model.reverification import Pace, ProofPass, choose, following
from penstock_platform.reconciliation.silver_versions import parsed_tables
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.reconciliation.table_views import Judged
from penstock_platform.topics.model.declaration import TopicSpec, bronze_table
from penstock_platform.windows.model.window import Window, check_link
from penstock_platform.windows.store import WindowStore

PARSED = Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED
LAKE_EQUATIONS = (Equation.STORED_EQUALS_LANDED, PARSED)


@dataclass(frozen=True, slots=True)
class Looked:
    """What a pass found of one window. ``judged`` is empty where no row was read; ``news`` are the
    results that the book before did not have. ``error`` says why it could not be looked at."""

    sequence: int
    name: str
    window: Window | None = None
    judged: tuple[EquationResult, ...] = ()
    news: tuple[EquationResult, ...] = ()
    proven: bool = False
    error: str = ""


@dataclass
class Budget:
    """How many windows a pass may read; what is due beyond that waits for the next one."""

    reads: int


class Files:
    """The files of some windows, planned once for each table that is asked for."""

    def __init__(self, penstock: Connections, window_ids: Sequence[str]) -> None:
        self._lake = penstock.lake
        self._window_ids = window_ids
        self._planned: dict[str, WindowFiles | None] = {}

    def of(self, table: str) -> WindowFiles | None:
        """None for a table that does not exist. Raises LakeError."""
        if table not in self._planned:
            self._planned[table] = self._lake.files(table, self._window_ids)
        return self._planned[table]


@dataclass
class Reverifier:
    """Proves windows of one topic again."""

    penstock: Connections
    spec: TopicSpec
    contract: bool = field(init=False)

    def __post_init__(self) -> None:
        self.contract = self.spec.contract is not None
        self._books = Bookkeeper(self.penstock)

    def look(self, ref: TopicRef, pace: Pace, horizon: timedelta, reads: int) -> Iterator[Looked]:
        """One pass; its proof object is written when it is exhausted."""
        store = WindowStore.of(self.penstock)
        newest = store.newest(ref)
        if newest is None:
            return
        last = BookStore.of(self.penstock).newest_proof(ref)
        chosen, cursor = choose(last, newest.sequence, self._floor(ref, newest, horizon), pace)
        yield from self._record(ref, last, cursor, self._windows(ref, chosen, Budget(reads)))

    def now(self, ref: TopicRef, sequences: Sequence[int]) -> Iterator[Looked]:
        """Prove these windows by reading every row."""
        last = BookStore.of(self.penstock).newest_proof(ref)
        looked = self._windows(ref, sequences, None)
        yield from self._record(ref, last, last.cursor if last else 0, looked)

    # --- inside -------------------------------------------------------------------------------

    def _record(
        self, ref: TopicRef, last: ProofPass | None, cursor: int, looked: Iterable[Looked]
    ) -> Iterator[Looked]:
        proven: list[int] = []
        failed: list[int] = []
        for one in looked:
            yield one
            (proven if one.proven else failed).append(one.sequence)
        at = to_iso(self.penstock.clock.now())
        BookStore.of(self.penstock).add_proof(
            ref, following(last, at=at, cursor=cursor, proven=proven, failed=failed)
        )

    def _floor(self, ref: TopicRef, newest: Window, horizon: timedelta) -> int:
        """The first window that closed within the horizon."""
        since = self.penstock.clock.now() - horizon
        low, high = 0, newest.sequence
        while low < high:
            middle = (low + high) // 2
            window = WindowStore.of(self.penstock).get(ref, middle)
            old = window is not None and from_iso(window.closed_at) < since
            low, high = (middle + 1, high) if old else (low, middle)
        return low

    def _windows(
        self, ref: TopicRef, sequences: Sequence[int], budget: Budget | None
    ) -> Iterator[Looked]:
        files = Files(self.penstock, [f"{ref.topic_id}/{sequence}" for sequence in sequences])
        for sequence in sequences:
            try:
                found = self._window(ref, sequence, files, budget)
                if found is not None:
                    yield found
            except (StoreError, ArchiveError):  # nothing can be asked: proves nothing
                raise
            except Exception as error:  # noqa: BLE001 - one window must not stop the others
                window = self._maybe_window(ref, sequence)
                name = window.name if window is not None else str(sequence)
                yield Looked(sequence, name, window, error=_sentence(error))

    def _window(
        self,
        ref: TopicRef,
        sequence: int,
        files: Files,
        budget: Budget | None,
    ) -> Looked | None:
        """None for a window that is not landed yet: its own run is under way."""
        store = WindowStore.of(self.penstock)
        window = store.get(ref, sequence)
        if window is None:
            raise LookupError(f"window {ref.topic_id}/{sequence} is missing inside its chain")
        check_link(store.get(ref, sequence - 1) if sequence else None, window)
        before = self._books.newest(window)
        if before is None:
            return None
        if budget is not None:
            if self._unchanged(window, before, files):
                return Looked(sequence, window.name, window, proven=self._proven(before))
            if budget.reads <= 0:
                return Looked(sequence, window.name, window)  # due, and next time's
            budget.reads -= 1
        judged = self.judge(window, before)
        results = tuple(j.result for j in judged)
        news = tuple(r for r in results if changed(before, r))
        read = {table: proof for j in judged for table, proof in j.proofs.items()}
        book = before
        if news or any(before.proofs.get(table) != proof for table, proof in read.items()):
            book = self._books.archive_judged(window, judged, self.spec)
        return Looked(sequence, window.name, window, results, news, proven=self._proven(book))

    def judge(self, window: Window, before: Book) -> list[Judged]:
        """The equations of the lake that were judged once, judged now.

        Silver is compared with bronze only where bronze itself comes out: an expectation is never
        taken from data that is in doubt.
        """
        judged = [self._books.judge_landed(window, self.spec)]
        sound = judged[0].result.state in (WindowState.BALANCED, WindowState.UNPROVEN)
        if self.contract and sound and before.result(PARSED) is not None:
            judged.append(self._books.judge_parsed(window, self.spec))
        return judged

    def _proven(self, book: Book) -> bool:
        """Whether the lake's equations that apply balance, judged on the newest landing."""
        due = [e for e in LAKE_EQUATIONS if e in book.applies or e is LAKE_EQUATIONS[0]]
        return all(_came_out(book, equation) for equation in due)

    def _unchanged(self, window: Window, book: Book, files: Files) -> bool:
        """Whether a read could say nothing new: what was judged came out, and the files are those
        of its last proof, each still there as it was.

        A window whose run still parses it is one of these: its rows in bronze are proven, and its
        run judges the rest.
        """
        if self.contract != (PARSED in book.applies):
            return False
        parsed = book.result(PARSED) is not None
        if not all(_came_out(book, e) for e in LAKE_EQUATIONS[: 1 + parsed]):
            return False
        for table in self._tables(window, parsed=parsed):
            found = files.of(table)
            known = book.proofs.get(table, {}).get("files", "")
            now = found.fingerprint(window.window_id) if found is not None else ""
            if not known or known != now:
                return False
        return True

    def _tables(self, window: Window, *, parsed: bool) -> list[str]:
        tables = parsed_tables(BookStore.of(self.penstock), window, self.spec) if parsed else ()
        return [bronze_table(self.spec.name), *tables]

    def _maybe_window(self, ref: TopicRef, sequence: int) -> Window | None:
        try:
            return WindowStore.of(self.penstock).get(ref, sequence)
        except Exception:  # noqa: BLE001 - only its name is wanted here
            return None


def _came_out(book: Book, equation: Equation) -> bool:
    """Judged on the newest landing, and balanced or accepted."""
    result = book.judged(equation)
    return result is not None and (result.balanced or book.accepts(equation))


def _sentence(error: Exception) -> str:
    said = str(error).strip().split("\n", 1)[0]
    return said or type(error).__name__
