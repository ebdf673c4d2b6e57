"""Each kind of log record, its values worked from the printed text."""

from __future__ import annotations

import pytest

from ingest.parsers.base import Row
from ingest.parsers.log.recognizers import RECOGNIZERS
from ingest.parsers.log.records import Context, Fed, LogLine
from tests.ingest.parsers.log.reading import read as read_log

MIB = 2**20
GIB = 2**30


def read(*texts: str, rank: int | None = None) -> dict[str, list[Row]]:
    """Rows of lines that no launcher touched, read as the engine reads them."""
    context = Context()
    for number, text in enumerate(texts, 1):
        line = LogLine(text, number, 0, rank=rank)
        if not _fed(line, context):
            for recognizer in RECOGNIZERS:
                if any(one in text for one in recognizer.literals):
                    recognizer.take(line, context)
    for group in context.groups:
        group.finish(context)
    return context.rows


def _fed(line: LogLine, context: Context) -> bool:
    for group in reversed(list(context.groups)):
        fed = group.feed(line, context)
        if fed in (Fed.CLOSED, Fed.CLOSED_BEFORE):
            context.groups.remove(group)
        if fed in (Fed.TAKEN, Fed.CLOSED):
            return True
    return False


def test_exact_floats_are_exact_bytes() -> None:
    row = read("[Rank 0] (after 20 iterations) memory (MB) | allocated: 1422.904296875 | max allocated: 18633.24462890625 | "
               "reserved: 24210.0 | max reserved: 24210.0")["rank_memory"][0]
    assert (row["rank"], row["iteration"], row["phase"], row["scope"]) == (0, 20, "train", "cumulative")
    assert row["allocated_bytes"] * 512 == 728527 * MIB
    assert row["reserved_bytes"] == 24210 * MIB
    assert row["rounding_bytes"] == 0
    assert row["valid"]


def test_two_decimals_carry_their_rounding_and_the_device() -> None:
    row = read("[Rank 12] (after 1 iterations) memory (MB) | allocated: 30110.75 | max allocated: 38842.02 | reserved: 39124.00 | "
               "max reserved: 39124.00 | total device memory used: 41000.10")["rank_memory"][0]
    assert row["allocated_bytes"] == 30110 * MIB + 786432
    assert row["device_used_bytes"] == round(41000.10 * MIB)
    assert 5242 <= row["rounding_bytes"] <= 5244


def test_a_collision_keeps_only_what_is_certain() -> None:
    rows = read("[Rank 39] (after 1 iterations) memory (MB) | allocated: 10211.39 | max allocated: 146[Rank 38] (after 1 iterations) memory (MB) "
                "| allocated: 10211.39 | max allocated: 14602.84 | reserved: 17904.00 | max reserved: 17904.00")
    damaged, whole = sorted(rows["rank_memory"], key=lambda row: -int(row["rank"]))
    assert damaged["rank"] == 39
    assert "max_allocated_bytes" not in damaged
    assert damaged["other"] == {"damaged": "true"}
    assert whole["rank"] == 38
    assert whole["max_allocated_bytes"] == round(14602.84 * MIB)
    assert len(rows["rejects"]) == 1


def test_a_record_touched_by_another_s_text_is_whole_or_keeps_what_is_certain() -> None:
    record = "[Rank 8] (after 2 iterations) memory (MB) | allocated: 10.50 | max allocated: 20.25 | reserved: 42.00 | max reserved: 42.00"
    for other in ("gx-n01:3310:4411 [2] NCCL INFO Channel 00/02", " iteration 2/ 3 | lm loss: 1.000000E+00 |", "Theoretical memory footprints: x"):
        (row,) = read(record + other)["rank_memory"]
        assert row["max_reserved_bytes"] == 42 * MIB
        (row,) = read(record[:record.index("20.25") + 2] + other)["rank_memory"]
        assert (row["allocated_bytes"], row.get("max_allocated_bytes"), row["other"]) == (10 * MIB + MIB // 2, None, {"damaged": "true"})


def test_a_cut_record_is_rejected() -> None:
    whole = "[Rank 8] (after 2 iterations) memory (MB) | allocated: 20110.50 | max allocated: 40220.25 | reserved: 42000.00 | max reserved: 42000.00"
    for cut in range(60, len(whole)):
        assert "rank_memory" not in read(whole[:cut]), whole[:cut]


def test_a_label_in_place_of_a_rank_and_checkpoint_phases() -> None:
    last, save = read(
        "[Rank last] (after 10 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 4.0 | max reserved: 4.0",
        "[Rank 0] (before save_checkpoint for iteration 500) memory (MB) | allocated: 1.50 | max allocated: 2.50 | "
             "reserved: 4.00 | max reserved: 4.00",
    )["rank_memory"]
    assert (last["rank"], last["rank_label"]) == (None, "last")
    assert (save["phase"], save["iteration"]) == ("before_save_checkpoint", 500)


def test_a_label_without_parentheses() -> None:
    rows = read("after loading checkpoint memory (MB) | allocated: 1.5 | max allocated: 2.5 | cached: 4.0 | max cached: 4.0",
                "after 100 iterations memory (MB) | allocated: 1.5 | max allocated: 2.5 | cached: 4.0 | max cached: 4.0")["rank_memory"]
    assert [(row["phase"], row["iteration"], row["max_reserved_bytes"]) for row in rows] == [
        ("after loading checkpoint", None, 4 * MIB), ("train", 100, 4 * MIB)]


def test_bridge_prints_decimal_gigabytes() -> None:
    row = read("[Rank 0] (after 2 iterations) memory (GB) | mem-allocated-gigabytes: 58.02 | mem-max-allocated-gigabytes: 141.5 | "
               "host-mem-allocated-gigabytes: 212.4")["rank_memory"][0]
    assert (row["allocated_bytes"], row["max_allocated_bytes"]) == (58_020_000_000, 141_500_000_000)
    assert row["other"] == {"host-mem-allocated-bytes": "212400000000"}


def test_all_zero_figures_are_kept_and_flagged() -> None:
    row = read("[Rank 0] (after 1 iterations) memory (MB) | allocated: 0.0 | max allocated: 0.0 | reserved: 0.0 | "
         "max reserved: 0.0")["rank_memory"][0]
    assert row["valid"] is False
    assert row["allocated_bytes"] == 0


def test_an_iteration_line_with_extra_fields() -> None:
    row = read(" [2026-04-05 16:08:25] iteration        2/    2000 | consumed samples:          256 | elapsed time per iteration (ms): 11240.5 | "
               "throughput per GPU (TFLOP/s/GPU): 128.2 | learning rate: 2.999993E-05 | global batch size:   128 | lm loss: 2.701334E+00 | "
               "mtp_1 loss: 2.855910E+00 | loss scale: 1.0 | grad norm: 7.512 | num zeros: 56110234 | number of skipped iterations:   1 | "
               "number of nan iterations:   0 |")["iterations"][0]
    assert (row["iteration"], row["train_iterations"], row["consumed_samples"], row["elapsed_ms"]) == (2, 2000, 256, 11240.5)
    assert (row["tflops_per_gpu"], row["learning_rate"], row["skipped"], row["nan"], row["loss_scale"]) == (128.2, 2.999993e-05, 1, 0, 1.0)
    assert row["losses"] == {"lm loss": 2.701334, "mtp_1 loss": 2.85591}
    assert row["other"] == {"num zeros": "56110234"}


def test_seconds_become_milliseconds() -> None:
    row = read("iteration 12701/ 115311 | elapsed time per iteration (s): 105.31 | lm loss: 2.461001E+00 | TFLOPs: 148.9 |")["iterations"][0]
    assert (row["elapsed_ms"], row["tflops_per_gpu"]) == (105310.0, 148.9)


def test_a_theory_block_waits_for_the_report_that_names_its_iteration() -> None:
    row = read(
        "compute_activation_memory with SP", "Activation memory footprint per transformer layer: 115.0 MB", "Number of in-flight microbatches: 4",
        "Theoretical memory footprints: weight and optimizer=5007.38 MB, activation=3696.03 MB, total=8703.41 MB",
        " iteration 20/ 100 | elapsed time per iteration (ms): 10.0 | lm loss: 1.000000E+00 |",
        "[Rank 0] (after 20 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 4.0 | max reserved: 4.0",
    )["theory_reports"][0]
    assert (row["line"], row["iteration"], row["shape"], row["in_flight_microbatches"]) == (4, 20, "full", 4)
    assert row["total_bytes"] == round(8703.41 * MIB)
    assert row["activation_per_layer_bytes"] == 115 * MIB
    assert row["text"].splitlines()[0] == row["branch_marker"] == "compute_activation_memory with SP"


def test_weights_only_unsupported_and_cut_footprints() -> None:
    weights = read("Theoretical memory footprints: weight and optimizer=38214.06 MB")["theory_reports"][0]
    assert weights["shape"] == "weights_only"
    assert "activation_bytes" not in weights
    assert read("Theoretical memory footprints not yet supported for hybrid Mamba-Transformer models.")["theory_reports"][0]["shape"] == "unsupported"
    cut = read("Theoretical memory footprints: weight and optimizer=9120.44 MB, activation=22")
    assert "theory_reports" not in cut
    assert len(cut["rejects"]) == 1


def test_a_dump_with_a_long_name_an_empty_value_and_a_value_of_two_lines() -> None:
    name = "ddp_param_name_patterns_for_fp32_local_accumulation"
    rows = read("------------------------ arguments ------------------------", f"  {name}  []", "  load " + "." * 44 + " ",
                "  note " + "." * 44 + " one", "two", "  pipeline_model_parallel_size " + "." * 20 + " 4", "  seed " + "." * 44 + " None",
                "-------------------- end of arguments ---------------------")
    assert {row["name"]: row["value"] for row in rows["run_args"]} == {
        name: "[]", "load": "", "note": "one\ntwo", "pipeline_model_parallel_size": "4", "seed": None}
    assert rows["runs"][0]["pipeline_model_parallel_size"] == 4


def test_world_sizes_without_a_separator() -> None:
    row = read("using world size: 16, data-parallel size: 2, context-parallel size: 1, "
         "hierarchical context-parallel sizes: Nonetensor-model-parallel "
               "size: 4, encoder-tensor-model-parallel size: 0, pipeline-model-parallel size: 2, encoder-pipeline-model-parallel size: 0")["runs"][0]
    assert [row[one] for one in ("world_size", "data_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size")] == [16, 2, 4, 2]


def test_old_and_glued_parameter_counts() -> None:
    rows = read(" > number of parameters on (tensor, pipeline) model parallel rank (3, "
         "5): 925177344 > number of parameters on model parallel rank 2: 80"
                )["parameter_counts"]
    assert [(row.get("tensor_rank"), row.get("pipeline_rank"), row.get("model_parallel_rank"), row["parameters"]) for row in rows] == [
        (3, 5, None, 925177344), (None, None, 2, 80)]


def test_an_impossible_figure_of_an_out_of_memory_error_is_null() -> None:
    row = read("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.98 GiB. "
         "GPU 0 has a total capacity of 31.84 GiB of which 16.30 GiB is free. "
               "Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use.", rank=3)["oom_events"][0]
    assert (row["rank"], row["device"], row["kind"], row["process_bytes"], row["valid"]) == (3, 0, "cuda", None, False)
    assert row["requested_bytes"] == int((398 * GIB + 50) / 100)


def test_a_unit_cut_by_damage_is_no_unit() -> None:
    row = read("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 iB. GPU 0 has a total capacity of 4.00 GiB")["oom_events"][0]
    assert "requested_bytes" not in row
    assert row["capacity_bytes"] == 4 * GIB


def test_the_root_cause_is_the_first_failure() -> None:
    rows = read("Failures:", "[1]:", "  time      : 2026-05-11_14:23:35", "  rank      : 61 (local_rank: 5)", "  exitcode  : 1 (pid: 20611)",
                "-" * 60, "Root Cause (first observed failure):", "[0]:", "  time      : 2026-05-11_14:23:31",
                "  rank      : 60 (local_rank: 4)")["job_events"]
    assert [(row["rank"], row["first_failure"]) for row in rows] == [(61, False), (60, True)]


def test_phase_lines_are_binary_gigabytes() -> None:
    row = read("Before compute_log_prob, memory allocated (GB): 2.50, memory reserved (GB): 3.25, "
         "device memory used/total (GB): 49.75/79.25")["rank_memory"][0]
    assert (row["phase"], row["allocated_bytes"], row["device_total_bytes"]) == ("Before compute_log_prob", 5 * GIB // 2, 79 * GIB + GIB // 4)


@pytest.mark.parametrize("unit", ["memory (KB) |", "memory |", "memory (bytes) |"])
def test_a_memory_record_in_no_known_unit_is_counted(unit: str) -> None:
    line = f"[Rank 3] (after 92 iterations) {unit} allocated: 9.0 | max allocated: 12.0 | reserved: 13.0 | max reserved: 13.5"
    whole = "[Rank 4] (after 92 iterations) memory (MB) | allocated: 9.00 | max allocated: 12.00 | reserved: 13.00 | max reserved: 13.50"
    rows = read_log(f"{line}{whole}\n{line}\n")
    assert [row["rank"] for row in rows["rank_memory"]] == [4]
    assert [(row["line"], row["text"]) for row in rows["rejects"]] == [(1, line), (2, line)]
    assert "rejects" not in read_log("[Rank 3] (after 92 iterations) memory | see the table\n[Rank 3] (after lunch) memory (KB) | none\n")
