# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Asks TensorFlow's placer where it would put a step if there were graphics cards.

A session asks the workers of its cluster which devices they have, places the graph on those, and
sends each worker its part. `PretendedWorker` answers that it has cards, keeps the part that it is
sent and goes no further. So the devices are those of TensorFlow's own placer, and of the kernels
that the installed TensorFlow has for cards; nothing runs on one. The wheels of TensorFlow 2.16 and
later for Linux have these kernels, whether the machine has a card or not.
"""

import collections
import concurrent.futures
import contextlib
import re
import socket

import grpc
import numpy as np
import tensorflow
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import device_attributes_pb2, graph_pb2
from tensorflow.core.protobuf import rewriter_config_pb2
from tensorflow.python.client import session as client_session
from tensorflow.python.framework import kernels, op_def_registry

tf = tensorflow.compat.v1

#: What TensorFlow's task for the placer is called in a pretended cluster.
_PLACER = 'placer'
#: The names of operations that TensorFlow adds for what is fed, and for connected tensors.
_ADDED = {'_Recv': r'_recv_(.*)_(\d+)_S\d+$', 'Identity': r'_identity_(.*)_(\d+)$'}


class Copy(collections.namedtuple('Copy', ('name', 'operation', 'source', 'target', 'tensor'))):
    """A tensor that a step copies between the memories of a card and of its host.

    Attributes:
        name: its name in the placed graph.
        operation: the type of the operation that computes it; `'_Recv'` if it is fed.
        source, target: the types of the devices, `'CPU'` or `'GPU'`.
        tensor: the tensor of the graph that was placed, or `None`.
    """


class Placement:
    """Where one worker's part of a step lies.

    Attributes:
        devices: dict from names of operations to devices, such as `'GPU:0'`.
        copies: a list of `Copy`, in no order.
    """

    def __init__(self, graph, shaped):
        self._shaped = shaped
        self._nodes = {node.name: node for node in graph.node}
        self.devices = {name: _short(node.device) for name, node in self._nodes.items()}
        self.copies = list(self._copies(graph))

    def kind(self, name):
        """The type of an operation, given its name."""
        return self._nodes[name].op

    def follows(self, name, kinds):
        """Whether an operation computes with what one of some types has computed."""
        pending, seen = [name], set()
        while pending:
            node = self._nodes[pending.pop()]
            sources = {read.split(':')[0] for read in _tensors(node)} - seen
            if any(self.kind(source) in kinds for source in sources):
                return True
            seen |= sources
            pending.extend(sources)
        return False

    def _copies(self, graph):
        seen = set()
        for node in graph.node:
            transfer = _transfer(node)
            if transfer is not None:
                if self._is_order(node):
                    continue
                name = _tensors(node)[0] if 'Send' in node.op else node.name + ':0'
                producer = self._nodes[name.split(':')[0]]
                tensor = self._tensor(producer, int(name.split(':')[1]))
                yield Copy(node.name, producer.op, *transfer, tensor)
                continue
            for index, name in enumerate(_tensors(node)):
                producer = self._nodes[name.split(':')[0]]
                output = int(name.split(':')[1])
                source, target = self.devices[producer.name], self.devices[node.name]
                if source == target or (name, target) in seen:
                    continue
                # Some inputs and outputs of a card's kernels are in the host's memory anyway.
                source = 'CPU' if _is_on_host(producer, output, 'output') else source
                target = 'CPU' if _is_on_host(node, index, 'input') else target
                tensor = self._tensor(producer, output)
                is_handle = tensor is not None and tensor.dtype.base_dtype == tf.resource
                if source.split(':')[0] == target.split(':')[0] or is_handle:
                    continue
                seen.add((name, target))
                kinds = source.split(':')[0], target.split(':')[0]
                yield Copy(name, producer.op, *kinds, tensor)

    def _is_order(self, node):
        """Whether what TensorFlow has added only tells that something is done."""
        with contextlib.suppress(KeyError):
            sent = self._shaped.get_operation_by_name(re.sub(r'_S\d+$', '', node.name))
            return not sent.outputs
        return False

    def _tensor(self, node, output):
        """The tensor of the step that an output of a node is; `None` if the name does not tell."""
        instead = re.match(_ADDED.get(node.op, '$'), node.name)
        name = instead.groups() if instead else (node.name, output)
        try:
            return self._shaped.get_tensor_by_name('%s:%s' % name)
        except (KeyError, ValueError):
            return None


class PretendedWorker(grpc.GenericRpcHandler):
    """A TensorFlow worker that says which devices it has, and runs nothing.

    Args:
        task: the number of the task.
        cards: how many graphics cards it has.

    Attributes:
        address: where it listens.
        graphs: the parts of graphs that it was sent, a list of `GraphDef`.
    """

    def __init__(self, task, cards):
        host = '/job:worker/replica:0/task:%d/device:' % task
        kinds = ['CPU'] + ['GPU'] * cards
        numbers = [0] + list(range(cards))
        self._devices = _Status(
            device_attributes=[
                {
                    'name': '%s%s:%d' % (host, kind, number),
                    'device_type': kind,
                    'memory_limit': 2**34,
                    'incarnation': 1 + place,
                }
                for place, (kind, number) in enumerate(zip(kinds, numbers))
            ]
        )
        self.graphs = []
        self._server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(2),
            options=[('grpc.max_receive_message_length', -1)],
        )
        self._server.add_generic_rpc_handlers([self])
        self.address = 'localhost:%d' % self._server.add_insecure_port('localhost:0')
        self._server.start()

    def service(self, details):
        """As gRPC asks: what answers a call, which gets and returns bytes."""
        answer = {'GetStatus': self._status, 'RegisterGraph': self._keep}
        return grpc.unary_unary_rpc_method_handler(
            answer.get(details.method.split('/')[-1], lambda request, context: b'')
        )

    def stop(self):
        """Ends it."""
        self._server.stop(None)

    def _status(self, request, context):
        return self._devices.SerializeToString()

    def _keep(self, request, context):
        self.graphs.append(_Registered.FromString(request).graph_def)
        return b''


def placement(graph, options, cards, rank=0, ranks=1):
    """Asks the placer about a call of a session.

    Args:
        graph: the `tf.Graph`.
        options: the `CallableOptions` of the call: what is fed and fetched, and what runs.
        cards: how many cards each worker sees.
        rank: the worker that makes the call.
        ranks: how many workers there are.

    Returns:
        The `Placement` of that worker's part.
    """
    with contextlib.ExitStack() as stack:
        workers = [PretendedWorker(task, cards) for task in range(ranks)]
        for worker in workers:
            stack.callback(worker.stop)
        with socket.socket() as probe:
            probe.bind(('localhost', 0))
            own = 'localhost:%d' % probe.getsockname()[1]
        cluster = {_PLACER: [own], 'worker': [worker.address for worker in workers]}
        server = tf.train.Server(cluster, job_name=_PLACER, task_index=0)
        with tf.Graph().as_default() as placed, tf.device('/job:worker/task:%d' % rank):
            tf.import_graph_def(graph.as_graph_def(add_shapes=True), name='')
        with contextlib.closing(tf.Session(server.target, placed, _config())) as session:
            session._make_callable_from_options(options)
        assert workers[rank].graphs, 'the placer sent this worker nothing'
        return Placement(workers[rank].graphs[-1], placed)


class Call:
    """A call of a session that has been made.

    Attributes:
        session: the `tf.Session`.
        options: the `CallableOptions`: what is fed and fetched, and what runs.
        fed: the values that were fed, in the order of `options.feed`.
    """

    def __init__(self, session, options, fed):
        self.session, self.options, self.fed = session, options, fed

    def placement(self, cards, rank=0, ranks=1):
        """The `Placement` of the call, as `placement` asks for it."""
        return placement(self.session.graph, self.options, cards, rank, ranks)

    def bytes_of(self, copies):
        """Makes the call once more, on the CPU, for the sizes of tensors that a card would copy.

        In a job every worker has to do so.

        Args:
            copies: a list of `Copy`.

        Returns:
            A list with the number of bytes of each.
        """
        edges = {edge.to_tensor: edge.from_tensor for edge in self.options.tensor_connection}
        names = [edges.get(copy.tensor.name, copy.tensor.name) for copy in copies]
        sizes = {name: np.asarray(fed).nbytes for name, fed in zip(self.options.feed, self.fed)}
        options = type(self.options)()
        options.CopyFrom(self.options)
        options.fetch.extend(sorted(set(names) - set(sizes) - set(options.fetch)))
        call = client_session.BaseSession._Callable(self.session, options)
        sizes.update(zip(options.fetch, (value.nbytes for value in call(*self.fed))))
        return [sizes[name] for name in names]


@contextlib.contextmanager
def calls_of_sessions():
    """While open, collects the `Call`s of sessions: a list."""
    calls, cls = [], client_session.BaseSession._Callable
    make, call = cls.__init__, cls.__call__

    def noting(self, session, options):
        self.noted = session, options
        make(self, session, options)

    def calling(self, *args, **kwargs):
        calls.append(Call(*self.noted, args))
        return call(self, *args, **kwargs)

    cls.__init__, cls.__call__ = noting, calling
    try:
        yield calls
    finally:
        cls.__init__, cls.__call__ = make, call


def _config():
    """Placed as our sessions are, and with the names that the graph has."""
    config = tf.ConfigProto(allow_soft_placement=True)
    options = config.graph_options
    options.rewrite_options.disable_meta_optimizer = True
    options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    options.rewrite_options.constant_folding = rewriter_config_pb2.RewriterConfig.OFF
    return config


def _transfer(node):
    """The types of devices between which an operation that TensorFlow has added copies, or `None`.

    It adds them where a kernel of a card has an input or output in the host's memory, for what is
    fed and for what is fetched.
    """
    if not _short(node.device).startswith('GPU'):
        return None
    within = node.attr['send_device'].s == node.attr['recv_device'].s
    if node.op == '_HostSend' or (node.op == '_Recv' and not within):
        return 'CPU', 'GPU'
    return ('GPU', 'CPU') if node.op == '_Send' else None


def _short(device):
    return device.split('/device:')[-1]


def _tensors(node):
    """The names of the tensors that a node reads, in order, each with the number of an output."""
    names = [name for name in node.input if not name.startswith('^')]
    return [name if ':' in name else name + ':0' for name in names]


def _is_on_host(node, number, side):
    """Whether an input or output of a node on a card is in the host's memory, by its kernel."""
    if not _short(node.device).startswith('GPU'):
        return False
    if node.op in ('_Send', '_Recv'):
        return False
    op_def = op_def_registry.get(node.op)
    arguments = op_def.input_arg if side == 'input' else op_def.output_arg
    names = [argument.name for argument in arguments for _ in range(_count(argument, node))]
    return names[number] in _host_arguments(node)


def _count(argument, node):
    """How many tensors an argument of an operation stands for."""
    if argument.number_attr:
        return node.attr[argument.number_attr].i
    if argument.type_list_attr:
        return len(node.attr[argument.type_list_attr].list.type)
    return 1


def _host_arguments(node):
    found = kernels.get_registered_kernels_for_op(node.op).kernel
    for kind in ('GPU', 'DEFAULT'):
        for kernel in found:
            if kernel.device_type == kind and all(
                node.attr[limit.name].type in limit.allowed_values.list.type
                for limit in kernel.constraint
            ):
                return kernel.host_memory_arg
    return []


def _messages():
    """The two messages of TensorFlow's worker service that matter here, of the fields read."""
    file = descriptor_pb2.FileDescriptorProto(
        name='pretended_cards.proto',
        package='pretended_cards',
        syntax='proto3',
        dependency=[device_attributes_pb2.DESCRIPTOR.name, graph_pb2.DESCRIPTOR.name],
    )
    message, repeated, single = (
        descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
        descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
        descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
    for name, field, number, label, kind in (
        ('Status', 'device_attributes', 1, repeated, 'DeviceAttributes'),
        ('Registered', 'graph_def', 2, single, 'GraphDef'),
    ):
        file.message_type.add(name=name).field.add(
            name=field, number=number, label=label, type=message, type_name='.tensorflow.' + kind
        )
    pool = descriptor_pool.Default()
    pool.Add(file)
    return [
        message_factory.GetMessageClass(pool.FindMessageTypeByName('pretended_cards.' + name))
        for name in ('Status', 'Registered')
    ]


_Status, _Registered = _messages()
