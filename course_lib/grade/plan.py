"""The command `course plan`: the fastest layouts of a model on a cluster, or one's own judged."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def add_to(commands: Any) -> None:
    """Adds the command to those of `course`."""
    text = "the fastest layouts of a known model on a cluster, and why"
    sub = commands.add_parser("plan", help=text, description=text)
    which = sub.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", help="as llama3-70b; a wrong name lists them all")
    which.add_argument("--config", metavar="FILE", help="a config.json, ours or Hugging Face's")
    sub.add_argument("--gpus", required=True, help="how many of which, as 512xH100 or 64x8xH100")
    sub.add_argument(
        "--hardware",
        type=Path,
        metavar="FILE",
        help="a machine of your own, JSON; --gpus then names it",
    )
    sub.add_argument(
        "--layout",
        nargs="+",
        default=[],
        metavar="WORD",
        help="judge this one, as tp8 pp4 dp16 zero1",
    )
    sub.add_argument("--tokens", type=float, default=0.0, help="to train on, as 15e12")
    sub.add_argument("--price", type=float, default=0.0, help="of a GPU for an hour")
    sub.add_argument("--global-batch", type=int, required=True, help="sequences in a step")
    sub.add_argument("--seq", type=int, help="tokens in a sequence; the model's own if not said")
    sub.add_argument("--precision", default="bf16", help="of products: bf16 (default), fp8, ...")
    sub.add_argument("--json", action="store_true", help="the answer for programs")
    sub.set_defaults(do=do_plan)


def do_plan(args: argparse.Namespace) -> int:
    """Searches all layouts."""
    from course_lib.plan import Wishes, answer  # imports torch, too

    name = args.model or str(Path(args.config).with_suffix(".json"))
    wishes = Wishes(tuple(args.layout), args.hardware, args.tokens, args.price)
    found = answer(name, args.gpus, args.global_batch, args.seq, args.precision, wishes)
    print(json.dumps(found.to_dict(), indent=1) if args.json else found.text())
    return 0 if found.plan.choices else 1
