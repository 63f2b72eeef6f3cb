"""Windows of long texts equal transformers on each window, combined in torch."""

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.classification import Classification
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer
from peers.test_pooled_peers import CONFIG, NAMES, WORDS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LENGTH = 12


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
