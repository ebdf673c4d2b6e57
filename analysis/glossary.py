"""The field's own words, as the pages and reports use them: one sentence each, with the page of the documentation that goes further.

`docs/glossary.md` is written from this list by `docs/make_glossary.py`, and the app shows the same list: one text, so that a term never means two
things. Words of ours are not here: there should be none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """One term; `more` is a page below `docs/`, empty where nothing goes further."""

    name: str
    meaning: str
    more: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Terms that belong together."""

    title: str
    terms: tuple[Term, ...]


GROUPS: tuple[Group, ...] = (
    Group("What the allocator says", (
        Term("allocated",
             "Bytes of live tensors in torch's caching allocator, rounded up to its 512-byte grain; what Megatron prints as "
             "`allocated`.", "methods/headroom.md"),
        Term("active",
             "Allocated, and blocks that are freed but still used by another stream: they cannot be handed out yet.", "methods/snapshot.md"),
        Term("reserved",
             "Bytes of all segments that the caching allocator holds from the device, used or not. `nvidia-smi` sees these.", "methods/headroom.md"),
        Term("max allocated, max reserved",
             "The largest value since the process began or the peaks were reset. Megatron never resets them, so after the step that "
             "raised one it is an upper bound, not that step's peak.", "methods/headroom.md"),
        Term("segment, block",
             "A segment is one allocation from the device (20 MiB for requests of 1 to 10 MiB); a block is the piece of it that one "
             "tensor gets. A segment goes back only when all its blocks are free.", "methods/snapshot.md"),
        Term("fragmentation",
             "Enough is free, but in pieces that no request fits in: reserved minus allocated is large and the allocation fails all "
             "the same.", "methods/oom.md"),
        Term("expandable segments",
             "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`: one range of addresses a stream that grows by pages, so that free "
             "pages serve any size.", "methods/oom.md"),
        Term("private pool",
             "Segments that only one user may take from: a CUDA graph, or registered communication buffers. What is free there "
             "serves nobody else.", "methods/snapshot.md"),
        Term("allocation retry",
             "The allocator found no room, freed its cached segments and asked again (`num_alloc_retries`): slow, and a touch of the "
             "limit.", "methods/headroom.md"),
        Term("outside torch",
             "Device memory in use minus reserved, at one instant: CUDA context, NCCL and its kin, other processes.", "methods/communication.md"),
    )),
    Group("Limits and verdicts", (
        Term("capacity", "What the device offers to this process: its total, or a lower cap set by memory fraction or MIG.", "methods/headroom.md"),
        Term("hard headroom",
             "Capacity minus outside minus peak active: what live bytes leave. Near zero, the next step may die.", "methods/headroom.md"),
        Term("soft headroom",
             "Capacity minus outside minus max reserved: near zero, the allocator must free its cache and retry: slow, not dead.",
             "methods/headroom.md"),
        Term("margin", "The larger of 2 GiB and 3 % of the capacity: a headroom inside it is near.", "methods/headroom.md"),
        Term("high-load step",
             "A step in which a rank's experts got at least 1.05 of its median load and that is in its top tenth; without varying "
             "load every step.", "methods/expert_load.md"),
        Term("stable, occasional, clear",
             "Near in at least 80 % of five or more high-load steps; near at least once; never near.", "methods/headroom.md"),
        Term("insufficient, undetermined",
             "Fewer than five such steps; or no known capacity or memory outside torch, so that neither near nor clear can be said.",
             "methods/headroom.md"),
        Term("Wilson interval",
             "The range of chances of a step that fit `k near of n` at 95 %; it stays sensible for none of n, where the plain "
             "formula says 0 +- 0.", "methods/headroom.md"),
        Term("staircase, riser",
             "Reserved over the steps, and a step in which it rises above all before and stays: for need, or by fragmentation.",
             "methods/headroom.md"),
        Term("coverage",
             "How many ranks, stages and steps the artifacts show at all. Megatron prints memory on data-parallel rank 0 only.",
             "methods/headroom.md"),
        Term("counterfactual",
             "What would have let the failed request fit: less live, less cached, less outside, another allocator. It decides the "
             "kind of an out-of-memory error.", "methods/oom.md"),
    )),
    Group("Two theories", (
        Term("printed footprint",
             "The number Megatron prints once (`Theoretical memory footprints`): one shard of the first stage, by one of several "
             "formulas.", "methods/theory.md"),
        Term("branch",
             "Which formula made the printed activations: with sequence parallelism and selective recompute, or without both.", "methods/branch.md"),
        Term("generation", "One state of the formula in Megatron's history; the printed figures show which one ran.", "methods/branch.md"),
        Term("expected",
             "Our own count of every class on every rank, at the instant of the peak and after a step, with an interval of 90 %.",
             "methods/expected.md"),
        Term("gap",
             "Measured minus printed, split into parts that add up to the byte: resident, activations, head, cached, outside, "
             "unexplained.", "methods/gap.md"),
    )),
    Group("Ranks and stages", (
        Term("rank", "One process on one device, by its global number.", "methods/theory.md"),
        Term("TP, SP",
             "Tensor parallelism cuts each matrix over the ranks of one node; sequence parallelism cuts what is between the matrices "
             "along the sequence, over the same ranks.", "methods/lifetimes.md"),
        Term("PP, stage, VPP",
             "Pipeline parallelism cuts the layers into stages; virtual stages give each rank several smaller chunks.", "methods/lifetimes.md"),
        Term("CP", "Context parallelism cuts the sequence, attention included.", "methods/lifetimes.md"),
        Term("EP, ETP, EDP",
             "Expert parallelism spreads the experts, expert tensor parallelism cuts each expert's matrices, and expert data "
             "parallelism is what is left of the ranks to copy them.", "methods/lifetimes.md"),
        Term("DP, distributed optimizer, FSDP",
             "Data parallelism copies the model; the distributed optimizer shards its state over the copies, FSDP the gradients and "
             "weights too.", "methods/lifetimes.md"),
        Term("micro-batch, in flight",
             "What one forward pass takes; how many of them a stage has run forward and not yet backward, with all they saved.",
             "methods/expected.md"),
        Term("1F1B, interleaved",
             "Pipeline schedules: one forward and one backward in turn; the same with the chunks of a rank in turn, which shortens "
             "the bubble and holds more in flight.", "methods/expected.md"),
    )),
    Group("What fills a device", (
        Term("resident", "Weights, gradients and optimizer state: there for the whole run.", "methods/lifetimes.md"),
        Term("activations", "What forward saves for backward, once a micro-batch in flight.", "methods/expected.md"),
        Term("recompute",
             "Forward is run again in backward in place of saving: `full` keeps a layer's input only, `selective` drops named "
             "modules.", "methods/expected.md"),
        Term("logits",
             "The output layer's result, vocabulary wide; with the loss, 6 bytes an element at the peak, on the last stage alone.",
             "methods/logits.md"),
        Term("main weights, moments",
             "The optimizer's own fp32 copy of the weights, and Adam's two running means: 12 bytes a parameter, sharded by the "
             "distributed optimizer.", "methods/expected.md"),
        Term("active and total parameters",
             "A mixture of experts computes each token with its top-k experts only: the active parameters. Memory holds all of them: "
             "the total. FLOPs follow the first, bytes the second.", "methods/theory.md"),
        Term("channel, connection, communicator",
             "NCCL's unit of parallel transfer; a pair of ranks joined over one; the group of ranks that talk. Buffers are set aside "
             "a connection.", "methods/communication.md"),
        Term("dispatcher",
             "What carries tokens to the ranks of their experts and back: all-to-all, all-gather, or DeepEP's own buffers.",
             "methods/communication.md"),
        Term("capacity factor",
             "An upper bound of tokens an expert takes, as a multiple of the even share; without one the load, and the memory, "
             "follow the routing.", "methods/expert_load.md"),
    )),
    Group("Speed, where it meets memory", (
        Term("roofline",
             "A kernel runs at most at the smaller of peak FLOPs and bandwidth times its FLOPs a byte. Below the ridge it is bound "
             "by memory traffic: fusing it helps, more FLOPs do not hurt."),
        Term("CTA criterion for fusion",
             "Two operators fuse into one kernel where the thread block (CTA) that makes a tile has all that the next operator needs "
             "of it; a reduction over other blocks' tiles needs a pass through device memory, and the intermediate is stored after "
             "all."),
        Term("overlap",
             "Communication under computation. Its buffers and the tensors it holds live longer, so overlap is paid in bytes.",
             "methods/lifetimes.md"),
        Term("bubble",
             "Time in which a pipeline stage waits: (p - 1) of m + p - 1 slots. More micro-batches or virtual stages shrink it; the "
             "latter hold more activations.", "methods/expected.md"),
        Term("bucket", "Gradients reduced in one call. Larger buckets use the network better and stage more bytes."),
        Term("offload",
             "State or activations moved to host memory between uses: bytes over the link each step, unless hidden under "
             "computation.", "methods/plan.md"),
    )),
    Group("Symptoms of precision, not of memory", (
        Term("swamping",
             "An update much smaller than the value it is added to is lost in rounding: the loss lies flat without an error. Seen "
             "with bf16 or fp8 state that is accumulated over steps."),
        Term("overflow, loss scale",
             "fp16 gradients beyond 65,504 become infinite: the step is skipped and the loss scale halved. Skipped first steps also "
             "put off the optimizer's moments, and with them the true peak.", "methods/headroom.md"),
        Term("grad-norm spike",
             "A jump of the gradient norm: data, learning rate or an fp8 recipe, rarely the allocator. It shows beside memory "
             "switches because they are changed together."),
        Term("non-determinism of atomics",
             "Sums in changing order differ in their last bits from run to run: losses that drift apart slowly are no proof that a "
             "memory switch changed the mathematics."),
    )),
)
