"""Receipts, books, acceptances and proofs in the archive.

Called twice, or from two processes at once: a receipt of an attempt that has one is not written
again; books and acceptances take the next free number.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from penstock_platform.archive import model as keys
from penstock_platform.archive.model import canonical
from penstock_platform.archive.numbered import NumberedObjects, first_free
from penstock_platform.archive.store import Archive
from penstock_platform.clock import to_iso
from penstock_platform.connections import Connections
from penstock_platform.kafka.model import TopicRef
from penstock_platform.reconciliation.model.books import Acceptance, Book, Finding
from penstock_platform.reconciliation.model.receipts import Receipt
from penstock_platform.reconciliation.model.reverification import ProofPass
from penstock_platform.windows.model.window import Window

# A landing makes a book for each equation: where the search for the newest begins.
BOOKS_EXPECTED = 3


class BookStore:
    """What is archived about the windows of all topics in one archive."""

    def __init__(self, archive: Archive, prefix: str = "") -> None:
        self._objects = NumberedObjects(archive, prefix)

    @classmethod
    def of(cls, penstock: Connections) -> BookStore:
        """The one of these connections."""
        return penstock.shared(cls, lambda: cls(penstock.archive))

    def add_receipt(self, receipt: Receipt) -> Receipt:
        """Write a landing's receipt; an attempt that has one keeps it."""
        number = 0
        while True:
            key = keys.receipt_key(receipt.ref, receipt.table, receipt.sequence, number)
            data = self._objects.get(key)
            if data is None and self._objects.create(key, receipt.to_bytes()):
                return receipt
            known = Receipt.from_bytes(data if data is not None else self._objects.present(key))
            if known.attempt_id == receipt.attempt_id:
                return known
            number += 1

    def receipts(self, ref: TopicRef, table: str, sequence: int) -> list[Receipt]:
        """The receipts of a window in a table, in the order of their writing."""
        return [
            Receipt.from_bytes(data)
            for data in self._objects.all(lambda n: keys.receipt_key(ref, table, sequence, n))
        ]

    def add_book(self, book: Book) -> int:
        """Write a book under its window's next number, and return that."""
        return self._objects.append(
            lambda n: keys.book_key(book.ref, book.sequence, n), book.to_bytes()
        )

    def merge_book(self, window: Window, make: Callable[[Book | None], Book]) -> Book:
        """Write the book that ``make`` makes of the newest one, under the window's next number.

        Another process that takes the number first is not overwritten and not ignored: ``make`` is
        called again with what that one wrote, so that two books made at once merge.
        """
        number, newest = self.book_at_end(window.ref, window.sequence)
        while True:
            book = make(newest)
            key = keys.book_key(window.ref, window.sequence, number)
            if self._objects.create(key, book.to_bytes()):
                return book
            newest = Book.from_bytes(self._objects.present(key))
            number += 1

    def book_at_end(self, ref: TopicRef, sequence: int) -> tuple[int, Book | None]:
        """The next free number of a window's books, and the newest book."""
        read: dict[int, bytes | None] = {}

        def taken(number: int) -> bool:
            read[number] = self._objects.get(keys.book_key(ref, sequence, number))
            return read[number] is not None

        number = first_free(taken, BOOKS_EXPECTED - 1)
        data = read.get(number - 1)
        return number, Book.from_bytes(data) if data is not None else None

    def newest_book(self, ref: TopicRef, sequence: int) -> Book | None:
        return self.book_at_end(ref, sequence)[1]

    def books(self, ref: TopicRef, sequence: int) -> list[Book]:
        """All books of a window, oldest first."""
        return [
            Book.from_bytes(data)
            for data in self._objects.all(lambda n: keys.book_key(ref, sequence, n))
        ]

    def accept(self, window: Window, by: str, reason: str, at: datetime) -> Acceptance:
        """Record that a person accepts what the window's newest book found.

        Raises ValueError without a reason, or when there is nothing to accept.
        """
        book = self.newest_book(window.ref, window.sequence)
        findings: tuple[Finding, ...] = tuple(
            f for f in (book.findings if book else ()) if f.state is not None
        )
        if not reason.strip():
            raise ValueError("an acceptance needs a reason: --reason 'why this is accepted'")
        if not findings:
            raise ValueError(f"window {window.name} of {window.topic} has no finding to accept")
        acceptance = Acceptance(window.window_id, by, reason.strip(), to_iso(at), findings)
        self._objects.append(
            lambda n: keys.acceptance_key(window.ref, window.sequence, n), acceptance.to_bytes()
        )
        return acceptance

    def acceptances(self, ref: TopicRef, sequence: int) -> list[Acceptance]:
        return [
            Acceptance.from_bytes(data)
            for data in self._objects.all(lambda n: keys.acceptance_key(ref, sequence, n))
        ]

    def add_proof(self, ref: TopicRef, proof: ProofPass) -> int:
        """Write what a pass of re-verification left, and return its number."""
        return self._objects.append(lambda n: keys.proof_key(ref, n), proof.to_bytes())

    def newest_proof(self, ref: TopicRef) -> ProofPass | None:
        data = self._objects.last(lambda n: keys.proof_key(ref, n))
        return ProofPass.from_bytes(data) if data is not None else None

    def retire(self, window: Window, at: datetime, why: str) -> None:
        """Record that the window's records were deleted from the log. Twice is once."""
        entry = {"v": 1, "window_id": window.window_id, "retired_at": to_iso(at), "why": why}
        self._objects.create(keys.retired_key(window.ref, window.sequence), canonical(entry))

    def retired(self, ref: TopicRef, sequence: int) -> bool:
        return self._objects.get(keys.retired_key(ref, sequence)) is not None
