"""Our manifests, and Dagster's chart with our values, against the schemas of Kubernetes; no cluster has seen them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.kit.guides import PRODUCTION, blocks

pytestmark = pytest.mark.production
kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="`make production` installs it: 108 MB of schemas"
)

FOLDER = PRODUCTION.parent / "kubernetes"
# The oldest and the newest whose schemas there are.
VERSIONS = ("1.25", "1.37")


def _check(text: str) -> list[dict[str, Any]]:
    """The objects; each is as every version demands it, without fields that it does not know."""
    objects: list[dict[str, Any]] = [found for found in yaml.safe_load_all(text) if found]
    for found in objects:
        for version in VERSIONS:
            kubernetes_validate.validate(found, version, strict=True)
    return objects


def _pods(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for found in objects:
        if found["kind"] == "Deployment":
            yield found["spec"]["template"]["spec"]


def _containers(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for pod in _pods(objects):
        yield from pod["containers"]


def test_the_manifests_of_spark() -> None:
    objects = _check((FOLDER / "spark.yaml").read_text())
    services = {found["metadata"]["name"]: found["spec"] for found in objects if found["kind"] == "Service"}
    labels = {
        found["metadata"]["name"]: found["spec"]["template"]["metadata"]["labels"]
        for found in objects
        if found["kind"] == "Deployment"
    }
    for name, service in services.items():
        assert service["selector"].items() <= labels[name].items(), "a service that finds no pod"
    (policy,) = [found["spec"] for found in objects if found["kind"] == "NetworkPolicy"]
    assert set(policy["podSelector"]["matchExpressions"][0]["values"]) == {one["app"] for one in labels.values()}


def test_no_service_gives_its_address_to_spark_as_a_port() -> None:
    """Kubernetes sets `SPARK_MASTER_PORT=tcp://…` for a service `spark-master`; Spark's master reads a number there."""
    pods = [*_pods(_check((FOLDER / "spark.yaml").read_text()))]
    assert [pod.get("enableServiceLinks") for pod in pods] == [False] * 3


def test_the_image_has_the_users_of_the_pods() -> None:
    """Hadoop's libraries, in master, workers, driver and executors, fail for a user without a name."""
    (image,) = (block.text for block in blocks(PRODUCTION, "Kubernetes") if block.language == "dockerfile")
    users = set(map(int, re.findall(r"useradd --uid (\d+)", image)))
    assert {pod["securityContext"]["runAsUser"] for pod in _pods(_check((FOLDER / "spark.yaml").read_text()))} <= users


def test_the_connect_server_takes_as_many_cores_as_there_are() -> None:
    """Said in full, so that who adds a server divides them: else the first takes all, and the second waits for ever."""
    objects = _check((FOLDER / "spark.yaml").read_text())
    (workers,) = [found["spec"] for found in objects if found["metadata"]["name"] == "spark-worker"]
    _, worker, connect = _containers(objects)
    (cores,) = [int(one["value"]) for one in worker["env"] if one["name"] == "SPARK_WORKER_CORES"]
    assert f" --conf spark.cores.max={workers['replicas'] * cores} " in connect["args"][0]


def test_a_wrong_manifest_is_found() -> None:
    wrong = (FOLDER / "spark.yaml").read_text().replace("containerPort:", "containerPrt:", 1)
    with pytest.raises(kubernetes_validate.ValidationError):
        _check(wrong)


def test_the_chart_takes_our_values() -> None:
    helm, chart = shutil.which("helm"), os.environ.get("DAGSTER_CHART")
    if not helm or not chart:
        pytest.skip("helm, and a folder DAGSTER_CHART with Dagster's chart, are in no package registry")
    values = str(FOLDER / "values.yaml")
    # Its schema refers to pages on the web.
    command = [helm, "template", "dagster", chart, "-f", values, "--skip-schema-validation"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (ours,) = [one for one in _containers(_check(text)) if one["image"].endswith("/batchmerge:1")]
    assert {one["mountPath"] for one in ours["volumeMounts"]} >= {"/etc/batchmerge"}
    assert {"secretRef": {"name": "batchmerge-secrets"}} in ours["envFrom"]
