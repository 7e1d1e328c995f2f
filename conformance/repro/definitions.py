"""Definitions that scripts alone have. Nothing calls them here: a script imports or binds the names that they refer to."""
# mypy: ignore-errors
# ruff: noqa: B905, F821

from torch.fx import Interpreter
from torch.utils._python_dispatch import TorchDispatchMode


class Program:
    """A model lowered to XNNPACK, loaded in the ExecuTorch runtime, and the calls that it consists of."""

    def __init__(self, model, inputs):
        self.model, self.calls = model, []
        serialize = xnnpack_preprocess.serialize_xnnpack_binary

        def seen(graph, constants):
            values = [getattr(value.xvalue_union, "tensor_value", value.xvalue_union) for value in graph.xvalues]
            dtypes = {value.id_out: value.datatype.name.removeprefix("xnn_datatype_") for value in values}
            for node in graph.xnodes:
                fields = vars(node.xnode_union).items()
                taken = [dtypes.get(number, "") for name, number in fields if name.startswith("input")]
                name = "xnnpack." + type(node.xnode_union).__name__.removeprefix("XNN")
                self.calls.append((name, any(x.startswith("q") for x in taken), any(x.startswith("f") for x in taken)))
            return serialize(graph, constants)

        xnnpack_preprocess.serialize_xnnpack_binary = seen
        exported = torch.export.export(model, inputs)
        edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        fuses = any("embedding" in str(node.target) for node in edge.exported_program().graph.nodes)
        made = edge.to_executorch(ExecutorchBackendConfig(do_quant_fusion_and_const_prop=fuses))
        for node in made.exported_program().graph.nodes:
            if isinstance(node.target, torch._ops.OpOverload):
                taken = [one.meta.get("spec") for one in node.all_input_nodes if one is not node.kwargs.get("out")]
                dtypes = {spec.dtype for spec in taken if hasattr(spec, "dtype")}
                name = "portable." + node.target._schema.name.replace("::", ".")
                self.calls.append(
                    (name, bool(dtypes & {torch.int8, torch.uint8}), any(x.is_floating_point for x in dtypes))
                )
        self.program = Runtime.get().load_program(made.buffer)  # its method needs it alive
        self.method = self.program.load_method("forward")

    def __call__(self, *inputs):
        return self.method.execute(inputs)


class Tosa(Interpreter):
    """A model lowered to TOSA: Arm's reference model executes the graphs that are delegated, torch what is left."""

    def __init__(self, model, inputs):
        exported, spec = torch.export.export(model, inputs), TosaCompileSpec("TOSA-1.0+INT")
        edge = to_edge_transform_and_lower(exported, partitioner=[TOSAPartitioner(spec)])
        super().__init__(edge.exported_program().module(check_guards=False))

    def __call__(self, *inputs):
        return self.run(*inputs)

    def call_function(self, target, args, kwargs):
        if target is not torch.ops.higher_order.executorch_call_delegate:
            return super().call_function(target, args, kwargs)
        graph, *inputs = args  # whose tensors have their dimensions in the order in which these lie in memory
        physical = [x.permute(x.dim_order()).contiguous().numpy() for x in inputs]
        arrays, status = tosa_reference_model.run(graph.processed_bytes, physical)
        if status != tosa_reference_model.GraphStatus.TOSA_VALID:
            raise RuntimeError(f"the reference model of TOSA returns {status.name}")
        nodes = tree_leaves(graph.original_module.graph.output_node().args)
        orders = [node.meta["val"].dim_order() for node in nodes]
        logical = [[order.index(dimension) for dimension in range(len(order))] for order in orders]
        return [torch.from_numpy(array).permute(order) for array, order in zip(arrays, logical)]


class Dequantized:
    """The outputs of a program that a decomposed model was lowered to, whose last calls dequantize them."""

    def __init__(self, model, outputs, calls=()):
        self.outputs, self.calls = outputs, calls
        (last,) = [node for node in model.graph.nodes if node.op == "output"]
        self.nodes = tree_leaves(last.args[0])

    def source(self, output):
        """The quantized tensor that is dequantized to give an output."""
        node = next(node for node, one in zip(self.nodes, self.outputs) if one is output)
        if "dequantize_per_tensor" not in str(node.target):
            return None
        _, scale, zero_point, _, _, dtype = node.args
        quantized = {torch.int8: torch.qint8, torch.uint8: torch.quint8}[dtype]
        return torch.quantize_per_tensor(output, scale, zero_point, quantized)


def tensors(outputs):
    return [x for x in tree_leaves(outputs) if isinstance(x, torch.Tensor)]


class Trace(TorchDispatchMode):
    """Keeps every operator call: its name, the tensors it took, and what it gave."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.calls.append((f"{func.namespace}.{func.overloadpacket.__name__}", tensors([args, kwargs]), result))
        return result

    def source(self, tensor):
        """The quantized tensor of an output: itself, or the argument of the dequantize call that returned it, or None."""
        if tensor.is_quantized:
            return tensor
        made = [(name, taken) for name, taken, given in self.calls if given is tensor]
        name, taken = made[-1] if made else ("", [None])
        return taken[0] if name.startswith(("aten.quantize_per", "aten.dequantize")) else None


class TraceOfCodes(Trace):
    """A trace of a program whose integers are no quantized tensors: an output has the codes that it was dequantized from."""

    def __init__(self):
        super().__init__()
        self.dequantized = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if func is torch.ops.quantized_decomposed.dequantize_per_tensor.default:
            self.dequantized.append((result, *args[:3]))
        return result

    def source(self, tensor):
        made = (torch._make_per_tensor_quantized_tensor(*of) for result, *of in self.dequantized if result is tensor)
        return next(made, None)


def deviates(check, what):
    found.append(check)
    print(f"DEVIATES {check}: {what}")


def observer(node):
    """The observer that a node of the prepared model calls, or None."""
    module = prepared.get_submodule(node.target) if node.op == "call_module" else None
    return module if isinstance(module, (ObserverBase, FakeQuantizeBase)) else None


def observers(*names):
    """What the users of these inputs are, as far as they are observers; None for another user."""
    users = [user for name in names for user in nodes[name].users]
    return [observer(user) for user in users if user.op != "output" and user.target is not getattr]


def quantized(name, taken):
    """Whether a call of this name, that took these tensors, is of a quantized kernel."""
    return "quantized" in name or any(x.is_quantized for x in taken)


def scales(t):
    per_tensor = t.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
    return [t.q_scale()] if per_tensor else t.q_per_channel_scales().tolist()


def zero_points(t):
    per_tensor = t.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
    return [t.q_zero_point()] if per_tensor else t.q_per_channel_zero_points().tolist()
