# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras-parallax plan`: what a model would cost on a cluster that need not exist."""

import json
import os
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Sequence, Tuple, Union

import click

from keras_parallax.errors import ParallaxError
from keras_parallax.planning import architectures
from keras_parallax.planning.classify import DENSE, SPARSE, WHOLE_TABLE, VariableUse, classify
from keras_parallax.planning.costs import Cluster, Fp16
from keras_parallax.planning.plan import Plan, make_plan
from keras_parallax.planning.plan_request import WIDE, Timing, check_row_dtype
from keras_parallax.planning.plan_summary import format_summary
from keras_parallax.planning.units import parse_bandwidth, parse_size

_EVERY = None

#: Names of variables, or `_EVERY`, and a value for each.
Pairs = Iterable[Tuple[Optional[str], Any]]


class _Text(click.ParamType):
    """What a function reads from the text, if it raises no `ValueError`."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(
        self, value: Any, param: Optional[click.Parameter], ctx: Optional[click.Context]
    ) -> Any:
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _pairs(name: str, read: Callable[[str], Any], every: bool = True) -> _Text:
    """`VALUE` for every table, or `NAME=VALUE` for one variable: a pair of name and value."""

    def read_pair(value: str) -> Tuple[Optional[str], Any]:
        variable, equals, text = value.rpartition('=')
        if not equals and not every:
            raise ValueError('%r is not of the form VARIABLE=%s' % (value, name))
        try:
            return (variable if equals else _EVERY), read(text)
        except (ValueError, ZeroDivisionError):
            raise ValueError('%r is no %s' % (text, name)) from None

    return _Text(name, read_pair)


def _servers(text: str) -> Union[str, int]:
    if text in ('worker', 'host'):
        return text
    if text.isdigit() and int(text):
        return int(text)
    raise ValueError("%r is neither 'worker' nor 'host' nor a number from 1" % text)


def _fraction(text: str) -> float:
    """A number from 0 to 1, or a fraction such as `2560/793471`."""
    above, slash, below = text.partition('/')
    number = float(above) / float(below) if slash else float(text)
    if not 0 <= number <= 1:
        raise ValueError(text)
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


_AT_LEAST_1 = click.IntRange(min=1)


_DENSITY = _pairs('fraction from 0 to 1', _fraction)


@click.command()
@click.argument('model')
@click.option('--hosts', type=_AT_LEAST_1, default=1, show_default=True, help='Hosts with workers.')
@click.option('--workers-per-host', type=_AT_LEAST_1, default=1, show_default=True)
@click.option(
    '--bandwidth',
    type=_Text('bandwidth', parse_bandwidth),
    metavar='BANDWIDTH',
    default='10Gbit',
    show_default=True,
    help="Of a host's link, each way.",
)
@click.option(
    '--density',
    type=_DENSITY,
    metavar='[VARIABLE=]FRACTION',
    multiple=True,
    help="The fraction of a table's rows that a worker's batch touches, for every table or for "
    'one. Unique ids over rows, such as 2560/793471, will do.',
)
@click.option('--alpha', type=_DENSITY, multiple=True, hidden=True)
@click.option(
    '--architecture',
    type=click.Choice(architectures.ARCHITECTURES),
    default=architectures.HYBRID,
    show_default=True,
)
@click.option(
    '--partitions',
    type=_pairs('number from 1', _count),
    metavar='[VARIABLE=]NUMBER',
    multiple=True,
    help='Shards of every table or of one variable. Chosen if not given.',
)
@click.option(
    '--row-dtype',
    type=_pairs('dtype', str),
    metavar='[VARIABLE=]float16',
    multiple=True,
    help='Servers keep the rows of every table, or of one, in 16 bits.',
)
@click.option(
    '--override',
    type=_pairs('class', str, every=False),
    metavar='VARIABLE=CLASS',
    multiple=True,
    help='The class of a variable, dense or sparse.',
)
@click.option(
    '--servers',
    type=_Text('worker|host|number', _servers),
    metavar='worker|host|NUMBER',
    default='worker',
    show_default=True,
    help='A server in each worker, one on each host, or so many machines for servers alone.',
)
@click.option('--fp16', is_flag=True, help='Gradients travel in half precision.')
@click.option('--fp16-pulls', is_flag=True, help='Rows that are pulled do.')
@click.option(
    '--accumulate-steps',
    type=_AT_LEAST_1,
    default=1,
    show_default=True,
    help='Batches whose gradients are exchanged at once.',
)
@click.option(
    '--local-aggregation/--no-local-aggregation',
    default=True,
    show_default=True,
    help='Rows that several workers of a host touch cross the network once.',
)
@click.option(
    '--optimizer',
    metavar='NAME',
    help="A Keras optimizer's name, if the model has none or another.",
)
@click.option(
    '--sparse-update', type=click.Choice(['exact', 'lazy']), help='As for ParallaxOptimizer.'
)
@click.option(
    '--host-memory',
    type=_Text('size', parse_size),
    metavar='SIZE',
    help='Of each host, such as 64GiB: which hosts would need more is said.',
)
@click.option(
    '--html',
    type=click.File('w', encoding='utf-8', lazy=True),
    metavar='FILE',
    help='Write a page to look at, too, which needs no network.',
)
@click.option('--json', 'as_json', is_flag=True, help='Print plain data.')
def command(
    model: str,
    as_json: bool,
    html: Any,
    optimizer: Optional[str],
    sparse_update: Optional[str],
    bandwidth: float,
    density: Pairs,
    alpha: Pairs,
    host_memory: Optional[int],
    **options: Any,
) -> None:
    """Show where each variable of MODEL would go, and what a training step would cost.

    MODEL is model.json (of model.to_json), model.h5 or model.keras (of model.save), or
    module:function, a function without arguments that returns a Keras model. No cluster is needed,
    and no memory for tables.
    """
    if alpha:
        # Python hides a `DeprecationWarning` from those who run commands.
        click.echo('--alpha is called --density now, and will be removed.', err=True)
        density = [*density, *alpha]
    # TensorFlow's notes about the CPU would stand between the lines.
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
    try:
        # Only now, because importing TensorFlow takes seconds.
        from keras_parallax.commands.describe_model import describe

        description = describe(model, optimizer, sparse_update)
        plan = plan_for(description.uses, bandwidth=bandwidth, density=density, **options)
        plan = plan.with_updates(description.updates)._replace(model=model)
        plan = _with_reasons(plan, description.reasons)
        if html is not None:
            # Writing opens the file, and one that is there stays if there is no page.
            page = plan.to_html(host_memory=host_memory)
            html.write(page)
    except ParallaxError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(plan.as_data(), indent=2))
    else:
        click.echo(format_summary(plan, host_memory=host_memory))


def plan_for(
    uses: Sequence[VariableUse],
    hosts: int,
    workers_per_host: int,
    bandwidth: float,
    density: Pairs,
    architecture: str,
    partitions: Pairs,
    override: Pairs,
    servers: Union[str, int],
    fp16: bool,
    fp16_pulls: bool,
    local_aggregation: bool,
    accumulate_steps: int = 1,
    row_dtype: Pairs = (),
) -> Plan:
    """The `Plan` that the command's options ask for; raises `PlanError` if it cannot be.

    Of pairs of a name and a value, those named `None` are for every table, and count less than what
    is said of one. A name is that of a variable or of a layer, as for a strategy. The bandwidth is
    in bytes per second.
    """
    density, partitions, override, row_dtype = (
        list(_of_variables(pairs, uses)) for pairs in (density, partitions, override, row_dtype)
    )
    own = servers if isinstance(servers, int) else 0
    dedicated = isinstance(servers, int)
    cluster = Cluster(
        hosts,
        workers_per_host,
        bandwidth,
        local_aggregation=local_aggregation,
        dedicated_servers=dedicated,
        accumulate_steps=accumulate_steps,
    )
    number = own if dedicated else hosts if servers == 'host' else cluster.workers
    overrides = {name: kind for name, kind in override if name is not None}
    tables = [
        use for use in uses if classify(use).kind == SPARSE and overrides.get(use.name) != DENSE
    ]
    narrow = _by_name(row_dtype, [use for use in tables if use.dtype == WIDE]) or None
    check_row_dtype(narrow, architecture, Timing())
    splittable = [use for use in tables if WHOLE_TABLE not in (use.regularizer, use.constraint)]
    return make_plan(
        uses,
        # One worker keeps everything, as in training, unless there are machines for servers.
        number if dedicated or cluster.workers > 1 else 0,
        overrides,
        architecture,
        partitions=_by_name(partitions, splittable) or None,
        density=_by_name(density, tables),
        cluster=cluster,
        fp16=Fp16(fp16, fp16_pulls),
        row_dtype=narrow,
    )


def _of_variables(pairs: Pairs, uses: Sequence[VariableUse]) -> Pairs:
    """Pairs, in which the variables of a layer take the place of the layer."""
    known = {use.name for use in uses}
    for name, value in pairs:
        of_layer = [use.name for use in uses if name in use.name.split('/')[:-1]]
        names = [name] if name in known or not of_layer else of_layer
        yield from ((each, value) for each in names)


def _with_reasons(plan: Plan, reasons: Mapping[str, str]) -> Plan:
    """A plan that tells for some variables by name, in words, why every worker holds them."""
    variables = [
        planned._replace(reason=reasons.get(planned.name, planned.reason))
        for planned in plan.variables
    ]
    return plan._replace(variables=tuple(variables))


def _by_name(pairs: Pairs, tables: Sequence[VariableUse]) -> Dict[str, Any]:
    """Values by name, given pairs some of which are for every table."""
    values = {table.name: value for name, value in pairs if name is _EVERY for table in tables}
    values.update((name, value) for name, value in pairs if name is not _EVERY)
    return values
