"""Dagster as the user's commands see it: launch a run over GraphQL, follow it, say how it ended;
record an observation of an asset."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_platform.clock import Clock
from penstock_platform.settings import Settings
from penstock_platform.topics.names import CLUSTER_TAG

REQUEST_TIMEOUT_SECONDS = 30
POLL_SECONDS = 0.5
CHECK_FAILED = "DagsterAssetCheckFailedError"
ENDED = frozenset({"SUCCESS", "FAILURE", "CANCELED"})

_JOBS = """
query { repositoriesOrError { __typename ... on RepositoryConnection { nodes {
  name location { name } jobs { name tags { key value } } } } ... on PythonError { message } } }
"""
_LAUNCH = """
mutation($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename
  ... on LaunchRunSuccess { run { runId } }
  ... on PythonError { message }
  ... on RunConfigValidationInvalid { errors { message } }
  ... on PipelineNotFoundError { message }
  ... on InvalidSubsetError { message }
  ... on UnauthorizedError { message }
  ... on NoModeProvidedError { message }
  ... on RunConflict { message }
} }
"""
_RUN = """
query($id: ID!) { runOrError(runId: $id) { __typename ... on Run {
  runId status jobName stepStats { stepKey status }
} ... on PythonError { message } ... on RunNotFoundError { message } } }
"""
_FAILURES = """
query($id: ID!, $after: String) { logsForRun(runId: $id, afterCursor: $after) { __typename
  ... on EventConnection { cursor hasMore events { __typename
    ... on MessageEvent { message stepKey }
    ... on ExecutionStepFailureEvent { error { className message
        errorChain { error { className message } } } }
    ... on RunFailureEvent { error { message } }
    ... on AssetCheckEvaluationEvent { evaluation { checkName success description
        assetKey { path } severity } }
  } } } }
"""


class DagsterApiError(RuntimeError):
    """Dagster could not be asked or refused: says what to do."""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What one asset check of a run said. ``severity``: ERROR or WARN."""

    asset: str
    check: str
    passed: bool
    severity: str
    description: str


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended, the first real error of each failed step, and what its checks said.

    A step that a blocking check ended has not failed: it is among ``checks`` alone.
    """

    run_id: str
    status: str
    url: str
    failures: tuple[str, ...]
    checks: tuple[CheckOutcome, ...]

    @property
    def succeeded(self) -> bool:
        return self.status == "SUCCESS"


class DagsterApi:
    """The webserver's GraphQL interface of one home."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._url = settings.dagster_url
        self._cluster = settings.cluster
        self._clock = clock

    def run_url(self, run_id: str) -> str:
        return f"{self._url}/runs/{run_id}"

    def launch(
        self,
        job_tags: Mapping[str, str],
        tags: Mapping[str, str],
        assets: Sequence[Sequence[str]] | None = None,
    ) -> str:
        """Launch this cluster's job that has these tags (partition by the tag
        ``dagster/partition``): its name is the project's choice. Returns the run's id."""
        location, repository, job = self._find_job({CLUSTER_TAG: self._cluster, **job_tags})
        selector: dict[str, Any] = {
            "repositoryLocationName": location,
            "repositoryName": repository,
            "jobName": job,
        }
        if assets is not None:
            selector["assetSelection"] = [{"path": list(path)} for path in assets]
        parameters = {
            "selector": selector,
            "runConfigData": {},
            "executionMetadata": {
                "tags": [{"key": key, "value": value} for key, value in tags.items()]
            },
        }
        answer = self.query(_LAUNCH, {"p": parameters})["launchRun"]
        if answer["__typename"] != "LaunchRunSuccess":
            said = answer.get("message") or "; ".join(
                e["message"] for e in answer.get("errors", ())
            )
            raise DagsterApiError(f"Dagster did not launch {job}: {said or answer['__typename']}")
        return str(answer["run"]["runId"])

    def follow(
        self,
        run_id: str,
        timeout_seconds: float,
        progress: Callable[[str], None] = lambda _: None,
    ) -> RunOutcome:
        """Wait for a run's end; ``progress`` gets each change of status or step once."""
        deadline = self._clock.monotonic() + timeout_seconds
        seen: set[str] = set()
        while True:
            run = self._one(_RUN, {"id": run_id}, "runOrError", "Run")
            # Steps first: the run ends after its last one.
            news = [f"{s['stepKey']} {_words(s['status'])}" for s in run["stepStats"] or ()]
            for line in [*news, _words(run["status"])]:
                if line not in seen:
                    seen.add(line)
                    progress(line)
            if run["status"] in ENDED:
                return self._outcome(run_id, str(run["status"]))
            if self._clock.monotonic() > deadline:
                raise DagsterApiError(
                    f"run {run_id} is {run['status']} after {timeout_seconds:.0f} s; "
                    f"it continues: {self.run_url(run_id)}"
                )
            self._clock.sleep(POLL_SECONDS)

    def query(self, text: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One GraphQL request; raises DagsterApiError for no answer and for any error in it."""
        document = self.post("graphql", {"query": text, "variables": variables or {}})
        if document.get("errors"):
            raise DagsterApiError("; ".join(str(e.get("message")) for e in document["errors"]))
        data: dict[str, Any] = document["data"]
        return data

    def report_observation(
        self, asset_key: Sequence[str], description: str, metadata: Mapping[str, Any]
    ) -> None:
        """Record an AssetObservation that belongs to no run. Raises DagsterApiError."""
        # GraphQL has a mutation for it that takes no metadata.
        self.post(
            "report_asset_observation/",
            {
                "asset_key": list(asset_key),
                "description": description,
                "metadata": dict(metadata),
            },
        )

    def post(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """One request to the webserver. Raises DagsterApiError for no answer and for a refusal."""
        body = json.dumps(document).encode()
        request = urllib.request.Request(
            f"{self._url}/{path}", data=body, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_SECONDS) as answer:
                found: dict[str, Any] = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:400]
            raise DagsterApiError(
                f"Dagster at {self._url} answered {error.code}: {said}"
            ) from error
        except (urllib.error.URLError, OSError, json.JSONDecodeError) as error:
            raise DagsterApiError(
                f"Dagster at {self._url} does not answer ({error}); "
                "see `penstock status`, or start it with `penstock up`"
            ) from error
        return found

    def _find_job(self, tags: Mapping[str, str]) -> tuple[str, str, str]:
        nodes = self._one(_JOBS, {}, "repositoriesOrError", "RepositoryConnection")["nodes"]
        for node in nodes:
            for job in node["jobs"]:
                if tags.items() <= {tag["key"]: tag["value"] for tag in job["tags"]}.items():
                    return str(node["location"]["name"]), str(node["name"]), str(job["name"])
        wanted = ", ".join(f"{key}: {value}" for key, value in tags.items())
        raise DagsterApiError(
            f"no code location has a job with the tags {wanted}; is the topic "
            f"declared with `land`, and did the location load? See {self._url}/locations"
        )

    def _outcome(self, run_id: str, status: str) -> RunOutcome:
        failures: list[str] = []
        checks: list[CheckOutcome] = []
        after: str | None = None
        while True:
            page = self._one(
                _FAILURES, {"id": run_id, "after": after}, "logsForRun", "EventConnection"
            )
            for event in page["events"]:
                if event["__typename"] == "AssetCheckEvaluationEvent":
                    e = event["evaluation"]
                    path = "/".join(e["assetKey"]["path"])
                    checks.append(
                        CheckOutcome(
                            asset=path,
                            check=str(e["checkName"]),
                            passed=bool(e["success"]),
                            severity=str(e["severity"]),
                            description=str(e["description"] or ""),
                        )
                    )
                elif event["__typename"] == "ExecutionStepFailureEvent" and _raised(event):
                    failures.append(f"{event['stepKey']}: {_first_cause(event['error'])}")
            if not page["hasMore"]:
                break
            after = page["cursor"]
        return RunOutcome(run_id, status, self.run_url(run_id), tuple(failures), tuple(checks))

    def _one(self, text: str, variables: Mapping[str, Any], field: str, kind: str) -> Any:
        answer = self.query(text, variables)[field]
        if answer["__typename"] != kind:
            raise DagsterApiError(f"Dagster: {answer.get('message') or answer['__typename']}")
        return answer


def _raised(event: Mapping[str, Any]) -> bool:
    """Whether a step failed by an error, and not by a blocking check."""
    error = event.get("error")
    return error is not None and error.get("className") != CHECK_FAILED


def _first_cause(error: Mapping[str, Any]) -> str:
    """The first real error: what was raised, not Dagster's frame around it."""
    chain = [link["error"]["message"] for link in error.get("errorChain") or ()]
    message = str(chain[-1] if chain else error["message"])
    return message.strip().splitlines()[0] if message.strip() else "no message"


def _words(status: object) -> str:
    """`in progress` for IN_PROGRESS."""
    return str(status).lower().replace("_", " ")
