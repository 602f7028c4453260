"""packer doctor: problems of this machine for packer, and how to fix them."""

import click

from packer.cli._shared_options import Group, examples, print_json
from packer.errors import InvalidRequest
from packer.files.terminal_output import echo

PLACE = (Group.CHECK_AND_REPAIR, 2)


@click.command(short_help="Check this machine, and print a fix for each problem.", epilog=examples("packer doctor"))
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(*, as_json: bool) -> None:
    """Check versions, JPEG decoder, cores, memory and limits. Print one line per problem with its fix.

    The exit code is 2 if there are problems.
    """
    from packer.system.machine_limits import Machine  # keeps `packer --help` light
    from packer.tools.doctor import findings

    found = []
    for finding in findings(Machine()):
        found.append(finding)
        if not as_json:
            echo(f"{finding.name:<15} {finding.found}")
    problems = [finding for finding in found if finding.problem]
    if as_json:
        print_json({"ok": not problems, "findings": [vars(finding) for finding in found]})
    else:
        for finding in problems:
            echo(f"{finding.name}: {'; '.join(filter(None, (finding.problem, finding.fix)))}", err=True)
    if problems:
        raise InvalidRequest(f"problems found: {len(problems)}")
    if not as_json:
        echo("ok")
