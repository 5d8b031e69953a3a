# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Plain Keras in a process, and two workers of a job: started once, they run many scripts."""

import contextlib
import json
import os
import pickle
import shutil
import tempfile
import time
from typing import List, Optional

import launch
import psutil
from random_models import results

#: A script that takes longer hangs.
LIMIT_SECONDS = 600


class Player:
    """Processes that run scripts: a job of some workers, or one process without a launcher.

    Args:
        ranks: the number of workers; 0 is plain Keras.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._process = None
        #: Time of processor that scripts have taken.
        self.seconds = 0.0
        #: Whether a script has failed, which may spoil those after it.
        self.is_spoiled = False

    def play(self, header: str, body: str) -> List[results.Result]:
        """Runs a script; what each process shows. One that crashes or hangs shows an error."""
        if self._process is None:
            self._start()
        place = os.path.join(self._folder, str(self._number))
        os.mkdir(place)
        self.place = place
        self._number += 1
        self._tell(place, {'header': header, 'body': body})
        paths = [os.path.join(place, 'result-%d' % rank) for rank in range(max(1, self._ranks))]
        limit = time.time() + LIMIT_SECONDS
        while not all(map(os.path.exists, paths)):
            problem = self._problem(paths, limit)
            if problem:
                return self._given_up(paths, problem)
            time.sleep(0.02)
        found = [_read(path) for path in paths]
        if results.fail_apart(found):
            self.stop()  # One waits for the other.
        self.seconds += sum(result.seconds for result in found)
        self.is_spoiled = self.is_spoiled or any(result.error for result in found)
        return found

    def _problem(self, paths: List[str], limit: float) -> Optional[str]:
        if self._process.poll() is not None:
            return 'the job ended: %s' % self._process.returncode
        # A worker that has failed has the others wait for it.
        failed = [path for path in paths if os.path.exists(path) and _read(path).error]
        if failed and time.time() > limit - LIMIT_SECONDS + 60:
            return 'a worker failed and another waits'
        return 'it hangs' if time.time() > limit else None

    def _given_up(self, paths: List[str], problem: str) -> List[results.Result]:
        self.stop()
        with open(self._output) as file:
            words = file.read()[-3000:]
        error = results.Error(['Crash'], problem, words, 0)
        none = results.Result([], error)
        return [_read(path) if os.path.exists(path) else none for path in paths]

    def _start(self) -> None:
        self._folder = tempfile.mkdtemp(prefix='random-models-')
        self._number = 0
        self.is_spoiled = False
        self._output = os.path.join(self._folder, 'output')
        with open(self._output, 'w') as output:
            self._process = launch.start(
                self._ranks, 'parallel/random_models_worker.py', self._folder, output=output
            )

    def _tell(self, place: str, given: dict) -> None:
        path = os.path.join(place, 'ready')
        with open(path + '.part', 'w') as file:
            json.dump(given, file)
        os.rename(path + '.part', path)

    def stop(self, clean: bool = False) -> None:
        """Ends the processes; `clean` removes what they have written."""
        if self._process is None:
            return
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):  # A launcher's end takes others along.
                process.kill()
        self._process.wait()
        if clean:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._process = None

    def _processes(self) -> List[psutil.Process]:
        """Those that run: the launcher, and all that have been given the folder."""
        found = []
        for process in psutil.process_iter(['cmdline']):
            if self._folder in (process.info['cmdline'] or []):
                found.append(process)
        return found


def _read(path: str) -> results.Result:
    with open(path, 'rb') as file:
        return pickle.load(file)
