"""Networks whose output is a map: segmentation, detection, poses, and generated images."""

from collections.abc import Iterator

from .network import OWN, Input, Network, Options, image

_BUILDERS = "conformance.networks.builders"
_IMAGES = "conformance.networks.own_images"
_DETECTION = "conformance.networks.own_detection"
_NETS = "monai.networks.nets"

_TORCHVISION_SEGMENTATION = ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large")

_SEGMENTATION_MODELS = (  # name, architecture, encoder, side
    ("fpn_resnet18", "FPN", "resnet18", 64),
    ("manet_mobilenet_v2", "MAnet", "mobilenet_v2", 64),
    ("pan_mobilenet_v2", "PAN", "mobilenet_v2", 128),
    ("pspnet_resnet18", "PSPNet", "resnet18", 64),
    ("unet_mobilenet_v2", "Unet", "mobilenet_v2", 64),
    ("unet_resnet18", "Unet", "resnet18", 64),
    ("unetplusplus_mobilenet_v2", "UnetPlusPlus", "mobilenet_v2", 64),
    ("upernet_resnet18", "UPerNet", "resnet18", 64),
)

_PYTORCHCV: tuple[tuple[str, str, str, Options, int], ...] = (  # name, task, function, options, side
    ("cgnet", "segmentation", "cgnet_cityscapes", {"in_size": (96, 96)}, 96),
    ("dabnet", "segmentation", "dabnet_cityscapes", {"in_size": (96, 96)}, 96),
    ("erfnet", "segmentation", "erfnet_cityscapes", {"in_size": (96, 96)}, 96),
    ("esnet", "segmentation", "esnet_cityscapes", {"in_size": (96, 96)}, 96),
    ("fastscnn", "segmentation", "fastscnn_cityscapes", {"in_size": (96, 96)}, 96),
    ("segnet", "segmentation", "segnet_cityscapes", {"in_size": (64, 64)}, 64),
    ("sqnet", "segmentation", "sqnet_cityscapes", {"in_size": (64, 64)}, 64),
    ("centernet_resnet18", "detection", "centernet_resnet18_voc", {}, 96),
    ("lwopenpose2d_mobilenet", "pose", "lwopenpose2d_mobilenet_cmupan_coco", {}, 96),
)

_DETECTORS = (  # name, side
    ("fasterrcnn_mobilenet_v3_large_fpn", 128),
    ("fcos_resnet50_fpn", 64),
    ("retinanet_resnet50_fpn", 64),
    ("ssdlite320_mobilenet_v3_large", 320),
)

_OWN = (  # name, task, source, inputs
    ("yolov3_tiny", "detection", f"{_DETECTION}:YoloV3Tiny", image(96)),
    ("yolov8n", "detection", f"{_DETECTION}:YoloV8", image(128)),
    ("cyclegan_generator", "generation", f"{_IMAGES}:cyclegan_generator", image(64)),
    ("dcgan_discriminator", "generation", f"{_IMAGES}:dcgan_discriminator", image(64)),
    ("dcgan_generator", "generation", f"{_IMAGES}:dcgan_generator", (Input((100, 1, 1)),)),
    ("edsr", "generation", f"{_IMAGES}:EDSR", image(32)),
    ("espcn", "generation", f"{_IMAGES}:espcn", image(32, channels=1)),
    ("fsrcnn", "generation", f"{_IMAGES}:fsrcnn", image(32, channels=1)),
    ("pix2pix_generator", "generation", f"{_IMAGES}:Pix2PixGenerator", image(64)),
    ("variational_autoencoder", "generation", f"{_IMAGES}:VariationalAutoencoder", image(28, channels=1)),
)

_PLANE = {"spatial_dims": 2, "in_channels": 1, "channels": (8, 16, 32)}
_MONAI = (  # name, task, source, options
    ("autoencoder", "generation", "autoencoder:AutoEncoder", {**_PLANE, "strides": (2, 2, 2), "out_channels": 1}),
    (
        "residual_unet",
        "segmentation",
        "unet:UNet",
        {**_PLANE, "strides": (2, 2), "out_channels": 2, "num_res_units": 2},
    ),
)


def networks() -> Iterator[Network]:
    for name in _TORCHVISION_SEGMENTATION:
        source = f"torchvision.models.segmentation:{name}"
        yield Network(
            name, "segmentation", "torchvision", source, {"weights": None, "weights_backbone": None}, image(64)
        )
    for name, architecture, encoder, side in _SEGMENTATION_MODELS:
        options = {"architecture": architecture, "encoder_name": encoder}
        source = f"{_BUILDERS}:segmentation_model"
        yield Network(name, "segmentation", "segmentation_models_pytorch", source, options, image(side))
    for name, task, function, sizes, side in _PYTORCHCV:
        yield Network(name, task, "pytorchcv", f"pytorchcv.model_provider:{function}", sizes, image(side))
    for name, side in _DETECTORS:
        yield Network(name, "detection", "torchvision", f"{_BUILDERS}:detector", {"name": name}, image(side))
    for name, task, source, inputs in _OWN:
        yield Network(name, task, OWN, source, {}, inputs)
    for name, task, source, channels in _MONAI:
        yield Network(name, task, "monai", f"{_NETS}.{source}", channels, image(64, channels=1))
