# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a browser makes of a page: whether all of it can be read, at several widths."""

import html
import json
import os
import re
import shutil
import subprocess

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None
)

#: For tests that need one.
NEEDED = pytest.mark.skipif(
    CHROMIUM is None and 'CI' not in os.environ, reason='needs Chromium, which CI installs'
)

#: Of a desk, of half of it, and of a telephone.
WIDTHS = (1280, 600, 390)

#: What `laid_out` returns of a page that can be read, without its number of colours.
READABLE = {
    'spilled': [],
    'overlapping': [],
    'wide': False,
    'small': 0,
    'loaded': [],
    'bars': True,
}

#: Measures the page as it is laid out, and leaves what it finds as the page's title.
PROBE = """
<script>
addEventListener('load', () => {
  const box = element => element.getBoundingClientRect();
  const spilled = [], overlapping = [];
  for (const svg of document.querySelectorAll('svg')) {
    const frame = box(svg), texts = [...svg.querySelectorAll('text')];
    for (const text of texts) {
      const own = box(text);
      if (own.left < frame.left - 1 || own.right > frame.right + 1 ||
          own.top < frame.top - 1 || own.bottom > frame.bottom + 1) spilled.push(text.textContent);
    }
    texts.forEach((one, n) => texts.slice(n + 1).forEach(other => {
      const a = box(one), b = box(other);
      if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom)
        overlapping.push(one.textContent + ' / ' + other.textContent);
    }));
  }
  document.title = JSON.stringify({
    spilled, overlapping,
    wide: document.documentElement.scrollWidth > innerWidth,
    small: [...document.querySelectorAll('svg text')].filter(
      text => box(text).height && box(text).height < 10).length,
    loaded: performance.getEntriesByType('resource').map(entry => entry.name),
    bars: [...document.querySelectorAll('rect')].every(rect => box(rect).height > 0),
    colours: new Set([...document.querySelectorAll('polyline')].map(
      line => getComputedStyle(line).stroke)).size,
  });
});
</script>
"""


def laid_out(page, width, folder):
    """Lays a page out.

    Args:
        page: its HTML.
        width: that of the window.
        folder: a `pathlib.Path`, for files.

    Returns:
        A dict: the texts of pictures that are cut off or lie upon each other, whether the page is
        wider than its window, how many texts of pictures are too small, what it loads, whether all
        bars have a height, and how many colours the curves have.
    """
    path = folder / 'page.html'
    path.write_text(page.replace('</body>', PROBE + '</body>'), encoding='utf-8')
    window = '--window-size=%d,900' % width
    command = [CHROMIUM, '--headless', '--disable-gpu', '--dump-dom', window]
    # As root there is no sandbox to be had.
    command += ['--no-sandbox'] if os.getuid() == 0 else []
    command += ['--user-data-dir=%s' % (folder / 'profile'), 'file://%s' % path]
    process = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=300
    )
    (title,) = re.findall('<title>(.*?)</title>', process.stdout.decode('utf-8'))[:1]
    return json.loads(html.unescape(title))
