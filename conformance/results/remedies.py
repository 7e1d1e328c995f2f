"""Remedies of findings: what a network's owner can do about a layer, without a change of what it computes in float."""

REMEDIES = {
    "copies": "give each call of the module a module of its own, with the same parameters",
    "contiguous": "give the layer its operands in contiguous memory format",
    "reshape": "call reshape in place of view",
    "positional": "give all arguments by position, one number for each dimension",
    "padding": "pad by numbers in place of a word",
    "tensor": "add or multiply by a tensor of one element in place of a number",
    "equal": "give the transposed convolution as many output channels as it has input channels, of weights that are zero",
    "apart": "put nn.Identity behind the layer, so that it is not fused with what takes its result",
    "narrow": "quantize the weight of the convolution to 7 bits",
    "split": "compute PReLU as w x + (1 - w) relu(x)",
    "constant": "read the property of the parameter when the network is traced",
    "computed": "compute the weight and bias of the functional layer when the network is traced, for it alone",
    "source": "keep what computes its first operand in a module that prepare_fx does not trace, so that it stays in float",
    "float": "keep the layer in a module that prepare_fx does not trace, so that it stays in float",
}
"""What each remedy says, by its name. `conformance.repair.rewrites` applies them."""
