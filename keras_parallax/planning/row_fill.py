"""How full a table is whose rows ids are given and lose."""

from typing import NamedTuple


class RowFill(NamedTuple):
    """What has come of the rows of a table.

    Attributes:
        capacity: how many rows ids may have.
        rows_used: how many they have now.
        rows_given, rows_evicted: how often one was given, and taken away, since the job began.
        ids_left_out: how often a new id of a training batch has found no row.
    """

    capacity: int
    rows_used: int
    rows_given: int
    rows_evicted: int
    ids_left_out: int

    @property
    def words(self):
        """The same, as text."""
        return (
            '{0.rows_used:,} of {0.capacity:,} rows have an id; {0.rows_given:,} were given, '
            '{0.rows_evicted:,} taken away, and {0.ids_left_out:,} times an id found none'.format(
                self
            )
        )


def with_fills(plan, fills):
    """A `Plan` whose variables have their `RowFill`, as a dict from names has them."""
    variables = [planned._replace(fill=fills.get(planned.name)) for planned in plan.variables]
    return plan._replace(variables=tuple(variables))


def fill_lines(plan):
    """How full the tables of a plan are: lines of text."""
    return [
        'Rows of %s: %s' % (planned.name, planned.fill.words)
        for planned in plan.variables
        if planned.fill is not None
    ]
