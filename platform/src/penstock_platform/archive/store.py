"""The archive: create-only objects in S3 (``If-None-Match: *``), nothing else.

Invariant: an object, once created, is never replaced and never deleted from here; this interface
offers neither. The loser of a race for a key reads it and decides again. That needs nothing from
the store but the refusal of a second create, which ``probe`` proves on the configured one.

Not promised: that a listing is complete the moment after a create. A caller that needs the newest
of a numbered sequence asks for the next number until there is none.
"""

from __future__ import annotations

import uuid
from typing import Any, Protocol

import boto3  # type: ignore[import-untyped]
from botocore.client import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from penstock_platform.archive.model import probe_key
from penstock_platform.settings import Settings

CONNECT_TIMEOUT_SECONDS = 5
READ_TIMEOUT_SECONDS = 20
ATTEMPTS_MAX = 5
PING_SECONDS = 4
CONFLICT_ATTEMPTS_MAX = 8


class ArchiveError(RuntimeError):
    """The object store did not do what was asked: names endpoint, bucket, key and the cause."""


class Archive(Protocol):
    """Create-only storage of small objects under keys."""

    def create(self, key: str, data: bytes) -> bool:
        """Store ``data`` under a new key; False when the key exists already, whatever it holds."""

    def get(self, key: str) -> bytes | None:
        """The object, or None when there is none."""

    def list(self, prefix: str) -> list[str]:
        """All keys that start with ``prefix``, sorted."""

    def first_after(self, prefix: str, after: str) -> str | None:
        """The first key that starts with ``prefix`` and sorts behind ``after``; None for none."""

    def ping(self) -> None:
        """Raises ArchiveError, within seconds, when the store does not answer."""


class S3Archive:
    """The archive on S3 or anything that speaks it. Connects on first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bucket = settings.s3.bucket
        self._prefix = settings.s3.prefix.strip("/")
        self._connected: Any = None
        self._pinging: Any = None

    @property
    def uri(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def object_uri(self, key: str) -> str:
        return f"{self.uri}/{key}"

    def create(self, key: str, data: bytes) -> bool:
        """See ``Archive.create``. Raises ArchiveError when the store cannot be asked."""
        for _attempt in range(CONFLICT_ATTEMPTS_MAX):
            try:
                self._client.put_object(
                    Bucket=self._bucket, Key=self._key(key), Body=data, IfNoneMatch="*"
                )
            except ClientError as error:
                status = error.response["ResponseMetadata"].get("HTTPStatusCode")
                if status == 409:  # S3: another create of this key is under way; ask again
                    continue
                if status != 412:
                    raise self._error("create", key, error) from error
                # A create that went through but whose answer was lost is refused when botocore
                # repeats it: then the object under the key is ours.
                repeated = error.response["ResponseMetadata"].get("RetryAttempts", 0) > 0
                return repeated and self.get(key) == data
            except BotoCoreError as error:
                raise self._error("create", key, error) from error
            else:
                return True
        raise ArchiveError(
            f"create {self.object_uri(key)}: still in conflict after {CONFLICT_ATTEMPTS_MAX} tries"
        )

    def get(self, key: str) -> bytes | None:
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(key))
            data: bytes = answer["Body"].read()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ("NoSuchKey", "404"):
                return None
            raise self._error("get", key, error) from error
        except BotoCoreError as error:
            raise self._error("get", key, error) from error
        return data

    def list(self, prefix: str) -> list[str]:
        skip = len(self._key(""))
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._key(prefix)
            )
            return sorted(item["Key"][skip:] for page in pages for item in page.get("Contents", ()))
        except (ClientError, BotoCoreError) as error:
            raise self._error("list", prefix, error) from error

    def first_after(self, prefix: str, after: str) -> str | None:
        try:
            answer = self._client.list_objects_v2(
                Bucket=self._bucket,
                Prefix=self._key(prefix),
                MaxKeys=1,
                **({"StartAfter": self._key(after)} if after else {}),
            )
        except (ClientError, BotoCoreError) as error:
            raise self._error("list", prefix, error) from error
        found = answer.get("Contents", ())
        return str(found[0]["Key"])[len(self._key("")) :] if found else None

    def ensure_bucket(self) -> None:
        """Create the bucket where it is missing."""
        try:
            self._client.head_bucket(Bucket=self._bucket)
        except ClientError as error:
            if error.response["ResponseMetadata"].get("HTTPStatusCode") != 404:
                raise self._error("find bucket for", "", error) from error
            try:
                self._client.create_bucket(Bucket=self._bucket)
            except ClientError as refusal:
                if refusal.response.get("Error", {}).get("Code") != "BucketAlreadyOwnedByYou":
                    raise self._error("create bucket for", "", refusal) from refusal
        except BotoCoreError as error:
            raise self._error("find bucket for", "", error) from error

    def ping(self) -> None:
        """See ``Archive.ping``: one call for the bucket, with a short limit and no repetition."""
        if self._pinging is None:
            self._pinging = s3_client(self._settings, seconds=PING_SECONDS, attempts=1)
        try:
            self._pinging.head_bucket(Bucket=self._bucket)
        except (ClientError, BotoCoreError) as error:
            raise self._error("ask for the bucket of", "", error) from error

    def probe(self) -> None:
        """Prove that this store refuses a second create. Raises ArchiveError when it does not."""
        probe(self, self.uri)

    @property
    def _client(self) -> Any:
        if self._connected is None:
            self._connected = s3_client(self._settings)
        return self._connected

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix else key

    def _error(self, what: str, key: str, cause: Exception) -> ArchiveError:
        return ArchiveError(
            f"cannot {what} {self.object_uri(key)} at {self._settings.s3_endpoint}: {cause}"
        )


def probe(archive: Archive, name: str) -> None:
    """Create a key twice; raises ArchiveError unless the second try is refused, without effect."""
    key = probe_key(uuid.uuid4().hex)
    first, second = archive.create(key, b"first"), archive.create(key, b"second")
    if not first or second or archive.get(key) != b"first":
        raise ArchiveError(
            f"{name} does not honour If-None-Match: * (a second create of {key} was "
            f"{'accepted' if second else 'lost'}); windows would fork. Use AWS S3, S3Proxy, "
            "MinIO or versitygw, and set s3.endpoint in penstock.toml"
        )


def s3_client(
    settings: Settings, seconds: float = READ_TIMEOUT_SECONDS, attempts: int = ATTEMPTS_MAX
) -> Any:
    """A boto3 client for the configured store: safe across threads, not across forks.

    ``seconds``: how long one attempt waits for an answer.
    """
    return boto3.client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3.region,
        aws_access_key_id=settings.s3.access_key or None,
        aws_secret_access_key=settings.s3.secret_key or None,
        config=Config(
            connect_timeout=min(CONNECT_TIMEOUT_SECONDS, seconds),
            read_timeout=seconds,
            retries={"mode": "standard", "total_max_attempts": attempts},
            s3={"addressing_style": "path"},
        ),
    )
