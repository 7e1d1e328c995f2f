"""Networks for sequences and tables: speech, text and recommendation."""

from collections.abc import Iterator

from .network import OWN, Input, Network, Options

_SEQUENCES = "conformance.networks.own_sequences"
_ATTENTION = "conformance.networks.own_attention"

_SPECTROGRAM = (Input((40, 96), smooth=True),)
_TOKENS = (Input((32,), high=999),)
_BAG = Input((3,), high=199)

_OWN: tuple[tuple[str, str, str, Options, tuple[Input, ...]], ...] = (  # name, task, source, options, inputs
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
)


def networks() -> Iterator[Network]:
    for name, task, source, options, inputs in _OWN:
        yield Network(name, task, OWN, source, options, inputs)
