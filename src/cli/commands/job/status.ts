/** `outpost job status`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-access.ts'
import { fieldsOf } from '../../output/answer.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { ageOf, allocationsTable } from '../../client/fleet-view.ts'
import { requestJson } from '../../client/http-client.ts'
import { findJob } from '../../client/id-prefix.ts'
import { listRecords } from '../../client/list-pages.ts'
import { flag } from '../../framework/options.ts'
import { shownName } from '../../framework/shown.ts'
import { formatPairs } from '../../output/table.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'
import { groupsTable, jobOperand, namespaceOption } from './job-allocations.ts'

export const command = defineCommand({
  name: 'job status',
  summary: 'Show a job and its allocations on all hosts',
  options: { namespace: namespaceOption, verbose: flag('Print full IDs'), json: jsonOption, ...agentOptions },
  operands: jobOperand,
  async run(values, [given = ''], io) {
    const target = agentOf(values, io)
    const job = await findJob(target, { given, namespace: values.namespace }, io)
    const path = `/v1/job/${encodeURIComponent(job.text('ID'))}`
    const query = { namespace: job.text('Namespace') }
    if (values.json) {
      printJson(await requestJson(target, { path, query }), io)
      return 0
    }
    const allocations = (await listRecords(target, `${path}/allocations`, query)).map(fieldsOf)
    const head = formatPairs([
      ['ID', shownName(job.text('ID'))],
      ['Namespace', shownName(job.text('Namespace'))],
      ['Status', shownName(job.text('Status'))],
      ['Created', ageOf(job.number('SubmitTime'))],
    ])
    const text = [head, groupsTable(job), allocationsTable(allocations, values.verbose)].join('\n')
    io.out(fitted(text, terminalOf(1, io.env, values['no-color'])))
    return 0
  },
})
