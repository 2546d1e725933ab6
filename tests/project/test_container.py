"""The development container has what README's commands need on a bare system, as the workflow installs it."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / ".devcontainer"


def packages(installing: str) -> set[str]:
    """Names after an apt-get install."""
    (words,) = re.findall(r"apt-get install -y (.*)", installing)
    return {word for word in words.split() if re.fullmatch(r"[a-z0-9.+-]+", word) and not word.startswith("-")}


def test_the_container_is_a_system_that_the_workflow_runs_readmes_commands_on():
    container = json.loads((FOLDER / "devcontainer.json").read_text())
    dockerfile = (FOLDER / container["build"]["dockerfile"]).read_text()
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    (image,) = re.findall(r"^FROM (\S+)$", dockerfile, re.MULTILINE)
    assert f'"{image}"' in workflow.partition("system:")[2].partition("\n")[0]
    bare = packages(workflow.replace("${{ matrix.compiler }}", "g++"))
    assert packages(dockerfile) - bare == {"python3-dev"}
    assert bare < packages(dockerfile)
    assert len(bare) == 5
    assert f"useradd --create-home --shell /bin/bash {container['remoteUser']}" in dockerfile
