# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The parts of the GPU check: which processes run, with which sizes, and which checks they make."""

from typing import Dict, List, NamedTuple, Tuple

STAGES = ('environment', 'three lines', 'equality', 'features', 'speed')
#: The works of the last stage, by the name that results have.
SPEED_WORKS = ('deepfm', 'language model')
#: The systems of the last stage: name to the number of ranks, as `Part` has them. Whatever comes
#: first may be slower for that alone, so a second turn has them in reverse.
SPEED_SYSTEMS = {
    'plain Keras': 0,
    'ours, one process': 0,
    "Horovod's allgather": 2,
    'ours, hybrid': 2,
    'ours, allreduce': 2,
}


class Part(NamedTuple):
    """A process or a job that makes some checks.

    Attributes:
        stage: one of `STAGES`.
        name: of the part.
        script: of this folder, without its ending.
        arguments: of the script.
        checks: the names of the checks that it reports.
        ranks: how many processes `horovodrun` starts; 0 for a process without it.
        limit: seconds that it may take.
        environ: further environment variables.
        needs: `''`, or what it cannot do without: `'card'`, `'keras 3'`, `'jax'`.
        in_smoke: whether `--smoke` runs it.
    """

    stage: str
    name: str
    script: str
    arguments: Tuple[str, ...]
    checks: Tuple[str, ...]
    ranks: int = 0
    limit: float = 90
    environ: Dict[str, str] = {}
    needs: str = ''
    in_smoke: bool = False


def _three_lines() -> List[Part]:
    found = []
    for keras, needs in (('tf_keras', ''), ('tensorflow', 'keras 3'), ('jax', 'jax')):
        title = keras if keras == 'tf_keras' else 'Keras 3, ' + keras
        for ranks in (0, 2):
            environ = {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'} if keras == 'jax' else {}
            found.append(
                Part(
                    'three lines',
                    '%s, %s' % (title, 'two ranks' if ranks else 'one process'),
                    'three_lines',
                    (keras,),
                    ('trains', 'same weights') if ranks else ('trains',),
                    ranks,
                    60,
                    environ,
                    needs,
                    in_smoke=keras == 'tf_keras' and ranks == 2,
                )
            )
    return found


def _equality(folder: str, smoke: bool) -> List[Part]:
    # The graph of 52 small tables alone would take half of the time of `--smoke`.
    works = SPEED_WORKS[1:] if smoke else SPEED_WORKS
    # TensorFloat-32 keeps 10 bits of a factor: by it alone, numbers differ by 1e-3.
    environ = {'NVIDIA_TF32_OVERRIDE': '0', 'TF_FORCE_GPU_ALLOW_GROWTH': 'true'}
    found = [
        Part('equality', 'plain Keras', 'equality', ('plain', folder, *works), works, 0, 90,
             environ, '', True)
    ]  # fmt: skip
    for architecture in ('hybrid', 'ps', 'allreduce', 'one process'):
        ranks, arguments = 2 * (architecture != 'one process'), (architecture, folder, *works)
        found.append(
            Part('equality', architecture, 'equality', arguments, works, ranks, 90, environ, '',
                 architecture == 'hybrid')
        )  # fmt: skip
    return found


def _features() -> List[Part]:
    environ = {'TF_FORCE_GPU_ALLOW_GROWTH': 'true'}
    return [
        Part('features', 'tf_keras', 'features', ('tf_keras',),
             ('DynamicEmbedding', 'fp16 rows and gradients', 'export', 'mixed precision'), 2, 90,
             environ),
        Part('features', 'Keras 3, tensorflow', 'features', ('tensorflow',),
             ('export', 'mixed precision'), 2, 90, environ, 'keras 3'),
    ]  # fmt: skip


def _speed() -> List[Part]:
    environ = {'TF_FORCE_GPU_ALLOW_GROWTH': 'true'}
    found = []
    for turn in (1, 2):
        for work in SPEED_WORKS:
            systems = list(SPEED_SYSTEMS)
            for system in systems if turn == 1 else systems[::-1]:
                checks = ('step time', 'copies') if _is_traced(system, turn) else ('step time',)
                in_smoke = (turn, work, system) == (1, 'language model', 'ours, hybrid')
                name = '%s, %s, turn %d' % (work, system, turn)
                arguments, ranks = (work, system, str(turn)), SPEED_SYSTEMS[system]
                found.append(
                    Part(
                        'speed', name, 'speed', arguments, checks, ranks, 80, environ, '', in_smoke
                    )
                )
    return found


def _is_traced(system: str, turn: int) -> bool:
    """Whether a part also counts the copies of a step; Horovod's own step has no model of Keras."""
    return turn == 1 and system != "Horovod's allgather"


def parts(folder: str, smoke: bool) -> List[Part]:
    """All parts, in the order in which they run.

    Args:
        folder: where parts leave what later ones compare with.
        smoke: whether only those `in_smoke` will run, which then train less.
    """
    first = Part('environment', 'versions', 'versions', (), ('TensorFlow', 'Horovod'), 0, 60,
                 {}, '', True)  # fmt: skip
    card = Part('environment', 'card', 'versions', ('card',), ('card', 'matrix product'), 0, 60,
                {'TF_FORCE_GPU_ALLOW_GROWTH': 'true'}, 'card', True)  # fmt: skip
    return [first, card, *_three_lines(), *_equality(folder, smoke), *_features(), *_speed()]
