"""Callbacks for training frameworks: one line instead of calls in the training loop.

    Trainer(callbacks=[LightningCallback()])             # ray_sentinel.frameworks.lightning
    Trainer(callbacks=[TransformersCallback()])          # ray_sentinel.frameworks.transformers
    RunConfig(callbacks=[RayTrainCallback()])            # ray_sentinel.frameworks.ray_train

Each module imports its framework; nothing else here does.
"""
