#!/usr/bin/env python3
# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checks that what comments, docstrings and pages refer to exists; `make lint` runs it.

It knows these kinds of references, and reads sources without importing them:

- a path from the root of the repository, with `::` and a name in that file or without;
- in backticks, the name of a file (`plan.py`), also with folders (`planning/plan.py`), a test
  (`test_plan`), a name of a module of the package (`plan.Plan`), or an attribute of one of its
  classes (`Plan.variables`);
- a link of a Markdown page, to a file and to a heading, and a picture.
"""

import ast
import fnmatch
import io
import os
import re
import subprocess
import sys
import tokenize
from typing import NamedTuple

#: Files of the reader's, in examples, and of Keras's.
NOT_OURS = frozenset(['train.py', 'keras/optimizers.py'])
#: Objects that are called as a module of the package is.
OBJECTS = frozenset(['optimizer', 'plan', 'job', 'host', 'session', 'table'])

#: How the paths end of what is read.
_READ = ('.py', '.md', '.sh', '.txt', '.ini', '.toml', '.yml', 'Makefile', '.ci/run')
_TICKED = re.compile(r'`([^`\n]+)`')
_LINK = re.compile(r'(?:\]\(|\bsrc=")([^)\s"]+)')
_HEADING = re.compile(r'^#+ +(.*)', re.MULTILINE)
_FENCE = re.compile(r'^( *)```.*?^\1```', re.MULTILINE | re.DOTALL)
_DOTTED = re.compile(r'([A-Za-z_]\w*)\.([A-Za-z_]\w*)(?:\(.*\))?$')
_TEST = re.compile(r'test_\w+$')
_FILE = re.compile(r'[\w/-]+\.(?:py|sh|md|toml|ini)$')


class Passage(NamedTuple):
    """A comment, docstring or page: the file it is in, its first line, and what it says."""

    path: str
    line: int
    text: str


def passages(path, source):
    """The comments and docstrings of a Python file, or a whole page or script."""
    if not path.endswith('.py'):
        return [Passage(path, 1, _prose(path, source))]
    texts, starts_line = [], True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and starts_line
        if is_docstring or token.type == tokenize.COMMENT:
            texts.append(Passage(path, token.start[0], token.string))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            starts_line = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    return texts


def _prose(path, source):
    """What a page or script says: no fenced code, and of a script only the comments."""
    if path.endswith('.md'):
        return _FENCE.sub(lambda match: '\n' * match.group().count('\n'), source)
    return '\n'.join(line if line.lstrip().startswith('#') else '' for line in source.split('\n'))


class Repository:
    """What may be referred to: the files of a repository and the names in them.

    Args:
        files: dict from paths, with `/`, to sources.
        package: the folder of the package.
    """

    def __init__(self, files, package):
        self.files = files
        self._folders = {path.rsplit('/', count)[0] for path in files
                         for count in range(1, path.count('/') + 1)}  # fmt: skip
        self._tops = {path.split('/')[0] for path in files if '/' in path}
        self._basenames = {path.rsplit('/', 1)[-1] for path in files}
        self._names, self._classes = {}, {}
        for path, source in files.items():
            if path.endswith('.py'):
                self._read(path, ast.parse(source))
        self._modules = {
            path.rsplit('/', 1)[-1][:-3]: path
            for path in files
            if path.startswith(package + '/') and path.endswith('.py')
        }
        self._package = package

    def _read(self, path, tree):
        names = self._names[path] = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.alias):
                names.add((node.asname or node.name).split('.')[-1])
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = [base.attr if isinstance(base, ast.Attribute) else getattr(base, 'id', '')
                         for base in node.bases]  # fmt: skip
                self._classes.setdefault(node.name, []).append((path, _members(node), bases))

    def problems(self, passage):
        """What a passage refers to that does not exist: a list of pairs of line and reference."""
        missing = []
        for pattern, is_missing in [
            (self._paths(), self._lacks_path),
            (_TICKED, self._lacks_ticked),
            (_LINK, lambda link: self._lacks_link(passage.path, link)),
        ]:
            if pattern is _LINK and not passage.path.endswith('.md'):
                continue
            for match in pattern.finditer(passage.text):
                reference = match.group(1).rstrip('.')  # The end of a sentence.
                if is_missing(reference):
                    line = passage.line + passage.text.count('\n', 0, match.start())
                    missing.append((line, reference))
        return missing

    def _paths(self):
        tops = '|'.join(sorted(map(re.escape, self._tops)))
        return re.compile(r'(?<![\w/.:-])((?:%s)/[\w./*-]*(?:::\w+)*)' % tops)

    def _lacks_path(self, reference):
        path, *names = reference.split('::')
        path = path.rstrip('/')
        if '*' in path:
            return not fnmatch.filter(self.files, path)
        if path not in self.files:
            return path not in self._folders
        return any(name not in self._names.get(path, ()) for name in names)

    def _lacks_ticked(self, text):
        if _FILE.match(text):
            return text not in NOT_OURS and not any(
                ('/' + path).endswith('/' + text) for path in self.files
            )
        if _TEST.match(text):
            return (
                not any(
                    text in names
                    for path, names in self._names.items()
                    if path.startswith('tests/')
                )
                and text + '.py' not in self._basenames
            )
        dotted = _DOTTED.match(text)
        if not dotted:
            return False
        owner, name = dotted.groups()
        if owner in self._classes and owner[0].isupper():
            return not self._has_member(owner, name)
        path = self._modules.get(owner)
        if owner in OBJECTS and name[0].islower():
            return False
        return path is not None and name != 'py' and name not in self._names[path]

    def _has_member(self, class_name, name):
        # Classes of one name, such as a test's own `Session`, may be each other's ancestors.
        pending, seen = [class_name], set()
        while pending:
            class_name = pending.pop()
            seen.add(class_name)
            for _, members, bases in self._classes.get(class_name, ()):
                outside = any(base not in self._classes for base in bases if base != 'NamedTuple')
                if name in members or outside:
                    return True
                pending.extend(base for base in bases if base not in seen)
        return False

    def _lacks_link(self, page, link):
        if '://' in link or link.startswith('mailto:'):
            return False
        target, _, heading = link.partition('#')
        path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
        path = path.replace(os.sep, '/')
        if path not in self.files:
            return path not in self._folders
        return bool(heading) and heading not in _anchors(self.files[path])


def _members(node):
    """The names of a class: what its body binds, and what its methods set on `self`."""
    members = set()
    for child in ast.walk(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            members.add(child.name)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            members.add(child.id)
        elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
            members.add(child.attr)
    return members


def _anchors(source):
    """The anchors of a page's headings, as MkDocs and GitHub make them."""
    text = _FENCE.sub('', source or '')
    plain = (re.sub(r'[^\w\s-]', '', heading).strip().lower() for heading in _HEADING.findall(text))
    return {re.sub(r'\s', '-', heading) for heading in plain} | set(
        re.findall(r'\{ *#([\w-]+) *\}|id="([\w-]+)"', text)
    )


def tracked(root):
    """The files of a git work tree, without what it ignores: a dict from paths to sources.

    The source is `None` for what is not text that this script reads.
    """
    listed = subprocess.check_output(
        ['git', 'ls-files', '--cached', '--others', '--exclude-standard'], cwd=root
    )
    files = {}
    for path in listed.decode().splitlines():
        full = os.path.join(root, path)
        if not os.path.isfile(full):
            continue
        files[path] = None
        if path.endswith(_READ):
            with open(full, encoding='utf-8') as file:
                files[path] = file.read()
    return files


def main(root='.'):
    """Prints what is referred to and does not exist; the number of such references."""
    files = tracked(root)
    repository = Repository(files, 'keras_parallax')
    count = 0
    for path, source in sorted(files.items()):
        if source is None:
            continue
        for passage in passages(path, source):
            for line, reference in repository.problems(passage):
                count += 1
                print('%s:%d: %s does not exist' % (path, line, reference))
    return count


if __name__ == '__main__':
    sys.exit(1 if main() else 0)
