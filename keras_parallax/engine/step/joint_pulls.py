# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Pulls outside of training steps: rows of several tables, by as few messages as in a step."""

from typing import Dict, List, Mapping, Sequence, Union

from keras_parallax.engine.step.table_groups import (
    SameIdsGroup,
    SmallTablesGroup,
    may_be_grouped,
    same_ids_groups,
    small_groups,
)
from keras_parallax.engine.tables.exchanged import Exchanged
from keras_parallax.engine.tables.pull import Pull, gather_rows
from keras_parallax.engine.tables.pull_data import Connection


def joint_pulls(pulls: Mapping[Exchanged, Sequence[Pull]]) -> List[Connection]:
    """Pulls rows of tables together that a step would pull together.

    Args:
        pulls: dict from tables with shards to their `Pull`s.

    Returns:
        What is there to be read in the place of rows that are pulled table by table.
    """
    left: Dict[Exchanged, List[Pull]] = {table: list(pulls[table]) for table in pulls}
    of_all = [pull for of_table in left.values() for pull in of_table]
    of_groups: Dict[Union[SameIdsGroup, SmallTablesGroup], Pull] = {}
    for members in same_ids_groups(left):
        group = SameIdsGroup(members)
        left[group] = [group.pull([left.pop(member)[0] for member in members])]
        of_groups[group] = left[group][0]
    for members in small_groups([one for one in left if may_be_grouped(left[one], of_all)]):
        small = SmallTablesGroup(members)
        of_groups[small] = small.pull([left.pop(member)[0] for member in members])
        for member in members:
            of_groups.pop(member, None)  # type: ignore[call-overload]  # It may be a group.
    return [
        connection
        for group, pull in of_groups.items()
        for connection in group.connections(pull, gather_rows(group, pull.split))
    ]
