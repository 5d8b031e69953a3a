"""The plots of the report."""

from records import language_records
from report import compare, plots


def test_the_line_over_link_speeds_needs_two_of_them():
    assert plots.link_speed_lines(compare.variants(language_records())) == {}
    records = language_records(40) + language_records(200, 5.0)[1:]
    lines = plots.link_speed_lines(compare.variants(records))
    assert lines == {'Language model, 0.25 cores a host': [(40, 6.0), (200, 2.0)]}
