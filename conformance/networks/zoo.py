"""The corpus: every network by name."""

from collections.abc import Iterable, Iterator

from conformance.suggestions import unknown

from . import trained
from .network import OWN, Input, Network, Options, image

_BUILDERS = "conformance.networks.builders"
_IMAGES = "conformance.networks.own_images"
_DETECTION = "conformance.networks.own_detection"
_SEQUENCES = "conformance.networks.own_sequences"
_ATTENTION = "conformance.networks.own_attention"

# names by package, module, and side of images in pixels
_CLASSIFIERS: dict[tuple[str, str], dict[int, tuple[str, ...]]] = {
    ("pytorchcv", "model_provider"): {
        32: ("nin_cifar10", "rir_cifar10"),
        224: (
            *("darknet_ref", "espnetv2_wd2", "hardnet39ds", "menet108_8x1_g3", "mobilenet_wd4", "octresnet10_ad2"),
            *("peleenet", "shufflenet_g3_wd2", "squeezeresnet_v1_1"),
        ),
    },
    ("timm", "models"): {
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
    ("torchvision", "models"): {
        64: (
            *("convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "mnasnet0_5", "mobilenet_v2"),
            *("mobilenet_v3_small", "regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d", "shufflenet_v2_x0_5"),
            *("squeezenet1_1", "swin_t", "swin_v2_t", "vgg11_bn", "wide_resnet50_2"),
        ),
        96: ("alexnet", "inception_v3"),
        224: ("vit_b_32",),
    },
}
_WITHOUT_TRAINING = {"aux_logits": False, "init_weights": True}  # without classifiers that are used in training only
_CLASSIFIER_OPTIONS = {"googlenet": _WITHOUT_TRAINING, "inception_v3": _WITHOUT_TRAINING}

_SEGMENTATION = ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large")
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
_CITYSCAPES = {96: ("cgnet", "dabnet", "erfnet", "esnet", "fastscnn"), 64: ("segnet", "sqnet")}  # names by side
_DETECTORS = (  # name, side
    ("fasterrcnn_mobilenet_v3_large_fpn", 128),
    ("fcos_resnet50_fpn", 64),
    ("retinanet_resnet50_fpn", 64),
    ("ssdlite320_mobilenet_v3_large", 320),
)
_VIDEO = ("mc3_18", "r2plus1d_18", "r3d_18", "swin3d_t")

_PLANE, _GRAY = {"spatial_dims": 2, "in_channels": 1}, image(64, 1)
_SPACE = {"spatial_dims": 3, "in_channels": 1, "out_channels": 2}
_LEVELS = {"channels": (8, 16, 32), "strides": (2, 2)}
_DEEP = {"channels": (8, 16, 32), "strides": (2, 2, 2), "out_channels": 1}
_KERNELS = {"kernel_size": (3, 3, 3), "strides": (1, 2, 2), "upsample_kernel_size": (2, 2), "filters": (8, 16, 32)}
_RESNET = {"spatial_dims": 3, "n_input_channels": 1, "num_classes": 2}
_VOLUME, _SMALL_VOLUME = ((Input((1, side, side, side), smooth=True),) for side in (32, 16))
_MONAI: tuple[tuple[str, str, str, Options, tuple[Input, ...]], ...] = (  # name, task, source, options, inputs
    ("autoencoder", "generation", "autoencoder:AutoEncoder", {**_PLANE, **_DEEP}, _GRAY),
    ("residual_unet", "segmentation", "unet:UNet", {**_PLANE, **_LEVELS, "out_channels": 2, "num_res_units": 2}, _GRAY),
    ("attention_unet_3d", "volume", "attentionunet:AttentionUnet", {**_SPACE, **_LEVELS}, _VOLUME),
    ("dynunet_3d", "volume", "dynunet:DynUNet", {**_SPACE, **_KERNELS}, _VOLUME),
    ("segresnet_3d", "volume", "segresnet:SegResNet", {**_SPACE, "init_filters": 8}, _VOLUME),
    ("unet_3d", "volume", "unet:UNet", {**_SPACE, **_LEVELS}, _VOLUME),
    ("vnet_3d", "volume", "vnet:VNet", {}, _SMALL_VOLUME),
    ("resnet10_3d", "volume", "resnet:resnet10", _RESNET, _SMALL_VOLUME),
)

_SPECTROGRAM = (Input((40, 96), smooth=True),)
_TOKENS = (Input((32,), high=999),)
_BAG = Input((3,), high=199)
_OWN: tuple[tuple[str, str, str, Options, tuple[Input, ...]], ...] = (  # name, task, source, options, inputs
    ("lenet5", "classification", f"{_IMAGES}:LeNet5", {}, image(32, 1)),
    ("yolov3_tiny", "detection", f"{_DETECTION}:YoloV3Tiny", {}, image(96)),
    ("yolov8n", "detection", f"{_DETECTION}:YoloV8", {}, image(128)),
    ("cyclegan_generator", "generation", f"{_IMAGES}:cyclegan_generator", {}, image(64)),
    ("dcgan_discriminator", "generation", f"{_IMAGES}:dcgan_discriminator", {}, image(64)),
    ("dcgan_generator", "generation", f"{_IMAGES}:dcgan_generator", {}, (Input((100, 1, 1)),)),
    ("edsr", "generation", f"{_IMAGES}:EDSR", {}, image(32)),
    ("espcn", "generation", f"{_IMAGES}:espcn", {}, image(32, 1)),
    ("fsrcnn", "generation", f"{_IMAGES}:fsrcnn", {}, image(32, 1)),
    ("pix2pix_generator", "generation", f"{_IMAGES}:Pix2PixGenerator", {}, image(64)),
    ("variational_autoencoder", "generation", f"{_IMAGES}:VariationalAutoencoder", {}, image(28, 1)),
    ("pointnet", "points", f"{_IMAGES}:PointNet", {}, (Input((3, 128)),)),
    ("deepfm", "recommendation", f"{_ATTENTION}:DeepFM", {}, (Input((8,), high=199),)),
    ("dlrm", "recommendation", f"{_ATTENTION}:DLRM", {}, (Input((13,)), _BAG, _BAG, _BAG, _BAG, _BAG, _BAG)),
    ("neumf", "recommendation", f"{_ATTENTION}:NeuMF", {}, (Input((), high=299), Input((), high=499))),
    ("wide_and_deep", "recommendation", f"{_ATTENTION}:WideAndDeep", {}, (Input((8,)), Input((6,), high=199))),
    ("conformer", "speech", f"{_ATTENTION}:Conformer", {}, (Input((48, 40)),)),
    ("conv_tasnet", "speech", f"{_SEQUENCES}:ConvTasNet", {}, (Input((1, 2000)),)),
    ("deepspeech2", "speech", f"{_SEQUENCES}:DeepSpeech2", {}, (Input((1, 64, 64), smooth=True),)),
    ("keyword_crnn", "speech", f"{_SEQUENCES}:KeywordCRNN", {}, (Input((1, 40, 60), smooth=True),)),
    ("keyword_dscnn", "speech", f"{_SEQUENCES}:keyword_dscnn", {}, (Input((1, 49, 10), smooth=True),)),
    ("m5", "speech", f"{_SEQUENCES}:m5", {}, (Input((1, 8000)),)),
    ("quartznet", "speech", f"{_SEQUENCES}:quartznet", {}, _SPECTROGRAM),
    ("tcn", "speech", f"{_SEQUENCES}:TemporalConvolution", {}, (Input((1, 200)),)),
    ("wav2letter", "speech", f"{_SEQUENCES}:wav2letter", {}, _SPECTROGRAM),
    ("wavenet", "speech", f"{_SEQUENCES}:WaveNet", {}, (Input((1, 400)),)),
    ("bert", "text", f"{_ATTENTION}:Bert", {}, _TOKENS),
    ("fasttext", "text", f"{_SEQUENCES}:FastText", {}, _TOKENS),
    ("gpt2", "text", f"{_ATTENTION}:Gpt2", {}, _TOKENS),
    ("gru_classifier", "text", f"{_SEQUENCES}:RecurrentClassifier", {"kind": "GRU"}, _TOKENS),
    ("lstm_classifier", "text", f"{_SEQUENCES}:RecurrentClassifier", {"kind": "LSTM"}, _TOKENS),
    ("lstm_tagger", "text", f"{_SEQUENCES}:LSTMTagger", {}, _TOKENS),
    ("multihead_classifier", "text", f"{_ATTENTION}:MultiheadClassifier", {}, (Input((20, 32)),)),
    ("textcnn", "text", f"{_SEQUENCES}:TextCNN", {}, _TOKENS),
    ("c3d", "video", f"{_IMAGES}:C3D", {}, (Input((3, 8, 64, 64), smooth=True),)),
)  # fmt: skip


def _networks() -> Iterator[Network]:
    options: Options
    inputs: tuple[Input, ...]
    for (package, module), sides in _CLASSIFIERS.items():
        for side, names in sides.items():
            for name in names:
                options, source = _CLASSIFIER_OPTIONS.get(name, {}), f"{package}.{module}:{name}"
                yield Network(name, "classification", package, source, options, image(side))
    padded = {"model_name": "efficientnet-b0", "image_size": 64}
    package, source = "efficientnet_pytorch", "efficientnet_pytorch:EfficientNet.from_name"
    yield Network("efficientnet_b0_statically_padded", "classification", package, source, padded, image(64))
    for name in _SEGMENTATION:
        source, options = f"torchvision.models.segmentation:{name}", {"weights": None, "weights_backbone": None}
        yield Network(name, "segmentation", "torchvision", source, options, image(64))
    for name, architecture, encoder, side in _SEGMENTATION_MODELS:
        source, options = f"{_BUILDERS}:segmentation_model", {"architecture": architecture, "encoder_name": encoder}
        yield Network(name, "segmentation", "segmentation_models_pytorch", source, options, image(side))
    provider = "pytorchcv.model_provider"
    for side, names in _CITYSCAPES.items():
        for name in names:
            options, source = {"in_size": (side, side)}, f"{provider}:{name}_cityscapes"
            yield Network(name, "segmentation", "pytorchcv", source, options, image(side))
    for name, task, data in (
        ("centernet_resnet18", "detection", "voc"),
        ("lwopenpose2d_mobilenet", "pose", "cmupan_coco"),
    ):
        yield Network(name, task, "pytorchcv", f"{provider}:{name}_{data}", {}, image(96))
    for name, side in _DETECTORS:
        yield Network(name, "detection", "torchvision", f"{_BUILDERS}:detector", {"name": name}, image(side))
    for name in _VIDEO:
        inputs = (Input((3, 4, 64, 64), smooth=True),)
        yield Network(name, "video", "torchvision", f"torchvision.models.video:{name}", {"weights": None}, inputs)
    for name, task, source, options, inputs in _MONAI:
        yield Network(name, task, "monai", f"monai.networks.nets.{source}", options, inputs)
    for name, task, source, options, inputs in _OWN:
        yield Network(name, task, OWN, source, options, inputs)


def sorted_by_task(networks: Iterable[Network]) -> dict[str, Network]:
    """Return networks by name, sorted by task and then by name. Raises ValueError for two of one name."""
    by_name: dict[str, Network] = {}
    for row in sorted(networks, key=lambda row: (row.task, row.name)):
        if row.name in by_name:
            raise ValueError(f"two networks are named {row.name}")
        by_name[row.name] = row
    return by_name


NETWORKS: dict[str, Network] = sorted_by_task(_networks())
"""Networks with random weights by name, sorted by task and then by name."""
TRAINED: dict[str, Network] = sorted_by_task(trained.networks())
"""Networks with trained weights, likewise. Tables of layers in use are not made of them."""


def every() -> dict[str, Network]:
    """Return the networks of both kinds by name, those with random weights first."""
    return {**NETWORKS, **TRAINED}


def network(name: str) -> Network:
    """Return a network by name. Raises UsageError for a name that no network has."""
    if name not in every():
        raise unknown("network", name, every())
    return every()[name]
