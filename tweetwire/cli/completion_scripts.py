"""``completion``: the scripts that make Tab complete ``tweetwire`` in a shell.

The scripts contain no commands and flags: they ask ``tweetwire __complete WORDS``. So they stay the same when a command is
added, and topics and subscriptions complete, too.
"""

from typing import Annotated, Final

from tweetwire.cli.flags import Command, argument
from tweetwire.cli.kinds import choice

__all__ = ["CompletionScript"]

_BASH: Final = """\
_tweetwire() {
    local IFS=$'\\n'
    COMPREPLY=($(tweetwire __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _tweetwire tweetwire
"""
_ZSH: Final = """\
#compdef tweetwire
_tweetwire() {
    local -a found
    found=(${(f)"$(tweetwire __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then
        compadd -- $found
    else
        _files
    fi
}
if [[ $funcstack[1] == _tweetwire ]]; then
    _tweetwire "$@"
else
    compdef _tweetwire tweetwire
fi
"""
_FISH: Final = """\
function __tweetwire_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (tweetwire __complete $words[2..] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c tweetwire -f -a '(__tweetwire_complete)'
"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class CompletionScript(Command, kw_only=True):
    """Print the script that makes Tab complete commands, flags, topics and subscriptions in a shell.

    Put it where the shell reads it at its start:

    bash: tweetwire completion bash > ~/.local/share/bash-completion/completions/tweetwire

    zsh: tweetwire completion zsh > "${fpath[1]}/_tweetwire"

    fish: tweetwire completion fish > ~/.config/fish/completions/tweetwire.fish
    """

    examples = ("tweetwire completion bash", "tweetwire completion fish")

    shell: Annotated[str, argument(choice(*_SCRIPTS), "bash, zsh or fish")]

    def run_command(self) -> None:
        """Print the script."""
        print(_SCRIPTS[self.shell], end="")
