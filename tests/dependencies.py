"""List what Turnlog depends on: `docs/dependencies.md` and a CycloneDX file, both from the lock files.

`python -m tests.dependencies docs` writes the page, `... sbom FILE` the CycloneDX JSON. Names and versions
come from `requirements/*.lock` and `web/package-lock.json`. Licences come from the metadata of installed
packages; for a package that this platform does not install, the page keeps the licence that it has.
"""

import base64
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from turnlog import __version__

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "dependencies.md"
UNKNOWN = "unknown"

# esbuild makes the console's files and is not in them.
BUILD_ONLY_NPM = ("esbuild", "@esbuild/")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
ROW = re.compile(r"^\| (\S+) \| (\S+) \| (pypi|npm) \| (.+) \|$", re.MULTILINE)
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
SPDX_EXPRESSION = re.compile(r"\(?[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*\)?")

HEAD = """# Dependencies

`make docs` writes this page from `requirements/*.lock` and `web/package-lock.json`; do not edit it by hand.
`make sbom` writes the same list as CycloneDX JSON to `dist/turnlog.cdx.json`. `make audit` asks whether a
version has a known vulnerability. [SECURITY.md](../SECURITY.md) says how fixes are announced.
"""
SHIPPED_HEAD = """
## What ships

`pip install turnlog` needs `msgspec` only; the extras `cli`, `server`, `anthropic`, `jwt`, `remote` and
`postgres` need the rest. The npm packages are inside the files of the console.
"""
DEV_HEAD = """
## What builds and tests it

No user installs these. The tools of `make audit` and `make fuzz` are in lock files of their own.
"""
TABLE_HEAD = "\n| package | version | from | licence |\n|---|---|---|---|\n"


@dataclass(frozen=True, order=True)
class Dependency:
    ecosystem: str
    name: str
    version: str
    licence: str
    sha512: str | None = None  # npm locks one file for each version, PyPI one for each platform

    @property
    def purl(self) -> str:
        return f"pkg:{self.ecosystem}/{self.name.replace('@', '%40')}@{self.version}"


def pins_of(lock: Path) -> dict[str, str]:
    return {name.lower().replace("_", "-"): version for name, version in PIN.findall(lock.read_text())}


def licence_of(package: str) -> str | None:
    """Return the SPDX expression of an installed package; None if it is not installed or names none."""
    try:
        fields = metadata.metadata(package)
    except metadata.PackageNotFoundError:
        return None
    if expression := fields.get_all("License-Expression"):
        return str(expression[0])
    classifiers = [text.rpartition(" :: ")[2] for text in fields.get_all("Classifier") or []]
    known = sorted(CLASSIFIERS[text] for text in classifiers if text in CLASSIFIERS)
    if known:
        return " OR ".join(known)
    text = str((fields.get_all("License") or [""])[0])
    return text if SPDX_EXPRESSION.fullmatch(text) else None


def written_licences() -> dict[tuple[str, str], str]:
    """Return the licences that the page has, by ecosystem and name."""
    rows = ROW.findall(PAGE.read_text()) if PAGE.exists() else []
    return {(ecosystem, name): licence for name, _, ecosystem, licence in rows}


def python_packages(*locks: str) -> list[Dependency]:
    written = written_licences()
    pins: dict[str, str] = {}
    for lock in locks:
        pins |= pins_of(ROOT / "requirements" / lock)
    return [
        Dependency("pypi", name, version, licence_of(name) or written.get(("pypi", name), UNKNOWN))
        for name, version in pins.items()
    ]


def npm_packages(*, shipped: bool) -> list[Dependency]:
    lock = json.loads((ROOT / "web" / "package-lock.json").read_text())
    found = []
    for path, package in lock["packages"].items():
        name = path.rpartition("node_modules/")[2]
        is_shipped = not package.get("dev") and not name.startswith(BUILD_ONLY_NPM)
        if name and is_shipped == shipped:
            digest = base64.b64decode(package["integrity"].removeprefix("sha512-")).hex()
            licence = package["license"].strip("()")
            found.append(Dependency("npm", name, package["version"], licence, digest))
    return found


def shipped_dependencies() -> list[Dependency]:
    return sorted({*python_packages("runtime.lock"), *npm_packages(shipped=True)})


def dev_dependencies() -> list[Dependency]:
    found = {*python_packages("dev.lock", "node.lock"), *npm_packages(shipped=False)}
    return sorted(found - set(shipped_dependencies()))


def table(dependencies: Iterable[Dependency]) -> str:
    return TABLE_HEAD + "".join(
        f"| {item.name} | {item.version} | {item.ecosystem} | {item.licence} |\n" for item in dependencies
    )


def page() -> str:
    return "".join((HEAD, SHIPPED_HEAD, table(shipped_dependencies()), DEV_HEAD, table(dev_dependencies())))


def component(item: Dependency, scope: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": item.purl,
        "name": item.name,
        "version": item.version,
        "scope": scope,
        "licenses": [{"expression": item.licence}],
        "purl": item.purl,
    }
    if item.sha512:
        found["hashes"] = [{"alg": "SHA-512", "content": item.sha512}]
    return found


def sbom() -> dict[str, Any]:
    """Return a CycloneDX 1.6 document; the same locks give the same document."""
    own = f"pkg:pypi/turnlog@{__version__}"
    required = [component(item, "required") for item in shipped_dependencies()]
    excluded = [component(item, "excluded") for item in dev_dependencies()]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "turnlog",
                "version": __version__,
                "licenses": [{"expression": "Apache-2.0"}],
                "purl": own,
            }
        },
        "components": required + excluded,
    }


def main(what: str, path: str = str(PAGE)) -> None:
    file = Path(path)
    text = page() if what == "docs" else json.dumps(sbom(), indent=2) + "\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
