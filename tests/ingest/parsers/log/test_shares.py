from tests.ingest.parsers.log.reading import read

WARNING = "GPU Memory: Allocated: 91.25%, Reserved: 97.50%"


def test_megatron_fsdp_s_warning_is_an_event_of_its_rank_and_no_measurement():
    rows = read(f" iteration 7/ 9 | lm loss: 1.000000E+00 | number of nan iterations:   0 |\n[rank3]: {WARNING}\n[default1]:x{WARNING}{WARNING}\n")
    assert [(row["rank"], row.get("rank_label"), row["iteration"], row["line"]) for row in rows["job_events"]] == [
        (3, None, 7, 2), (None, "local 1", 7, 3), (None, "local 1", 7, 3)]
    assert {row["event"] for row in rows["job_events"]} == {"memory_nearly_full"}
    assert rows["job_events"][0]["other"] == {"allocated_percent": "91.25", "reserved_percent": "97.50"}
    assert "rank_memory" not in rows


def test_a_warning_cut_anywhere_is_no_event():
    assert [cut for cut in range(len(WARNING)) if "job_events" in read(WARNING[:cut] + "\n")] == []
