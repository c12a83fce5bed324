"""Brings the weights of an SGLang engine up to date with a folder of deltas.

    engine = sglang.Engine(model_path="/models/base")
    follower = sglang_receiver.Follower(engine, "/models/base", "/shared/run7")
    follower.follow()  # before each batch

Written for SGLang 0.5.23.
"""

import gradwire.delta as delta


class Follower:
    """An engine, and a copy of its weights in main memory.

    `chunk` bounds the bytes of tensors that one call hands to the engine.
    """

    def __init__(self, engine, base, folder, chunk=1 << 30):
        self.engine, self.folder, self.chunk = engine, delta.Folder(folder), chunk
        self.receiver = delta.Receiver(base, threads=8)

    def follow(self):
        """Loads the versions that are new, link by link; also after a restart. Returns the version.

        An update is decoded and checked before the engine is touched. If the engine fails in the
        middle, call it again: the same tensors are loaded once more.
        """
        if self.folder.latest is None:
            return self.receiver.version
        for update in self.receiver.updates(self.folder):
            self.load(update)
            # Only now the version advances.
            update.commit()
        return self.receiver.version

    def load(self, update):
        """Loads the tensors that changed; SGLang's loader fuses and slices them for each rank."""
        self.check(self.engine.begin_weight_update())
        try:
            for tensors in chunks(update.tensors(), self.chunk):
                self.check(self.engine.update_weights_from_tensor(tensors, flush_cache=False))
        finally:
            self.check(self.engine.end_weight_update())
        # Cached keys and values are of the old weights.
        self.engine.flush_cache()

    def check(self, outcome):
        success, message = outcome
        if not success:
            raise RuntimeError(f"SGLang did not load the new weights, call follow() again: {message}")


def chunks(tensors, limit):
    """Lists of (name, tensor) with at most `limit` bytes each, or one tensor."""
    chunk, size = [], 0
    for name, tensor in tensors:
        if chunk and size + tensor.nbytes > limit:
            yield chunk
            chunk, size = [], 0
        chunk.append((name, tensor))
        size += tensor.nbytes
    if chunk:
        yield chunk
