"""The text that Prometheus reads: prometheus.io, "Exposition formats"."""

from __future__ import annotations

import pytest

from driverforge_kube.prometheus import Metric, Sample, page

REQUESTS = Metric(name="http_requests_total", kind="counter", about="The total number of HTTP requests.")


def test_a_metric_has_its_words_its_type_and_its_samples() -> None:
    samples = [
        Sample(value=1027, labels={"method": "post", "code": "200"}),
        Sample(value=0.5, labels={}),
    ]
    assert page([(REQUESTS, samples)]) == (
        "# HELP http_requests_total The total number of HTTP requests.\n"
        "# TYPE http_requests_total counter\n"
        'http_requests_total{method="post",code="200"} 1027\n'
        "http_requests_total 0.5\n"
    )


def test_a_metric_without_samples_is_left_out() -> None:
    assert page([(REQUESTS, []), (Metric(name="up", about="It is."), [Sample(value=1)])]).splitlines() == [
        "# HELP up It is.",
        "# TYPE up gauge",
        "up 1",
    ]


def test_a_summary_is_its_sum_and_its_count() -> None:
    summary = Metric(name="rpc_seconds", kind="summary", about="Seconds.")
    samples = [Sample(value=1.7560473e07, part="sum"), Sample(value=2693, part="count")]
    assert page([(summary, samples)]).splitlines()[2:] == [
        "rpc_seconds_sum 17560473",
        "rpc_seconds_count 2693",
    ]


def test_what_would_end_a_value_or_a_line_is_escaped() -> None:
    hostile = 'C:\\DIR "a"\nup 0'
    text = page([(Metric(name="up", about=hostile), [Sample(value=1, labels={"path": hostile})])])
    # in HELP a quotation mark stands for itself
    assert text.splitlines() == [
        '# HELP up C:\\\\DIR "a"\\nup 0',
        "# TYPE up gauge",
        'up{path="C:\\\\DIR \\"a\\"\\nup 0"} 1',
    ]


def test_seconds_since_the_epoch_and_bytes_stay_whole() -> None:
    text = page([(Metric(name="at", about="."), [Sample(value=1764225460.25), Sample(value=2.0**40)])])
    assert text.splitlines()[2:] == ["at 1764225460.25", "at 1099511627776"]


@pytest.mark.parametrize("name", ["", "9up", "up-time", "up{}", "up\n", "größe"])
def test_a_name_that_prometheus_does_not_take_is_a_mistake(name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        page([(Metric(name=name, about="."), [Sample(value=1)])])
    with pytest.raises(ValueError, match="no name"):
        page([(Metric(name="up", about="."), [Sample(value=1, labels={name: "a"})])])


def test_a_label_has_no_colon() -> None:
    assert page([(Metric(name="node:up", about="."), [Sample(value=1)])])
    with pytest.raises(ValueError, match="no name"):
        page([(Metric(name="up", about="."), [Sample(value=1, labels={"a:b": "c"})])])
