"""Lightning and Accelerate on two ranks: each sample once an epoch, and a checkpoint resumes each rank exactly."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import marked_packs
from tests.support.foreign_environments import said_by

COUNT = 23
STEPS = 3  # of an epoch: 12 and 11 samples in batches of 4
AT = STEPS + 2  # the step of the checkpoint, in the second of three epochs
TORCHRUN = """
import sys
from torch.distributed.run import main
main(["--standalone", "--nproc-per-node", "2", *sys.argv[1:]])
"""
COMMON = """
import json, sys
import torch
import packer
pack, folder, before, workers, at = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])

def made():
    return packer.Loader(packer.open(pack, fields=("key",)), 4, shuffle=True, num_workers=workers)

first, second = (made(), made()) if before else (None, None)
"""
LIGHTNING = """
import lightning
from lightning.pytorch.callbacks import ModelCheckpoint

class Keys(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight, self.found = torch.nn.Parameter(torch.ones(1)), []
    def training_step(self, batch, index):
        self.found.append([self.current_epoch, batch["key"]])
        return self.weight.sum()
    def train_dataloader(self):
        return made()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

class Hooks(Keys):
    # as docs/migrate/dataloader.md has it, for checkpoints at the end of an epoch
    def __init__(self, loader):
        super().__init__()
        self.loader = loader
    def train_dataloader(self):
        return self.loader
    def on_train_epoch_start(self):
        self.loader.set_epoch(self.current_epoch)
    def on_save_checkpoint(self, checkpoint):
        checkpoint["loader"] = self.loader.state_dict()
    def on_load_checkpoint(self, checkpoint):
        self.loader.load_state_dict(checkpoint["loader"])

def fitted(loader, resumed=None):
    at_end = at % 3 == 0
    model = Hooks(loader) if at_end else Keys()
    when = {"every_n_epochs": 1} if at_end else {"every_n_train_steps": at}
    saved = ModelCheckpoint(folder, "{step}", save_top_k=-1, **when)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", devices=2, strategy="ddp", callbacks=[saved], **quiet)
    trainer.fit(model, *([loader] if loader and not at_end else []), ckpt_path=resumed)
    return model.found, trainer.global_rank

whole, rank = fitted(first)
rest, _ = fitted(second, f"{folder}/step={at}.ckpt")
"""
ACCELERATE = """
from accelerate import Accelerator

def trained(loader, resumed):
    accelerator = Accelerator(cpu=True)
    loader = loader or made()
    assert accelerator.prepare(loader) is loader
    accelerator.register_for_checkpointing(loader)
    if resumed:
        accelerator.load_state(folder)
    found = []
    for epoch in range(loader.epoch, 3):
        loader.set_epoch(epoch)
        for batch in loader:
            found.append([epoch, batch["key"]])
            if len(found) == at and not resumed:
                accelerator.save_state(folder)
            accelerator.wait_for_everyone()  # hangs, where ranks disagree on the number of steps
    loader.close()
    return found, accelerator.process_index

whole, rank = trained(first, False)
rest, _ = trained(second, True)
"""
SAID = """
from pathlib import Path
Path(folder, f"{rank}.json").write_text(json.dumps([whole, rest]))
"""


CASES = {
    f"{name}, created {'before' if before else 'after'} the group, {workers} workers": (trainer, before, workers, AT)
    for name, trainer in (("Lightning", LIGHTNING), ("Accelerate", ACCELERATE))
    for before in (True, False)
    for workers in (0, 1)
}
CASES["Lightning, at the end of an epoch"] = (LIGHTNING, True, 0, STEPS)


@pytest.mark.foreign
@pytest.mark.parametrize("case", CASES)
def test_each_sample_is_on_one_rank_and_a_checkpoint_resumes_exactly(tmp_path: Path, case: str) -> None:
    trainer, before, workers, at = CASES[case]
    program, pack = tmp_path / "program.py", marked_packs.pack(tmp_path / "posed.pack", COUNT)
    program.write_text(COMMON + trainer + SAID)
    said_by("lightning", TORCHRUN, program, pack, tmp_path, int(before), workers, at)
    ranks: list[list[Any]] = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    for epoch in range(3):
        keys = [key for whole, _ in ranks for number, batch in whole if number == epoch for key in batch]
        assert sorted(keys) == [f"scene {number:04d}" for number in range(COUNT)]
    for whole, rest in ranks:
        assert len(whole) == 3 * STEPS
        assert rest == whole[at:], "the checkpoint resumes elsewhere"
