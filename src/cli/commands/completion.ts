/** `outpost completion`. */
import { bashCompletion } from '../completion/bash.ts'
import { fishCompletion } from '../completion/fish.ts'
import { placesOf } from '../completion/tree.ts'
import { zshCompletion } from '../completion/zsh.ts'
import { defineCommand } from '../framework/command-shape.ts'
import { UsageError } from '../framework/options.ts'
import { didYouMean } from '../framework/suggestion.ts'

const SHELLS = new Map([
  ['bash', bashCompletion],
  ['zsh', zshCompletion],
  ['fish', fishCompletion],
])

export const command = defineCommand({
  name: 'completion',
  summary: 'Print the completion script of a shell',
  details: [
    'Commands, options and their choices, made from what this program knows. Load it once:',
    '',
    '  bash   source <(outpost completion bash)',
    '  zsh    source <(outpost completion zsh)',
    '  fish   outpost completion fish | source',
    '',
    "or store it where the shell looks: /etc/bash_completion.d/outpost, a directory of zsh's fpath as",
    '_outpost, ~/.config/fish/completions/outpost.fish.',
  ].join('\n'),
  options: {},
  operands: {
    shown: 'bash|zsh|fish',
    min: 1,
    max: 1,
    missing: 'for which shell? give bash, zsh or fish',
    choices: [...SHELLS.keys()],
  },
  async run(_values, [shell = ''], io, parts) {
    const script = SHELLS.get(shell)
    if (!script)
      throw new UsageError(`no completion for ${JSON.stringify(shell)}${didYouMean(shell, [...SHELLS.keys()])}`)
    io.out(script(placesOf((await parts.commands?.()) ?? [])))
    return 0
  },
})
