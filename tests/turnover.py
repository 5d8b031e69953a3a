# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What `Admission` and `Eviction` must do, one id after another: a model in plain Python."""

import dynamic
import numpy as np

NO_ID = dynamic.NO_ID
_OF_HOMES = 0x5368617264730A01


def homes(ids, rows):
    """The place of each id in a table of so many rows, whose shard it belongs to."""
    ids = np.asarray(ids, np.int64).view(np.uint64)
    return dynamic._mixed(ids ^ np.uint64(_OF_HOMES)).view(np.int64) % rows


def chances(ids, seed):
    """Numbers from 0 to 1 that follow from ids and a seed."""
    ids = np.asarray(ids, np.int64).view(np.uint64)
    bits = dynamic._mixed(dynamic._mixed(ids ^ np.uint64(seed)))
    return (bits >> np.uint64(40)).astype(np.float64) / 2.0**24


class Part:
    """The ids of one shard.

    Attributes:
        known: dict from ids with a row to pairs: the step of the last use, in how many steps.
        candidates: dict from places to pairs of an id and its count.
        evicted, left_out: how many ids have lost a row, and have found none.
    """

    def __init__(self, rows, whole, min_count=1, probability=1.0, policy=None, max_age=None):
        self.rows, self.whole = rows, whole
        self.min_count, self.probability = min_count, probability
        self.admits = min_count > 1 or probability < 1
        self.policy, self.max_age = policy, max_age
        self.known, self.candidates = {}, {}
        self.clock = self.evicted = self.left_out = 0

    def step(self, ids):
        """Takes the different ids of a step."""
        new = sorted(id_ for id_ in ids if id_ not in self.known)
        for id_ in ids:
            if id_ in self.known:
                self.known[id_] = self.clock, self.known[id_][1] + 1
        if self.admits:
            self._admit(new)
        else:
            room = self.rows - len(self.known)
            # Which of them is not said; a test must not go by it.
            self._give(new[: min(room, len(new))])
            self.left_out += max(0, len(new) - room)
            self._evict(len(new), 0)
        self.clock += 1

    def _give(self, ids):
        for id_ in ids:
            self.known[id_] = self.clock, 1

    def _admit(self, new):
        if self.min_count > 1:
            new = [id_ for place in set(homes(new, self.whole)) for id_ in self._count(place, new)]
        if self.probability < 1:
            new = [id_ for id_ in new if chances([id_], self.clock)[0] < self.probability]
        self._evict(len(new), len(new))
        for id_ in sorted(new, reverse=True):
            if len(self.known) < self.rows:
                self._give([id_])
                self.candidates.pop(homes([id_], self.whole)[0], None)
            else:
                self.left_out += 1

    def _count(self, place, new):
        met = [id_ for id_ in new if homes([id_], self.whole)[0] == place]
        id_, count = self.candidates.get(place, (0, 0))
        if id_ in met:
            count += 1
        else:
            count -= 1
            if count > 0:
                self.candidates[place] = id_, count
                return []
            id_, count = min(met), 1
        self.candidates[place] = id_, count
        return [id_] if count >= self.min_count else []

    def _evict(self, asked, coming):
        if self.policy is None:
            return
        room = self.rows - len(self.known)
        asked = max(asked, -(-self.rows // 128))
        wanted = coming + 2 * asked - room if room < coming + asked else 0
        old = [id_ for id_ in self.known if self._age(id_) >= (self.max_age or np.inf)]
        may_go = sorted(
            (id_ for id_ in self.known if self._age(id_)), key=lambda id_: self._rank(id_, old)
        )
        for id_ in may_go[: max(wanted, len(old))]:
            del self.known[id_]
            self.evicted += 1

    def _age(self, id_):
        return self.clock - self.known[id_][0]

    def _rank(self, id_, old):
        last, uses = self.known[id_]
        chance = int(chances([id_], 0)[0] * 2**12)
        return (id_ not in old, uses if self.policy == 'lfu' else 0, last, chance)


#: Of runs in jobs: names to arguments of the layer, and the name of Keras's optimizer.
RUNS = {
    'admitted': ({'capacity': 300, 'admission': {'min_count': 3, 'probability': 0.7}}, 'Adagrad'),
    # With so many rows, each new id finds one: which does not is not said.
    'evicted': ({'capacity': 90, 'eviction': {'policy': 'lru'}}, 'Adam'),
    'both': (
        {
            'capacity': 40,
            'admission': {'min_count': 2},
            'eviction': {'policy': 'lfu', 'max_age_steps': 6},
        },
        'Adagrad',
    ),
}
SHARDS, STEPS, SAMPLES = 2, 20, 12
#: Which of them jobs train, by their number of workers; and of which two workers go on in the
#: middle.
RUNS_OF = {1: ['admitted'], 2: ['admitted', 'evicted', 'both'], 3: ['admitted', 'both']}
RESUMED_RANKS = 2


def batch(step):
    """A joined batch: ids `[SAMPLES, LENGTH]`, of which new ones come and old ones go."""
    names = np.random.RandomState(3).randint(-(2**62), 2**62, 400, dtype=np.int64)
    random = np.random.RandomState(step)
    often = random.zipf(1.5, [SAMPLES, dynamic.LENGTH]) % 12
    now = 12 + 6 * step + random.randint(0, 12, often.shape)
    numbers = np.where(random.uniform(size=often.shape) < 0.6, often, now)
    return names[numbers], random.uniform(-1, 1, [SAMPLES, 1])


def expected_parts(name, shards):
    """The `Part`s of a table after a run, one for each of so many shards."""
    arguments = RUNS[name][0]
    admission, eviction = arguments.get('admission', {}), arguments.get('eviction', {})
    whole = arguments['capacity'] + bool(admission)
    parts = []
    for number in range(shards):
        rows = len(range(number, arguments['capacity'], shards))
        policy = eviction.get('policy'), eviction.get('max_age_steps')
        admits = admission.get('min_count', 1), admission.get('probability', 1.0)
        parts.append(Part(rows, whole, *admits, *policy))
    for step in range(STEPS):
        ids = set(batch(step)[0].ravel().tolist())
        for number, part in enumerate(parts):
            part.step([id_ for id_ in ids if homes([id_], whole)[0] % shards == number])
    return parts
