"""`turnlog new`: create a small project that runs, from the files in `template/`."""

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
TEMPLATE_FILES = {  # path in the project: file of the template
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
    "{package}/__init__.py": "app.py.txt",
    "tests/test_{package}.py": "test_app.py.txt",
}


@click.command(short_help="Create a project.", epilog="Example: turnlog new corner_shop")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def new(folder: Path) -> None:
    """Create a project in DIR with one agent, one tool, one event and one test. It runs as it is."""
    package = package_name(folder)
    try:
        if folder.exists() and any(folder.iterdir()):
            raise click.ClickException(f"{folder} is not empty; choose a new or an empty folder")
        write_project(folder, package)
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename}: {error.strerror}") from None
    click.echo(f"Created the application {package} in {folder}. Change to that folder, then run")
    serve = f"turnlog serve {package}:app"
    click.echo(f"  {serve}    to use it in a browser")
    click.echo(f"  {'python -m pytest':{len(serve)}}    to run its test (needs pytest)")


def package_name(folder: Path) -> str:
    """Return the package name for a folder. Raise `BadParameter` if there is none."""
    package = re.sub(r"[-. ]+", "_", folder.resolve().name).lower()
    if not PACKAGE_PATTERN.fullmatch(package) or keyword.iskeyword(package) or package in RESERVED_NAMES:
        problem = "expected a folder name that can be a Python package name, such as my-shop"
        raise click.BadParameter(f"{problem}, got {folder.resolve().name!r:.80}", param_hint="DIR")
    return package


def write_project(folder: Path, package: str) -> None:
    names = {
        "package": package,
        "project": package.replace("_", "-"),
        "title": package.replace("_", " ").capitalize(),
    }
    for path, source in TEMPLATE_FILES.items():
        text = files("turnlog.cli").joinpath("template", source).read_text(encoding="utf-8")
        target = folder / path.format(package=package)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(Template(text).substitute(names), encoding="utf-8")
