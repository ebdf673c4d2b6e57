"""Iteration lines of each fork: columns, losses by name, the rest in `other`; devices and peaks that some print in them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.ingest.parsers.log.reading import read

GIB = 2**30
END = " number of skipped iterations:   2 | number of nan iterations:   1 |"


def gib(value: float) -> int:
    return round(value * GIB)


def one(text: str) -> dict[str, Any]:
    (row,) = read(text + "\n")["iterations"]
    return {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize(("text", "expected", "losses", "other"), [
    (" iteration       10/  120000 | elapsed time per iteration (ms): 2011.5 | learning rate: 1.000E-04 | lm loss: "
     "1.244310E+01 | loss scale: 8388608.0 |",
     {"iteration": 10, "train_iterations": 120000, "elapsed_ms": 2011.5, "learning_rate": 1e-4, "loss_scale": 8388608.0}, {"lm loss": 12.4431}, {}),
    (" [2026-06-01 00:00:10.000001] iteration       50/     500 | consumed samples:         3200 | skipped samples:     "
     "      64 | elapsed time per iteration "
     "(ms): 902.5 | throughput per GPU (TFLOP/s/GPU): 410.5 | energy per GPU (J/iter/GPU): 512.5 | power per GPU (W/GPU): 567.5 | learning rate: "
     "1.000000E-04 | global batch size:    64 | lm loss: 3.100000E+00 | z_loss: 1.023310E+01 | loss scale: 1.0 | grad "
     "norm: 0.901 | num zeros: 5 |" + END,
     {"iteration": 50, "timestamp": datetime(2026, 6, 1, 0, 0, 10, 1), "consumed_samples": 3200, "elapsed_ms": 902.5, "tflops_per_gpu": 410.5,
      "global_batch_size": 64, "grad_norm": 0.901, "skipped": 2, "nan": 1}, {"lm loss": 3.1, "z_loss": 10.2331},
     {"skipped samples": "64", "energy per GPU (J/iter/GPU)": "512.5", "power per GPU (W/GPU)": "567.5", "num zeros": "5"}),
    ("[default7]: iteration    12701/  115311 | consumed samples:      9853872 | consumed tokens:  20180729856 | "
     "elapsed time per iteration (s): 105.25 | "
     "global batch size:  2048 | lm loss: 2.461001E+00 |" + END + " samples per second: 19.447 | TFLOPs: 148.5 |",
     {"iteration": 12701, "elapsed_ms": 105250.0, "tflops_per_gpu": 148.5, "rank_label": "local 7", "skipped": 2}, {"lm loss": 2.461001},
     {"consumed tokens": "20180729856", "samples per second": "19.447"}),
    (" iteration        3/      50 | consumed samples:           96 | elapsed time per iteration (ms): 5402.5 | lm "
     "loss: 1.121077E+01 | actual seqlen:  2048 |"
     + END + " tokens per gpu per second (tgs): 1531.200 | TFLOPs: 48.30 |",
     {"iteration": 3, "elapsed_ms": 5402.5, "tflops_per_gpu": 48.3, "nan": 1}, {"lm loss": 11.21077},
     {"actual seqlen": "2048", "tokens per gpu per second (tgs)": "1531.200"}),
    ("Training epoch 0, iteration 10/99 | lr: 1.5e-05 | global_batch_size: 64 | global_step: 10 | reduced_train_loss: 10.25 | "
     "train_step_timing in s: 5.25 | consumed_samples: 704 |",
     {"iteration": 10, "train_iterations": 99, "learning_rate": 1.5e-05, "global_batch_size": 64, "elapsed_ms": 5250.0, "consumed_samples": 704},
     {"reduced_train_loss": 10.25}, {"global_step": "10"}),
    (" iteration        1/   23841 | consumed samples:         1024 | mfu: 59.4290 | chip_throughput: 1188.58 /s  learning rate: 1.875E-09 |",
     {"iteration": 1, "learning_rate": 1.875e-09, "consumed_samples": 1024}, {}, {"mfu": "59.4290", "chip_throughput": "1188.58"}),
    ("{'loss': '0.3822', 'grad_norm': '0.8744', 'iteration': '1/60', 'memory(GiB)': '54.25', 'train_speed(s/it)': '43.25'}",
     {"iteration": 1, "train_iterations": 60, "grad_norm": 0.8744, "elapsed_ms": 43250.0}, {"loss": 0.3822}, {"max_reserved_bytes": str(gib(54.25))}),
    ("Train:   2%|▏| 1/60 [00:42<41:47, 43.07s/it]{'loss': 0.3822, 'learning_rate': 1e-05, 'global_step/max_steps': '1/60', 'memory(GiB)': 54.25}",
     {"iteration": 1, "train_iterations": 60, "learning_rate": 1e-05}, {"loss": 0.3822}, {"max_reserved_bytes": str(gib(54.25))}),
    (" iteration       20/  500000 | consumed samples: 20480 | lm loss: nan | grad norm: inf |" + END, {"iteration": 20, "nan": 1}, {},
     {"lm loss": "nan", "grad norm": "inf"}),
])
def test_a_line_of_each_age_and_fork(text: str, expected: dict[str, Any], losses: dict[str, float], other: dict[str, str]) -> None:
    row = one(text)
    assert {name: row.get(name) for name in expected} == expected
    assert (row.get("losses", {}), row.get("other", {})) == (losses, other)


PRIMUS = ("[20260123 12:39:12][rank-63/64][INFO ] [--------trainer.py:2382] :  iteration      424/   40000 | elapsed"
          " time per iteration (ms): 16444.5/17102.5 | ")


@pytest.mark.parametrize(("field", "devices"), [
    ("hip mem usage/free/total/usage_ratio: 243.25GB/12.50GB/255.75GB/95.08%", [(63, gib(243.25), gib(12.5), gib(255.75))]),
    ("rocm mem usage/free/total/usage_ratio: 243.25GB/12.50GB/255.75GB/95.08% | rank-17 rocm max mem usage/usage_ratio: 250.50GB/97.70%",
     [(63, gib(243.25), gib(12.5), gib(255.75)), (17, gib(250.5), None, None)]),
    ("hip mem usage/free/total/usage_ratio: 243.25GB/12.50GB/255.75GB/95.08% | rank-3 hip max mem usage/free/total/usage_ratio: "
     "250.25GB/5.50GB/255.75GB/97.81%", [(63, gib(243.25), gib(12.5), gib(255.75)), (3, gib(250.25), gib(5.5), gib(255.75))]),
    ("rank_3 hip mem usage/free/total/usage_ratio: 243.25GB/12.50GB/255.75GB/95.08%", [(3, gib(243.25), gib(12.5), gib(255.75))]),
])
def test_primus_tells_the_device_of_the_printing_rank_or_of_the_one_it_names(field: str, devices: list[tuple[object, ...]]) -> None:
    rows = read(PRIMUS + field + " | lm loss: 4.501127E+00 |" + END + "\n")
    assert [(row["rank"], row["used_bytes"], row.get("free_bytes"), row.get("total_bytes")) for row in rows["device_memory"]] == devices
    assert {row["source"] for row in rows["device_memory"]} == {"iteration_line"}
    (row,) = rows["iterations"]
    assert (row["rank"], row["elapsed_ms"], row["other"]["elapsed time per iteration (ms) average"]) == (63, 16444.5, "17102.5")


def test_mindspeed_tells_the_step_s_peaks_and_the_host() -> None:
    rows = read("INFO [2026-06-22 19:25:38] >>  iteration        2/    2000 | elapsed time per iteration (ms): 1350.12 | lm loss: 1.102000E+00 | "
                "max_memory_allocated(GB): 41.25 | max_memory_reserved(GB): 48.50 | cpu_used_memory(GB): 512.25 |\n")
    (memory,) = rows["rank_memory"]
    assert (memory["scope"], memory["iteration"]) == ("interval", 2)
    assert (memory["max_allocated_bytes"], memory["max_reserved_bytes"]) == (gib(41.25), gib(48.5))
    assert rows["iterations"][0]["other"]["cpu_used_memory_bytes"] == str(gib(512.25))
    assert [row["framework"] for row in rows["runs"] if row.get("framework")] == ["mindspeed"]


def test_glued_lines_are_read_each_by_itself() -> None:
    line = " iteration       20/  500000 | consumed samples:        20480 | lm loss: 1.070112E+01 |" + END
    theory = "Theoretical memory footprints: weight and optimizer=47557.50 MB"
    for text in (line + theory, theory + line, line + " iteration       30/  500000 | consumed samples:        30720 | "
    "lm loss: 1.000000E+00 |" + END):
        rows = read(text + "\n")
        assert rows["iterations"][0]["losses"] == {"lm loss": 10.70112}
        assert [row["weight_and_optimizer_bytes"] for row in rows.get("theory_reports", [])] in ([], [round(47557.5 * 2**20)])
        assert [row["iteration"] for row in rows["iterations"]] in ([20], [20, 30])
    torn = read(" iteration       20/  500000 | consumed samples:        20480 | elapsed time per iterNumber of "
    "parameters in transformer block in billions:  "
                "6.44\nation (ms): 12305.4 | lm loss: 1.070112E+01 |\n" + theory + "\n")
    assert "elapsed_ms" not in torn["iterations"][0]
    assert torn["theory_reports"][0]["components"] == {"Number of parameters in transformer block": 6_440_000_000}


@pytest.mark.parametrize("number", ["-5/  500", "1e30/  500", "******/  500", "NaN/  500", "7/  None"])
def test_an_iteration_line_without_its_numbers_is_no_silent_loss(number: str) -> None:
    line = f" iteration {number} | consumed samples:        20480 | elapsed time per iteration (ms): 12.0 | lm loss: 1.070112E+01 |" + END
    rows = read(line + "\n")
    assert "iterations" not in rows
    assert [(row["line"], row["reason"]) for row in rows["rejects"]] == [(1, "an iteration line whose iteration is no whole number")]
    assert rows["rejects"][0]["text"] == line.strip()


def test_a_sentence_about_iterations_is_no_reject() -> None:
    assert "rejects" not in read("iteration time / per rank | see the table\nsaved iteration last / 500 | done, consumed nothing\n")


def test_commas_are_thousands_where_nothing_else_can_be_meant_and_never_cut_a_number() -> None:
    line = (" iteration 20/ 500 | consumed samples: 20,480 | consumed tokens: 41,943,040 | elapsed time per iteration (ms): 12,305.4 | "
            "learning rate: 7,1E-07 | lm loss: 1,070112E+01 | mtp loss: 1.000000E+00 | grad norm: 12,305 |" + END)
    rows = read(line + "\n")
    (row,) = rows["iterations"]
    assert (row["consumed_samples"], row["elapsed_ms"], row["losses"]) == (20480, 12305.4, {"mtp loss": 1.0})
    assert not any(row.get(name) for name in ("learning_rate", "grad_norm"))
    assert row["other"]["consumed tokens"] == "41,943,040"
    assert [one["text"] for one in rows["rejects"]] == [line.strip()]
    assert "rejects" not in read(line.replace("7,1E-07", "7.1E-07").replace("1,07", "1.07").replace("12,305 |", "12.3 |") + "\n")
    evaluation = read("validation loss at iteration 20 | lm loss value: 1,07E+01 | lm loss PPL: 4.0E+00 |\n")
    assert [one["line"] for one in evaluation["rejects"]] == [1]


def test_a_colon_after_the_word_is_no_silent_loss() -> None:
    rows = read(" iteration:       40/    2000 | consumed samples:          160 | elapsed time per iteration (ms): 11234.5 |\n")
    assert ("iterations" in rows, len(rows["rejects"])) == (False, 1)
