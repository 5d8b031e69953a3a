"""The values that every rank starts from."""

from keras_parallax.compat import horovod_ops, tf


def synced_variables(before, slots):
    """The variables that every rank must hold the same values of, by a name that ranks share.

    Slots have names of TensorFlow's making, which differ between ranks that own different shards,
    so they go by the name of their variable; slots of shards are nobody else's.

    Args:
        before: the variables that existed before the optimizer made its slots.
        slots: a list of pairs of a variable that every rank updates and the list of its slots.

    Returns:
        A dict from names to variables.
    """
    synced = {variable.name: variable for variable in before}
    for variable, of_variable in slots:
        for number, slot in enumerate(of_variable):
            synced['%s.slot_%d' % (variable.name, number)] = slot
    return synced


def slots_of_shards(before, synced, updated, dense):
    """The slots that the optimizer made for this rank's shards.

    Args:
        before: the variables that existed before the optimizer made its slots.
        synced: as `synced_variables` returns it, with the slots of dense variables.
        updated: the variables that the optimizer updates itself, shards among them.
        dense: the dense variables.

    Returns:
        A list of variables of the shape of a shard. They must not be broadcast: on another rank
        the variable of the same name is another shard's.
    """
    shared = list(synced.values())
    shapes = [variable.shape.as_list() for variable in updated if variable not in dense]
    return [
        variable
        for variable in tf.global_variables()
        if variable not in before and variable not in shared and variable.shape.as_list() in shapes
    ]


def broadcast(synced, root_rank, gather, prefix):
    """Operations that give every rank the values that one rank has. A collective call.

    Args:
        synced: as `synced_variables` returns it; what not all ranks have is left alone.
        root_rank: the rank whose values count.
        gather: function that gathers a value from every rank.
        prefix: prefix of the collectives' names.

    Returns:
        A list of collective operations, to be run together.
    """
    everywhere = set.intersection(*map(set, gather(sorted(synced))))
    assigned = []
    for name in sorted(everywhere):
        with tf.name_scope(None):
            value = horovod_ops.broadcast(
                synced[name].value(),
                root_rank,
                name='%s.broadcast.%s' % (prefix, name.replace(':', '.')),
            )
        assigned.append(synced[name].assign(value).op)
    return assigned
