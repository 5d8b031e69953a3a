"""The versions that this release was run with. Imports nothing, so that a broken stack can ask."""

#: Package to (accepted version prefixes, how to get it).
SUPPORTED = {
    'TensorFlow': (('1.11.',), "pip install 'keras-parallax[cpu]' (or [gpu])"),
    'Keras': (('2.2.4',), 'pip install keras==2.2.4'),
    'Horovod': (('0.19.',), 'HOROVOD_WITH_TENSORFLOW=1 pip install --no-cache-dir horovod==0.19.5'),
}


def version_problem(package, version):
    """One sentence about a version this package does not support, or `None`.

    Args:
        package: `'TensorFlow'`, `'Keras'` or `'Horovod'`.
        version: the version found, a string.

    Returns:
        A string, or `None` if the version is supported.
    """
    prefixes, remedy = SUPPORTED[package]
    if any(version.startswith(prefix) for prefix in prefixes):
        return None
    return 'keras-parallax needs %s %s, but %s was found; get it with: %s' % (
        package,
        ' or '.join(prefix + 'x' if prefix.endswith('.') else prefix for prefix in prefixes),
        version,
        remedy,
    )
