"""Windows of long texts equal transformers on each window, joined in torch."""

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.generation import Translation
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer
from peers.test_pooled_peers import CONFIG, NAMES, WORDS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

BaseModelOutput = transformers.modeling_outputs.BaseModelOutput
LENGTH = 12
MOST = 8  # tokens of a target


@pytest.mark.parametrize("combine", ["mean", "max"])
def test_logits_equal_theirs(combine, tmp_path):
    encoder = BertEncoder(BertConfig(**CONFIG), seed=1)
    tokenizer = WordPieceTokenizer(WORDS)
    preprocessor = Preprocessor(tokenizer, max_length=LENGTH, layout="packed")
    task = Classification(NAMES, long="windows", combine=combine)
    model = TaskModel(encoder, task, preprocessor, seed=2)
    folder = save_model(model, tmp_path / "model")
    theirs = transformers.BertForSequenceClassification.from_pretrained(folder).eval()
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS[5:], count)) for count in (0, 5, 10, 11, 64)]
    found = model.infer(task.features(preprocessor, tf.constant(texts)))["outputs"]
    for text, logits in zip(texts, found.numpy(), strict=True):
        ids = tokenizer([text])[0].numpy().tolist()
        parts = [ids[at : at + LENGTH - 2] for at in range(0, max(len(ids), 1), 10)]
        rows = [[tokenizer.cls_id, *part, tokenizer.sep_id] for part in parts]
        with torch.no_grad():
            vectors = [theirs.bert(torch.tensor([r])).pooler_output for r in rows]
            vectors = torch.cat(vectors)
            one = vectors.mean(0) if combine == "mean" else vectors.max(0).values
            wanted = theirs.classifier(one).numpy()
        np.testing.assert_allclose(logits, wanted, atol=1e-5, rtol=0)


def test_a_text_is_written_from_all_windows_as_by_theirs(tmp_path):
    """Their decoder reads the encoder's outputs of all windows, concatenated."""
    encoder = BertEncoder(BertConfig(**CONFIG), seed=1, pooler=False)
    tokenizer = WordPieceTokenizer(WORDS)
    preprocessor = Preprocessor(tokenizer, max_length=LENGTH, layout="padded")
    settings = {"beams": 2, "no_repeat_ngram": 0, "length_penalty": 1.0}
    task = Translation(long="windows", max_target_length=MOST, **settings)
    model = TaskModel(encoder, task, preprocessor, seed=2)
    folder = save_model(model, tmp_path / "model")
    theirs = transformers.EncoderDecoderModel.from_pretrained(folder).eval()
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS[5:], count)) for count in (64, 5, 11)]
    targets = tf.constant(["see you now .", "win", "you win now"])
    batch, labels, _ = task.examples(preprocessor, tf.constant(texts), targets)
    logits = model(batch).numpy()
    hypotheses = model.infer(task.features(preprocessor, tf.constant(texts)))
    for row, text in enumerate(texts):
        ids = tokenizer([text])[0].numpy().tolist()
        parts = [ids[at : at + LENGTH - 2] for at in range(0, len(ids), LENGTH - 2)]
        rows = [[tokenizer.cls_id, *part, tokenizer.sep_id] for part in parts]
        read = batch["target_padding_mask"][row].numpy() == 1
        given = torch.tensor(batch["target_token_ids"][row].numpy()[None])
        with torch.no_grad():
            states = [theirs.encoder(torch.tensor([r])).last_hidden_state for r in rows]
            memory = BaseModelOutput(torch.cat(states, dim=1))
            mask = torch.ones(memory.last_hidden_state.shape[:2], dtype=torch.int64)
            wanted = theirs(
                encoder_outputs=memory, attention_mask=mask, decoder_input_ids=given
            ).logits[0]
            written = theirs.generate(
                encoder_outputs=memory,
                attention_mask=mask,
                num_beams=2,
                num_return_sequences=2,
                max_length=MOST + 1,  # with [CLS]
                decoder_start_token_id=tokenizer.cls_id,
                eos_token_id=tokenizer.sep_id,
                pad_token_id=tokenizer.pad_id,
                output_scores=True,
                return_dict_in_generate=True,
            )
        np.testing.assert_allclose(logits[row][read], wanted[read], atol=1e-5, rtol=0)
        scores = written.sequences_scores.numpy()
        np.testing.assert_allclose(hypotheses["scores"][row], scores, atol=1e-5)
        best = written.sequences[0].tolist()[1:]
        assert hypotheses["ids"][row, 0].numpy().tolist()[: len(best)] == best
