"""`policy.apply`: evaluates the policy of the flow on given values.

A policy is data: assignments, conditions, choices, and what is emitted. Its expressions are a small part of Python's grammar, and
they are interpreted here, never executed: a flow may come from anywhere.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from switchtower.engines.flow.runtime import failures
from switchtower.engines.flow.runtime.kinds import port

LONGEST_EXPRESSION = 2000

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.In: lambda value, group: value in group,
    ast.NotIn: lambda value, group: value not in group,
}


class Apply:
    summary = "Decide by the policy of the flow (constants.policy); the first option of a choice is taken"
    inputs: ClassVar[Mapping[str, str]] = {"values": "what the policy looks at, by name"}
    outputs: ClassVar[Mapping[str, str]] = {"…": "what the policy emits, such as action", "policy_id": "the policy's id, or null"}

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        policy = context.setting.policy.get("policy")
        described: Mapping[str, Any] = policy if isinstance(policy, Mapping) else {}
        params = described.get("params")
        if not isinstance(params, Mapping) or not params:
            return {"action": "NONE", "policy_id": described.get("id"), "values": given.get("values")}
        try:
            return {**_evaluate_policy(params, given.get("values")), "policy_id": described.get("id")}
        except (ArithmeticError, AttributeError, LookupError, SyntaxError, TypeError, ValueError, RecursionError) as error:
            raise failures.StepFailed(f"the policy cannot be applied ({type(error).__name__}: {str(error)[:200]})") from None


def _evaluate_policy(params: Mapping[str, Any], values: Any) -> dict[str, Any]:
    arms = params.get("arms")
    first = next(iter(arms.values()), {}) if isinstance(arms, Mapping) else {}
    names: dict[str, Any] = {
        "values": values if isinstance(values, Mapping) else {},
        "arms": {"active": {name: _as_number(value) for name, value in first.items()}},
        "epsilon": _as_number(params.get("epsilon")),
    }
    _execute(params.get("evaluate") or [], names)
    emitted = params.get("emit")
    return {name: evaluate(said, names) for name, said in emitted.items()} if isinstance(emitted, Mapping) else {}


def _execute(statements: list[Any], names: dict[str, Any]) -> None:
    for statement in statements:
        match statement:
            case {"type": "assignment", "target": str(target), "expression": str(expression)}:
                names[target] = evaluate(expression, names)
            case {"type": "if", "condition": str(condition)}:
                _execute(statement.get("then" if evaluate(condition, names) else "else") or [], names)
            case {"type": "choose", "options": [{"expression": str(assignment)}, *_]}:
                target, _, expression = assignment.replace(":=", "=", 1).partition("=")
                names[target.strip()] = evaluate(expression.strip(), names)
            case _:
                raise ValueError("a statement of the policy is none that is known")


def evaluate(expression: Any, names: Mapping[str, Any]) -> Any:
    """The value of an expression. Anything but a text stands for itself."""
    if not isinstance(expression, str):
        return expression
    if len(expression) > LONGEST_EXPRESSION:
        raise ValueError("an expression is too long")
    return _value(ast.parse(expression, mode="eval").body, names)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            if node.id not in names:
                raise LookupError(f"`{node.id}` is not known")
            return names[node.id]
        case ast.Attribute():
            return _value(node.value, names)[node.attr]
        case ast.Subscript():
            return _value(node.value, names)[_value(node.slice, names)]
        case ast.List() | ast.Tuple():
            return [_value(each, names) for each in node.elts]
        case ast.Dict():
            # `{ temp: temp }`: a bare name is the key itself.
            keys = [key.id if isinstance(key, ast.Name) else _value(key, names) for key in node.keys if key is not None]
            return dict(zip(keys, (_value(each, names) for each in node.values), strict=True))
        case ast.BoolOp():
            results = [bool(_value(each, names)) for each in node.values]
            return all(results) if isinstance(node.op, ast.And) else any(results)
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, names)
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, names)
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_value(node.left, names), _value(node.right, names))
        case ast.Compare(ops=[only], comparators=[right]) if type(only) in _OPERATORS:
            return _OPERATORS[type(only)](_value(node.left, names), _value(right, names))
        case ast.Call(func=ast.Name(id="coalesce")):
            return next((found for each in node.args if (found := _value_or_none(each, names)) not in (None, "", [], {})), None)
        case ast.Call(func=ast.Name(id="first_numeric"), args=[only_argument]):
            given = _value(only_argument, names)
            listed = given.values() if isinstance(given, Mapping) else given
            return next((each for each in map(_as_number, listed) if isinstance(each, int | float)), None)
        case ast.Call(func=ast.Name(id="random"), args=[options]):
            return _value(options, names)[0]  # not at random: a simulation gives the same result each time
        case _:
            raise ValueError(f"`{type(node).__name__}` has no place in a policy")


def _value_or_none(node: ast.expr, names: Mapping[str, Any]) -> Any:
    try:
        return _value(node, names)
    except LookupError:
        return None


def _as_number(value: Any) -> Any:
    """Compiled policies have texts for numbers."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
