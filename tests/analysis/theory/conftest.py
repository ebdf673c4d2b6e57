"""Configurations that several tests of the formula use."""

from __future__ import annotations

import gzip
import json

import pytest

LLAMA_LIKE = {
    "hidden_size": 4096, "num_layers": 32, "num_attention_heads": 32, "kv_channels": 128, "group_query_attention": True, "num_query_groups": 8,
    "ffn_hidden_size": 14336, "swiglu": True, "normalization": "RMSNorm", "padded_vocab_size": 128256, "seq_length": 4096, "micro_batch_size": 2,
    "world_size": 256, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "sequence_parallel": True,
    "recompute_granularity": "selective", "use_distributed_optimizer": True,
}


@pytest.fixture
def llama_like():
    """The worked 7.5 B model on 256 ranks."""
    return dict(LLAMA_LIKE)


@pytest.fixture(scope="session")
def formula_cases(shared):
    """Every executed case of the printed formula."""
    with gzip.open(shared / "data/formula/cases.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]
