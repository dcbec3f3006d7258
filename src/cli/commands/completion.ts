/** `outpost completion`. */
import { bashCompletion, fishCompletion, zshCompletion } from '../completion/shell-scripts.ts'
import { completionTree } from '../completion/completion-tree.ts'
import { defineCommand } from '../framework/define-command.ts'
import { didYouMean, UsageError } from '../framework/options.ts'

const SHELLS = new Map([
  ['bash', bashCompletion],
  ['zsh', zshCompletion],
  ['fish', fishCompletion],
])

export const command = defineCommand({
  name: 'completion',
  summary: 'Print a shell completion script',
  details: [
    'The script completes commands, options and their values. To load it in the current shell:',
    '',
    '  bash   source <(outpost completion bash)',
    '  zsh    source <(outpost completion zsh)',
    '  fish   outpost completion fish | source',
    '',
    'To load it in every shell, write it to:',
    '',
    '  bash   /etc/bash_completion.d/outpost',
    '  zsh    _outpost in a directory of fpath',
    '  fish   ~/.config/fish/completions/outpost.fish',
  ].join('\n'),
  options: {},
  operands: {
    shown: 'bash|zsh|fish',
    min: 1,
    max: 1,
    choices: [...SHELLS.keys()],
  },
  async run(_values, [shell = ''], io, services) {
    const script = SHELLS.get(shell)
    if (!script) throw new UsageError(`unknown shell ${JSON.stringify(shell)}${didYouMean(shell, [...SHELLS.keys()])}`)
    io.out(script(completionTree((await services.commands?.()) ?? [])))
    return 0
  },
})
