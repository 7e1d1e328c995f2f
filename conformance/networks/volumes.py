"""Networks for volumes, video and points."""

from collections.abc import Iterator

from .network import OWN, Input, Network, Options

_IMAGES = "conformance.networks.own_images"
_NETS = "monai.networks.nets"

_VOLUME = (Input((1, 32, 32, 32), smooth=True),)
_SMALL_VOLUME = (Input((1, 16, 16, 16), smooth=True),)
_VIDEO = (Input((3, 4, 64, 64), smooth=True),)
_LONG_VIDEO = (Input((3, 8, 64, 64), smooth=True),)

_SPACE = {"spatial_dims": 3, "in_channels": 1, "out_channels": 2}
_MONAI: tuple[tuple[str, str, Options], ...] = (  # name, source, options
    ("attention_unet_3d", "attentionunet:AttentionUnet", {**_SPACE, "channels": (8, 16, 32), "strides": (2, 2)}),
    (
        "dynunet_3d",
        "dynunet:DynUNet",
        {
            **_SPACE,
            "kernel_size": (3, 3, 3),
            "strides": (1, 2, 2),
            "upsample_kernel_size": (2, 2),
            "filters": (8, 16, 32),
        },
    ),
    ("segresnet_3d", "segresnet:SegResNet", {**_SPACE, "init_filters": 8}),
    ("unet_3d", "unet:UNet", {**_SPACE, "channels": (8, 16, 32), "strides": (2, 2)}),
)
_TORCHVISION = ("mc3_18", "r2plus1d_18", "r3d_18", "swin3d_t")


def networks() -> Iterator[Network]:
    for name, source, options in _MONAI:
        yield Network(name, "volume", "monai", f"{_NETS}.{source}", options, _VOLUME)
    yield Network("vnet_3d", "volume", "monai", f"{_NETS}.vnet:VNet", {}, _SMALL_VOLUME)
    options = {"spatial_dims": 3, "n_input_channels": 1, "num_classes": 2}
    yield Network("resnet10_3d", "volume", "monai", f"{_NETS}.resnet:resnet10", options, _SMALL_VOLUME)
    for name in _TORCHVISION:
        yield Network(name, "video", "torchvision", f"torchvision.models.video:{name}", {"weights": None}, _VIDEO)
    yield Network("c3d", "video", OWN, f"{_IMAGES}:C3D", {}, _LONG_VIDEO)
    yield Network("pointnet", "points", OWN, f"{_IMAGES}:PointNet", {}, (Input((3, 128)),))
