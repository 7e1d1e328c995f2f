"""Networks that classify images, by the package that has them and the side of their images in pixels."""

from collections.abc import Iterator

from .network import OWN, Network, image

_SOURCES = {
    "pytorchcv": "pytorchcv.model_provider",
    "timm": "timm.models",
    "torchvision": "torchvision.models",
}

_ROWS: dict[str, dict[int, tuple[str, ...]]] = {
    "pytorchcv": {
        32: ("nin_cifar10", "rir_cifar10"),
        224: (
            *("darknet_ref", "espnetv2_wd2", "hardnet39ds", "menet108_8x1_g3", "mobilenet_wd4", "octresnet10_ad2"),
            *("peleenet", "shufflenet_g3_wd2", "squeezeresnet_v1_1"),
        ),
    },
    "timm": {
        96: (
            *("convmixer_768_32", "convnext_atto", "cs3darknet_s", "dla46_c", "eca_nfnet_l0"),
            *("edgenext_xx_small", "ese_vovnet19b_slim", "fastvit_s12", "focalnet_tiny_srf", "gcresnext26ts"),
            *("ghostnet_050", "hardcorenas_a", "hrnet_w18_small", "lambda_resnet26t", "lcnet_050", "legacy_xception"),
            *("mixnet_s", "mobilenetv4_conv_small", "mobileone_s0", "poolformer_s12", "pvt_v2_b0", "repvgg_a0"),
            *("res2net50_14w_8s", "resnest14d", "resnetv2_18", "rexnet_100", "selecsls42", "sequencer2d_s"),
            *("seresnet18", "skresnet18", "starnet_s050", "swiftformer_xs", "tresnet_m"),
        ),
        224: ("gmixer_12_224", "gmlp_ti16_224", "pit_ti_224", "resmlp_12_224"),
    },
    "torchvision": {
        64: (
            *("convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "mnasnet0_5", "mobilenet_v2"),
            *("mobilenet_v3_small", "regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d", "shufflenet_v2_x0_5"),
            *("squeezenet1_1", "swin_t", "swin_v2_t", "vgg11_bn", "wide_resnet50_2"),
        ),
        96: ("alexnet", "inception_v3"),
        224: ("vit_b_32",),
    },
}

_OPTIONS = {
    # neither has the classifiers that are used in training only
    "googlenet": {"aux_logits": False, "init_weights": True},
    "inception_v3": {"aux_logits": False, "init_weights": True},
}


def networks() -> Iterator[Network]:
    for package, sides in _ROWS.items():
        for side, names in sides.items():
            for name in names:
                source = f"{_SOURCES[package]}:{name}"
                yield Network(name, "classification", package, source, _OPTIONS.get(name, {}), image(side))
    lenet = "conformance.networks.own_images:LeNet5"
    options = {"model_name": "efficientnet-b0", "image_size": 64}
    source = "efficientnet_pytorch:EfficientNet.from_name"
    yield Network(
        "efficientnet_b0_statically_padded", "classification", "efficientnet_pytorch", source, options, image(64)
    )
    yield Network("lenet5", "classification", OWN, lenet, {}, image(32, channels=1))
