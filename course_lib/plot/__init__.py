"""Pictures, drawn from records only: steppers, bars, timelines, meshes, and the answer field."""

from course_lib.plot.attention.ring_attention import ring_attention_steps
from course_lib.plot.attention.running_softmax import running_softmax_steps
from course_lib.plot.checkpoint.checkpoint_map import checkpoint_map
from course_lib.plot.checkpoint.checkpoint_parts import StoredPart, TensorPart, WholeTensor
from course_lib.plot.collectives.before_after import before_and_after
from course_lib.plot.collectives.collectives import collective_steps
from course_lib.plot.collectives.fit import alpha_beta_chart
from course_lib.plot.collectives.lanes import timeline_lanes
from course_lib.plot.communication.by_step import bytes_by_step
from course_lib.plot.communication.low_rank import low_rank
from course_lib.plot.communication.paths import worker_paths
from course_lib.plot.communication.telescope import arrived_sums
from course_lib.plot.communication.tradeoff import bytes_and_losses
from course_lib.plot.court.cold import commit
from course_lib.plot.court.vote import vote
from course_lib.plot.data_parallel.buckets import bucket_steps
from course_lib.plot.data_parallel.losses import loss_curves
from course_lib.plot.data_parallel.scaling import scaling_chart
from course_lib.plot.expert.dispatch import dispatch_steps
from course_lib.plot.expert.loads import load_curves
from course_lib.plot.failures.machine_room import machine_room
from course_lib.plot.matrix.owner_loads import owner_loads
from course_lib.plot.matrix.singular_values import singular_value_steps
from course_lib.plot.memory.bars import byte_bars, memory_bars
from course_lib.plot.memory.memory_player import memory_player
from course_lib.plot.memory.memory_runs import memory_compared
from course_lib.plot.memory.memory_time import memory_over_time
from course_lib.plot.memory.residency import residency_steps
from course_lib.plot.mesh.axis_bytes import axis_bytes
from course_lib.plot.mesh.mesh_controls import explore_mesh
from course_lib.plot.mesh.mesh_explorer import mesh_explorer
from course_lib.plot.mesh.mesh_groups import split_bytes
from course_lib.plot.mesh.topology import mesh_axes, topology
from course_lib.plot.plan.layout_map import layout_map
from course_lib.plot.plan.plan_explorer import explore_plan, show_layout
from course_lib.plot.plan.published_runs import published_runs
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.predict import predict
from course_lib.plot.player.style import format_bytes, format_time, rank_color, text_on
from course_lib.plot.precision.block_scales import block_scales
from course_lib.plot.precision.gradient_histogram import gradient_histogram
from course_lib.plot.precision.magnitudes import magnitudes
from course_lib.plot.precision.number_lines import number_lines
from course_lib.plot.precision.roofline import roofline
from course_lib.plot.precision.seed_points import seed_points
from course_lib.plot.recompute.recompute import recompute_steps
from course_lib.plot.runs.restart import restart_curves
from course_lib.plot.schedule.measured import Measured, measured_schedule
from course_lib.plot.schedule.schedule_explorer import schedule_explorer
from course_lib.plot.schedule.schedule_grid import schedule_grid
from course_lib.plot.schedule.schedule_picture import schedule_picture, simulated_and_measured
from course_lib.plot.tensor.cut_chain import Link as CutLink
from course_lib.plot.tensor.cut_chain import cut_chain_steps
from course_lib.plot.tensor.head_cut import head_cut_steps
from course_lib.plot.tensor.tensor_split import tensor_split_steps
from course_lib.plot.traces.flight_steps import flight_steps
from course_lib.plot.traces.run_difference import run_difference
from course_lib.plot.traces.trace_steps import trace_steps

__all__ = [
    "CutLink",
    "Frame",
    "Measured",
    "Picture",
    "Player",
    "StoredPart",
    "TensorPart",
    "WholeTensor",
    "alpha_beta_chart",
    "arrived_sums",
    "axis_bytes",
    "before_and_after",
    "block_scales",
    "bucket_steps",
    "byte_bars",
    "bytes_and_losses",
    "bytes_by_step",
    "checkpoint_map",
    "collective_steps",
    "commit",
    "cut_chain_steps",
    "dispatch_steps",
    "explore_mesh",
    "explore_plan",
    "flight_steps",
    "format_bytes",
    "format_time",
    "gradient_histogram",
    "head_cut_steps",
    "layout_map",
    "load_curves",
    "loss_curves",
    "low_rank",
    "machine_room",
    "magnitudes",
    "measured_schedule",
    "memory_bars",
    "memory_compared",
    "memory_over_time",
    "memory_player",
    "mesh_axes",
    "mesh_explorer",
    "number_lines",
    "owner_loads",
    "predict",
    "published_runs",
    "rank_color",
    "recompute_steps",
    "residency_steps",
    "restart_curves",
    "ring_attention_steps",
    "roofline",
    "run_difference",
    "running_softmax_steps",
    "scaling_chart",
    "schedule_explorer",
    "schedule_grid",
    "schedule_picture",
    "seed_points",
    "show_layout",
    "simulated_and_measured",
    "singular_value_steps",
    "split_bytes",
    "tensor_split_steps",
    "text_on",
    "timeline_lanes",
    "topology",
    "trace_steps",
    "vote",
    "worker_paths",
]
