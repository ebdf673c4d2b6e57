"""Terms of torch's allocator, of what fills a device, and of the two theories."""

from __future__ import annotations

from analysis.glossary.model import Term

ALLOCATOR = (
    Term("allocated",
         "Bytes of live tensors in torch's caching allocator, rounded up to its 512-byte grain; what Megatron prints as `allocated`.",
         "methods/headroom.md"),
    Term("requested", "What the program asked for, before rounding; a snapshot has it for each block.", "methods/snapshot.md"),
    Term("active", "Allocated, and blocks that are freed but still used by another stream: they cannot be handed out yet.", "methods/snapshot.md"),
    Term("inactive, inactive split",
         "Free in the cache. Inactive split is free inside a segment of which other blocks are in use (`inactive_split_bytes`): it cannot go "
         "back to the device, and serves only what fits into it.", "methods/snapshot.md"),
    Term("reserved",
         "Bytes of all segments that the caching allocator holds from the device, used or not. `nvidia-smi` sees these. Reserved = active + "
         "inactive.", "methods/headroom.md"),
    Term("cached", "Reserved minus allocated: held, and in no tensor.", "methods/gap.md"),
    Term("max allocated, max reserved",
         "The largest value since the process began or the peaks were reset. Megatron never resets them, so after the step that raised one it "
         "is an upper bound, not that step's peak.", "methods/headroom.md"),
    Term("segment, block",
         "A segment is one allocation from the device (20 MiB for requests of 1 to 10 MiB); a block is the piece of it that one tensor gets. A "
         "segment goes back only when all its blocks are free.", "methods/snapshot.md"),
    Term("fragmentation",
         "Enough is free, but in pieces that no request fits in: reserved minus allocated is large and the allocation fails all the same.",
         "methods/oom.md"),
    Term("expandable segments",
         "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`: one range of addresses a stream that grows by pages, so that free pages serve "
         "any size.", "methods/oom.md"),
    Term("private pool",
         "Segments that only one user may take from: a CUDA graph, or registered communication buffers. What is free there serves nobody else.",
         "methods/snapshot.md"),
    Term("stream", "A queue of kernels on a device. Memory freed on one stream waits until the others that use it are done.", "methods/snapshot.md"),
    Term("allocation retry",
         "The allocator found no room, freed its cached segments and asked again (`num_alloc_retries`): slow, and a touch of the limit.",
         "methods/headroom.md"),
    Term("outside torch",
         "Device memory in use minus reserved, at one instant: CUDA context, NCCL and its kin, other processes.", "methods/communication.md"),
    Term("CUDA context",
         "What a process holds on a device before its first tensor: some hundred MiB, and library code as it is loaded.", "methods/communication.md"),
    Term("memory snapshot",
         "What `torch.cuda.memory._dump_snapshot` writes: every segment and block at the end, and the last events of the trace with their "
         "stacks, a ring that forgets the oldest.", "methods/snapshot.md"),
)

THEORIES = (
    Term("printed footprint",
         "The number Megatron prints once (`Theoretical memory footprints`): one shard of the first stage, by one of several formulas.",
         "methods/theory.md"),
    Term("branch",
         "Which formula made the printed activations: with sequence parallelism and selective recompute, or without both.", "methods/branch.md"),
    Term("generation", "One state of the formula in Megatron's history; the printed figures show which one ran.", "methods/branch.md"),
    Term("most loaded shard",
         "What the printed formula describes: an embedding and an even share of the layers. Where p > 1 no real stage is that.", "methods/theory.md"),
    Term("left out",
         "Bytes that the branch in force does not count for this run, signed: negative where it counts what is not there.", "methods/branch.md"),
    Term("expected",
         "Our own count of every class on every rank, at the instant of the peak and after a step, with an interval of 90 %.", "methods/expected.md"),
    Term("steady, peak",
         "Steady is what stands after the optimizer step, when Megatron logs it; the peak is the largest sum at any instant, never the sum of "
         "the largest.", "methods/expected.md"),
    Term("gap",
         "Measured minus printed, split into parts that add up to the byte: resident, activations, head, cached, outside, unexplained.",
         "methods/gap.md"),
)

FILLS = (
    Term("resident", "Weights, gradients and optimizer state: there for the whole run.", "methods/lifetimes.md"),
    Term("gradient buffer",
         "One buffer for all gradients of a rank, 4 bytes a parameter where bf16 gradients are summed in fp32; whole whatever the optimizer "
         "shards.", "methods/expected.md"),
    Term("main weights, moments",
         "The optimizer's own fp32 copy of the weights, and Adam's two running means: 12 bytes a parameter, sharded by the distributed "
         "optimizer.", "methods/expected.md"),
    Term("precision-aware optimizer",
         "State kept narrower than fp32: the main weights as 2-byte remainders, moments in bf16, fp16 or fp8. Unless both are bf16 the moments "
         "are fp32 again during the step, a transient.", "methods/expected.md"),
    Term("activations", "What forward saves for backward, once a micro-batch in flight.", "methods/expected.md"),
    Term("transient", "There for micro- to milliseconds inside an operator: no recompute or offload reaches it.", "methods/lifetimes.md"),
    Term("recompute, full recompute",
         "Forward is run again in backward in place of saving. Full keeps the input of every N layers only, and holds N layers at once in "
         "backward.", "methods/expected.md"),
    Term("selective recompute",
         "Drops what named modules made (`core_attn`, `moe_act`, `layernorm`, `mla_up_proj`, `mlp`, `moe`, `shared_experts`) and makes it "
         "again. A module that saved nothing frees nothing: `core_attn` with flash attention.", "methods/expected.md"),
    Term("flash attention, log-sum-exp",
         "Attention in tiles that keeps no matrix of scores; for backward it saves 4 bytes a head and token, the log of each row's sum.",
         "methods/expected.md"),
    Term("MLA",
         "Multi-latent attention: queries, keys and values come from narrow latents. Saved are both the latents and, unless recomputed, what "
         "is made of them.", "methods/expected.md"),
    Term("logits",
         "The output layer's result, vocabulary wide; with the loss, 6 bytes an element at the peak, on the last stage alone.", "methods/logits.md"),
    Term("cross-entropy fusion",
         "A loss in one kernel. Megatron's native one saves no byte against the unfused; Transformer Engine's did up to 2.17, and from 2.18 "
         "keeps its gradient in fp32.", "methods/logits.md"),
    Term("tied embeddings", "One matrix for embedding and output. With pipeline stages the last one holds a copy of it.", "methods/logits.md"),
    Term("MTP",
         "Multi-token prediction: a further layer with norms, a projection and logits of its own for each depth, on the last stage unless the "
         "layout says otherwise.", "methods/expected.md"),
    Term("active parameters, total parameters",
         "A mixture of experts computes each token with its top-k experts only: the active parameters. Memory holds all of them: the total. "
         "FLOPs follow the first, bytes the second.", "methods/theory.md"),
    Term("router, top-k, shared expert",
         "The router gives each token to its k best experts; a shared expert takes every token besides.", "methods/expected.md"),
    Term("capacity factor",
         "An upper bound of tokens an expert takes, as a multiple of the even share; without one the load, and the memory, follow the routing.",
         "methods/expert_load.md"),
    Term("workspace",
         "Scratch memory that a library keeps for itself: cuBLAS (`CUBLAS_WORKSPACE_CONFIG`), Transformer Engine.", "methods/expected.md"),
    Term("CUDA graph", "A recorded sequence of kernels. What it uses lies in a private pool for as long as it lives.", "methods/expected.md"),
    Term("boundary tensors",
         "Inputs and their gradients that travel between pipeline stages; some are still held after a step.", "methods/expected.md"),
)
