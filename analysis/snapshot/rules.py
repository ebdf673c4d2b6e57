"""The declared rules that name the class of an allocation from its stack: data, in order, the first that fits decides.

Frames are `file:function` with forward slashes, from the innermost; plumbing (unwinder, allocator, interpreter, module and context
wrappers) is skipped before. The rules come from the module paths of Megatron-LM, Transformer Engine and PyTorch as they are in their
repositories. A class says what the bytes are for at their birth: a buffer that a collective writes into is communication even where
the autograd graph keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass

CATEGORIES = ("weights", "gradient_buffer", "optimizer", "activations", "recomputed", "logits_and_loss", "workspace", "communication", "checkpoint",
              "input", "unknown")
"""Every class, in the order of pictures and tables."""

MEGATRON, ENGINE, TORCH, ANY = "Megatron-LM", "Transformer Engine", "PyTorch", "any code"


@dataclass(frozen=True, slots=True)
class Rule:
    """A class for stacks in which a frame fits `frame`: the innermost such frame counts.

    `outer`: a frame further out must fit; `without`: no frame further in may fit; `never`: no frame of the stack may fit;
    `first_line`: only the frame of the smallest line where several lines of that function allocate. `stays`: such blocks are meant to
    outlive their micro-batch.
    """

    name: str
    category: str
    frame: str
    evidence: str
    source: str
    outer: str = ""
    without: str = ""
    never: str = ""
    first_line: bool = False
    stays: bool = False


PLUMBING = (
    r"^torch::unwind|^\?\?|:\?\?$|^c10::cuda::CUDACachingAllocator|CachingAllocator|gather_with_cpp|CapturedTraceback|^c10::(?:cuda::)?\w*Allocator"
    r"|^_?Py(?:Eval|Object|Function|CFunction|Run|Method)|^(?:method_vectorcall|cfunction_call|_start|__libc_start|slot_tp_call|type_call|Py_\w+)"
    r"|torch/nn/modules/module\.py:(?:_call_impl|_wrapped_call_impl|__call__|inner)$|torch/utils/_contextlib\.py|contextlib\.py:"
    r"|torch/autograd/function\.py:apply$|nvtx\.py:|torch/_dynamo/eval_frame\.py:|torch/_compile\.py:|torch/_ops\.py:|torch/utils/_device\.py:")
"""Frames that tell nothing of what the bytes are for."""

_BACKWARD = (r"(?:^|[/.:])(?!\w*forward)\w*backward(?:_step\w*|_pass|_impl\w*)?$|_engine_run_backward$|compiled_backward"
             r"|^torch::autograd::(?:Engine|generated|Node|deleteNode|python::PythonEngine)")
_RECOMPUTE = (r"megatron/core/tensor_parallel/random\.py:(?:backward|_recompute|_unified_recompute_hook)$"
              r"|torch/utils/checkpoint\.py:(?:backward|unpack_hook|recompute_fn|recompute_and_handle)$"
              r"|transformer_engine/pytorch/distributed\.py:(?:backward|unpack_hook|recompute_fn)$"
              r"|activation_checkpointing/checkpointing\.py:backward$")
_MODULE = r"transformer_(?:block|layer)\.py:|/transformer\.py:|hyper_connection\.py:|mamba_\w+\.py:"
_BUFFER = r"megatron/core/distributed/param_and_grad_buffer\.py:"
_FSDP = r"(?:megatron_fsdp|custom_fsdp|fsdp/src/\w+)/param_and_grad_buffer\.py:"

RULES: tuple[Rule, ...] = (
    Rule("cuBLAS and cuDNN workspace", "workspace",
         r"getCUDABlasLtWorkspace|[cC]ublas\w*Workspace|getCurrentCUDABlasHandle|getCUDABlas\w*Handle|parseChosenWorkspaceSize|cudnn\w*Workspace"
         r"|_cuda_(?:getCurrentBlasHandle|clearCublasWorkspaces)", "scratch of a matrix library, held for the life of its handle",
         f"{TORCH}: aten/src/ATen/cuda/CublasHandlePool.cpp"),
    Rule("GEMM workspace of Transformer Engine", "workspace",
         r"transformer_engine/pytorch/(?:module/base|cpp_extensions/gemm)\.py:"
         r"(?:get_workspace|get_multi_stream_cublas_workspace|get_cublas_workspace\w*|_get_grouped_\w*workspace)$",
         "one scratch buffer a device, made at the first GEMM", f"{ENGINE}: pytorch/cpp_extensions/gemm.py"),
    Rule("autotuning", "workspace",
         r"triton/(?:testing|runtime/autotuner)\.py:|get_empty_cache_for_benchmark$|torch/_inductor/(?:autotune|select_algorithm)",
         "buffers that a tuner fills between trials", "Triton: runtime/autotuner.py"),
    Rule("optimizer states made ahead", "optimizer",
         r"megatron/core/optimizer/\S*:(?:init_state_fn|_init_optimizer_states_with_dummy_values|_init_optimizer_states)$"
         r"|fused_adam\.py:_?initialize_state$|torch/optim/\w+\.py:_init_group$", "moments of the optimizer, at the first step or before a load",
         f"{MEGATRON}: core/optimizer/__init__.py; {ENGINE}: pytorch/optimizers/fused_adam.py"),
    Rule("checkpoint save or load", "checkpoint",
         r"megatron/core/dist_checkpointing/|megatron/(?:training|post_training|legacy|core)/(?:\w+/)*checkpointing\.py:|torch/distributed/checkpoint/"
         r"|torch/distributed/_shard/|torch/serialization\.py:|safetensors/|checkpointing/(?:async_ckpt|local)/|megatron/training/async_utils\.py:",
         "tensors staged for writing, or read and not yet copied", f"{MEGATRON}: core/dist_checkpointing, training/checkpointing.py"),
    Rule("optimizer of Megatron", "optimizer", r"megatron/core/optimizer/|megatron/(?:legacy/)?optimizer/",
         "main parameters, moments and the copies of a step", f"{MEGATRON}: core/optimizer/distrib_optimizer.py, optimizer.py"),
    Rule("optimizer of a library", "optimizer",
         r"torch/optim/\w+\.py:(?!zero_grad)|transformer_engine/pytorch/optimizers/|apex/(?:contrib/)?optimizers/"
         r"|deepspeed/runtime/(?:zero|bf16_optimizer|fp16)|bitsandbytes/optim/|emerging_optimizers/",
         "moments, and temporaries of a step", f"{TORCH}: torch/optim; {ENGINE}: pytorch/optimizers"),
    Rule("parameter buffer of Megatron's DDP", "weights", _BUFFER + r"__init__$",
         "the constructor allocates `param_data` before `grad_data`: the first of its allocating lines, where there are several",
         f"{MEGATRON}: core/distributed/param_and_grad_buffer.py", first_line=True),
    Rule("gradient buffer of Megatron's DDP", "gradient_buffer", _BUFFER + r"__init__$", "`grad_data`, one contiguous buffer a dtype",
         f"{MEGATRON}: core/distributed/param_and_grad_buffer.py"),
    Rule("weights of Megatron FSDP", "weights",
         _FSDP + r"\S*(?:_init_each_parameter_group_buffers|all_gather_\w+|async_bucket_gather|<lambda>)$",
         "model and main weight shards, and weights gathered for use",
         f"{MEGATRON}: core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py"),
    Rule("gradients of Megatron FSDP", "gradient_buffer", _FSDP, "main gradient shards and buckets being reduced",
         f"{MEGATRON}: core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py"),
    Rule("accumulated gradient", "gradient_buffer", r"AccumulateGrad|accumulate_grad|module/base\.py:get_dummy_wgrad$",
         "the first gradient of a parameter, kept in `.grad`", f"{TORCH}: torch/csrc/autograd/functions/accumulate_grad.cpp"),
    Rule("batch", "input",
         r"torch/utils/data/|megatron/core/datasets/|megatron/core/tensor_parallel/data\.py:"
         r"|:(?:get_batch\w*|get_ltor_masks\w*|_?broadcast_data\w*|prefetch_to_device|to_device_batch)$",
         "tokens, labels, masks and positions of a micro-batch", f"{MEGATRON}: pretrain_gpt.py get_batch, training/utils get_batch_on_this_tp_rank"),
    Rule("global memory buffer of Megatron", "communication", r"megatron/core/utils\.py:get_tensor$",
         "one buffer a use that all-gathers write into, kept for the next", f"{MEGATRON}: core/utils.py GlobalMemoryBuffer", stays=True),
    Rule("loss of Megatron", "logits_and_loss",
         r"megatron/core/(?:tensor_parallel/cross_entropy|fusions/fused_(?:linear_)?cross_entropy)\.py:|:compute_language_model_loss$"
         r"|:compute_output_layer_and_language_model_loss$|transformer_engine/pytorch/(?:triton/)?cross_entropy\.py:",
         "the vocabulary-parallel cross-entropy and its saved softmax",
         f"{MEGATRON}: core/tensor_parallel/cross_entropy.py; {ENGINE}: pytorch/cross_entropy.py"),
    Rule("logits of Megatron", "logits_and_loss",
         r"models/\w+/\w+_model\.py:(?:_postprocess|forward)$|multi_token_prediction\.py:process_mtp_loss$",
         "the output layer, called by the model and not by a transformer layer", f"{MEGATRON}: core/models/gpt/gpt_model.py _postprocess",
         never=_MODULE + r"|embedding\w*\.py:|:_preprocess$|rotary|rope_utils"),
    Rule("cross-entropy", "logits_and_loss",
         r"torch/nn/functional\.py:(?:cross_entropy|nll_loss|log_softmax)$|torch/nn/modules/loss\.py:|cross_entropy|xentropy|transformers/loss/"
         r"|[/:](?:lm_|language_model_|compute_)?loss(?:_func|_fn|_function)?$|^at::(?:_ops::)?(?:cross_entropy_loss|nll_loss\w*|_?log_softmax)"
         r"|(?:LogSoftmax|NllLoss|CrossEntropy)\w*Backward", "a loss over the vocabulary, forward or backward", f"{TORCH}: torch/nn/functional.py"),
    Rule("expert dispatch buffers", "communication", r"megatron/core/transformer/moe/fused_a2a\.py:|deep_ep/|nvshmem",
         "buffers of fused all-to-all dispatch", f"{MEGATRON}: core/transformer/moe/fused_a2a.py", stays=True),
    Rule("pipeline receive buffer", "communication",
         r"megatron/core/pipeline_parallel/(?:p2p_communication|bridge_communicator|multimodule_communicator)\.py:",
         "tensors received from a neighbouring stage", f"{MEGATRON}: core/pipeline_parallel/p2p_communication.py"),
    Rule("gathered by tensor parallelism", "communication",
         r"megatron/core/tensor_parallel/mappings\.py:|transformer_engine/pytorch/distributed\.py:(?:gather_along\w*"
         r"|reduce_scatter\w*|_all_gather\w*|_start_all_gather\w*|allreduce|symm\w*|get_symm\w*)$|:(?:initialize_ub|add_ub|fill_userbuffers\w*)$",
         "outputs of all-gather, reduce-scatter and all-to-all of the tensor or expert group", f"{MEGATRON}: core/tensor_parallel/mappings.py"),
    Rule("gradients reduced together", "communication", r"megatron/core/distributed/finalize_model_grads\.py:",
         "small gradients flattened into one buffer for an all-reduce", f"{MEGATRON}: core/distributed/finalize_model_grads.py"),
    Rule("collective of PyTorch", "communication",
         r"torch/distributed/(?!checkpoint|_shard|fsdp|_composable|algorithms|elastic|run)|^c10d::|ProcessGroupNCCL"
         r"|reduce_scatter_with_fp32_accumulation\.py:|context_parallel\.py:flash_attn_(?:a2a|p2p)_communicate\w*$",
         "made inside a collective call", f"{TORCH}: torch/distributed/distributed_c10d.py"),
    Rule("recomputed forward", "recomputed", _RECOMPUTE, "the forward run again inside backward",
         f"{MEGATRON}: core/tensor_parallel/random.py; {TORCH}: torch/utils/checkpoint.py; {ENGINE}: pytorch/distributed.py", without=_BACKWARD),
    Rule("low-precision copy of weights", "weights", r"transformer_engine/pytorch/\S*:(?:get_weight_workspace|quantize_weight)$",
         "weights quantised for the GEMM, cached over micro-batches", f"{ENGINE}: pytorch/module/base.py"),
    Rule("backward", "activations", _BACKWARD, "gradients of activations and temporaries of backward", f"{TORCH}: torch/csrc/autograd/engine.cpp"),
    Rule("module constructor", "weights",
         r"torch/nn/(?:modules/\w+\.py:(?:__init__|_?reset_\w+|_apply|convert|to|to_empty|cuda|half|bfloat16|float|load_state_dict)"
         r"|init\.py:|parameter\.py:)"
         r"|transformer_engine/pytorch/\S*:(?:__init__|reset_parameters|register_parameter)$|:_?initialize_affine_weight\w*$"
         r"|megatron/core/(?:tensor_parallel/\w+|transformer/\S+|models/\S+|extensions/\w+|ssm/\S+)\.py:(?:__init__|reset_parameters|build_module)$"
         r"|:(?:from_pretrained|_load_state_dict_into\w+|_load_pretrained_model)$",
         "parameters and buffers made, converted or moved by a module",
         f"{MEGATRON}: core/tensor_parallel/layers.py; {ENGINE}: pytorch/module; {TORCH}: torch/nn",
         never=r":(?:forward|train_step)$"),
    Rule("rotary embedding", "activations", r"embeddings/(?:yarn_)?rotary_pos_embedding\.py:(?:get_\w+|forward)$",
         "tables of sines and cosines, made once a length and cached",
         f"{MEGATRON}: core/models/common/embeddings/rotary_pos_embedding.py", stays=True),
    Rule("forward of Megatron", "activations",
         r"megatron/core/(?:transformer|models|fusions|tensor_parallel|extensions|ssm|pipeline_parallel)/\S*:(?!__init__)",
         "tensors a layer makes in forward", f"{MEGATRON}: core/transformer, core/models, core/fusions",
         outer=r":(?:forward|forward_step\w*|custom_forward|__call__)$"),
    Rule("forward", "activations",
         r":(?:forward|_?forward_(?!backward)\w+|custom_forward)$|torchinductor_|torch/_inductor/output_code\.py:|torch/_functorch/_aot_autograd/|torch/nn/functional\.py:"
         r"|flash_attn/|:\w*(?:attention|softmax)\w*$", "tensors made in the forward of a module", f"{TORCH}: torch/nn/modules/module.py"),
    Rule("named by its function", "weights",
         r":_?(?:init|load|create|allocate|build|make)_(?:\w+_)?(?:weights?|param(?:eter)?s?)(?:_\w+)?$",
         "a function whose name says that it makes or loads weights or parameters", ANY, never=r":(?:forward|step|train_step)$"),
)
"""In order: the first rule that fits decides; a stack that none fits is unknown."""

NO_STACK: tuple[Rule, ...] = (
    Rule("predates the trace", "unknown", "", "allocated before the first event and the file keeps no stack of it", ANY),
    Rule("no stack recorded", "unknown", "", "the entry has no `frames`", ANY),
    Rule("no rule fits", "unknown", "", "a stack that no rule knows", ANY),
    Rule("backward (no stack), on another stream", "communication", "", "empty stack, on a stream that is not the device's main one", ANY),
    Rule("backward (no stack), inside an optimizer step", "optimizer", "", "empty stack between the ends of an `Optimizer.step` annotation",
         f"{TORCH}: torch/optim/optimizer.py profile_hook_step"),
    Rule("kept for the optimizer", "gradient_buffer", "", "born in backward and still live when the optimizer next steps", ANY),
    Rule("backward (no stack), size of an activation", "activations", "", "empty stack, of the exact size of an activation made in forward", ANY),
    Rule("backward (no stack), size of logits", "logits_and_loss", "",
         "empty stack, of the exact size of a logits or loss tensor made in forward and of no activation", ANY),
    Rule("backward (no stack)", "unknown", "", "empty stack under Python-only stacks: a thread without Python frames, as autograd's is", ANY),
)
"""How bytes are named that no stack names; decided in `classes`."""

PHASES: tuple[tuple[str, str], ...] = (
    ("checkpoint", r"dist_checkpointing/|checkpointing\.py:(?:save|load|_?save\w*|_?load\w*)|torch/distributed/checkpoint/|torch/serialization\.py:"),
    ("optimizer step",
     r"megatron/core/optimizer/\S*:\w*step\w*$|torch/optim/\w+\.py:|transformer_engine/pytorch/optimizers/|optimizers?\w*\.py:step$"),
    ("evaluation", r":(?:evaluate|evaluate_and_print_results|validate|validation_step)$"),
    ("recompute in backward", _RECOMPUTE),
    ("backward", _BACKWARD),
    ("loss", r"cross_entropy|torch/nn/modules/loss\.py:|:\w*loss(?:_func|_fn)?$|:log_softmax$"),
    ("forward", r":(?:forward|forward_step\w*|custom_forward|_?forward_(?!backward)\w+)$"),
    ("initialisation", r":(?:__init__|get_model|setup_model_and_optimizer|initialize_\w+|from_pretrained)$"),
)
"""Phase of an event by a frame of its stack; the first that fits, any depth."""
