"""Which cluster and which archive a project works with, so that it never acts on another's.

The state directory holds ``identity.json``: the Kafka cluster's id and the archive's, recorded by
the first `penstock up` (for a cluster or a store of the user's own: by the first contact). The
archive holds its own id in one create-only object. A command compares both before it reads or
writes anything: with its own services down, another project's may hold the same ports.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from penstock_platform.archive.model import identity_key
from penstock_platform.connections import Connections
from penstock_platform.settings import Settings

if TYPE_CHECKING:
    from penstock_platform.archive.store import Archive, S3Archive
    from penstock_platform.kafka.cluster import KafkaCluster

FILE = "identity.json"
FORMAT = "penstock-identity-v1"
ADOPT = "penstock cluster adopt"


class IdentityError(RuntimeError):
    """The cluster or the archive that answers is not this project's: names both, and what to do."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The ids that a project recorded; an empty one is not recorded yet."""

    cluster_id: str = ""
    archive_id: str = ""


def identity_file(settings: Settings) -> Path:
    return settings.home / FILE


def recorded(settings: Settings) -> Identity:
    """What this project recorded. Raises IdentityError for a file that cannot be read."""
    file = identity_file(settings)
    try:
        document = json.loads(file.read_text())
        return Identity(str(document["cluster_id"]), str(document["archive_id"]))
    except FileNotFoundError:
        return Identity()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IdentityError(
            f"{file}: cannot be read ({error}); remove it and run `penstock up`, or {ADOPT}"
        ) from error


def record(settings: Settings, identity: Identity) -> None:
    """Write the identity, whole or not at all."""
    file = identity_file(settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {
            "format": FORMAT,
            "cluster_id": identity.cluster_id,
            "archive_id": identity.archive_id,
        }
    )
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    with os.fdopen(handle, "w") as out:
        out.write(text + "\n")
    Path(temporary).replace(file)


def require_cluster(settings: Settings, found: str) -> None:
    """Compare the cluster that answers with the recorded one; raises IdentityError naming both.

    A cluster of the user's own (``kafka.bootstrap_servers``) is recorded at the first contact; our
    own broker only by `penstock up`, which knows that it started it.
    """
    known = recorded(settings)
    here = settings.bootstrap_servers
    if known.cluster_id == found:
        return
    if known.cluster_id:
        raise IdentityError(
            f"{here} is cluster {found}, and this project ({settings.home}) works with cluster "
            f"{known.cluster_id}; nothing was done. Another project's broker may hold that "
            f"address: penstock status, penstock up; to work with {found} from now on: {ADOPT}"
        )
    if not settings.kafka.bootstrap_servers:
        raise IdentityError(
            f"{here} is cluster {found}, which this project ({settings.home}) did not start: it "
            "has recorded no cluster; nothing was done. Start its own with penstock up (other "
            f"ports: kafka.port), or work with {found} from now on: {ADOPT}"
        )
    record(settings, replace(known, cluster_id=found))


def require_archive(settings: Settings, archive: Archive, name: str) -> None:
    """As ``require_cluster``, for the archive; one of the user's own gets its id here."""
    known = recorded(settings)
    found = archive_id(archive)
    if known.archive_id and known.archive_id == found:
        return
    seen = f"archive {found}" if found else "an archive without an id"
    if known.archive_id:
        raise IdentityError(
            f"{name} at {settings.s3_endpoint} is {seen}, and this project ({settings.home}) "
            f"works with archive {known.archive_id}; nothing was done. Another project's store "
            "may hold that address (penstock status, penstock up), or the bucket was emptied; to "
            f"work with these from now on: {ADOPT}"
        )
    if not settings.s3.endpoint:
        raise IdentityError(
            f"{name} at {settings.s3_endpoint} is {seen}, which this project ({settings.home}) did "
            "not start: it has recorded no archive; nothing was done. Start its own with penstock "
            f"up (other ports: s3.port), or work with these from now on: {ADOPT}"
        )
    record(settings, replace(known, archive_id=found or new_archive_id(archive)))


def archive_id(archive: Archive) -> str:
    """The archive's own id; empty where it has none yet."""
    data = archive.get(identity_key())
    if data is None:
        return ""
    try:
        return str(json.loads(data)["archive_id"])
    except (ValueError, KeyError, TypeError) as error:
        raise IdentityError(
            f"the archive's object {identity_key()} cannot be read ({error}); restore it, or use "
            "another bucket or prefix (s3.bucket, s3.prefix)"
        ) from error


def new_archive_id(archive: Archive) -> str:
    """Give the archive its id. Of several that try at once one wins, and all get its id."""
    document = {"format": FORMAT, "archive_id": uuid.uuid4().hex}
    archive.create(identity_key(), json.dumps(document).encode())
    return archive_id(archive)


def adopt(settings: Settings) -> Identity:
    """Record whatever answers now at the addresses of the settings."""
    plain = Connections(settings)
    archive = plain.archive
    identity = Identity(plain.kafka.cluster_id(), archive_id(archive) or new_archive_id(archive))
    record(settings, identity)
    return identity


def record_at_up(settings: Settings) -> Identity:
    """What `penstock up` records when everything serves.

    Services that it started are this project's, whatever was recorded before; those of the user's
    own must be the recorded ones. Raises IdentityError.
    """
    known, plain = recorded(settings), Connections(settings)
    if settings.kafka.bootstrap_servers:
        known = replace(known, cluster_id=OwnConnections(settings).kafka.cluster_id())
    else:
        known = replace(known, cluster_id=plain.kafka.cluster_id())
    if settings.s3.endpoint:
        require_archive(settings, plain.archive, plain.archive.uri)
        known = replace(known, archive_id=archive_id(plain.archive))
    else:
        known = replace(
            known, archive_id=archive_id(plain.archive) or new_archive_id(plain.archive)
        )
    record(settings, known)
    return known


class OwnConnections(Connections):
    """Connections of a user's command: cluster and archive are compared at their first use."""

    @cached_property
    def kafka(self) -> KafkaCluster:
        from penstock_platform.kafka.cluster import KafkaCluster  # noqa: PLC0415

        cluster = KafkaCluster(self.settings)
        require_cluster(self.settings, cluster.cluster_id())
        return cluster

    @cached_property
    def archive(self) -> S3Archive:
        from penstock_platform.archive.store import S3Archive  # noqa: PLC0415

        archive = S3Archive(self.settings)
        require_archive(self.settings, archive, archive.uri)
        return archive
