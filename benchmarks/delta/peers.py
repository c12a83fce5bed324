"""Codes for updates of weights that other projects use, written from their published descriptions,
and three packages.

A code turns the old and the new bits of a tensor, two flat arrays of unsigned integers, into bytes,
and applies these bytes to an array that holds the old bits. No bytes mean no change. Names and
shapes of tensors are not counted. `whole_model` codes get the tensors of a model in one array, so
that they have no overhead for each. All codes use numpy; zstd, bz2, xxh3, pcodec, zipnn and arc_v3
are the C, C++ or Rust libraries of their packages.
"""

import bz2

import numpy
import xxhash
import zstandard


def changes(old, new):
    """The increasing positions of changed elements."""
    each = 8 // old.itemsize
    whole = len(old) // each * each
    differ = old[:whole].view(numpy.uint64) != new[:whole].view(numpy.uint64)
    words = numpy.flatnonzero(differ)
    if len(words) * 4 > len(differ):
        return numpy.flatnonzero(old != new)
    places = (words[:, None] * each + numpy.arange(each)).ravel()
    places = places[old[places] != new[places]]
    return numpy.concatenate([places, whole + numpy.flatnonzero(old[whole:] != new[whole:])])


def signed(array):
    return array.view(f"i{array.itemsize}")


def zigzag(old, new):
    """Differences of bit patterns, the small ones of both signs first."""
    difference = signed(new - old)
    return ((difference << 1) ^ (difference >> (8 * old.itemsize - 1))).view(old.dtype)


def add_zigzag(base, places, coded):
    base[places] += (coded >> 1) ^ -(coded & 1)


def planes(array):
    """The bytes of all elements, lowest bytes first."""
    return numpy.ascontiguousarray(array.view(numpy.uint8).reshape(-1, array.itemsize).T).tobytes()


def from_planes(data, kind):
    size = numpy.dtype(kind).itemsize
    bytes_ = numpy.frombuffer(data, numpy.uint8).reshape(size, -1)
    return numpy.ascontiguousarray(bytes_.T).view(kind).ravel()


def joined(*parts):
    """Byte strings in one, each with its length."""
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def split(data):
    parts, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        parts.append(memoryview(data)[at + 4 : at + 4 + length])
        at += 4 + length
    return parts


class Zstd:
    def __init__(self, level):
        self.writer, self.reader = zstandard.ZstdCompressor(level), zstandard.ZstdDecompressor()

    def compress(self, data):
        return self.writer.compress(data)

    def decompress(self, data):
        return self.reader.decompress(data)


class Bz2:
    compress, decompress = staticmethod(bz2.compress), staticmethod(bz2.decompress)


class Code:
    whole_model = False


class Coo(Code):
    """Positions as int32, and the new values: verl, vLLM's sparse updates, TRL, prime-rl."""

    def encode(self, old, new):
        places = changes(old, new)
        if not len(places):
            return b""
        return joined(places.astype(numpy.int32).tobytes(), new[places].tobytes())

    def apply(self, base, data):
        places, values = split(data)
        base[numpy.frombuffer(places, numpy.int32)] = numpy.frombuffer(values, base.dtype)


def short_gaps(places):
    """Distances less one, as 16 bits; 65535 skips that many places and stands for no change."""
    gaps = numpy.diff(places, prepend=-1) - 1
    skips = gaps // 65535
    if skips.any():
        gaps %= 65535
        coded = numpy.full(len(gaps) + skips.sum(), 65535, numpy.uint16)
        coded[numpy.arange(len(gaps)) + numpy.cumsum(skips)] = gaps
        return coded
    return gaps.astype(numpy.uint16)


def from_short_gaps(coded):
    steps = coded.astype(numpy.int64)
    kept = coded != 65535
    return numpy.cumsum(steps + kept)[kept] - 1


class Gaps(Code):
    """16-bit gaps and the new values, under zstd −1: NeMo-RL, earlier slime."""

    def __init__(self):
        self.zstd = Zstd(1)

    def encode(self, old, new):
        places = changes(old, new)
        if not len(places):
            return b""
        return joined(self.zstd.compress(short_gaps(places).tobytes()), self.zstd.compress(new[places].tobytes()))

    def apply(self, base, data):
        gaps, values = (self.zstd.decompress(part) for part in split(data))
        base[from_short_gaps(numpy.frombuffer(gaps, numpy.uint16))] = numpy.frombuffer(values, base.dtype)


class Xor(Code):
    """The XOR of the whole tensor under zstd, with xxh3 of the new tensor: slime, miles, SGLang,
    SkyRL."""

    def __init__(self, level):
        self.zstd = Zstd(level)

    def encode(self, old, new):
        return xxhash.xxh3_64_digest(new.data) + self.zstd.compress((old ^ new).data)

    def apply(self, base, data):
        base ^= numpy.frombuffer(self.zstd.decompress(memoryview(data)[8:]), base.dtype)
        if xxhash.xxh3_64_digest(base.data) != bytes(data[:8]):
            raise ValueError("the result has another hash")


class ShuffledXor(Code):
    """The XOR of the whole tensor, its bytes sorted by significance, under zstd −1."""

    def __init__(self):
        self.zstd = Zstd(1)

    def encode(self, old, new):
        return self.zstd.compress(planes(old ^ new))

    def apply(self, base, data):
        base ^= from_planes(self.zstd.decompress(data), base.dtype)


class ZigzagGaps(Code):
    """16-bit gaps and zigzag differences, each as byte planes under a compressor, as in arc_v3."""

    whole_model = True

    def __init__(self, compressor):
        self.compressor = compressor

    def encode(self, old, new):
        places = changes(old, new)
        if not len(places):
            return b""
        parts = short_gaps(places), zigzag(old[places], new[places])
        return joined(*(self.compressor.compress(planes(part)) for part in parts))

    def apply(self, base, data):
        gaps, differences = (self.compressor.decompress(bytes(part)) for part in split(data))
        add_zigzag(base, from_short_gaps(from_planes(gaps, numpy.uint16)), from_planes(differences, base.dtype))


class Pcodec(Code):
    """pcodec of the gaps and of the zigzag differences, at its default level."""

    whole_model = True

    def __init__(self):
        from pcodec import ChunkConfig, standalone

        self.standalone, self.config = standalone, ChunkConfig()

    def encode(self, old, new):
        places = changes(old, new)
        if not len(places):
            return b""
        gaps = numpy.diff(places, prepend=-1).astype(numpy.uint32)
        # pcodec takes 16 bits or more.
        differences = zigzag(old[places], new[places]).astype(f"u{max(2, old.itemsize)}")
        return joined(*(self.standalone.simple_compress(part, self.config) for part in (gaps, differences)))

    def apply(self, base, data):
        gaps, differences = (self.standalone.simple_decompress(bytes(part)) for part in split(data))
        add_zigzag(base, numpy.cumsum(gaps, dtype=numpy.int64) - 1, differences.astype(base.dtype))


ZIPNN_TYPES = {1: "float8_e4m3fn", 2: "bfloat16", 4: "float32"}


def zipnn_codec(itemsize, **options):
    from zipnn import ZipNN

    return ZipNN(input_format="byte", bytearray_dtype=ZIPNN_TYPES[itemsize], threads=1, **options)


class ZipnnDelta(Code):
    """zipnn with its option for deltas, which compresses the XOR."""

    def encode(self, old, new):
        codec = zipnn_codec(old.itemsize, delta_compressed_type="byte")
        return bytes(codec.compress(new.tobytes(), delta_second_data=old.tobytes()))

    def apply(self, base, data):
        codec = zipnn_codec(base.itemsize, delta_compressed_type="byte")
        base[:] = numpy.frombuffer(codec.decompress(data, delta_second_data=base.tobytes()), base.dtype)


class Arc(Code):
    """Fireworks' own arc_v3, of the package fireworks-delta-compression, with its checksum."""

    whole_model = True

    def __init__(self):
        import fireworks_delta_compression
        import torch

        self.module, self.torch = fireworks_delta_compression, torch

    def tensor(self, array):
        if array.itemsize == 1:
            return self.torch.from_numpy(array).view(self.torch.float8_e4m3fn)
        tensor = self.torch.from_numpy(signed(array))
        return tensor.view({2: self.torch.bfloat16, 4: self.torch.float32}[array.itemsize])

    def encode(self, old, new):
        coded, checksum = self.module.delta_compress(
            src=self.tensor(old), dst=self.tensor(new), compression_format="arc_v3"
        )
        return joined(coded.numpy().tobytes(), str(checksum).encode())

    def apply(self, base, data):
        coded, checksum = split(data)
        coded = self.torch.frombuffer(bytearray(coded), dtype=self.torch.uint8)
        new = self.module.delta_decompress(
            src=self.tensor(base), compressed_diff=coded, checksum=bytes(checksum).decode(), compression_format="arc_v3"
        )
        base[:] = new.view(self.torch.uint8).numpy().view(base.dtype)


class DenseZstd(Code):
    """The new tensor alone under zstd −1."""

    def __init__(self):
        self.zstd = Zstd(1)

    def encode(self, old, new):
        return self.zstd.compress(new.data)

    def apply(self, base, data):
        base[:] = numpy.frombuffer(self.zstd.decompress(data), base.dtype)


class DenseZipnn(Code):
    """The new tensor alone by zipnn."""

    def encode(self, old, new):
        return bytes(zipnn_codec(new.itemsize).compress(new.tobytes()))

    def apply(self, base, data):
        base[:] = numpy.frombuffer(zipnn_codec(base.itemsize).decompress(data), base.dtype)


class DensePcodec(Code):
    """The new tensor alone by pcodec, as unsigned integers."""

    def __init__(self):
        from pcodec import ChunkConfig, standalone

        self.standalone, self.config = standalone, ChunkConfig(enable_8_bit=True)

    def encode(self, old, new):
        return self.standalone.simple_compress(new, self.config)

    def apply(self, base, data):
        self.standalone.simple_decompress_into(data, base)


PEERS = {
    "COO int32": Coo,
    "16-bit gaps + zstd −1": Gaps,
    "XOR + zstd −1, xxh3": lambda: Xor(1),
    "XOR + zstd −3, xxh3": lambda: Xor(3),
    "XOR + shuffle + zstd −1": ShuffledXor,
    "gaps, zigzag + zstd −3": lambda: ZigzagGaps(Zstd(3)),
    "gaps, zigzag + bz2": lambda: ZigzagGaps(Bz2),
    "arc_v3": Arc,
    "pcodec": Pcodec,
    "zipnn delta": ZipnnDelta,
}
DENSE = {"dense zstd −1": DenseZstd, "dense zipnn": DenseZipnn, "dense pcodec": DensePcodec}
