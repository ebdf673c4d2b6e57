"""Terms of parallel layouts, pipeline schedules and communication."""

from __future__ import annotations

from analysis.glossary.model import Term

_MATRIX = "methods/parallelism.md"

LAYOUT = (
    Term("rank", "One process on one device, by its global number.", "methods/theory.md"),
    Term("TP", "Tensor parallelism cuts each matrix over ranks, best those of one NVLink domain.", _MATRIX),
    Term("SP",
         "Sequence parallelism cuts what lies between the matrices (norms, residual, router) along the sequence, over the same ranks as TP.",
         _MATRIX),
    Term("PP, stage", "Pipeline parallelism cuts the layers into stages, one after another.", _MATRIX),
    Term("VPP, virtual stage", "Each rank holds several smaller chunks of layers, chunk by chunk over the stages.", _MATRIX),
    Term("CP", "Context parallelism cuts the sequence, attention included.", _MATRIX),
    Term("EP", "Expert parallelism spreads the experts over ranks; tokens travel to them and back.", _MATRIX),
    Term("ETP", "Expert tensor parallelism cuts each expert's matrices, apart from TP.", _MATRIX),
    Term("EDP",
         "Expert data parallelism: how often each expert is there, world size / (ETP x EP x PP). At EDP 1 the distributed optimizer shards no "
         "expert.", _MATRIX),
    Term("DP", "Data parallelism copies the model and splits the batch.", _MATRIX),
    Term("distributed optimizer, ZeRO",
         "Megatron's distributed optimizer shards main weights and moments over the data-parallel ranks (ZeRO stage 1); stage 2 shards "
         "gradients too, stage 3 weights.", _MATRIX),
    Term("FSDP", "Fully sharded data parallelism: weights, gradients and state / DP, gathered unit by unit while they compute.", _MATRIX),
    Term("data-parallel rank 0",
         "The ranks whose data-parallel index is 0: the only ones that print memory in Megatron's log.", "methods/headroom.md"),
    Term("pipeline layout",
         "Which layers, embedding, MTP and loss each stage and chunk holds; uneven ones are given by an argument.", "methods/theory.md"),
    Term("micro-batch, global batch",
         "What one forward pass takes; what one optimizer step takes, over all data-parallel ranks.", "methods/expected.md"),
    Term("in flight", "Micro-batches that a stage has run forward and not yet backward, with all they saved.", "methods/expected.md"),
    Term("1F1B", "One forward and one backward in turn: stage r of p holds min(p - r, m) micro-batches in flight, the first the most.", _MATRIX),
    Term("interleaved schedule",
         "1F1B with the chunks of virtual stages in turn: a shorter bubble, more in flight: 1 + (p - 1)/(p v) times as much on the first "
         "stage, and p - (p - 1)/v stages' worth on the last instead of one.", _MATRIX),
    Term("bubble",
         "Time in which a pipeline stage waits: (p - 1) of m + p - 1 slots. More micro-batches or virtual stages shrink it; the latter hold "
         "more activations.", "methods/expected.md"),
)

COMMUNICATION = (
    Term("collective",
         "All-reduce sums over ranks and gives all the sum; reduce-scatter gives each its part; all-gather puts parts together; all-to-all "
         "sends each rank another part.", _MATRIX),
    Term("process group, communicator",
         "The ranks that talk to one another; NCCL's object for them, with buffers of its own.", "methods/communication.md"),
    Term("channel, connection",
         "NCCL's unit of parallel transfer; a pair of ranks joined over one. Buffers are set aside a connection.", "methods/communication.md"),
    Term("ring, tree, NVLS",
         "How a collective travels: from neighbour to neighbour, up and down a tree, or summed by the NVLink switch itself.",
         "methods/communication.md"),
    Term("LL, LL128, Simple",
         "NCCL's protocols, from lowest latency to full bandwidth; each has a buffer a connection (`NCCL_BUFFSIZE` is Simple's).",
         "methods/communication.md"),
    Term("registered buffers",
         "User buffers that NCCL reads and writes in place (`nccl_ub`): inside torch's reserved, in a private pool.", "methods/communication.md"),
    Term("dispatcher",
         "What carries tokens to the ranks of their experts and back: all-to-all, all-gather, or DeepEP's own buffers.", "methods/communication.md"),
    Term("bucket", "Gradients reduced in one call. Larger buckets use the network better and stage more bytes.", _MATRIX),
    Term("overlap",
         "Communication under computation. Its buffers and the tensors it holds live longer, so overlap is paid in bytes.", "methods/lifetimes.md"),
)
