"""Local engine: builds one part after the other in this process. Several threads encode the samples of a part."""

from collections.abc import Iterator

from packer.conversion.build_part import WrittenPart, finish_part
from packer.conversion.engines import base
from packer.conversion.engines.base import EngineOptions
from packer.conversion.pack_build import ConversionRun
from packer.errors import InvalidRequest
from packer.system.parallel import ordered_map


class Engine(base.Engine):
    """Engine that builds parts in this process. A part is hashed and synced while the next part is written."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        if options.address is not None or options.worker_scratch is not None:
            given = "--worker-scratch" if options.address is None else "--ray-address"
            raise InvalidRequest(f"{given} is for an engine of several machines, such as --engine ray; leave it out")

    def build(self, run: ConversionRun, numbers: Iterator[int]) -> None:
        spec = run.spec

        def written() -> Iterator[WrittenPart]:
            yield from map(run.write_part, numbers)

        def finish(part: WrittenPart) -> None:
            if not run.spec.only_reads:
                run.publication.finish(finish_part(spec, part))

        for _ in ordered_map(finish, written(), threads=2, window=2):
            pass
