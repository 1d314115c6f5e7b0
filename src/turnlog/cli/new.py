"""`turnlog new`: a small project that runs, to be changed into one's own. What it is made of: `template/`."""

import keyword
import re
import sys
from importlib.resources import files
from pathlib import Path
from string import Template

import click

PACKAGE_PATTERN = re.compile(r"[a-z](?:[a-z0-9_]{0,62}[a-z0-9])?")
DEPENDENCIES = {"anthropic", "click", "hatchling", "msgspec", "pytest", "rich", "starlette", "uvicorn"}
RESERVED_NAMES = {"turnlog", "turnlog_examples", "tests", *DEPENDENCIES, *sys.stdlib_module_names}
TEMPLATE_FILES = {  # what is made, and of what
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
    "{package}/__init__.py": "app.py.txt",
    "tests/test_{package}.py": "test_app.py.txt",
}


@click.command(epilog="Example: turnlog new corner_shop")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def new(folder: Path) -> None:
    """Make a project in DIR: one agent, one tool, one event, one test. They run as they are."""
    package = package_name(folder)
    try:
        if folder.exists() and any(folder.iterdir()):
            raise click.ClickException(f"{folder} is not empty: expected a new folder, or an empty one")
        write_project(folder, package)
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename}: {error.strerror}") from None
    click.echo(f"The application {package} is in {folder}. Go there, then")
    serve = f"turnlog serve {package}:app"
    click.echo(f"  {serve}    talk to it in a browser")
    click.echo(f"  {'python -m pytest':{len(serve)}}    see its test pass (needs pytest)")


def package_name(folder: Path) -> str:
    """The name of the package, from that of its folder."""
    package = re.sub(r"[-. ]+", "_", folder.resolve().name).lower()
    if not PACKAGE_PATTERN.fullmatch(package) or keyword.iskeyword(package) or package in RESERVED_NAMES:
        problem = "expected a folder whose name can be that of a new Python package, as my-shop"
        raise click.BadParameter(f"{problem}, got {folder.resolve().name!r:.80}", param_hint="DIR")
    return package


def write_project(folder: Path, package: str) -> None:
    """Every file, with its names filled in."""
    names = {
        "package": package,
        "project": package.replace("_", "-"),
        "title": package.replace("_", " ").capitalize(),
    }
    for path, source in TEMPLATE_FILES.items():
        text = files("turnlog.cli").joinpath("template", source).read_text(encoding="utf-8")
        place = folder / path.format(package=package)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(Template(text).substitute(names), encoding="utf-8")
