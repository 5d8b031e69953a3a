# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Draws that showed a defect once, as simple as they were made: each is compared again."""

from typing import Dict

from random_models.draws import Compile, Data, Draw, Evaluate, Fit, Network, Table

_PENALTY = 'keras.regularizers.l2(0.02)'

#: From what was wrong to the draw.
FOUND: Dict[str, Draw] = {
    'a penalty of a table is trained after the loss is built again': Draw(
        Network(tables=(Table(penalty=_PENALTY),)),
        actions=(Fit(weights='some'), Fit()),
    ),
    'a dense table moves the rows of the batch alone': Draw(
        optimizer='keras.optimizers.SGD(0.1, momentum=0.9)',
        strategy="overrides={'table0/embeddings': 'dense'}",
        actions=(Fit(Data(high=5)), Fit(Data(1)), Fit(Data(1))),
    ),
    "slots of TensorFlow's optimizers go on after the model is compiled again": Draw(
        optimizer='tf.train.AdagradOptimizer(0.1)', actions=(Fit(), Compile(), Fit())
    ),
    "slots of TensorFlow's optimizers go on with weights of samples": Draw(
        optimizer='tf.train.AdamOptimizer(0.01)', actions=(Fit(), Fit(weights='some'))
    ),
    "slots of TensorFlow's optimizers go on after an evaluation with weights of samples": Draw(
        optimizer='tf.train.MomentumOptimizer(0.1, 0.9)',
        wrapping='',
        samples=8,
        actions=(Fit(), Evaluate(weights='some'), Fit()),
    ),
    'a summed loss counts for a worker whose samples all have weight 0': Draw(
        Network(masked=True, body='steps'),
        optimizer='keras.optimizers.SGD(0.001)',
        loss='lambda targets, outputs: K.sum(K.square(targets - outputs))',
        samples=8,
        actions=(Fit(Data(3, high=4, batches=2), weights='steps', epochs=2),),
    ),
    'a sum over the batch is weighted by the weights of all workers': Draw(
        Network(body='steps'),
        loss='lambda targets, outputs: K.sum(K.square(targets - outputs))',
        actions=(Fit(weights='steps'),),
    ),
    'a mean over the batch is weighted by the weights of all workers': Draw(
        loss='lambda targets, outputs: K.mean(K.square(targets - outputs))',
        actions=(Fit(weights='some'), Fit(Data(1), weights='zeros')),
    ),
    'a sum over the batch has the mask of all workers': Draw(
        Network(masked=True, body='steps'),
        loss='lambda targets, outputs: K.sum(K.square(targets - outputs))',
        actions=(Fit(), Fit(Data(1))),
    ),
    'a table on shards has a penalty and a constraint': Draw(
        Network(tables=(Table(penalty=_PENALTY, constraint='keras.constraints.unit_norm(axis=1)'),))
    ),
    "slots of one of Keras's optimizers go on after the model is compiled again": Draw(
        optimizer='keras.optimizers.Adagrad(0.1)', actions=(Fit(), Compile(), Fit())
    ),
}
