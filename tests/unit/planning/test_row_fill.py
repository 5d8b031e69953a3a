"""How full tables are is told of those whose rows ids are given, and of no others."""

from keras_parallax.planning.classify import VariableUse
from keras_parallax.planning.plan import make_plan
from keras_parallax.planning.row_fill import RowFill, fill_lines, with_fills


def test_a_plan_tells_of_each_table_whose_rows_ids_are_given():
    uses = [VariableUse(name, (9, 2), 'float32', lookups=1) for name in ('users', 'words')]
    plan = with_fills(make_plan(uses, 2), {'users': RowFill(8, 3, 1234, 1231, 0)})
    assert plan['words'].fill is None
    assert fill_lines(plan) == [
        'Rows of users: 3 of 8 rows have an id; 1,234 were given, 1,231 taken away, and 0 times an '
        'id found none'
    ]
