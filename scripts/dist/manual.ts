/** Manual pages, generated from the same command table as the help: `outpost(1)`, and one page for each command. */
import {
  COMMAND_GROUPS,
  COMMAND_NAMES,
  type CommandGroup,
  loadCommand,
  loadCommands,
} from '../../src/cli/command-table.ts'
import type { Command } from '../../src/cli/framework/define-command.ts'
import { ENVIRONMENT } from '../../src/cli/framework/help.ts'
import { fileEntry, type TreeEntry } from './file-tree.ts'

const MILLISECONDS = 1000

/** All pages as `<directory>/<name>.1`. The date of the pages is that of the release. */
export async function manualPages(directory: string, version: string, releaseSeconds: number): Promise<TreeEntry[]> {
  const date = new Date(releaseSeconds * MILLISECONDS).toISOString().slice(0, 10)
  const commands = await loadCommands(COMMAND_NAMES)
  const page = (name: string, body: string) => {
    const title = `.TH ${quoted(name.toUpperCase())} 1 ${quoted(date)} ${quoted(`outpost ${version}`)} "outpost manual"\n`
    return fileEntry(`${directory}/${name}.1`, title + body)
  }
  return [
    page('outpost', await overviewPage()),
    ...commands.map((command) => page(pageName(command.name), commandPage(command))),
  ]
}

function pageName(command: string): string {
  return `outpost-${command.replaceAll(' ', '-')}`
}

async function overviewPage(): Promise<string> {
  const groups = await Promise.all(COMMAND_GROUPS.map(groupSection))
  return [
    section('NAME', 'outpost \\- host agent and secrets server\n'),
    section('SYNOPSIS', '.B outpost\n.I COMMAND\n[options] [arguments]\n'),
    section(
      'DESCRIPTION',
      text(
        'An agent serves logs, files and statistics of the allocations of its host. A server forwards requests to the agents ' +
          'of all hosts and stores secrets. This program is agent, server and command line.',
      ),
    ),
    section('COMMANDS', groups.join('')),
    section('ENVIRONMENT', literal(ENVIRONMENT.slice(1))),
    section('EXIT STATUS', text('0: success. 1: the request failed. 2: the command line is invalid.')),
    section(
      'FILES',
      '.TP\n.I /etc/outpost\nConfiguration of the agent.\n.TP\n.I /etc/outpost\\-server\nConfiguration of the server.\n',
    ),
  ].join('')
}

async function groupSection({ summary, files }: CommandGroup): Promise<string> {
  const commands = await Promise.all(files.flatMap(({ names }) => names.map(loadCommand)))
  const lines = commands
    .filter((command) => command !== undefined)
    .map((command) => `.TP\n.BR ${escaped(pageName(command.name))} (1)\n${text(command.summary)}`)
  return `.SS ${quoted(summary)}\n${lines.join('')}`
}

function commandPage(command: Command): string {
  const options = Object.entries(command.options)
  const operands = [options.length > 0 ? '[options]' : '', command.operands.shown].filter(Boolean).join(' ')
  const synopsis = `.B outpost ${escaped(command.name)}\n${operands === '' ? '' : text(operands)}`
  return [
    section('NAME', `${escaped(pageName(command.name))} \\- ${escaped(command.summary)}\n`),
    section('SYNOPSIS', synopsis),
    section('DESCRIPTION', `${text(`${command.summary}.`)}${details(command.details ?? '')}`),
    options.length === 0 ? '' : section('OPTIONS', options.map(([name, option]) => optionItem(name, option)).join('')),
    section('SEE ALSO', '.BR outpost (1)\n'),
  ].join('')
}

function optionItem(name: string, option: Command['options'][string]): string {
  const { choices, help, isRepeatable, placeholder, shownDefault } = option
  const sentences = [
    `${help}.`,
    ...(choices ? [`One of: ${choices.join(', ')}.`] : []),
    ...(isRepeatable ? ['Repeatable.'] : []),
    ...(shownDefault === undefined ? [] : [`Default: ${shownDefault}.`]),
  ]
  const value = placeholder === undefined ? '' : ` ${quoted(` ${placeholder}`)}`
  return `.TP\n.BI ${escaped(`-${name}`)}${value}\n${text(sentences.join(' '))}`
}

/** Paragraphs are filled; indented lines, such as examples, keep their form. */
function details(given: string): string {
  const parts = given.split('\n').map((line) => {
    if (line === '') return '.PP\n'
    return line.startsWith(' ') ? literal([line]) : text(line)
  })
  return given === '' ? '' : `.PP\n${parts.join('').replaceAll('.fi\n.nf\n', '')}`
}

function section(name: string, body: string): string {
  return `.SH ${quoted(name)}\n${body}`
}

function literal(lines: readonly string[]): string {
  return `.nf\n${lines.map(text).join('')}.fi\n`
}

/** A line of text: a leading dot or quote would be a request to the formatter. */
function text(line: string): string {
  return `${escaped(line).replace(/^(?=[.'])/, '\\&')}\n`
}

function escaped(given: string): string {
  return given.replaceAll('\\', '\\e').replaceAll('-', '\\-')
}

/** An argument of a request. */
function quoted(argument: string): string {
  return `"${escaped(argument).replaceAll('"', '\\(dq')}"`
}
