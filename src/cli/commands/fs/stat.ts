/** `outpost fs stat`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-access.ts'
import { allocationId, allocOptions } from '../../client/alloc-argument.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { fileCells, fileFacts } from '../../client/file-facts.ts'
import { requestJson } from '../../client/http-client.ts'
import { flag } from '../../framework/options.ts'
import { formatPairs } from '../../output/table.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

export const command = defineCommand({
  name: 'fs stat',
  summary: 'Show what is known of one file of an allocation',
  details: 'Symbolic links are followed as far as they stay inside the allocation directory.',
  options: { H: flag('Size in KiB, MiB and so on'), json: jsonOption, ...allocOptions, ...agentOptions },
  operands: { shown: 'ALLOC PATH', min: 2, max: 2, missing: 'which file? give the allocation and a path in it' },
  async run(values, [given = '', path = ''], io) {
    const target = agentOf(values, io)
    const id = await allocationId(given, values, target, io)
    const answer = await requestJson(target, { path: `/v1/client/fs/stat/${id}`, query: { path } })
    if (values.json) {
      printJson(answer, io)
      return 0
    }
    const facts = fileFacts(answer)
    const [mode = '', size = '', modified = '', name = ''] = fileCells(facts, values.H)
    const pairs: [string, string][] = [
      ['Name', name],
      ['Mode', mode],
      ['Size', size],
      ['Modified', modified],
      ['Content Type', facts.contentType],
    ]
    io.out(fitted(formatPairs(pairs), terminalOf(1, io.env)))
    return 0
  },
})
