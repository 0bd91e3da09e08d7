"""What a program's exit code tells a script, the same for `regelate` and for the pipeline's programs."""

from __future__ import annotations

DONE, FAILED, USAGE, LATER, PARTIAL, SOMETHING_TO_DO, INTERRUPTED = 0, 1, 2, 3, 4, 10, 130
EXIT_CODES = """\
exit codes:
  0    done, also when there was nothing to do
  1    refused or failed; the same command will fail again
  2    the command line is wrong; the message names the flag
  3    try the same command again later
  4    partial: some of the work is in the table, the rest is named
  10   there is something to do: `fleet plan --exit-code`
  130  interrupted
"""
