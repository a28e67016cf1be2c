"""Our manifests, and Dagster's chart with our values, against the schemas of Kubernetes; no cluster has seen them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.kit.guides import PRODUCTION

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


def _containers(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for found in objects:
        if found["kind"] == "Deployment":
            yield from found["spec"]["template"]["spec"]["containers"]


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
