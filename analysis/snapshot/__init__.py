"""What a CUDA memory snapshot shows: exact levels, the peak and what was live then, streams and pools, risers, out-of-memory events.

`trace` is the shape everything here works on; `view.device_view` answers for one device. Readers of files live in `ingest`.
"""
