"""`triform help`"""

import click


@click.command()
@click.argument("command", required=False)
@click.pass_context
def help(ctx: click.Context, command: str | None) -> None:
    """Show the help of COMMAND, or the list of all commands.

    \b
    Examples:
      triform help
      triform help train
    """
    parent = ctx.parent or ctx
    group = parent.command
    if command is None or not isinstance(group, click.Group):
        click.echo(parent.get_help())
        return
    found = group.get_command(parent, command)
    if found is not None:
        with click.Context(found, info_name=command, parent=parent) as inner:
            click.echo(found.get_help(inner))
