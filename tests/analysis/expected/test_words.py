"""A word that is not known is counted as the value that is said, widens the interval, and no two classes read it differently."""

from __future__ import annotations

import pytest

from analysis.expected import expect_stages
from analysis.expected.assumptions import PARTLY_PRICED, UNPRICED
from analysis.expected.model import _SWITCHED_OFF
from analysis.expected.names import argument_names, strangers
from analysis.expected.words import CHOICES, TAKEN, known_word, refuse_words, unknown_words
from analysis.theory.arguments import COMMAND_LINE_NAMES
from analysis.theory.formula_arguments import FormulaArguments
from ingest.errors import LedgerError

BASE = {"hidden_size": 1024, "num_layers": 8, "num_attention_heads": 8, "seq_length": 2048, "micro_batch_size": 1, "padded_vocab_size": 32000,
        "bf16": True, "world_size": 8, "use_distributed_optimizer": True, "position_embedding_type": "rope", "attention_backend": "flash"}
FSDP = {"use_megatron_fsdp": True}
EXPERTS = {"num_experts": 8, "expert_model_parallel_size": 2, "sequence_parallel": True}
PRECISE = {"use_precision_aware_optimizer": True}
OFFLOAD = {"fine_grained_activation_offloading": True}
SELECTIVE = {"recompute_granularity": "selective"}
FULL = {"recompute_granularity": "full"}


def one(**more):
    return expect_stages(BASE | more, microbatches=8, gpu="H100")[0]


@pytest.mark.parametrize(("name", "beside", "same"), [
    ("recompute_granularity", {}, None), ("recompute_method", FULL, "uniform"), ("recompute_modules", SELECTIVE, []),
    ("offload_modules", OFFLOAD, []),
    ("transformer_impl", {}, "transformer_engine"), ("attention_backend", {}, "auto"), ("moe_token_dispatcher_type", EXPERTS, "alltoall"),
    ("cross_entropy_fusion_impl", {"cross_entropy_loss_fusion": True}, "native"), ("data_parallel_sharding_strategy", FSDP, "no_shard"),
    ("fp8", {}, "hybrid"), ("fp8_format", {}, "hybrid"), ("fp8_recipe", {"fp8": "hybrid"}, "blockwise"), ("main_params_dtype", PRECISE, "fp32"),
    ("exp_avg_dtype", PRECISE, "fp32"), ("exp_avg_sq_dtype", PRECISE, "fp32"), ("optimizer", {}, "adam"), ("position_embedding_type", {}, "rope"),
    ("normalization", {}, "LayerNorm"),
])
def test_an_unknown_word_is_counted_as_what_is_said(name, beside, same):
    odd, known = one(**beside | {name: ["foo"] if isinstance(same, list) else "foo"}), one(**beside | {name: same})
    assert (odd.classes, odd.peak_classes, odd.peak_instant) == (known.classes, known.peak_classes, known.peak_instant)
    said = f"{name} is 'foo', which is not known here: taken as {TAKEN[name]}"
    assert said in odd.assumptions
    assert said not in known.assumptions
    assert odd.peak_high_bytes - odd.peak_low_bytes > known.peak_high_bytes - known.peak_low_bytes


def test_every_list_has_what_a_stranger_is_taken_as():
    assert TAKEN.keys() == CHOICES.keys()
    nothing = {"recompute_granularity", "recompute_modules", "offload_modules"}
    assert all(TAKEN[name] in words for name, words in CHOICES.items() if name not in nothing)


def test_what_is_divided_is_gathered():
    """An unknown strategy used to divide the weights as one and gather nothing, as another does."""
    odd, none, whole = (one(**FSDP, data_parallel_sharding_strategy=word) for word in ("foo", "no_shard", "optim_grads_params"))
    assert (odd.classes["weights"], odd.peak_classes["gathered"]) == (none.classes["weights"], 0)
    assert whole.classes["weights"] < none.classes["weights"]
    assert whole.peak_classes["gathered"] > 0


@pytest.mark.parametrize(("optimizer", "said", "widths"), [
    ("lion", "one fp32 momentum a parameter;", 8), ("muon", "one fp32 momentum a parameter of a matrix and Adam's two of all others;", None),
    ("soap", "two fp32 moments a parameter, as Adam's;", 12), ("adaptive_muon", "two fp32 moments a parameter, as Adam's;", 12),
    ("foo", "optimizer is 'foo', which is not known here: taken as adam", 12), ("adam", None, 12), ("sgd", None, 8),
])
def test_an_optimizers_sentence_says_what_is_counted(optimizer, said, widths):
    """Bytes a parameter over 8 shards, the fp32 master's 4 among them."""
    row = one(optimizer=optimizer)
    told = [text for text in row.assumptions if text.startswith("optimizer")]
    assert len(told) == (said is not None)
    assert all(said in text for text in told)
    bytes_a_parameter = row.classes["optimizer"] * 8 / row.parameters
    assert bytes_a_parameter == pytest.approx(widths, abs=0.01) if widths else 8 < bytes_a_parameter < 12


@pytest.mark.parametrize(("args", "found"), [
    ({"recompute_modules": "[layernorm mla_up_proj mlp moe_act]"}, []), ({"recompute_modules": "['mlp', 'foo']"}, [("recompute_modules", "foo")]),
    ({"attention_backend": "AttnBackend.flash", "exp_avg_dtype": "torch.bfloat16", "fp8": None, "recompute_granularity": False}, []),
    ({"fp8": "zzz", "attention_backend": "zzz"}, [("attention_backend", "zzz"), ("fp8", "zzz")]),
])
def test_each_way_to_write_a_word_is_read(args, found):
    assert unknown_words(args) == found


def test_a_word_that_a_person_wrote_is_refused():
    with pytest.raises(LedgerError, match="argument exp_avg_sq_dtype is 'zzz'; fp32 or"):
        refuse_words({"exp_avg_sq_dtype": "zzz"})
    refuse_words(BASE)
    assert known_word({"optimizer": "zzz"}, "optimizer") is None


@pytest.mark.parametrize(("more", "said"), [
    ({"tensor_model_parallel_size": 16, "world_size": 16}, "does not divide num_attention_heads 8; 8 would fit"),
    ({"num_experts": 7, "expert_model_parallel_size": 8}, "does not divide num_experts 7; a divisor of 7 would fit"),
    ({"fp16": True}, "one of them alone would fit"), ({"num_attention_heads": 12}, "argument hidden_size is 1024; a multiple of"),
    ({"num_experts": 4, "moe_router_topk": 8}, "argument moe_router_topk is 8; at most num_experts 4 would fit"),
    ({"num_attention_heads": 10**9 + 7, "tensor_model_parallel_size": 8}, "and does not divide num_attention_heads 1000000007; 1 would fit"),
])
def test_what_every_release_refuses_has_no_ledger(more, said):
    with pytest.raises(LedgerError) as refused:
        one(**more)
    assert said in str(refused.value)


def test_every_name_that_is_read_is_known():
    read = {*CHOICES, *UNPRICED, *PARTLY_PRICED, *FormulaArguments.__slots__, *COMMAND_LINE_NAMES, *_SWITCHED_OFF, *BASE, "deepspeed", "zero_stage"}
    assert read <= argument_names()


def test_strangers_are_told_where_they_move_nothing():
    args = BASE | {"foo": 1, "lr": 0.1, "--bar-baz": 2}
    assert [text.split()[0] for text in strangers(args, lambda given: given.get("bar_baz"))] == ["foo"]
