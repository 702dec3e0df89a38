"""The stubs of the package say what the package has: names, parameters, which of them may be left out.

    PYTHONPATH=BUILD/python python3 -m pytest tests/python/stubs_test.py
"""

import ast
import inspect
import os
import re

import rkv
from rkv import _rkv

STUBS = os.path.join(os.path.dirname(rkv.__file__), "__init__.pyi")
# Where the options of a method that hands on **options are.
CORES = {"Client": _rkv.Client, "AsyncClient": _rkv.AsyncCore}


def stub_classes():
    with open(STUBS, encoding="utf-8") as text:
        tree = ast.parse(text.read())
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def is_property(function):
    return any(isinstance(each, ast.Name) and each.id == "property" for each in function.decorator_list)


def parameters_of_stub(function):
    """[(name, kind, has a default)], without self."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    first_default = len(positional) - len(given.defaults)
    kinds = inspect.Parameter
    found = [(each.arg, kinds.POSITIONAL_OR_KEYWORD, i >= first_default)
             for i, each in enumerate(positional)][1:]
    if given.vararg:
        found.append((given.vararg.arg, kinds.VAR_POSITIONAL, False))
    found += [(each.arg, kinds.KEYWORD_ONLY, default is not None)
              for each, default in zip(given.kwonlyargs, given.kw_defaults)]
    if given.kwarg:
        found.append((given.kwarg.arg, kinds.VAR_KEYWORD, False))
    return found


def core_options(core, name):
    """Parameters behind the star, from the signature that pybind11 writes."""
    signature = getattr(core, name).__doc__.split("\n")[0]
    return re.findall(r"(\w+): ", signature.partition(" *, ")[2])


def parameters_of(owner, name, function):
    found = [(each.name, each.kind, each.default is not each.empty)
             for each in list(inspect.signature(function).parameters.values())[1:]]
    for each in found:
        if each[1] is inspect.Parameter.VAR_KEYWORD and hasattr(CORES[owner], name):
            found.remove(each)
            found += [(option, inspect.Parameter.KEYWORD_ONLY, True)
                      for option in core_options(CORES[owner], name)]
    return found


def test_each_name_of_the_package_has_a_stub():
    assert set(stub_classes()) == set(rkv.__all__)
    for name, node in stub_classes().items():
        bases = [base.id for base in node.bases]
        assert [base.__name__ for base in getattr(rkv, name).__bases__ if base.__module__ != "pybind11_builtins"
                and base is not object] == bases, name


def test_each_method_has_the_parameters_of_its_stub():
    compared = 0
    for owner in CORES:
        made = getattr(rkv, owner)
        functions = {each.name: each for each in stub_classes()[owner].body
                     if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
        public = {name for name in vars(made) if not name.startswith("_")}
        assert {name for name in functions if not name.startswith("_")} == public, owner
        for name, function in functions.items():
            real = inspect.getattr_static(made, name)
            assert is_property(function) == isinstance(real, property), name
            if isinstance(real, property):
                continue
            assert isinstance(function, ast.AsyncFunctionDef) == inspect.iscoroutinefunction(real), name
            if not name.startswith("__"):
                assert parameters_of_stub(function) == parameters_of(owner, name, real), f"{owner}.{name}"
                compared += 1
    assert compared > 20
