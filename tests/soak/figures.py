"""What a soak run has measured: one row for each test, printed as one table at the end."""

from collections.abc import Callable
from dataclasses import dataclass, field

Measure = Callable[..., None]  # measure("1,000 readers", caught_up_s=1.2)


@dataclass
class Row:
    """A test, the sizes it ran with, and its figures."""

    what: str
    size: str = ""
    result: str = "passed"
    figures: dict[str, object] = field(default_factory=dict)


def shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(rows: list[Row]) -> list[str]:
    """The rows as lines of aligned columns."""
    cells = [["what", "size", "result", "measured"]]
    for row in rows:
        figures = ", ".join(f"{name} {shown(value)}" for name, value in row.figures.items())
        cells.append([row.what, row.size, row.result, figures])
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
