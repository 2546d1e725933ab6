"""Known advisories about the packages that CI installs, by pip-audit, from OSV.

python scripts/release/advisories.py [--pip-audit COMMAND]    (`make advisories`)

Exit status 0: none known; 1: some are, one line each; 2: nothing was checked, and why.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).resolve().parents[2] / ".ci" / "lock.txt"
TIME_LIMIT = 300  # seconds


def main() -> int:
    """Asks pip-audit and prints the known advisories."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pip-audit", default="pip-audit", metavar="COMMAND")
    command = [options.parse_args().pip_audit, "--requirement", LOCK, "--require-hashes", "--disable-pip"]
    command += ["--vulnerability-service", "osv", "--format", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
        packages = json.loads(done.stdout)["dependencies"]
    except OSError as error:
        return nothing_checked(f"{command[0]} does not run ({error.strerror})")
    except subprocess.TimeoutExpired:
        return nothing_checked(f"no answer within {TIME_LIMIT} s")
    except (ValueError, KeyError, TypeError):  # its answer is not JSON: no network, or no such service
        return nothing_checked((done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1])
    known = 0
    for package in packages:
        if reason := package.get("skip_reason"):
            return nothing_checked(f"{package['name']}: {reason}")
        for advisory in package["vulns"]:
            known += 1
            fixed = ", ".join(advisory["fix_versions"]) or "no version yet"
            print(f"{package['name']} {package['version']}: {advisory['id']}, fixed in {fixed}")
    print(f"{len(packages)} packages checked, {known} advisories.")
    return 1 if known else 0


def nothing_checked(reason: str) -> int:
    """Prints why nothing was checked; returns the exit status."""
    print(f"Nothing was checked: {reason[:300]}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
