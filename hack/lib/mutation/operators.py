"""From a file's text to its mutants, with cosmic-ray's operators and four of our own."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

from mutation.result import Mutant, difference

# a place in a text: line from 1, column from 0
Place = tuple[int, int]
Span = tuple[Place, Place]
# a node of parso's tree; its classes say nothing about their children's types
Node = Any

# parso's own types leave it open
parse: Callable[[str], Node] = parso.parse


class Operator(Protocol):
    """What cosmic-ray asks of an operator."""

    def mutation_positions(self, node: Node) -> Iterable[Span]: ...

    def mutate(self, node: Node, index: int) -> Node: ...


class NegateCondition:
    """Negates a whole condition: of `if`, `elif`, `while`, a conditional expression, a comprehension.

    cosmic-ray's AddNot knows no `elif` and no comprehension, and negates only the first operand of `a or b`.
    """

    # other operators negate these
    NEGATED_ELSEWHERE = frozenset({"==", "!=", "is", "is not", "in", "not in"})

    def mutation_positions(self, node: Node) -> Iterator[Span]:
        for at in self._conditions(node):
            yield node.children[at].start_pos, node.children[at].end_pos

    def mutate(self, node: Node, index: int) -> Node:
        at = self._conditions(node)[index]
        node.children[at] = parse(f" not ({_code(node.children[at])})")
        return node

    def _conditions(self, node: Node) -> list[int]:
        children = getattr(node, "children", ())
        words = [getattr(child, "value", "") for child in children]
        if node.type in ("if_stmt", "while_stmt"):
            found = [at + 1 for at, word in enumerate(words) if word in ("if", "elif", "while")]
        elif node.type in ("test", "comp_if", "sync_comp_if", "ternary") and "if" in words:
            found = [words.index("if") + 1]
        else:
            found = []
        return [at for at in found if not self._negated_elsewhere(children[at])]

    def _negated_elsewhere(self, condition: Node) -> bool:
        if condition.type == "comparison" and len(condition.children) == 3:
            return " ".join(_code(condition.children[1]).split()) in self.NEGATED_ELSEWHERE
        return bool(condition.type == "not_test")


class SwapMembership:
    """`in` for `not in`, and the other way round."""

    SWAPS: ClassVar = {"in": " not in", "not in": " in"}

    def mutation_positions(self, node: Node) -> Iterator[Span]:
        for at in self._memberships(node):
            yield node.children[at].start_pos, node.children[at].end_pos

    def mutate(self, node: Node, index: int) -> Node:
        at = self._memberships(node)[index]
        node.children[at] = parse(self.SWAPS[self._word(node.children[at])])
        return node

    def _memberships(self, node: Node) -> list[int]:
        if node.type != "comparison":
            return []
        return [at for at in range(1, len(node.children), 2) if self._word(node.children[at]) in self.SWAPS]

    def _word(self, node: Node) -> str:
        return " ".join(_code(node).split())


class DropCall:
    """`pass` for a statement that is a call: what is done for its effect is not done.

    What is only logged is left alone.
    """

    def mutation_positions(self, node: Node) -> Iterator[Span]:
        if node.type == "simple_stmt" and node.children[0].type == "atom_expr":
            call = node.children[0]
            if _code(call).endswith(")") and not _code(call).startswith("log."):
                yield call.start_pos, call.end_pos

    def mutate(self, node: Node, index: int) -> Node:
        node.children[0] = parse(f"{node.children[0].get_first_leaf().prefix}pass")
        return node


class ReplaceException:
    """Catches what nobody raises, in place of one exception.

    cosmic-ray's ExceptionReplacer ends at a dotted name (`except socket.gaierror`).
    """

    def mutation_positions(self, node: Node) -> Iterator[Span]:
        for parent, at in self._caught(node):
            yield parent.children[at].start_pos, parent.children[at].end_pos

    def mutate(self, node: Node, index: int) -> Node:
        parent, at = self._caught(node)[index]
        prefix = parent.children[at].get_first_leaf().prefix
        parent.children[at] = parse(f"{prefix}CosmicRayTestingException")
        return node

    def _caught(self, node: Node) -> list[tuple[Node, int]]:
        if node.type != "except_clause":
            return []
        what = node.children[1]
        if what.type != "atom":
            return [(node, 1)]
        several = what.children[1]
        if several.type != "testlist_comp":
            return [(what, 1)]
        return [(several, at) for at in range(0, len(several.children), 2)]


OURS: dict[str, Callable[[], Operator]] = {
    "ours/NegateCondition": NegateCondition,
    "ours/SwapMembership": SwapMembership,
    "ours/DropCall": DropCall,
    "ours/ReplaceException": ReplaceException,
}


def mutants(file: str, source: str, operators: Sequence[str]) -> Iterator[Mutant]:
    """Every mutant of a text, in the order of the operators.

    What does not compile is no mutant, nor is one text twice. Decorators, annotations and imports for the
    type checker are left alone: what changes there changes no behaviour, or all of it.
    """
    quiet = tuple(_quiet(source))
    seen = {source}
    for name in operators:
        operator = OURS[name]() if name in OURS else get_operator(name)()
        spans = [span for node in ast_nodes(get_ast(source)) for span in operator.mutation_positions(node)]
        for occurrence, (start, end) in enumerate(spans):
            if any(first <= start and end <= last for first, last in quiet):
                continue
            text = mutate_code(source, operator, occurrence)
            if text is None or text in seen or not _compiles(text):
                continue
            seen.add(text)
            before, after = difference(source, text)
            yield Mutant(file=file, line=start[0], operator=name, before=before, after=after, source=text)


def _quiet(source: str) -> Iterator[Span]:
    """Where decorators, annotations and `if TYPE_CHECKING` are.

    `ast` counts columns in bytes; those lines are ASCII.
    """
    for node in ast.walk(ast.parse(source)):
        found: list[ast.expr | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += [*node.decorator_list, node.returns]
        elif isinstance(node, ast.ClassDef):
            found += node.decorator_list
        elif isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            found.append(node.test)
        for part in found:
            if part is not None:
                yield (
                    (part.lineno, part.col_offset),
                    (part.end_lineno or part.lineno, part.end_col_offset or part.col_offset),
                )


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _code(node: Node) -> str:
    return str(node.get_code(include_prefix=False))
