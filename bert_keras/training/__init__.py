"""Fine-tuning: settings, the update step, the loop, resuming.

Read `config`, `finetune`, `loop`, `updates`, `train_step`, in that order.
"""
