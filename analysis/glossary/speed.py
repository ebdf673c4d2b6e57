"""Terms of speed where it meets memory, and symptoms that memory switches are blamed for and that are precision's."""

from __future__ import annotations

from analysis.glossary.model import Term

SPEED = (
    Term("roofline",
         "A kernel runs at most at the smaller of peak FLOPs and bandwidth times its FLOPs a byte. Below the ridge it is bound by memory "
         "traffic: fusing it helps, more FLOPs do not hurt."),
    Term("arithmetic intensity",
         "FLOPs a byte moved. Larger micro-batches raise that of a GEMM; element-wise operators stay below the ridge at any size."),
    Term("CTA criterion for fusion",
         "Two operators fuse into one kernel where the thread block (CTA) that makes a tile has all that the next operator needs of it; a "
         "reduction over other blocks' tiles needs a pass through device memory, and the intermediate is stored after all."),
    Term("critical path", "What the step cannot end before. A byte moved off it costs no time; a saving on it may cost less than it frees."),
    Term("offload",
         "State or activations moved to host memory between uses: bytes over the link each step, unless hidden under computation.",
         "methods/plan.md"),
    Term("gradient accumulation",
         "Several micro-batches before one optimizer step: a larger global batch at the same activations in flight, where m >= p.",
         "methods/expected.md"),
)

PRECISION = (
    Term("swamping",
         "An update much smaller than the value it is added to is lost in rounding: the loss lies flat without an error. Seen with bf16 or fp8 "
         "state that is accumulated over steps."),
    Term("overflow, loss scale",
         "fp16 gradients beyond 65,504 become infinite: the step is skipped and the loss scale halved. Skipped first steps also put off the "
         "optimizer's moments, and with them the true peak.", "methods/headroom.md"),
    Term("underflow",
         "Values too small for the format become 0: gradients of rare tokens first. The loss scale of fp16 is there against it; bf16 has "
         "fp32's range."),
    Term("low-precision recipe",
         "How fp8 or fp4 scales its values: one scale from earlier steps (delayed), from this tensor, or a block. Spikes of the loss after a "
         "change of recipe are its own; memory changes by the copies it keeps.", "methods/expected.md"),
    Term("grad-norm spike",
         "A jump of the gradient norm: data, learning rate or an fp8 recipe, rarely the allocator. It shows beside memory switches because "
         "they are changed together."),
    Term("router collapse",
         "Most tokens go to few experts: the load-balancing loss rises and one rank's memory with it. The cause is in the routing; the symptom "
         "is a rank near its limit.", "methods/expert_load.md"),
    Term("non-determinism of atomics",
         "Sums in changing order differ in their last bits from run to run: losses that drift apart slowly are no proof that a memory switch "
         "changed the mathematics."),
)
