"""Small changes to a module's source, one at a time: what a slip of the hand would make of it.

Pure: source text in, :class:`Mutant` out. Comparisons move their bound or turn round, ``and`` and
``or`` change places or lose a side, conditions are negated, numbers move by one, words change,
statements go. Left alone: docstrings, annotations, decorators, ``__all__``, and the text of
messages (any string with a blank in it).
"""

from __future__ import annotations

import ast
import copy
import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed module: where (qualified name, line), its line before and after, its source.

    ``lines`` are those of the changed statement (of its head, where it holds others).
    """

    scope: str
    line: int
    before: str
    after: str
    source: str
    lines: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """What it is called in survivors.md: it holds when lines move."""
        return f"`{self.scope}`: `{self.before}` → `{self.after}`"


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its lines; each compiles."""
    tree = ast.parse(source)
    statements = _own_lines(tree)
    seen = set()
    for scope, node in _walk(tree, ""):
        for replacement in _replacements(node):
            mutant = _apply(source, scope, node, replacement)
            if mutant is not None and mutant.source not in seen:
                seen.add(mutant.source)
                yield dataclasses.replace(mutant, lines=statements[mutant.line])


def names_of(found: Sequence[Mutant]) -> list[str]:
    """Their names, each of its own: the second of the same name has (2) behind it, and so on."""
    seen: Counter[str] = Counter()
    names = []
    for mutant in found:
        seen[mutant.name] += 1
        number = seen[mutant.name]
        names.append(f"{mutant.name} ({number})" if number > 1 else mutant.name)
    return names


def _own_lines(tree: ast.Module) -> dict[int, frozenset[int]]:
    """By line: the lines of the innermost statement there, without those of statements in it."""
    owner: dict[int, ast.stmt] = {}
    for node in ast.walk(tree):  # from the outside in
        if isinstance(node, ast.stmt):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                owner[line] = node
    lines: dict[ast.stmt, set[int]] = {}
    for line, node in owner.items():
        lines.setdefault(node, set()).add(line)
    return {line: frozenset(lines[node]) for line, node in owner.items()}


def _walk(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.AST]]:
    """Nodes that may change, each with the name of the function or class it is in."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_fixed(child):
                continue
            inner = scope
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{scope}.{child.name}" if scope else child.name
            else:
                yield scope or "module", child
            yield from _walk(child, inner)


def _is_fixed(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("__all__", "__slots__")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.expr):
        yield from _expressions(node)
    elif isinstance(node, ast.stmt):
        yield from _statements(node)
    elif isinstance(node, ast.comprehension):
        for number in range(len(node.ifs)):
            changed = copy.deepcopy(node)
            del changed.ifs[number]
            yield changed


def _expressions(node: ast.expr) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=operators):
            for number, operator in enumerate(operators):
                for other in COMPARISONS[type(operator)]:
                    compared = copy.deepcopy(node)
                    compared.ops[number] = other()
                    yield compared
        case ast.BoolOp(op=joined, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(joined, ast.And) else ast.And(), values)
            for number in range(len(values)):
                rest = values[:number] + values[number + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(joined, rest)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=used, right=right) if type(used) in ARITHMETIC:
            yield ast.BinOp(left, ARITHMETIC[type(used)](), right)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test, orelse, body)
            yield body
            yield orelse
        case ast.Call(func=ast.Name(id=called), args=arguments, keywords=keywords) if (
            called in CALLS
        ):
            kept = [] if CALLS[called] == "list" else keywords
            yield ast.Call(ast.Name(CALLS[called]), arguments, kept)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(value + 1.0)
        case ast.Constant(value=str(value)) if " " not in value:
            yield ast.Constant(value + "X")


def _statements(node: ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.If(test=test) | ast.While(test=test):
            changed = copy.deepcopy(node)
            changed.test = ast.UnaryOp(ast.Not(), test)  # type: ignore[union-attr]
            yield changed
        case ast.AugAssign(op=used):
            yield ast.Pass()
            if type(used) in ARITHMETIC:
                turned = copy.deepcopy(node)
                turned.op = ARITHMETIC[type(used)]()
                yield turned
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Return(value=value) if value and not _is_none(value):
            yield ast.Return(None)
        case ast.Expr() | ast.Raise() | ast.Delete() | ast.Assert():
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _apply(source: str, scope: str, node: ast.AST, replacement: ast.AST) -> Mutant | None:
    """The source with the node's own text replaced; None if that does not compile."""
    lines = source.splitlines(keepends=True)
    if isinstance(node, ast.comprehension):
        start, end = node.target, (node.ifs or [node.iter])[-1]
        keyword = "async for " if node.is_async else "for "
        first_column = start.col_offset - len(keyword)
        text = ast.unparse(replacement).strip()
    else:
        start = end = node  # type: ignore[assignment]
        first_column = node.col_offset  # type: ignore[attr-defined]
        text = ast.unparse(ast.fix_missing_locations(replacement))
        if isinstance(node, ast.expr):
            text = f"({text})"
        elif isinstance(node, ast.If | ast.While):
            start = end = node.test
            first_column = start.col_offset
            text = f"(not ({ast.unparse(node.test)}))"
    first, last = start.lineno - 1, (end.end_lineno or end.lineno) - 1
    head = lines[first].encode()[:first_column].decode()
    tail = lines[last].encode()[end.end_col_offset or 0 :].decode()
    changed = [*lines[:first], head + text + tail, *lines[last + 1 :]]
    if first == last and "\n" not in text:
        before, after = lines[first].strip(), (head + text + tail).strip()
    else:
        before = " ".join("".join(lines[first : last + 1]).split())
        after = " ".join((head + text + tail).split())
    result = "".join(changed)
    try:
        compile(result, scope, "exec")
    except SyntaxError:
        return None  # a string in an f-string, a name in a pattern
    return Mutant(scope, first + 1, before, after, result)
