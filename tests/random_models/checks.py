# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Holds a draw on two workers against plain Keras."""

import contextlib
import os
import tempfile
from typing import Callable, Dict, List, NamedTuple

import servers
from random_models import headers, results, scripts, vocabulary
from random_models.draws import Draw
from random_models.players import Player


class Verdict(NamedTuple):
    """What became of a draw.

    Attributes:
        kind: `EQUAL`, `REFUSED` by us with a sentence, `INVALID` because plain Keras refuses the
            script, `NUMBERS` that differ, or another `ERROR`.
        text: what tells more.
    """

    kind: str
    text: str = ''

    @property
    def fails(self) -> bool:
        """Whether it is a failure of ours."""
        return self.kind in (NUMBERS, ERROR)


EQUAL, REFUSED, INVALID, NUMBERS, ERROR = 'equal', 'refused', 'invalid', 'numbers', 'error'


class Checker:
    """Runs draws with a Keras package.

    Args:
        package: its name.
        servers: how many dedicated servers have the shards of all draws; with 0 the workers do.
    """

    def __init__(self, package: str, servers: int = 0) -> None:
        self._package = package
        self._plain, self._ranks = Player(0), Player(2)
        self._stack = contextlib.ExitStack()
        #: Those of the dedicated servers.
        self.addresses = self._start(servers) if servers else []
        #: Verdicts so far, by the `repr` of the draw.
        self.verdicts: Dict[str, Verdict] = {}

    def _start(self, count: int) -> List[str]:
        """Starts dedicated servers, which outlive a job; their addresses."""
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        started = [servers.Server(servers.free_port(), folder, '--keep') for _ in range(count)]
        for server in started:
            self._stack.enter_context(server)
            server.wait_for('listening on port %d' % server.port)
        return [server.address for server in started]

    def check(self, draw: Draw) -> Verdict:
        """The verdict on a draw."""
        key = repr(draw)
        if key not in self.verdicts:
            spoiled = self._ranks.is_spoiled
            verdict = self._check(draw, 'float32')
            if verdict.fails and spoiled:
                self._ranks.stop()
                verdict = self._check(draw, 'float32')
            # What double precision does not show is rounding that the script blows up.
            if verdict.kind == NUMBERS and self._check(draw, 'float64').kind == EQUAL:
                verdict = Verdict(EQUAL, 'in double precision only')
            self.verdicts[key] = verdict
        return self.verdicts[key]

    def fails_as(self, kind: str) -> Callable[[Draw], bool]:
        """A function that says whether a draw has a verdict of this kind."""
        return lambda draw: self.check(draw).kind == kind

    def _check(self, draw: Draw, floatx: str) -> Verdict:
        header = headers.header(draw, self._package, floatx, self.addresses)
        body = scripts.body(draw)
        (plain,) = self._plain.play(header, body)
        if plain.error:
            return Verdict(INVALID, '%s: %s' % (plain.error.classes[0], plain.error.text))
        own = self._plain.place
        ranks = self._ranks.play(header, body)
        found = results.differences(plain, ranks, results.TOLERANCE[floatx])
        if found:
            return Verdict(NUMBERS, '\n'.join(found))
        if results.is_refusal(ranks):
            error = ranks[0].error
            return Verdict(REFUSED, '%s: %s' % (error.classes[0], error.text))
        failed = [(rank, result.error) for rank, result in enumerate(ranks) if result.error]
        if failed:
            words = ['rank %d: %s' % (rank, error.trace or error.text) for rank, error in failed]
            return Verdict(ERROR, '\n'.join(words))
        return self._check_file(draw, header, own, floatx)

    def _check_file(self, draw: Draw, header: str, own: str, floatx: str) -> Verdict:
        """Has plain Keras go on from the file that each of the two has saved last."""
        names = [os.path.join(place, 'model.h5') for place in (own, self._ranks.place)]
        if not (os.path.exists(names[0]) and vocabulary.can_load(draw)):
            return Verdict(EQUAL)
        # Keras warns of a file with slots of several optimizers, and starts its own one afresh.
        if headers.has_optimizers_of_tables(draw):
            return Verdict(EQUAL)
        plain, ours = [
            self._plain.play(header, scripts.continuation(draw, name))[0] for name in names
        ]
        if plain.error:
            return Verdict(EQUAL, 'plain Keras does not go on: %s' % plain.error.text)
        if ours.error:
            return Verdict(ERROR, 'plain Keras does not load the file: ' + ours.error.trace)
        found = results.differences(plain, [ours], results.TOLERANCE[floatx])
        return Verdict(NUMBERS, 'from the file, ' + '\n'.join(found)) if found else Verdict(EQUAL)

    @property
    def seconds(self) -> float:
        """The time of processor that scripts have taken."""
        return self._plain.seconds + self._ranks.seconds

    def close(self) -> None:
        self._plain.stop(clean=True)
        self._ranks.stop(clean=True)
        self._stack.close()
