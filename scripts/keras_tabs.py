# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Makes tabs of blocks that are for one Keras each, when the site is built.

On a page such a block follows a line that says `**Keras 3**` or `**Keras 2**`, which reads well
without tabs too, for instance on a code host.
"""

import re
from typing import Any

_LABELED = re.compile(r'^\*\*(Keras [23])\*\*\n\n(```.*?^```)$', re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page with tabs; MkDocs calls it."""

    def tab(match: 're.Match[str]') -> str:
        name, block = match.groups()
        return '=== "%s"\n\n%s' % (name, re.sub('^(?=.)', '    ', block, flags=re.MULTILINE))

    return _LABELED.sub(tab, markdown)
