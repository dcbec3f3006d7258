/** `outpost node stats`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-target.ts'
import { type JsonFields, fieldsOf } from '../../output/json.ts'
import { defineCommand } from '../../framework/define-command.ts'
import { requestJson } from '../../client/http-client.ts'
import { nodeIdOption, nodeQuery } from '../../client/id-prefix.ts'
import { formatPairs, formatTable, humanBytes, humanSeconds } from '../../output/table.ts'
import { escapeLine } from '../../framework/terminal-escapes.ts'
import { bar, type Colour, fitted, painted, type Terminal, terminalOf } from '../../output/terminal.ts'

const BAR_WIDTH = 20
/** Narrower terminals show no bars. */
const BAR_COLUMNS = 48
const BUSY_PERCENT = 60
const FULL_PERCENT = 85

export const command = defineCommand({
  name: 'node stats',
  summary: 'Show the resource usage of a node',
  details: 'Prints the latest sample. The agent samples every second while clients request statistics.',
  options: { json: jsonOption, 'node-id': nodeIdOption, ...agentOptions },
  async run(values, _operands, io) {
    const target = agentOf(values, io)
    const query = await nodeQuery(target, values, io)
    const answer = await requestJson(target, { path: '/v1/client/stats', query })
    if (values.json) printJson(answer, io)
    else io.out(statsText(fieldsOf(answer), terminalOf(1, io.env, values['no-color'])))
    return 0
  },
})

function statsText(stats: JsonFields, terminal: Terminal): string {
  const memory = stats.under('Memory')
  const share = (part: string) => (memory.number(part) / Math.max(memory.number('Total'), 1)) * 100
  const head = formatPairs([
    ['Uptime', humanSeconds(stats.number('Uptime'))],
    ['Memory', `${humanBytes(memory.number('Used'))} used of ${humanBytes(memory.number('Total'))}`],
    ['Available', humanBytes(memory.number('Available'))],
  ])
  const cores = stats
    .list('CPU')
    .map((core) => [core.text('CPU'), percent(core, 'TotalPercent'), percent(core, 'User'), percent(core, 'System')])
  const right = 'right' as const
  const sections = [
    barred(head, [undefined, share('Used')], terminal),
    barred(
      formatTable(['Core', 'Busy', 'User', 'System'], cores, ['left', right, right, right]),
      [undefined, ...stats.list('CPU').map((core) => core.number('TotalPercent'))],
      terminal,
    ),
    disksText(stats, terminal),
  ]
  return sections.join('\n')
}

function disksText(stats: JsonFields, terminal: Terminal): string {
  const disks = stats.list('DiskStats')
  const rows = disks.map((disk) => [
    escapeLine(disk.text('Mountpoint')),
    humanBytes(disk.number('Size')),
    humanBytes(disk.number('Used')),
    humanBytes(disk.number('Available')),
    percent(disk, 'UsedPercent'),
    percent(disk, 'InodesUsedPercent'),
  ])
  const right = 'right' as const
  const table = formatTable(['Mounted on', 'Size', 'Used', 'Available', 'Use', 'Inodes'], rows, [
    'left',
    right,
    right,
    right,
    right,
    right,
  ])
  return barred(table, [undefined, ...disks.map((disk) => disk.number('UsedPercent'))], terminal)
}

/** Appends a bar to lines with a percentage if the terminal is wide enough. */
function barred(block: string, percents: readonly (number | undefined)[], terminal: Terminal): string {
  const lines = block.trimEnd().split('\n')
  const width = Math.max(...lines.map((line) => line.length))
  const barWidth = Math.min(BAR_WIDTH, terminal.columns - width - 4)
  if (!terminal.colours || terminal.columns < BAR_COLUMNS || barWidth < 5) return fitted(block, terminal)
  const shown = lines.map((line, at) => {
    const value = percents[at]
    if (value === undefined) return line
    return `${line.padEnd(width)}  ${painted(bar(value / 100, barWidth), colourOf(value), terminal)}`
  })
  return `${shown.join('\n')}\n`
}

function colourOf(value: number): Colour {
  if (value >= FULL_PERCENT) return 'red'
  return value >= BUSY_PERCENT ? 'yellow' : 'green'
}

function percent(fields: JsonFields, name: string): string {
  return `${fields.number(name).toFixed(1)} %`
}
