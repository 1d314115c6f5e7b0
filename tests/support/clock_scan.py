"""Find places where a test compares times of a clock, or sleeps.

Goes in: the source of a test. Comes out: one line for each finding. A value is a time when it comes from a
clock, from arithmetic with a time, or from a function of the same file that returns a time. A time that is
compared or asserted is a finding; a time that is handed to the code under test is none.
"""

import ast
import re
from collections.abc import Iterator

CLOCKS = {
    "getrusage", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
    "process_time_ns", "thread_time", "thread_time_ns", "time", "time_ns", "times",
}  # fmt: skip
ARITHMETIC = {
    "abs",
    "float",
    "int",
    "list",
    "max",
    "mean",
    "median",
    "min",
    "quantiles",
    "round",
    "sorted",
    "sum",
}
SLEEPS = {"sleep", "wait_for_timeout"}
SCRIPT_CLOCK = re.compile(r"\b(?:performance\.now|Date\.now|process\.hrtime|process\.cpuUsage)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def called(node: ast.AST) -> str:
    """The name of what a call calls, without what is before its last dot."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def is_clock(node: ast.AST) -> bool:
    """Whether this is a clock that is not read yet, as in `clock = loop.time`."""
    if not isinstance(node, ast.Attribute) or node.attr not in CLOCKS:
        return False
    owner = node.value
    return called(owner).endswith("_loop") or (isinstance(owner, ast.Name) and owner.id in ("time", "loop"))


class Scan:
    """One file; `times` are the names of its variables and functions that are times."""

    def __init__(self, source: str) -> None:
        self._lines = source.split("\n")
        self._nodes = list(ast.walk(ast.parse(source)))
        self._times: set[str] = set()
        before = -1
        while len(self._times) != before:  # names that come from names
            before = len(self._times)
            for node in self._nodes:
                self._learn(node)

    def findings(self) -> Iterator[str]:
        for node in self._nodes:
            line = getattr(node, "lineno", 0)
            if isinstance(node, ast.Compare) and any(map(self._is_time, [node.left, *node.comparators])):
                yield f"{line}: a time is compared: {ast.unparse(node)}"
            elif isinstance(node, ast.Assert) and self._is_time(node.test):
                yield f"{line}: a time is asserted: {ast.unparse(node)}"
            elif called(node) in SLEEPS and self._sleeps(node) and "#" not in self._lines[line - 1]:
                yield f"{line}: a sleep without a comment that gives its reason: {ast.unparse(node)}"

    def _sleeps(self, node: ast.AST) -> bool:
        """Whether a call waits for some time; 0 only lets others run."""
        arguments = node.args if isinstance(node, ast.Call) else []
        return bool(arguments) and not (isinstance(arguments[0], ast.Constant) and arguments[0].value == 0)

    def _is_time(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._times
        if isinstance(node, ast.Call):
            name = called(node)
            is_clock = name in CLOCKS and not (node.args and name != "getrusage")
            passes = name in ARITHMETIC and any(map(self._is_time, node.args))
            return is_clock or passes or (isinstance(node.func, ast.Name) and name in self._times)
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Subscript | ast.Await | ast.Starred):
            return any(map(self._is_time, ast.iter_child_nodes(node)))
        if isinstance(
            node, ast.Tuple | ast.List | ast.IfExp | ast.ListComp | ast.GeneratorExp | ast.Attribute
        ):
            return any(map(self._is_time, ast.iter_child_nodes(node)))
        return False

    def _learn(self, node: ast.AST) -> None:
        """Add the names that are bound to a time, or to a clock, here."""
        if isinstance(node, ast.Assign) and (self._is_time(node.value) or is_clock(node.value)):
            self._bind(node.targets, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            if node.value is not None and self._is_time(node.value):
                self._bind([node.target], node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("append", "add", "insert") and any(map(self._is_time, node.args)):
                self._bind([node.func.value], node)
        elif isinstance(node, Function):
            returns = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value]
            if any(map(self._is_time, returns)):
                self._times.add(node.name)

    def _bind(self, targets: list[ast.expr], value: ast.AST) -> None:
        for target in targets:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for part, item in zip(target.elts, value.elts, strict=False):
                    if self._is_time(item):
                        self._bind([part], item)
            elif isinstance(target, ast.Tuple):
                self._bind(target.elts, value)
            elif isinstance(target, ast.Subscript):
                self._bind([target.value], value)
            elif isinstance(target, ast.Name):
                self._times.add(target.id)


def python_findings(source: str) -> list[str]:
    """Compared times and unexplained sleeps of a Python file, and clocks in the scripts that it holds."""
    return [*Scan(source).findings(), *script_findings(source)]


def script_findings(source: str) -> list[str]:
    """Lines of JavaScript that read a clock: a test that waits for conditions has no use for one."""
    return [
        f"{number}: a script reads a clock: {line.strip()}"
        for number, line in enumerate(source.split("\n"), 1)
        if SCRIPT_CLOCK.search(line)
    ]
