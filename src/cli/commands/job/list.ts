/** `outpost job list`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-access.ts'
import { fieldsOf } from '../../output/answer.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { ageOf } from '../../client/fleet-view.ts'
import { equals, listRecords } from '../../client/list-pages.ts'
import { choice } from '../../framework/options.ts'
import { shownName } from '../../framework/shown.ts'
import { formatTable } from '../../output/table.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'
import { namespaceOption, STATE_COLUMNS, stateCounts } from './job-allocations.ts'

export const command = defineCommand({
  name: 'job list',
  summary: 'List the jobs that allocations name',
  details: 'A job exists as long as a host has an allocation of it. The numbers are those of its allocations.',
  options: {
    namespace: namespaceOption,
    status: choice({ placeholder: 'STATUS', help: 'Only these jobs', choices: ['running', 'pending', 'dead'] }),
    json: jsonOption,
    ...agentOptions,
  },
  async run(values, _operands, io) {
    const query = { namespace: values.namespace ?? '*', filter: equals('Status', values.status) }
    const records = await listRecords(agentOf(values, io), '/v1/jobs', query)
    if (values.json) printJson(records, io)
    else if (records.length === 0) io.out('No jobs\n')
    else io.out(fitted(jobsTable(records), terminalOf(1, io.env, values['no-color'])))
    return 0
  },
})

function jobsTable(records: readonly unknown[]): string {
  const rows = records
    .map(fieldsOf)
    .map((job) => [
      shownName(job.text('ID')),
      shownName(job.text('Namespace')),
      shownName(job.text('Status')),
      ...stateCounts(job).map(String),
      ageOf(job.number('SubmitTime')),
    ])
  const sides = ['left', 'left', 'left', ...STATE_COLUMNS.map(() => 'right'), 'left'] as ('left' | 'right')[]
  return formatTable(['ID', 'Namespace', 'Status', ...STATE_COLUMNS, 'Created'], rows, sides)
}
