"""The list of tests, and what all of them use."""

import resource

TESTS = []


def test(function):
    TESTS.append(function)
    return function


def equal(got, wanted, about=""):
    assert got == wanted, f"{about}: {got!r} is not {wanted!r}"


def raise_descriptor_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
