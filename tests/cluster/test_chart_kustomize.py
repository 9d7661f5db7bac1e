"""The kustomize base is what the chart makes of its defaults. DRIVERFORGE_UPDATE_GOLDEN=1 writes it anew."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.helm import CHART, NAMESPACE, with_chart
from support.process import missing, run
from support.skipping import provided
from support.upstream import helm as helm_program

pytestmark = pytest.mark.timeout(3600)

BASE = CHART / "kustomize/driverforge.yaml"
HEAD = "# What the chart makes of its defaults; tests/cluster/test_chart_kustomize.py writes it.\n"
UPDATE = bool(os.environ.get("DRIVERFORGE_UPDATE_GOLDEN"))


def without_helm(document: dict[str, Any]) -> dict[str, Any]:
    """An object as it is where no Helm is: no word of a release."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: "kustomize" if (key, one) == ("app.kubernetes.io/managed-by", "Helm") else plain(one)
                for key, one in value.items()
                if key not in ("helm.sh/chart", "app.kubernetes.io/instance")
            }
        return [plain(one) for one in value] if isinstance(value, list) else value

    found: dict[str, Any] = plain(document)
    return found


def test_the_base_is_what_the_chart_makes(tmp_path: Path) -> None:
    helm = with_chart(provided(helm_program.program), tmp_path)
    made = helm.objects("driverforge.image=driverforge-operator:v0.1.0")
    kept = [without_helm(one) for one in made if "helm.sh/hook" not in one["metadata"].get("annotations", {})]
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        # drivers are privileged
        "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    }
    wanted = HEAD + yaml.safe_dump_all([namespace, *kept], sort_keys=False, width=110)
    if UPDATE:
        BASE.parent.mkdir(exist_ok=True)
        BASE.write_text(wanted)
    assert BASE.read_text() == wanted, "if this is wanted: DRIVERFORGE_UPDATE_GOLDEN=1, and review it"


@pytest.mark.skipif(bool(missing("kubectl")), reason="no kubectl here")
def test_an_overlay_names_the_image(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "base", ignore=shutil.ignore_patterns("charts"))
    image = {"name": "driverforge-operator", "newName": "r.example.com/op", "newTag": "v9"}
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay/kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["../base"], "images": [image]})
    )
    made = list(yaml.safe_load_all(run("kubectl", "kustomize", str(tmp_path / "overlay")).stdout))
    (deployment,) = (one for one in made if one["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "r.example.com/op:v9"
    assert sum(one["kind"] == "CustomResourceDefinition" for one in made) == 2
