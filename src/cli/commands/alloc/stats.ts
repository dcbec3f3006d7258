/** `outpost alloc stats`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-access.ts'
import { allocationId, allocOperand, allocOptions } from '../../client/alloc-argument.ts'
import { type Answer, fieldsOf } from '../../output/answer.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { requestJson } from '../../client/http-client.ts'
import { text } from '../../framework/options.ts'
import { humanBytes } from '../../output/quantities.ts'
import { formatTable } from '../../output/table.ts'
import { shownName } from '../../framework/shown.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

export const command = defineCommand({
  name: 'alloc stats',
  summary: 'Show what the tasks of an allocation use',
  details: 'CPU is a percentage of one core; memory is what is resident.',
  options: {
    task: text({ placeholder: 'TASK', help: 'Only this task', fallback: undefined }),
    json: jsonOption,
    ...allocOptions,
    ...agentOptions,
  },
  operands: allocOperand,
  async run(values, [given = ''], io) {
    const target = agentOf(values, io)
    const id = await allocationId(given, values, target, io)
    const query = { task: values.task }
    const answer = await requestJson(target, { path: `/v1/client/allocation/${id}/stats`, query })
    if (values.json) {
      printJson(answer, io)
      return 0
    }
    const fields = fieldsOf(answer)
    const tasks = fields.under('Tasks')
    const rows = fields
      .names('Tasks')
      .sort()
      .map((name) => usageCells(name, tasks.under(name)))
    if (rows.length === 0) {
      io.out('No task has been measured\n')
      return 0
    }
    const right = 'right' as const
    const table = formatTable(['Task', 'CPU', 'Memory', 'Swap', 'Processes'], rows, [
      'left',
      right,
      right,
      right,
      right,
    ])
    io.out(fitted(table, terminalOf(1, io.env)))
    return 0
  },
})

function usageCells(name: string, task: Answer): string[] {
  const usage = task.under('ResourceUsage')
  const cpu = usage.under('CpuStats')
  const memory = usage.under('MemoryStats')
  return [
    shownName(name),
    `${cpu.number('Percent').toFixed(1)} %`,
    humanBytes(memory.number('RSS')),
    humanBytes(memory.number('Swap')),
    String(task.names('Pids').length),
  ]
}
