/**
 * Help texts, made from the same data that the parser reads.
 */
import type { Command } from './command-shape.ts'

/** One line of an overview. */
export interface Entry {
  readonly name: string
  readonly summary: string
}

const WIDTH = 100

/** Every command whose name begins with `group`, or all of them. */
export function overview(entries: readonly Entry[], group = ''): string {
  const shown = entries.filter((entry) => group === '' || entry.name.startsWith(`${group} `))
  const width = Math.max(...shown.map((entry) => entry.name.length))
  const lines = shown.map((entry) => `    ${entry.name.padEnd(width)}  ${entry.summary}`)
  const head =
    group === '' ? 'Usage: outpost COMMAND [options] [arguments]' : `Usage: outpost ${group} COMMAND [options]`
  const word = group === '' ? 'COMMAND' : `${group} COMMAND`
  const foot =
    group === ''
      ? [
          'Environment:',
          '    OUTPOST_ADDR      the agent to talk to, default http://127.0.0.1:4646. Where it is not set,',
          '                      commands about hosts take NOMAD_ADDR, else VAULT_ADDR; commands about secrets',
          '                      VAULT_ADDR, else NOMAD_ADDR',
          '    OUTPOST_TOKEN     the token for OUTPOST_ADDR, else what "login" keeps; NOMAD_TOKEN goes to',
          '                      NOMAD_ADDR only, VAULT_TOKEN to VAULT_ADDR only',
          '    OUTPOST_FORMAT    table, json or yaml, for the commands about secrets; else VAULT_FORMAT',
          "    OUTPOST_CACERT    PEM file of the authorities to trust with https instead of the system's",
          '    OUTPOST_CLIENT_CERT, OUTPOST_CLIENT_KEY',
          '                      PEM files of the certificate to show where an agent asks for one',
          '    OUTPOST_DATA_DIR  where allocations live on this host, default /var/lib/outpost; not read by "alloc',
          '                      list" and "alloc status" where an address is set',
          '',
          'Exit codes: 0 done, 1 the request failed, 2 the command line is wrong.',
        ]
      : []
  const more = `"outpost ${word} -help" tells the options of a command.`
  return `${[head, '', 'Commands:', ...lines, '', ...foot, more].join('\n')}\n`
}

/** Usage, summary, details and options of one command. */
export function commandHelp(command: Command): string {
  const options = Object.entries(command.options)
  const usage = ['outpost', command.name, options.length > 0 ? '[options]' : '', command.operands.shown]
  const parts = [`Usage: ${usage.filter(Boolean).join(' ')}`, '', `  ${command.summary}`]
  if (command.details !== undefined) parts.push('', ...indent(command.details, '  '))
  if (options.length > 0) parts.push('', 'Options:')
  for (const [name, option] of options) {
    const value = option.placeholder === undefined ? '' : ` ${option.placeholder}`
    const fallback = option.shownDefault === undefined ? '' : ` Default: ${option.shownDefault}.`
    parts.push(
      '',
      `  -${name}${value}`,
      ...wrap(`${option.help}.${fallback}`, WIDTH - 6).map((line) => `      ${line}`),
    )
  }
  return `${parts.join('\n')}\n`
}

function indent(block: string, by: string): string[] {
  return block.split('\n').map((line) => (line === '' ? '' : by + line))
}

function wrap(sentence: string, width: number): string[] {
  const lines = ['']
  for (const word of sentence.split(' ')) {
    const last = lines.at(-1) ?? ''
    if (last === '') lines[lines.length - 1] = word
    else if (last.length + 1 + word.length <= width) lines[lines.length - 1] = `${last} ${word}`
    else lines.push(word)
  }
  return lines
}
