"""Tags of words by a BiLSTM on the frozen encoder."""

from __future__ import annotations

import dataclasses

from bert_keras.tasks.tagging.task import FeatureTagging
from task_cases.token_classification import CASES as FINE_TUNED
from task_cases.token_classification import CLASSES

CASES = {
    name: dataclasses.replace(
        case,
        task=FeatureTagging(CLASSES, layers=layers, units=64),
    )
    for (name, case), layers in zip(
        FINE_TUNED.items(), ("weighted_sum_all", "second_to_last"), strict=True
    )
}
