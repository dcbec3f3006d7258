/** Help texts, generated from the data that the parser reads. */
import type { Command } from './define-command.ts'

/** One line of a list of commands. */
export interface HelpLine {
  readonly name: string
  readonly summary: string
}

const WIDTH = 100
const MORE = '"outpost COMMAND -help" shows the options of a command.'

/** Also in the manual pages. */
export const ENVIRONMENT = [
  'Environment:',
  '    OUTPOST_ADDR      Address of the agent or server. Default: http://127.0.0.1:4646.',
  '                      Commands for hosts fall back to NOMAD_ADDR, then VAULT_ADDR; commands for',
  '                      secrets fall back to VAULT_ADDR, then NOMAD_ADDR',
  '    OUTPOST_TOKEN     Token for OUTPOST_ADDR. Default: the token that "outpost login" stored.',
  '                      NOMAD_TOKEN is sent only to NOMAD_ADDR, VAULT_TOKEN only to VAULT_ADDR',
  '    OUTPOST_FORMAT    Output format of commands for secrets: table, json or yaml.',
  '                      Default: VAULT_FORMAT, else table',
  '    OUTPOST_CACERT    PEM file of the CA certificates to trust instead of those of the system',
  '    OUTPOST_CLIENT_CERT, OUTPOST_CLIENT_KEY',
  '                      PEM files of the client certificate and its private key',
  '    OUTPOST_DATA_DIR  Data directory of this host. Default: /var/lib/outpost',
]

/** `outpost help`: the most used commands, the groups and the environment variables. */
export function overview(common: readonly HelpLine[], groups: readonly HelpLine[]): string {
  const width = widthOf([...common, ...groups])
  return textOf([
    'Usage: outpost COMMAND [options] [arguments]',
    '',
    'Common commands:',
    ...linesOf(common, width),
    '',
    'Command groups ("outpost help GROUP" lists the commands of one):',
    ...linesOf(groups, width),
    '',
    ...ENVIRONMENT,
    '',
    'Exit codes: 0 success, 1 the request failed, 2 the command line is invalid.',
    MORE,
  ])
}

/** `outpost help GROUP`. */
export function groupHelp(group: HelpLine, lines: readonly HelpLine[]): string {
  const title = `${group.name}: ${group.summary}`
  return textOf(['Usage: outpost COMMAND [options] [arguments]', '', title, ...linesOf(lines), '', MORE])
}

/** `outpost PREFIX -help`: the commands that begin with the same words. */
export function prefixHelp(prefix: string, lines: readonly HelpLine[]): string {
  return textOf([
    `Usage: outpost ${prefix} COMMAND [options] [arguments]`,
    '',
    'Commands:',
    ...linesOf(lines),
    '',
    MORE,
  ])
}

/** Usage, summary, details and options of one command. */
export function commandHelp(command: Command): string {
  const options = Object.entries(command.options)
  const usage = ['outpost', command.name, options.length > 0 ? '[options]' : '', command.operands.shown]
  const parts = [`Usage: ${usage.filter(Boolean).join(' ')}`, '', `  ${command.summary}`]
  if (command.details !== undefined) parts.push('', ...paragraphs(command.details))
  if (options.length > 0) parts.push('', 'Options:')
  for (const [name, { choices, help, isRepeatable, placeholder, shownDefault }] of options) {
    const value = placeholder === undefined ? '' : ` ${placeholder}`
    const sentence = [
      `${help}.`,
      ...(choices ? [`One of: ${choices.join(', ')}.`] : []),
      ...(isRepeatable ? ['Repeatable.'] : []),
      ...(shownDefault === undefined ? [] : [`Default: ${shownDefault}.`]),
    ].join(' ')
    parts.push('', `  -${name}${value}`, ...wrap(sentence, WIDTH - 6).map((line) => `      ${line}`))
  }
  return textOf(parts)
}

function widthOf(lines: readonly HelpLine[]): number {
  return Math.max(...lines.map(({ name }) => name.length))
}

function linesOf(lines: readonly HelpLine[], width = widthOf(lines)): string[] {
  return lines.map(({ name, summary }) => `    ${name.padEnd(width)}  ${summary}`)
}

function textOf(lines: readonly string[]): string {
  return `${lines.join('\n')}\n`
}

/** Wraps the lines of each paragraph together. Indented lines, such as examples, stay as they are. */
function paragraphs(details: string): string[] {
  const blocks = ['']
  for (const line of details.split('\n')) {
    const last = blocks.at(-1) ?? ''
    const isText = line !== '' && !line.startsWith(' ') && !line.startsWith('Example')
    if (isText && last !== '' && !last.startsWith(' ') && !last.startsWith('Example')) {
      blocks[blocks.length - 1] = `${last} ${line}`
    } else blocks.push(line)
  }
  return blocks
    .slice(1)
    .flatMap((block) => (block.startsWith(' ') || block === '' ? [block] : wrap(block, WIDTH - 2)))
    .map((line) => (line === '' ? '' : `  ${line}`))
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
