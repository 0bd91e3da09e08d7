"""`regelate pipeline package`: what a cluster needs, in a folder; and the demo on Spark."""

from __future__ import annotations

import argparse
from pathlib import Path

from regelate.core.jobs.exit_codes import DONE
from regelate.core.policy.sizes import size_text
from regelate.entrypoints.cli import screen
from regelate.entrypoints.cli.failures import usage
from regelate.pipeline.package import pack


def pipeline(args: argparse.Namespace) -> int:
    """Write the package and say how it is started."""
    try:
        written = pack(Path(args.output))
    except OSError as fault:
        raise usage("--output", f"cannot write to {args.output}: {fault.strerror}", "choose another folder") from None
    if args.json:
        screen.put_json({"success": True, "files": [{"path": str(p), "bytes": p.stat().st_size} for p in written]})
        return DONE
    for path in written:
        screen.say(f"{path}  {size_text(path.stat().st_size)}")
    archive, program = written[0], written[1]
    screen.say(f"\nspark-submit --py-files {archive} {program} --table CATALOG.NS.TABLE --target-size-mb 128")
    return DONE


def demo_spark(args: argparse.Namespace) -> int:
    """Run the demo on Spark."""
    from regelate.entrypoints.demo.spark import run_demo

    return run_demo(args.home, jars=args.jars, batches=args.batches, as_json=args.json)
