"""What part of a training step each operation of its graph is, for who looks at a trace."""

from keras_parallax.compat import graph_queries
from keras_parallax.profiles import phases


def roles_of(step):
    """The `phases.Role`s of the operations of a `TrainStep`, a dict from their names."""
    gradients = step.operations.gradients
    rows, pushes, summed, names = {}, {}, {}, {}
    for travel in gradients.travels:
        name = ', '.join(table.name for table in travel.table.tables)
        names.update((table.name, name) for table in travel.table.tables)
        rows[name] = [of_pull.op for of_pull in travel.arrived]
        pushes[name] = list(travel.pushes)
    for part, of_part in gradients.parts:
        operation = getattr(of_part, 'values', of_part).op
        name = names.get(part.table.name, part.table.name)
        summed.setdefault(name, []).append(operation)
    # Those of dense variables on servers.
    pushes[None] = list(gradients.pushes)
    computed, whole = gradients.computed, step.whole_step
    if step.operations.update is not None:
        # Gradients are added up with a batch, and exchanged by themselves.
        computed, whole = whole, step.operations.update
    marks = phases.Marks(rows, gradients.loss.op, computed, pushes, summed, whole)
    return phases.roles_of(marks, graph_queries.ancestors)
