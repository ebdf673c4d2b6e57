"""Which framework wrote a log, when an attempt began and ended, and what tells of its devices."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.ingest.parsers.log.reading import read

ITERATION = " [2026-04-05 16:08:25] iteration        2/    2000 | consumed samples: 8 | lm loss: 2.701334E+00 | number of nan iterations:   0 |\n"
WORLD = "using world size: 8, data-parallel size: 8, context-parallel size: 1, tensor-model-parallel size: 1, pipeline-model-parallel size: 1\n"


@pytest.mark.parametrize(("text", "framework"), [
    (WORLD + ITERATION, "megatron-lm"), (ITERATION, None),
    (">>> [FS] Theoretical memory footprints: weight and optimizer=1.00 MB, activation=2.00 MB, total=3.00 MB\n" + WORLD + ITERATION, "flagscale"),
    (WORLD + "  deepspeed_config ................................ ds.json\n" + ITERATION, "megatron-deepspeed"),
    ("[20260123 12:39:12][rank-63/64][INFO ] [--------trainer.py:2382] :  iteration      424/   40000 | lm loss: 4.501127E+00 |\n", "primus"),
    ("{'loss': 0.5, 'iteration': '5/60', 'train_speed(s/it)': 43.0}\n", "ms-swift"),
    ("[INFO:swift] after offload GPU memory: 3.12GB allocated, 4.50GB reserved\n", "ms-swift"),
    ("(WorkerDict pid=3) After init, memory allocated (GB): 14.25, memory reserved (GB): 15.5\n", "verl"),
    ("step:3 - perf/max_memory_allocated_gb:60.25\n", "verl"),
    ("(MegatronTrainRayActor pid=1) [Rank 0] Memory-Usage after train: {'gpu': '0', 'allocated_GB': 58.5, 'reserved_GB': 60.5}\n", "slime"),
    ("[Rank 0] (after 2 iterations) memory (GB) | mem-allocated-gigabytes: 58.02 | mem-max-allocated-gigabytes: 141.5\n", "megatron-bridge"),
    ("Training epoch 0, iteration 10/99 | lr: 1.499e-05 | global_batch_size: 64\n", "nemo"),
    ("import mindspeed_llm/training/x.py MindSpeed\n" + WORLD + ITERATION, "mindspeed"),
])
def test_a_framework_is_told_once_by_what_only_its_lines_have(text: str, framework: str | None) -> None:
    told = [row["framework"] for row in read(text + text.splitlines()[-1] + "\n").get("runs", []) if row.get("framework")]
    assert told == ([framework] if framework else [])


def test_an_attempt_begins_at_its_first_time_and_ends_at_the_last_announced() -> None:
    text = ("[after megatron is initialized] datetime: 2026-04-05 16:00:00 \n" + ITERATION
            + "[after training is done] datetime: 2026-04-05 18:00:00.250000 \n")
    times = [(row.get("started_at"), row.get("ended_at")) for row in read(text)["runs"] if row.get("started_at") or row.get("ended_at")]
    assert times == [(datetime(2026, 4, 5, 16), datetime(2026, 4, 5, 16)), (None, datetime(2026, 4, 5, 18, 0, 0, 250000))]
    (row,) = [row for row in read(ITERATION + ITERATION)["runs"] if row.get("started_at")]
    assert row["started_at"] == datetime(2026, 4, 5, 16, 8, 25)


def test_a_later_attempt_is_told_anew() -> None:
    text = WORLD + ITERATION.replace("2/", "9/")
    told = [(row["run_index"], row["framework"]) for row in read(text + text)["runs"] if row.get("framework")]
    assert told == [(0, "megatron-lm"), (1, "megatron-lm")]
