"""The choice of configurations that every run has."""

from __future__ import annotations

from support.samples import covering


def test_keys_are_paths_of_either_format_without_the_names_that_people_chose() -> None:
    toml = "version = 2\n[a.runtimes.kata.options]\nf = 1\n"
    assert covering.keys(toml) == {
        ("toml", "version"),
        ("toml", "a"),
        ("toml", "a", "runtimes"),
        ("toml", "a", "runtimes", "*"),
        ("toml", "a", "runtimes", "*", "options"),
        ("toml", "a", "runtimes", "*", "options", "f"),
    }
    assert covering.keys('{"runtimes": {}}') == {("json", "runtimes")}
    assert covering.keys(None) == frozenset()
    assert covering.keys("= no TOML") == {"= no TOML"}


def test_every_feature_is_in_some_case_that_is_chosen() -> None:
    features = [frozenset(text) for text in ("ab", "b", "abc", "c", "d", "d")]
    assert covering.chosen(features) == {2, 4}
    assert covering.chosen([]) == frozenset()
