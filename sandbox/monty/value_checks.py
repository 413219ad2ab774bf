"""Recognize the check functions that the host inserts into a program. Reads only syntax.

A check function returns its only argument, so it does not change what the program means: rules about the
program's language ignore its calls. The host defines the functions in the preamble.
"""

import ast

from sandbox.engine import CHECK_PREFIX


def without_checks(tree: ast.Module) -> ast.Module:
    """Return the program as it was before the checks were inserted. Modifies ``tree``."""
    stripped: ast.Module = _StripChecks().visit(tree)
    return stripped


class _StripChecks(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name(id=name), [argument], []) if name.startswith(CHECK_PREFIX):
                return argument
        return node
