# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The script that does what a page says, and writes what its commands print."""

import docs_outputs
import pytest

PAGE = '''# Page

## 1. First

```python title="train.py"
one = 1
two = 2

three = 3
```

**Keras 3**

```diff title="train.py"
 one = 1
-two = 2
+two = 'two'
```

**Keras 2**

```diff title="train.py"
-two = 2

-three = 3
+three = 'three'
```

```bash
cat train.py
```

**Keras 3**

```text
two = 'two'
```

**Keras 2**

```text
three = 'three'
```

## 2. Second

<!-- fails -->

```bash
false
```
'''.splitlines()


def course(keras):
    return [block for block in docs_outputs.blocks(PAGE) if block.keras in (None, keras)]


def test_a_label_is_of_the_next_block_alone_and_a_remark_too():
    found = [(block.keras, block.language, block.remark) for block in docs_outputs.blocks(PAGE)]
    assert found == [
        (None, 'python', ''),
        (3, 'diff', ''),
        (2, 'diff', ''),
        (None, 'bash', ''),
        (3, 'text', ''),
        (2, 'text', ''),
        (None, 'bash', 'fails'),
    ]


@pytest.mark.parametrize('keras, line', [(3, "two = 'two'"), (2, "three = 'three'")])
def test_files_are_made_and_changed_and_commands_run_for_one_keras(tmp_path, keras, line):
    with docs_outputs.Reader(str(tmp_path)) as reader:
        done = list(docs_outputs.follow(reader, course(keras)))
    assert [now for _, now in done] == [[line]]


def test_a_change_of_lines_that_are_not_once_in_the_file_is_an_error():
    assert docs_outputs.patched('a\nb\nc\n', [' a', '-b', '', '-c', '+d']) == 'a\nd\n'
    for source in ('a\nc\n', 'b\nb\n', 'bb\n'):
        with pytest.raises(docs_outputs.PageError):
            docs_outputs.patched(source, ['-b'])


@pytest.mark.parametrize(
    'shown, printed',
    [
        ('loss: 0.1200 - 3s 5ms/step', 'loss: 2.1e-05 - 10s 400us/step'),
        ('12 of 12, 3.1 MiB   sparse', '12 of 12, 1,000.2 MiB  sparse'),
        ('Rank 1 on host a failed', 'Rank 1 on host b-2 failed'),
        ('epoch 1: 8,017 lines/s', 'epoch 1: 17 lines/s'),
        ('see logs/2026-12-01-034006/x', 'see logs/2027-01-31-235959/x'),
    ],
)
def test_times_and_numbers_with_a_point_may_differ(shown, printed):
    assert docs_outputs.refreshed([shown], 'before\n' + printed + '\n') == [printed]


@pytest.mark.parametrize('shown', ['Epoch 2/4', '2 shards', 'one\ntwo', 'sparse  3 MiB'])
def test_all_else_has_to_be_printed_as_it_is_shown(shown):
    with pytest.raises(docs_outputs.PageError):
        docs_outputs.refreshed(shown.split('\n'), 'two\none\nEpoch 1/4\n3 shards\ndense  3 MiB\n')


def test_a_job_that_is_put_off_is_run_once_with_what_both_steps_ask(tmp_path):
    page = '''## 1. First
```bash
keras-parallax run -np 2 train.py
echo 1
```
```text
1
```
## 2. Second
```bash
keras-parallax run -np 2 train.py
echo 2
```
```text
2
```
'''.splitlines()

    class Noting(docs_outputs.Reader):
        ran = []

        def run(self, lines, remark=''):
            self.ran += lines
            return '1\n2\n'

    reader = Noting(str(tmp_path))
    done = list(docs_outputs.follow(reader, docs_outputs.blocks(page), ['1']))
    assert [now for _, now in done] == [['1'], ['2']]
    assert reader.ran == ['keras-parallax run -np 2 train.py', 'echo 1', 'echo 2']
    with pytest.raises(docs_outputs.PageError, match='not run'):
        list(docs_outputs.follow(reader, docs_outputs.blocks(page), ['1', '2']))
