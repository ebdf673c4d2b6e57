"""THE schema: every table of the lake, every column with its type, unit and meaning.

Everything else is derived from this file: Arrow schemas for the lake, the views of `analysis`, the `parse` face and
`docs/schema.md`. Types are names here, so that a command that only parses never imports Arrow.

Conventions. Sizes are integers of bytes (`_bytes`); times of one step are `_ms`; absent is null, never 0 or -1.
`run` names the job, `run_index` the attempt inside it (two attempts in one log are two runs). `rank` is the global
rank, null where the artifact does not prove it; `rank_label` then keeps what it did say ("last", "task 3").
`line` is the 1-based line of the artifact a record came from (null for binary artifacts); `other` keeps, as text,
each field of a record that has no column of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `type` is a key of `ARROW_TYPES`; `unit` is "" where there is none."""

    name: str
    type: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table: what a row is (`grain`) and its own columns; `columns` adds those that every table has."""

    name: str
    grain: str
    own: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column in order: keys, own, tail."""
        return (*_KEYS, *self.own, *_TAIL)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns in order."""
        return tuple(column.name for column in self.columns)


def _c(name: str, type_: str, meaning: str, unit: str = "") -> Column:
    if not unit:
        unit = "bytes" if name.endswith("_bytes") else "ms" if name.endswith("_ms") else ""
    return Column(name, type_, unit, meaning)


_KEYS = (
    _c("run", "string", "name of the run: given by --run, or derived from the artifact's path"),
    _c("run_index", "int32", "which attempt of the run, from 0, in the order of its artifact"),
    _c("artifact", "string", "the piece of an artifact that holds this record: `artifacts.artifact`"),
    _c("month", "string", "month of ingest, YYYY-MM: partition of the lake"),
    _c("cluster", "string", "cluster named at ingest, `default` where none was: partition of the lake"),
)
_TAIL = (
    _c("line", "int64", "1-based line of the artifact, null for binary artifacts"),
    _c("other", "map<string,string>", "fields of the record without a column of their own, as printed"),
)
_RANK = (
    _c("rank", "int32", "global rank, null where the artifact does not prove it"),
    _c("rank_label", "string", "what the artifact says instead of a global rank: `last`, `task 3`, `local 2`"),
)
_THREAD = _c("thread", "int64", "thread of the process: lines of one thread between init_started and init belong to that communicator")
_STEP = _c("iteration", "int64", "training iteration the record belongs to, null where unknown")


def _counts(prefix: str, meaning: str) -> tuple[Column, ...]:
    return tuple(_c(f"{prefix}_{when}_bytes", "int64", f"{meaning}: {text}") for when, text in
                 (("current", "now"), ("peak", "peak since the last reset"), ("allocated", "sum ever allocated"), ("freed", "sum ever freed")))


TABLES: tuple[Table, ...] = (
    Table("artifacts", "one ingested file or archive member, or one further piece of a grown log", (
        _c("source", "string", "identity of the source file: the same for all its pieces"),
        _c("path", "string", "path as given; for an archive member `archive.zip!member`"),
        _c("kind", "string", "what the file is: megatron_log, memory_stats, snapshot, ... or unknown"),
        _c("size_bytes", "int64", "size of the source after decompression when the piece was read"),
        _c("start_bytes", "int64", "first byte of the piece in the decompressed source"),
        _c("end_bytes", "int64", "byte after the last one of the piece: bytes consumed so far where status is closed"),
        _c("prefix_bytes", "int64", "how many first bytes of the source `prefix_hash` covers"),
        _c("prefix_hash", "string", "BLAKE2b of the first `prefix_bytes` bytes, as hexadecimal"),
        _c("parser", "string", "name of the parser"),
        _c("parser_version", "int32", "version of the parser"),
        _c("rows", "int64", "records kept, over all tables"),
        _c("rejected", "int64", "records not understood: rows of `rejects`"),
        _c("status", "string", "closed; tail (open end of a growing file, replaced when it grows); quarantined (not read)"),
        _c("reason", "string", "why the artifact was quarantined, null elsewhere"),
        _c("state", "string", "where the parser stood at `end_bytes`, as JSON: what the next piece starts from"),
        _c("host", "string", "host that ingested"),
        _c("ingested_at", "timestamp", "when, UTC"),
    )),
    Table("rejects", "one stretch of an artifact that looked like a record and was not understood", (
        _c("offset_bytes", "int64", "byte offset in the decompressed artifact"),
        _c("text", "string", "the stretch, at most 2,000 characters"),
        _c("reason", "string", "why it was not taken"),
    )),
    Table("runs", "facts about one attempt, as one artifact shows them: several rows an attempt, merged by the view `run_attempts`", (
        _c("framework", "string", "program that wrote the log: megatron-lm, megatron-deepspeed, megatron-bridge, primus, mindspeed, "
           "ms-swift, verl, slime, ..."),
        _c("framework_version", "string", "its version where printed"),
        _c("world_size", "int32", "number of ranks"),
        _c("tensor_model_parallel_size", "int32", "TP"),
        _c("pipeline_model_parallel_size", "int32", "PP"),
        _c("virtual_pipeline_model_parallel_size", "int32", "VPP: model chunks a rank"),
        _c("context_parallel_size", "int32", "CP"),
        _c("expert_model_parallel_size", "int32", "EP"),
        _c("expert_tensor_parallel_size", "int32", "ETP"),
        _c("data_parallel_size", "int32", "DP without CP"),
        _c("num_microbatches", "int32", "micro-batches a step, where it is constant and printed"),
        _c("vocab_size", "int64", "vocabulary before padding"),
        _c("padded_vocab_size", "int64", "vocabulary after padding"),
        _c("params_dtype", "string", "dtype of the parameters as printed"),
        _c("gpu_name", "string", "device name where printed"),
        _c("capacity_bytes", "int64", "device memory as the artifact's own source reports it"),
        _c("started_at", "timestamp", "first time printed by the attempt; the log's clock, no zone"),
        _c("ended_at", "timestamp", "last time printed by the attempt"),
    )),
    Table("run_args", "one argument of one attempt, as a dump, a config repr or a launch command prints it", (
        _c("name", "string", "argument name as printed"),
        _c("value", "string", "value as printed; null where the dump prints None"),
        _c("origin", "string", "dump, command_line, ddp_config, optimizer_config, world_line, log_line"),
    )),
    Table("environment", "one environment variable or version", (
        _c("host", "string", "host, null where unknown"), *_RANK,
        _c("name", "string", "variable or component name"),
        _c("value", "string", "value as printed"),
        _c("origin", "string", "env, export, nccl_set_by_environment, nccl_invalid, banner, ..."),
    )),
    Table("theory_reports", "one printed theoretical footprint with every line of its block", (
        _STEP,
        _c("weight_and_optimizer_bytes", "int64", "printed weight and optimizer footprint (the printed MB are MiB)"),
        _c("activation_bytes", "int64", "printed activation footprint, null where the branch prints none"),
        _c("total_bytes", "int64", "printed total, null where none is printed"),
        _c("branch_marker", "string", "marker line of the block: `compute_activation_memory with SP`, `compute_activation_memory_without_sp`"),
        _c("shape", "string", "full (weights, activation, total), weights_only, components, detail (no footprint line seen), unsupported"),
        _c("producer", "string", "megatron-lm, flagscale, megatron-bridge, estimator"),
        _c("activation_per_layer_bytes", "int64", "printed activation of one transformer layer"),
        _c("in_flight_microbatches", "int32", "printed number of in-flight micro-batches"),
        _c("components", "map<string,double>", "every further number of the block by its printed name; sizes in bytes, "
           "counts of parameters in units of one"),
        _c("text", "string", "the block as printed, launcher prefixes removed"),
    )),
    Table("parameter_counts", "one printed count of parameters: a model-parallel rank's total, or one gradient bucket", (
        *_RANK,
        _c("tensor_rank", "int32", "tensor-parallel rank, null for a bucket"),
        _c("pipeline_rank", "int32", "pipeline rank, null for a bucket"),
        _c("model_parallel_rank", "int32", "rank in the single model-parallel group of releases before 2020-12"),
        _c("parameters", "int64", "number of parameters (elements)", "elements"),
        _c("bucket", "int32", "index of the gradient bucket, null for a rank's total"),
        _c("padded_elements", "int64", "bucket size after padding", "elements"),
        _c("names", "list<string>", "parameter names of the bucket"),
    )),
    Table("rank_memory", "one measurement of one rank's memory", (
        *_RANK, _STEP,
        _c("phase", "string", "when in the run: train, before_save_checkpoint, after_save_checkpoint, evaluation, or the label printed"),
        _c("source", "string", "megatron_log, memory_stats, bridge_log, phase_log, iteration_line, cuda_graph, tensorboard, ..."),
        _c("scope", "string", "of the maxima: cumulative (since process start) or interval (reset since the last record)"),
        _c("allocated_bytes", "int64", "tensors alive in the caching allocator"),
        _c("max_allocated_bytes", "int64", "peak of allocated over the scope"),
        _c("reserved_bytes", "int64", "held by the caching allocator from the device"),
        _c("max_reserved_bytes", "int64", "peak of reserved over the scope"),
        _c("device_used_bytes", "int64", "used on the whole device, other processes included"),
        _c("device_total_bytes", "int64", "capacity, from the same source as device_used_bytes"),
        _c("rounding_bytes", "int64", "largest error of the printed figures against the true bytes; 0 where exact"),
        _c("valid", "bool", "false where the figures cannot be true (all zero, negative, overflowed): kept, used in no measure"),
        _c("at", "timestamp", "time printed, the artifact's clock"),
    )),
    Table("memory_stats", "one reading of torch.cuda.memory_stats on one rank", (
        *_RANK, _STEP,
        _c("scope", "string", "of the peaks: cumulative or interval"),
        _c("at", "timestamp", "time of the reading"),
        _c("device_total_bytes", "int64", "device capacity from torch.cuda.mem_get_info"),
        _c("device_free_bytes", "int64", "device free from torch.cuda.mem_get_info"),
        *_counts("allocated_bytes_all", "allocated_bytes.all"),
        *_counts("reserved_bytes_all", "reserved_bytes.all"),
        *_counts("active_bytes_all", "active_bytes.all"),
        *_counts("requested_bytes_all", "requested_bytes.all"),
        *_counts("inactive_split_bytes_all", "inactive_split_bytes.all"),
        _c("num_alloc_retries", "int64", "times the allocator had to free its cache and retry"),
        _c("num_ooms", "int64", "out-of-memory errors thrown"),
        _c("counters", "map<string,int64>", "every counter by its torch name, those with a column included"),
        _c("valid", "bool", "false where the counters cannot be true"),
    )),
    Table("iterations", "one training iteration as the log prints it (the mean over the log interval)", (
        _STEP,
        _c("train_iterations", "int64", "iterations planned"),
        _c("timestamp", "timestamp", "time printed, the log's clock"),
        _c("elapsed_ms", "double", "time of one iteration"),
        _c("consumed_samples", "int64", "samples so far"),
        _c("global_batch_size", "int64", "samples a step"),
        _c("learning_rate", "double", "learning rate"),
        _c("grad_norm", "double", "gradient norm"),
        _c("loss_scale", "double", "loss scale"),
        _c("skipped", "int64", "skipped iterations in the interval"),
        _c("nan", "int64", "iterations with NaN in the interval"),
        _c("tflops_per_gpu", "double", "throughput, TFLOP/s a GPU"),
        _c("losses", "map<string,double>", "every loss by its printed name"),
        _c("phase", "string", "train, or validation for a validation line"),
        *_RANK,
    )),
    Table("expert_load", "tokens of one expert in one micro-batch", (
        *_RANK, _STEP,
        _c("block", "string", "model part the layer belongs to (decoder, mtp), null where not told"),
        _c("mtp_index", "int32", "which multi-token-prediction depth, null for the decoder"),
        _c("layer", "int32", "layer index in its model chunk, as recorded: chunks of virtual stages that share it are merged"),
        _c("microbatch", "int32", "position in the recorded list, from 0: the micro-batch, unless a recomputation recorded it again"),
        _c("repeated", "bool", "true where the counts repeat an earlier entry of a list whose entries all pair up so: what recomputation leaves"),
        _c("expert", "int32", "local expert index on the rank"),
        _c("tokens", "int64", "tokens routed to the expert", "tokens"),
        _c("pass_tokens", "int64", "tokens of all experts of the rank in that layer and pass", "tokens"),
    )),
    Table("oom_events", "one out-of-memory error", (
        *_RANK, _STEP,
        _c("device", "int32", "device index as printed"),
        _c("requested_bytes", "int64", "size of the request that failed"),
        _c("capacity_bytes", "int64", "device capacity printed"),
        _c("free_bytes", "int64", "device free printed"),
        _c("process_bytes", "int64", "in use by this process, non-PyTorch memory included"),
        _c("allocated_bytes", "int64", "allocated by PyTorch"),
        _c("private_pool_bytes", "int64", "allocated in private pools (CUDA graphs)"),
        _c("reserved_unallocated_bytes", "int64", "reserved by PyTorch and unallocated"),
        _c("reserved_bytes", "int64", "reserved in total by PyTorch, where printed"),
        _c("allowed_bytes", "int64", "cap below capacity (memory fraction), where printed"),
        _c("allocator_hint", "string", "allocator setting the message recommends"),
        _c("kind", "string", "cuda, hip, npu, driver, nccl, cublas, host, saver, ..."),
        _c("frame", "string", "innermost frame of the user's code in the traceback, file:line"),
        _c("text", "string", "the message as printed, at most 2,000 characters"),
        _c("valid", "bool", "false where a printed figure cannot be true; that figure is null"),
        _c("at", "timestamp", "time printed"),
    )),
    Table("memory_summary", "one row of a torch.cuda.memory_summary table: 3 to 4 digits, never exact", (
        *_RANK, _STEP,
        _c("device", "int32", "device index as printed"),
        _c("metric", "string", "row label: Allocated memory, Active memory, ..."),
        _c("pool", "string", "all, large or small"),
        _c("current", "int64", "current; bytes for sizes, a count elsewhere"),
        _c("peak", "int64", "peak"),
        _c("total_allocated", "int64", "sum ever allocated"),
        _c("total_freed", "int64", "sum ever freed"),
        _c("rounding_bytes", "int64", "largest error of `current` by its printed digits; 0 for counts"),
    )),
    Table("device_memory", "one reading of a device's or host's memory by nvidia-smi, rocm-smi, npu-smi, psutil", (
        *_RANK, _STEP,
        _c("host", "string", "host, null where unknown"),
        _c("device", "int32", "device index; null for host memory"),
        _c("device_name", "string", "device name"),
        _c("used_bytes", "int64", "used"),
        _c("total_bytes", "int64", "capacity"),
        _c("free_bytes", "int64", "free"),
        _c("utilization_percent", "double", "device utilization", "percent"),
        _c("source", "string", "nvidia-smi, rocm-smi, npu-smi, iteration_line, host, ..."),
        _c("valid", "bool", "false where the figures cannot be true"),
        _c("at", "timestamp", "time printed"),
    )),
    Table("job_events", "something that happened to the job: checkpoint, evaluation, snapshot written, failure, restart, host kill", (
        *_RANK, _STEP,
        _c("event", "string", "checkpoint_save_started, checkpoint_saved, checkpoint_loaded, evaluation, snapshot_written, "
           "snapshot_enabled, rank_failed, host_killed, cuda_graph_built, datetime, ..."),
        _c("host", "string", "host, null where unknown"),
        _c("at", "timestamp", "time printed"),
        _c("first_failure", "bool", "true for the rank that failed first"),
        _c("detail", "string", "path, message or phase"),
    )),
    Table("nccl_communicators", "one fact about a communicator printed by one rank", (
        *_RANK,
        _c("host", "string", "host, null where unknown"), _c("pid", "int64", "process"), _c("device", "int32", "local device"),
        _THREAD,
        _c("communicator", "string", "address printed, unique within its process"), _c("communicator_id", "string", "commId where printed"),
        _c("communicator_rank", "int32", "rank within the communicator"), _c("ranks", "int32", "ranks of the communicator"),
        _c("nodes", "int32", "nodes"), _c("parent", "string", "communicator it was split from"),
        _c("bus_id", "string", "PCI bus of the device"),
        _c("collective_channels", "int32", "channels for collectives"), _c("collnet_channels", "int32", "CollNet channels"),
        _c("nvls_channels", "int32", "NVLS channels"), _c("p2p_channels", "int32", "point-to-point channels"),
        _c("p2p_channels_per_peer", "int32", "of one peer"),
        _c("event", "string", "init_started, init, topology, channels, ring, trees, nvls, p2p_chunksize, connected, init_timings, ..."),
    )),
    Table("nccl_connections", "one connection of a channel between two ranks", (
        *_RANK,
        _c("host", "string", "host"), _c("pid", "int64", "process"), _c("device", "int32", "local device"), _THREAD,
        _c("communicator", "string", "communicator where told"),
        _c("channel", "int32", "channel"), _c("connection_index", "int32", "connection index"),
        _c("source_rank", "int32", "sender, rank within the communicator"),
        _c("destination_rank", "int32", "receiver"), _c("direction", "string", "send, receive or null"),
        _c("transport", "string", "text after via: P2P/direct pointer/read, NET/IB/2/GDRDMA, SHM, ..."),
    )),
    Table("nccl_allocations", "one allocation NCCL or RCCL reports", (
        *_RANK,
        _c("host", "string", "host"), _c("pid", "int64", "process"), _c("device", "int32", "local device"), _THREAD,
        _c("communicator", "string", "communicator where told"),
        _c("space", "string", "device, host_pinned, host_cumem, host, nvls, running_total"),
        _c("size_bytes", "int64", "size; for running_total the total"),
        _c("site", "string", "source file and line that allocated"),
        _c("event", "string", "alloc, realloc, free, planned (an NVLS block), multicast_group, suspended, resumed"),
    )),
    Table("snapshots", "one CUDA memory snapshot file", (
        *_RANK, _STEP,
        _c("path", "string", "path of the file"), _c("trigger", "string", "oom, step or null"),
        _c("allocator_settings", "string", "settings as JSON"),
        _c("reader", "string", "reader that read it: python or compiled"),
        _c("file_bytes", "int64", "size of the pickle after decompression"),
    )),
    Table("snapshot_devices", "one device of one snapshot", (
        *_RANK, _c("device", "int32", "device index"), _c("events", "int64", "trace events"),
        _c("end_requested_bytes", "int64", "requested, at the end"), _c("end_allocated_bytes", "int64", "rounded, at the end"),
        _c("end_reserved_bytes", "int64", "reserved, at the end"),
        _c("peak_requested_bytes", "int64", "exact peak of requested"),
        _c("peak_allocated_low_bytes", "int64", "rounded peak, lower bound"),
        _c("peak_allocated_high_bytes", "int64", "rounded peak, upper bound"),
        _c("peak_reserved_bytes", "int64", "peak of reserved"),
        _c("peak_event", "int64", "index of the event after which requested peaks"),
        _c("irregularities", "map<string,int64>", "kinds of irregular events and how many"),
    )),
    Table("snapshot_events", "one event of a snapshot's trace", (
        *_RANK, _c("device", "int32", "device index"), _c("event", "int64", "index in the device's trace"),
        _c("action", "string", "alloc, free_requested, free_completed, segment_alloc, segment_free, oom, snapshot, ..."),
        _c("address", "int64", "address"), _c("size_bytes", "int64", "size"), _c("stream", "int64", "stream"),
        _c("time_us", "int64", "time, microseconds", "us"), _c("stack", "int64", "`snapshot_stacks.stack`"),
        _c("category", "string", "class attributed"),
    )),
    Table("snapshot_stacks", "one distinct stack of a snapshot", (_c("stack", "int64", "index"),
    _c("frames", "list<string>", "file:line function, innermost first"),)),
    Table("snapshot_segments", "one segment held at the end", (
        *_RANK, _c("device", "int32", "device index"), _c("address", "int64", "address"), _c("size_bytes", "int64", "size"),
        _c("allocated_bytes", "int64", "allocated in it"), _c("active_bytes", "int64", "active in it"),
        _c("stream", "int64", "stream"), _c("pool", "string", "large or small, with the private pool's id"),
        _c("expandable", "bool", "expandable segment"),
    )),
    Table("snapshot_blocks", "one block of a segment at the end", (
        *_RANK, _c("device", "int32", "device index"), _c("segment", "int64", "address of the segment"),
        _c("address", "int64", "address"), _c("size_bytes", "int64", "rounded size"), _c("requested_bytes", "int64", "requested"),
        _c("state", "string", "active_allocated, active_awaiting_free, inactive"), _c("stack", "int64", "`snapshot_stacks.stack`"),
        _c("category", "string", "class attributed"),
    )),
    Table("snapshot_annotations", "one annotation recorded with the trace", (
        *_RANK, _c("device", "int32", "device index"), _c("name", "string", "annotation"), _c("stage", "string", "start or end"),
        _c("time_us", "int64", "time, microseconds", "us"),
    )),
    Table("rank_day", "what one piece (once folded: several) adds to one rank, day and level; the views `rank_days` and `rank_day_levels` sum up", (
        *_RANK,
        _c("day", "date", "day of the records by their own time (`at`), null where they print none: then the day of ingest, as the views fill in"),
        _c("scope", "string", "of the peaks: interval, cumulative, or null; a level of cumulative ones is an upper bound of its records' steps"),
        _c("reserved_level", "int32", "peak reserved of the records in whole 256 MiB, null where not told"),
        _c("allocated_level", "int32", "peak allocated of the records in whole 256 MiB, null where not told"),
        _c("records", "int64", "valid records of rank_memory counted; 0 where the row is of memory_stats or oom_events"),
        _c("max_allocated_bytes", "int64", "largest peak allocated (of a record: the larger of allocated and its maximum)"),
        _c("min_allocated_bytes", "int64", "smallest peak allocated of a record"),
        _c("max_reserved_bytes", "int64", "largest peak reserved"),
        _c("min_reserved_bytes", "int64", "smallest peak reserved of a record"),
        _c("max_device_used_bytes", "int64", "largest use of the whole device"),
        _c("max_outside_bytes", "int64", "largest device used less reserved of one record: what lies outside torch"),
        _c("device_total_bytes", "int64", "smallest capacity that the records print"),
        _c("max_active_bytes", "int64", "largest peak active of memory_stats"),
        _c("alloc_retries", "int64", "largest num_alloc_retries of memory_stats: times it freed its cache and retried, since process start"),
        _c("ooms", "int64", "rows of oom_events"),
        _c("first_iteration", "int64", "smallest iteration"), _c("last_iteration", "int64", "largest iteration"),
        _c("first_at", "timestamp", "earliest time printed"), _c("last_at", "timestamp", "latest time printed"),
        _c("pieces", "int64", "how many rows of single pieces were summed into this one; 1 as ingested"),
    )),
)

BY_NAME: dict[str, Table] = {table.name: table for table in TABLES}


@cache
def arrow_schema(table: str) -> pa.Schema:
    """The Arrow schema of a table, columns in the order of `Table.columns`."""
    import pyarrow as pa

    types: dict[str, Any] = {
        "string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_(), "date": pa.date32(),
        "timestamp": pa.timestamp("us"), "list<string>": pa.list_(pa.string()), "map<string,string>": pa.map_(pa.string(), pa.string()),
        "map<string,double>": pa.map_(pa.string(), pa.float64()), "map<string,int64>": pa.map_(pa.string(), pa.int64()),
    }
    return pa.schema([pa.field(column.name, types[column.type]) for column in BY_NAME[table].columns])
