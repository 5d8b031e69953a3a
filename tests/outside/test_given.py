"""Scripts of a folder that is given, against their plain runs: `make test-outside OUTSIDE=DIR`.

Every Python file of the folder that trains is run, with the made data of `made_data.py` and with
what else lies beside it. What plain Keras cannot run is skipped, with its error.
"""

import glob
import os

import compare
import pytest
import run_scripts as runner

FOLDER = os.environ.get('OUTSIDE')
SCRIPTS = sorted(glob.glob(os.path.join(os.path.abspath(FOLDER), '*.py'))) if FOLDER else []
#: A script that takes longer than that is not compared.
LIMIT_SECONDS = 180


def last_line(error):
    return str(error).strip().splitlines()[-1]


def name_of(script):
    # Without a folder there is no script, and pytest 7.0 asks for the name of that.
    return runner.name_of(script) if isinstance(script, str) else None


@pytest.mark.parametrize('script', SCRIPTS, ids=name_of)
def test_a_given_script_trains_as_it_does_plainly(run_scripts, tmp_path, script):
    name = runner.name_of(script)
    run_scripts('plain', 0, tmp_path, [script], LIMIT_SECONDS)
    try:
        compare.results(str(tmp_path), name, 'plain', 1)
    except AssertionError as error:
        pytest.skip('without us: ' + last_line(error))
    tolerance = compare.TOLERANCE
    for ranks in (1, 2):
        job = run_scripts('parallax', ranks, tmp_path, [script], 2 * LIMIT_SECONDS)
        try:
            *differences, reasons = compare.difference(str(tmp_path), name, ranks)
        except AssertionError as error:
            raise AssertionError('%s\n%s' % (error, job.output[-3000:])) from None
        if max(differences) > tolerance and (ranks == 1 or not reasons):
            # How far plain Keras is from itself when it sums in another order.
            run_scripts('backwards', 0, tmp_path, [script], LIMIT_SECONDS)
            *own, _ = compare.difference(str(tmp_path), name, 1, 'backwards')
            tolerance = max(tolerance, 10 * max(own))
        print('%s at %d: losses %.0e, weights %.0e' % ((name, ranks) + tuple(differences)), reasons)
        if ranks == 1 or not reasons:
            assert max(differences) < tolerance, (ranks, differences)
