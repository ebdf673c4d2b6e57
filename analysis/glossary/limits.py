"""Terms of limits, verdicts, out-of-memory cases, and of what a lake keeps."""

from __future__ import annotations

from analysis.glossary.model import Term

LIMITS = (
    Term("capacity", "What the device offers to this process: its total, or a lower cap set by memory fraction or MIG.", "methods/headroom.md"),
    Term("hard headroom",
         "Capacity minus outside minus peak active: what live bytes leave. Near zero, the next step may die.", "methods/headroom.md"),
    Term("soft headroom",
         "Capacity minus outside minus max reserved: near zero, the allocator must free its cache and retry: slow, not dead.", "methods/headroom.md"),
    Term("margin, near",
         "The larger of 2 GiB and 3 % of the capacity; a headroom inside it is near: hard by live bytes, or by what is cached only.",
         "methods/headroom.md"),
    Term("high-load step",
         "A step in which a rank's experts got at least 1.05 of its median load and that is in its top tenth; without varying load every step.",
         "methods/expert_load.md"),
    Term("stable, occasional, clear",
         "Near in at least 80 % of five or more high-load steps; near at least once; never near.", "methods/headroom.md"),
    Term("insufficient, undetermined",
         "Fewer than five such steps; or no known capacity or memory outside torch, so that neither near nor clear can be said.",
         "methods/headroom.md"),
    Term("Wilson interval",
         "The range of chances of a step that fit `k near of n` at 95 %; it stays sensible for none of n, where the plain formula says 0 +- 0.",
         "methods/headroom.md"),
    Term("staircase, riser",
         "Reserved over the steps, and a step in which it rises above all before and stays: for need, or by fragmentation.", "methods/headroom.md"),
    Term("coverage",
         "How many ranks, stages and steps the artifacts show at all. Megatron prints memory on data-parallel rank 0 only.", "methods/headroom.md"),
    Term("scope",
         "What a peak is a peak of: since the start (cumulative), or of one step (interval), where peaks are reset each step.",
         "methods/headroom.md"),
    Term("finding",
         "One sentence about an attempt by a rule: severity (error, warning, note), confidence (proven, likely, possible), lines, actions.",
         "findings.md"),
)

OUT_OF_MEMORY = (
    Term("counterfactual",
         "What would have let the failed request fit: less live, less cached, less outside, another allocator. It decides the kind of an "
         "out-of-memory error.", "methods/oom.md"),
    Term("case A", "Full: what lives fills the device at that instant. Allocator settings cannot help.", "methods/oom.md"),
    Term("case B",
         "Enough was cached, in no usable piece: split (B1), held for another stream (B2), in private pools (B3). More recompute cannot help.",
         "methods/oom.md"),
    Term("case C", "Too much lies outside torch: communicators, another process.", "methods/oom.md"),
    Term("case D", "The request alone is larger than the device less what stays.", "methods/oom.md"),
    Term("case E", "NCCL, cuBLAS or the driver found no room while torch held memory that it did not use.", "methods/oom.md"),
    Term("case F", "Host memory: pinned buffers, offload, dataloader.", "methods/oom.md"),
    Term("case G", "A cap below the device's capacity.", "methods/oom.md"),
)

RECORDS = (
    Term("artifact", "What a run leaves behind: a log, a `memory_stats` file, a snapshot, an archive of them.", "upload.md"),
    Term("run, attempt", "A job by its name, and each start of it: two starts in one log are two attempts, counted from 0.", "sql.md"),
    Term("lake", "Where the tables lie: Parquet files and a transaction log (Delta Lake), on a folder or an object store.", "operations.md"),
    Term("reject", "A stretch that looked like a record and was not understood. It is kept and counted.", "formats.md"),
    Term("quarantined", "A file that could not be read, or was refused; the others of the batch go on.", "operations.md"),
    Term("rank-day, rollup",
         "What a rank did on one day: counts, maxima, and how many records peaked at which level. Fleet questions read these.", "methods/history.md"),
    Term("family", "What kind of model the arguments make: dense, MoE or hybrid, with MLA, FSDP or fp8 where they are on.", "methods/history.md"),
    Term("drift", "Memory that moved between two attempts of one configuration, with what else changed between them.", "methods/history.md"),
)
