"""By which code something is made: a name for it that changes when the code does.

It is a hash of the modules that classes and functions come from and, in turn, of those that these take names
from. The standard library, and packages of others that are installed, are left out.
"""

import secrets
import sys
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import FunctionType, ModuleType

INSTALL_DIRS = ("site-packages", "dist-packages")


def code_fingerprint(*made: object) -> str:
    """What these are made by. Where there is no source to read, it is unlike anything before."""
    roots = sorted({name for each in made if not is_stdlib(name := defining_module(each))})
    own = {name.partition(".")[0] for name in roots}
    sources: dict[str, bytes] = {}
    try:
        for name in roots:
            collect_sources(name, own, sources)
        whole = all(name in sources for name in roots)
    except OSError:
        whole = False
    if not whole:
        return secrets.token_hex(8)
    return sha256(b"\0".join(sources[name] for name in sorted(sources))).hexdigest()[:16]


def collect_sources(name: str, own: set[str], sources: dict[str, bytes]) -> None:
    """The source of a module, and of those it takes names from, as far as they are the application's."""
    waiting = [name]
    while waiting:
        module = sys.modules.get(name := waiting.pop())
        file = getattr(module, "__file__", None)
        if module is None or file is None or name in sources or not is_application_module(name, file, own):
            continue
        sources[name] = Path(file).read_bytes()
        waiting += referenced_modules(module)


def referenced_modules(module: ModuleType) -> Iterator[str]:
    """The modules of what has a name in a module."""
    for value in list(vars(module).values()):
        yield value.__name__ if isinstance(value, ModuleType) else defining_module(value)


def defining_module(value: object) -> str:
    """The module that something comes from: of a partial, that of its function."""
    if isinstance(value, partial):
        return defining_module(value.func)
    return (value if isinstance(value, type | FunctionType) else type(value)).__module__


def is_stdlib(name: str) -> bool:
    """Whether a module comes with Python."""
    return name.partition(".")[0] in sys.stdlib_module_names


def is_application_module(name: str, file: str, own: set[str]) -> bool:
    """Whether a module is a part of the application, or of this package."""
    if is_stdlib(name):
        return False
    return name.partition(".")[0] in own or not any(place in file for place in INSTALL_DIRS)
