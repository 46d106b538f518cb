"""A small Llama with transformers' Trainer: packed blocks of text, bf16, gradient accumulation, evaluation."""
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, default_data_collator

torch.manual_seed(0)


class Blocks(Dataset):
    def __init__(self, count, length=512, vocabulary=32000):
        self.tokens = torch.randint(0, vocabulary, (count, length), generator=torch.Generator().manual_seed(count))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, at):
        return {"input_ids": self.tokens[at], "labels": self.tokens[at], "attention_mask": torch.ones_like(self.tokens[at])}


config = LlamaConfig(hidden_size=768, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=12, num_key_value_heads=4, vocab_size=32000)
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        folder, per_device_train_batch_size=8, per_device_eval_batch_size=8, gradient_accumulation_steps=2, max_steps=8, bf16=True, logging_steps=2,
        eval_strategy="steps", eval_steps=4, save_strategy="no", report_to=[], warmup_steps=2, lr_scheduler_type="cosine", dataloader_num_workers=2)
    trainer = Trainer(LlamaForCausalLM(config), args, train_dataset=Blocks(256), eval_dataset=Blocks(32), data_collator=default_data_collator)
    trainer.train()
