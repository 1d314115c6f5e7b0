"""A fingerprint of the code of classes and functions: it changes when the code changes.

It is a hash of the modules that define them and, recursively, of the modules whose names these use. The
standard library and installed packages are left out.
"""

import secrets
import sys
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import FunctionType, ModuleType

INSTALL_DIRS = ("site-packages", "dist-packages")


def code_fingerprint(*objects: object) -> str:
    """Return the fingerprint of the code of these objects; a random one if a source cannot be read."""
    modules = {defining_module(value) for value in objects}
    roots = sorted(name for name in modules if not is_stdlib(name))
    packages = {name.partition(".")[0] for name in roots}
    sources: dict[str, bytes] = {}
    try:
        for name in roots:
            collect_sources(name, packages, sources)
    except OSError:
        return secrets.token_hex(8)
    if any(name not in sources for name in roots):
        return secrets.token_hex(8)
    return sha256(b"\0".join(sources[name] for name in sorted(sources))).hexdigest()[:16]


def collect_sources(root: str, packages: set[str], sources: dict[str, bytes]) -> None:
    """Add the sources of a module, and of the application's modules whose names it uses, to `sources`."""
    pending = [root]
    while pending:
        name = pending.pop()
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if module is None or file is None or name in sources:
            continue
        if is_application_module(name, file, packages):
            sources[name] = Path(file).read_bytes()
            pending += referenced_modules(module)


def referenced_modules(module: ModuleType) -> Iterator[str]:
    for value in list(vars(module).values()):
        yield value.__name__ if isinstance(value, ModuleType) else defining_module(value)


def defining_module(value: object) -> str:
    if isinstance(value, partial):
        return defining_module(value.func)
    if isinstance(value, type | FunctionType):
        return value.__module__
    return type(value).__module__


def is_stdlib(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def is_application_module(name: str, file: str, packages: set[str]) -> bool:
    if is_stdlib(name):
        return False
    is_installed = any(folder in file for folder in INSTALL_DIRS)
    return name.partition(".")[0] in packages or not is_installed
