"""The choice of configurations that every run has."""

from __future__ import annotations

from support.samples import pairwise


def test_keys_are_paths_of_either_format_and_no_deeper_than_four() -> None:
    toml = "version = 2\n[a.b.c.d.e]\nf = 1\n"
    assert pairwise.keys(toml) == {
        ("toml", "version"),
        ("toml", "a"),
        ("toml", "a", "b"),
        ("toml", "a", "b", "c"),
        ("toml", "a", "b", "c", "d"),
    }
    assert pairwise.keys('{"runtimes": {}}') == {("json", "runtimes")}
    assert pairwise.keys(None) == frozenset()
    assert pairwise.keys("= no TOML") == {"= no TOML"}


def test_every_feature_is_in_some_case_that_is_chosen() -> None:
    features = [frozenset(text) for text in ("ab", "b", "abc", "c", "d", "d")]
    assert pairwise.chosen(features) == {2, 4}
    assert pairwise.chosen([]) == frozenset()
