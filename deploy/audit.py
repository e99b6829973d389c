"""``python deploy/audit.py FILE…`` looks up known vulnerabilities of the packages that requirement files pin.

The exit status is 1 if there is a vulnerability. If the service that lists them cannot be reached or knows no package, the
program says so, and the exit status is 0.
"""

import json
import subprocess
import sys
from typing import Any

_WITHIN_S = 300


def main(*files: str) -> int:
    """Check the files and print the findings. Return 1 if there is a vulnerability, else 0."""
    packages: dict[str, dict[str, Any]] = {}
    for file in files:
        found = _packages_of(file)
        if found is None:
            print("audit: not checked, since the service of known vulnerabilities does not answer")
            return 0
        packages |= {f"{package['name']} {package.get('version')}": package for package in found}
    known = {name: package for name, package in packages.items() if "skip_reason" not in package}
    if not known:
        print("audit: not checked, since the service that answers knows none of the packages")
        return 0
    vulnerable = [(name, one) for name, package in known.items() for one in package["vulns"]]
    for name, one in vulnerable:
        print(f"audit: {name} has {one['id']}; it is fixed in {', '.join(one['fix_versions']) or 'no version'}")
    print(f"audit: {len(known)} of {len(packages)} packages checked, {len(vulnerable)} vulnerabilities")
    return int(bool(vulnerable))


def _packages_of(file: str) -> list[dict[str, Any]] | None:
    command = ["pip_audit", "--format", "json", "--progress-spinner", "off", "--disable-pip", "--requirement", file]
    try:
        done = subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, check=False, timeout=_WITHIN_S
        )
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        return None
    return packages


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
