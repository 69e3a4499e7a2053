"""variant: the job's state is torch.save's bytes, random numbers are hex"""

import io
import random
from typing import Any

import torch


def capture(training: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """All that the next step depends on."""
    kinds = ("model", "optimizer", "schedule", "scaler", "sampler")
    file = io.BytesIO()
    torch.save({kind: getattr(training, kind).state_dict() for kind in kinds}, file)
    written = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    version, words, gauss = random.getstate()
    own = {
        "torch": bytes(torch.get_rng_state().tolist()).hex(),
        "python": [version, list(words), gauss],
    }
    return {"file": written, "step": training.step}, own


def restore(training: Any, job: dict[str, Any], own: dict[str, Any] | None) -> None:
    """Makes a training go on where `capture` was called."""
    loaded = torch.load(io.BytesIO(bytes(job["file"].tolist())), weights_only=True)
    for kind, state in loaded.items():
        getattr(training, kind).load_state_dict(state)
    training.step = job["step"]
    if own is not None:
        raw = bytearray(bytes.fromhex(own["torch"]))
        torch.set_rng_state(torch.frombuffer(raw, dtype=torch.uint8).clone())
        version, words, gauss = own["python"]
        random.setstate((version, tuple(words), gauss))
