from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from transformers import CLIPModel, CLIPProcessor, SiglipConfig, SiglipImageProcessor, SiglipModel, SiglipProcessor

from lad.benchmarks.contents import digest_images
from lad.benchmarks.embeddings import Encoders
from lad.benchmarks.encoders import load_encoder, shipped_encoder
from lad.benchmarks.scenes import scene_samples
from lad.errors import DependencyError, ModelError, NumericsError
from tests.benchmarks.factory import HashEncoder, write_picture


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    return [write_picture(tmp_path / "pictures" / f"{number}.png", number) for number in range(20)]


def test_vectors_are_computed_once_for_what_is_shown(tmp_path: Path, pictures: list[Path]) -> None:
    digests = digest_images(pictures)
    encoder = HashEncoder()
    told: list[int] = []
    first = Encoders(encoder, folder=tmp_path / "cache").embed_images(pictures, digests, told.append)
    assert sum(told) == 20
    assert encoder.encoded == 20
    assert first.shape == (20, 16)
    assert first.dtype == np.float32
    assert np.allclose(np.linalg.norm(first, axis=1), 1, atol=1e-6)
    # under other names, in another order, twice, and with new ones between
    new = write_picture(tmp_path / "new.png", 77)
    moved = [picture.rename(picture.with_name(f"x{picture.name}")) for picture in pictures]
    asked, keys = [*moved[::-1], new, moved[0]], [*digests[::-1], *digest_images([new]), digests[0]]
    again = Encoders(encoder, folder=tmp_path / "cache").embed_images(asked, keys)
    assert encoder.encoded == 21
    assert np.array_equal(again[:20], first[::-1])
    assert np.array_equal(again[21], first[0])


def test_other_models_and_texts_have_vectors_of_their_own(tmp_path: Path) -> None:
    one, two = HashEncoder(16), HashEncoder(8)
    texts = ["a", "b", "a"]
    for _ in range(2):
        assert Encoders(one, folder=tmp_path).embed_texts(texts).shape == (3, 16)
        both = Encoders(one, two, folder=tmp_path)
        assert both.embed_texts(texts).shape == (3, 8)
    assert (one.encoded, two.encoded) == (2, 2)
    assert both.facts() == {"image": {"name": "hash", "key": "hash 16"}, "text": {"name": "hash", "key": "hash 8"}}


def test_what_was_computed_before_an_interruption_is_kept(
    tmp_path: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lad.benchmarks.embeddings._KEPT_AT_ONCE", 4)
    digests = digest_images(pictures)
    broken_off = HashEncoder(fail_after=10)
    with pytest.raises(KeyboardInterrupt):
        Encoders(broken_off, folder=tmp_path / "cache").embed_images(pictures, digests)
    resumed = HashEncoder()
    vectors = Encoders(resumed, folder=tmp_path / "cache").embed_images(pictures, digests)
    assert resumed.encoded == 12
    assert np.array_equal(vectors, Encoders(HashEncoder()).embed_images(pictures, digests))


def test_vectors_that_cannot_be_compared_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = HashEncoder()
    for value in (0.0, np.nan, np.inf):
        monkeypatch.setattr(encoder, "encode_texts", lambda texts, value=value: np.full((len(texts), 3), value))
        with pytest.raises(NumericsError, match="hash: Gave vectors"):
            Encoders(encoder).embed_texts(["a"])


def test_the_shipped_encoder_is_a_clip_that_knows_scenes() -> None:
    folder = shipped_encoder()
    assert isinstance(CLIPModel.from_pretrained(folder), CLIPModel)
    assert isinstance(CLIPProcessor.from_pretrained(folder), CLIPProcessor)
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 3 * 2**20
    encoders = Encoders(load_encoder("shipped", device="cpu"))
    for setting, least in (("random", 0.95), ("adversarial", 0.50)):
        samples = scene_samples(60, 8, setting=setting)  # type: ignore[arg-type]
        texts = encoders.embed_texts([sample.caption for sample in samples])
        pictures = [image for sample in samples for image in sample.images]
        images = encoders.embed_images(pictures, digest_images(pictures)).reshape(60, 8, -1)
        picks = np.einsum("snd,sd->sn", images, texts).argmax(axis=1)
        assert np.mean(picks == [sample.answer for sample in samples]) >= least


def test_clip_vectors_are_those_of_the_model(tmp_path: Path) -> None:
    encoder = load_encoder(shipped_encoder(), device="cpu")
    model, processor = (
        CLIPModel.from_pretrained(shipped_encoder()).float(),
        CLIPProcessor.from_pretrained(shipped_encoder()),
    )
    images = [Image.open(write_picture(tmp_path / f"{side}.png", side, side)).convert("RGB") for side in (9, 56, 80)]
    texts = ["a small red circle", "words that no scene has: naïve 東京", "a large blue square " * 40]
    inputs = processor(text=texts, images=images, padding=True, truncation=True, return_tensors="pt")
    output = model(**inputs)
    found = Encoders(encoder)
    got_images = found.embed_images(images, digest_images(images))
    assert np.allclose(got_images, output.image_embeds.detach().numpy(), atol=1e-5)
    assert np.allclose(found.embed_texts(texts), output.text_embeds.detach().numpy(), atol=1e-5)


def test_siglip_texts_are_padded_to_the_full_length(tmp_path: Path) -> None:
    tokenizer = CLIPProcessor.from_pretrained(shipped_encoder()).tokenizer
    tower = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = SiglipModel(
        SiglipConfig(
            text_config={**tower, "vocab_size": len(tokenizer), "max_position_embeddings": 20, "projection_size": 16},
            vision_config={**tower, "image_size": 28, "patch_size": 14},
        )
    ).eval()
    model.save_pretrained(tmp_path)
    SiglipProcessor(SiglipImageProcessor(size={"height": 28, "width": 28}), tokenizer).save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path, device="cpu")
    texts = ["a red square", "a small blue circle on a white background"]
    inputs = tokenizer(texts, padding="max_length", truncation=True, max_length=20, return_tensors="pt")
    expected = model.get_text_features(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask).pooler_output
    assert np.allclose(encoder.encode_texts(texts), expected.detach().numpy(), atol=1e-6)
    # alone or beside a longer one, a text has one vector
    assert np.allclose(encoder.encode_texts(texts[:1]), encoder.encode_texts(texts)[:1], atol=1e-6)
    assert encoder.encode_images([Image.new("RGB", (9, 5))]).shape == (1, 16)


def test_sentence_transformers_encode_texts_or_both(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = CLIPProcessor.from_pretrained(shipped_encoder()).tokenizer
    words = SentenceTransformer(modules=[StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=16)], device="cpu")
    words.save_pretrained(str(tmp_path / "words"))
    texts = load_encoder(tmp_path / "words", device="cpu")
    assert np.allclose(texts.encode_texts(["a red cat"]), words.encode(["a red cat"]), atol=1e-6)
    with pytest.raises(ModelError, match="words: Encodes texts alone"):
        texts.encode_images([Image.new("RGB", (9, 9))])
    SentenceTransformer(str(shipped_encoder()), device="cpu").save_pretrained(str(tmp_path / "both"))
    both, clip = load_encoder(tmp_path / "both", device="cpu"), load_encoder("shipped", device="cpu")
    image = Image.open(write_picture(tmp_path / "a.png", 1, 56)).convert("RGB")
    assert np.allclose(both.encode_images([image]), clip.encode_images([image]), atol=1e-5)
    assert np.allclose(both.encode_texts(["a red circle"]), clip.encode_texts(["a red circle"]), atol=1e-5)
    assert len({encoder.key for encoder in (texts, both, clip)}) == 3


def test_encoders_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lad.model.loading import shipped_model

    with pytest.raises(ModelError, match="no folder of a model of this name"):
        load_encoder(tmp_path / "none")
    with pytest.raises(ModelError, match="someone/clip-that-is-not-here: The encoder cannot be loaded.*'shipped'"):
        load_encoder("someone/clip-that-is-not-here")
    with pytest.raises(ModelError, match="has no features of images and texts"):
        load_encoder(shipped_model(), device="cpu")
    (tmp_path / "modules.json").write_text("[]")
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    with pytest.raises(DependencyError, match=r"lad-vlm\[sentence-transformers\]"):
        load_encoder(tmp_path, device="cpu")
