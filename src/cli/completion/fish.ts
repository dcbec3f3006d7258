/** The completion script for fish. */
import { type CompletedOption, listed, type Place } from './tree.ts'

/** To be loaded in the shell, or stored as `outpost.fish` in its directory of completions. */
export function fishCompletion(places: readonly Place[]): string {
  const known = places.filter(({ words }) => words !== '').map(({ words }) => word(words))
  return `# Completion of outpost for fish. Load it with: outpost completion fish | source
function __outpost_place
    set -l place ''
    set -l line (commandline -opc)
    for next in $line[2..-1]
        set -l longer (string trim -- "$place $next")
        contains -- "$longer" ${known.join(' ')}; or break
        set place "$longer"
    end
    test "$place" = "$argv[1]"
end
complete -c outpost -f
${places.map(lines).join('')}`
}

function lines({ words, next, options, operand }: Place): string {
  const here = `complete -c outpost -n ${word(`__outpost_place ${word(words)}`)}`
  const following = next.map((one) => `${here} -a ${word(one.word)} -d ${word(one.help)}\n`)
  const operands =
    operand === 'nothing' ? [] : [operand === 'files' ? `${here} -F\n` : `${here} -a ${word(listed(operand))}\n`]
  return [...following, ...operands, ...options.map((option) => `${here} ${optionWords(option)}\n`)].join('')
}

function optionWords({ name, help, value }: CompletedOption): string {
  const flag = name.length === 1 ? `-s ${name}` : `-o ${name}`
  const takes = value === undefined ? '' : value === 'files' ? ' -r -F' : ' -x'
  const choices = typeof value === 'object' ? ` -a ${word(listed(value))}` : ''
  return `${flag}${takes}${choices} -d ${word(help)}`
}

/** A text as one word of fish, where a backslash and a quote are escaped inside single quotes. */
function word(text: string): string {
  return `'${text.replaceAll(/[\\']/g, String.raw`\$&`)}'`
}
