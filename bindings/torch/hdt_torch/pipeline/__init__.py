"""hdt_torch.pipeline: training of a user's own modules as replicas that are each cut into their own pipeline
stages, by HDT's training engine. docs/pytorch.md is the manual.

    trainer = pipeline.Trainer(build, loss, data, optimizer, num_layers=8,
                               hetero_pipeline_stages=[[2, 5, 3], [1, 8]], ...)
    for _ in range(1000):
        print(trainer.step().loss)
"""

from hdt_torch.pipeline._trainer import Step, Trainer

__all__ = ["Step", "Trainer"]
